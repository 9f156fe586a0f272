"""The programs in client/python/examples, run by tests with less data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.repository import ROOT, package_environment
from harness.serving import server_binary

EXAMPLES = ROOT / "client/python/examples"
SECONDS_MAX = 300


def try_example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run an example with the server under test to its end."""
    command = [sys.executable, EXAMPLES / name, "--bin-dir", Path(server_binary()).parent, *arguments]
    return subprocess.run(command, env=package_environment(), capture_output=True, text=True, timeout=SECONDS_MAX)


def run_example(name: str, *arguments: str | Path) -> str:
    """Run an example, which must succeed; return what it prints."""
    ended = try_example(name, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
