"""Runs a step that imports packages, or skips it if one of them is not installed.

requires.py torch,numpy STEP ARGUMENT…
"""

from __future__ import annotations

import importlib.util
import os
import sys

from step import Skipped, run


def main() -> None:
    """Replace this process with the step."""
    names, *command = sys.argv[1:]
    missing = [name for name in names.split(",") if importlib.util.find_spec(name) is None]
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)}")
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    run(main)
