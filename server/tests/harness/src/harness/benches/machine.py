"""Facts about the machine of a run, and the folder of its results: benches/runs/<date>-<arch>-<cores>-cores/."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.repository import ROOT


def facts(program: Path) -> dict[str, Any]:
    """Return the machine, the versions and the commit."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _run("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        # Tracked files only, so that results of an earlier run do not count.
        "uncommitted_changes": bool(_run("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")),
        "arch": _arch(),
        "cores": cores(),
        "cpu": _cpu_model(),
        "memory_bytes": memory_bytes,
        "kernel": f"{platform.system()} {platform.release()}",
        "load_average": os.getloadavg(),
        "server": _run(str(program), "--version"),
        "server_program": str(program.relative_to(ROOT) if program.is_relative_to(ROOT) else program.name),
        "server_built": datetime.datetime.fromtimestamp(program.stat().st_mtime, datetime.timezone.utc).isoformat(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
    }


def cores() -> int:
    """Return the number of cores that this process and its children may use."""
    return len(os.sched_getaffinity(0))


def run_folder() -> Path:
    """Return the folder of today's runs on this machine."""
    return ROOT / "benches" / "runs" / f"{datetime.date.today()}-{_arch()}-{cores()}-cores"


def keep(path: Path, run: dict[str, Any]) -> None:
    """Write a run's raw numbers and print the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1) + "\n")
    print(f"raw numbers: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def _arch() -> str:
    return platform.machine().replace("_", "-")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
