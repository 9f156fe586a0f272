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
EXAMPLES = [name for name, _ in EXAMPLE.findall((BOOK / "frameworks.md").read_text()) if name != "frameworks"]
# The library of an example that is not named after it.
LIBRARIES = {"stateful": "torchdata", "arrow": "duckdb"}


def test_the_page_has_an_example_per_framework():
    assert len(EXAMPLES) == len(set(EXAMPLES)) == 11


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(flights_folder: Path, tmp_path: Path, name: str):
    if importlib.util.find_spec(LIBRARIES.get(name, name)) is None:
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
    }
    ended = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
