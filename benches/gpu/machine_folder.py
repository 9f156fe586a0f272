"""Prints the name of the folder of today's runs: date, architecture, cores, and the first GPU if there is one."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess


def gpu_name() -> str:
    """Return the first GPU's name; empty without nvidia-smi or a GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return listed.stdout.splitlines()[0].strip() if listed.returncode == 0 and listed.stdout.strip() else ""


def folder() -> str:
    """Return the folder's name."""
    machine = platform.machine().replace("_", "-")
    name = f"{datetime.date.today()}-{machine}-{len(os.sched_getaffinity(0))}-cores"
    gpu = re.sub(r"[^a-z0-9]+", "-", gpu_name().lower()).strip("-")
    return f"{name}-{gpu}" if gpu else name


if __name__ == "__main__":
    print(folder())
