"""The command ``python -m forebay.udf module:function … --listen unix:PATH``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .pool import Pool

PROCESSES_MAX = 1024


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m forebay.udf", description="Serve vectorized Python functions to a forebay-server."
    )
    parser.add_argument("functions", nargs="+", metavar="MODULE:FUNCTION", help="functions declared with @udf.function")
    parser.add_argument("--listen", required=True, metavar="unix:PATH", help="the Unix socket to serve on")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument(
        "--processes", type=int, default=cores, metavar="COUNT", help="processes; default: one per core"
    )
    arguments = parser.parse_args()
    path = str(arguments.listen).removeprefix("unix:")
    if path == arguments.listen or not path:
        parser.error(f"--listen {arguments.listen!r}: expected unix: and a path, such as unix:/run/functions.sock")
    if not 1 <= arguments.processes <= PROCESSES_MAX:
        parser.error(f"--processes {arguments.processes}: expected 1 to {PROCESSES_MAX}")
    return Pool(Path(path).absolute(), arguments.functions, arguments.processes).serve()


if __name__ == "__main__":
    sys.exit(main())
