"""The examples of the Python package, run as their users run them, or imported."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from harness.repository import ROOT
from harness.serving import server_binary

EXAMPLES = ROOT / "client/python/examples"
SECONDS_MAX = 1200.0


def run_example(name: str, *arguments: str | Path, seconds_max: float = SECONDS_MAX) -> str:
    """Run an example and return its output; raise AssertionError if it fails."""
    environment = {
        **os.environ,
        "FOREBAY_SERVER_BIN": server_binary(),
        "PYTHONPATH": str(ROOT / "client/python/src"),
        # The tests run next to each other.
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds_max, env=environment, cwd=EXAMPLES.parent
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def example_module(name: str) -> ModuleType:
    """Import an example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)
