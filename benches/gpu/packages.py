"""Finds the Python packages that the steps import, and installs missing ones into a virtual environment."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import venv
from pathlib import Path

from step import Failed, Skipped, emit, run

# Distribution, and the module that shows that it is installed. torch brings NVRTC.
MODULES = {"torch": "torch", "pyarrow": "pyarrow", "numpy": "numpy", "nvidia-cuda-nvrtc": "nvidia"}
INSTALL_SECONDS = 220


def missing() -> list[str]:
    """Return the distributions that cannot be imported."""
    return [name for name, module in MODULES.items() if importlib.util.find_spec(module) is None]


def requirement_lines(path: Path, names: list[str]) -> list[str]:
    """Return the pinned requirements of these distributions."""
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [line for line in lines if re.split(r"[=<>;\[ ]", line)[0] in names]


def install(folder: Path, requirements: list[str]) -> str:
    """Install into a new environment that also sees the system's packages. Return the problem, if there is one."""
    venv.create(folder, with_pip=True, system_site_packages=True, clear=not (folder / "bin/python").exists())
    command = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15"]
    try:
        done = subprocess.run([*command, *requirements], stdout=sys.stderr, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"pip took longer than {INSTALL_SECONDS} s"
    return f"pip ended with {done.returncode}; packages.log has its output" if done.returncode else ""


def main() -> None:
    """Find, install and list the packages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True)
    parser.add_argument("--install", type=Path, help="virtual environment for missing packages")
    given = parser.parse_args()
    absent = missing()
    versions = {name: importlib.metadata.version(name) for name in ("torch", "pyarrow", "numpy") if name not in absent}
    emit(python=sys.executable, versions=versions, missing=absent)
    if not absent:
        return
    named = ", ".join(absent)
    if given.install is None:
        raise Skipped(f"missing: {named}; nothing was installed because of --no-install")
    if problem := install(given.install, requirement_lines(given.requirements, absent)):
        raise Skipped(f"missing: {named}; not installed: {problem}")
    check = [f"import {MODULES[name]}" for name in absent]
    if subprocess.run([given.install / "bin/python", "-c", "; ".join(check)], check=False).returncode:
        raise Failed(f"{named} cannot be imported from {given.install} after their installation")
    emit(installed=absent, environment=str(given.install))


if __name__ == "__main__":
    run(main)
