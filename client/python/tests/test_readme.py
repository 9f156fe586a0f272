"""The README's Python code runs as written, from a folder with the data that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.repository import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
README = ROOT / "client/python/README.md"


def test_every_python_block_runs_in_order(
    flights_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/flights").symlink_to(flights_folder, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(README.read_text())
    assert len(blocks) == README.read_text().count("```python") == 4
    names: dict[str, Any] = {}
    for number, code in enumerate(blocks):
        exec(compile(code, f"README, block {number}", "exec"), names)
    printed = capsys.readouterr().out
    assert "standardize" in printed
    assert "row_group" in printed
    assert "rows in" in printed
    assert names["data"].epoch == 3
    assert names["fitted"].vocab("cats", "carrier")[1] == "UA"
    assert list(names["sizes"])[1] == 4
    # numeric() but year, arr_time and arr_delay; the two delays.
    assert {name: tuple(value.shape)[1:] for name, value in names["batch"].items()} == {
        "numbers": (11,),
        "delays": (2,),
        "origin": (),
    }
