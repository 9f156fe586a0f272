"""The examples of the book's page on frameworks run as written, each in a separate process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from harness.documents import BOOK, EXAMPLE, example
from harness.repository import package_environment
from harness.serving import server_binary

SECONDS_MAX = 400.0
EXAMPLES = [name for name, _ in EXAMPLE.findall((BOOK / "guides/frameworks.md").read_text()) if name != "frameworks"]
# The library of an example that is not named after it.
LIBRARIES = {
    "stateful": "torchdata",
    "arrow": "duckdb",
    "ray-train": "ray",
    "pyg": "torch_geometric",
    "dali": "nvidia.dali",
}


def is_installed(library: str) -> bool:
    """Whether a package, or a part of a namespace, is installed."""
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        return False


def test_the_page_has_an_example_per_framework():
    assert len(EXAMPLES) == len(set(EXAMPLES)) == 15


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(flights_folder: Path, tmp_path: Path, name: str):
    if not is_installed(LIBRARIES.get(name, name)):
        pytest.skip(f"make test-frameworks installs {name}")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/flights").symlink_to(flights_folder)
    # Workers that are spawned import the program again.
    program = tmp_path / "program.py"
    program.write_text(example("frameworks") + "\n" + example(name))
    environment = {
        **package_environment(),
        "FOREBAY_SERVER_BIN": server_binary(),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        # Ray sends no reports, writes no token to the home directory, and is not slower than other tests.
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",
    }
    ended = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
