"""The programs in client/python/examples, run by tests with less data, or imported."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from harness.repository import ROOT, package_environment
from harness.serving import server_binary

EXAMPLES = ROOT / "client/python/examples"
SECONDS_MAX = 1200


def run_example(name: str, *arguments: str | Path) -> str:
    """Run an example with the server under test; it must succeed. Return what it prints."""
    program = EXAMPLES / name
    # Most examples start their server with `forebay.local`, which reads the environment.
    server = ["--bin-dir", Path(server_binary()).parent] if '"--bin-dir"' in program.read_text() else []
    environment = {
        **package_environment(),
        "FOREBAY_SERVER_BIN": server_binary(),
        # The tests run next to each other.
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, program, *server, *arguments]
    ended = subprocess.run(
        command, env=environment, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def example_module(name: str) -> ModuleType:
    """Import an example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)
