"""FAULTS.md names existing tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from harness.repository import ROOT

TESTS = ROOT / "server/tests"
LIST = TESTS / "FAULTS.md"
ROWS_LEAST = 70


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def rust_functions(file: Path) -> set[str]:
    return set(re.findall(r"\bfn (\w+)", file.read_text()))


def rows() -> list[str]:
    lines = [line for line in LIST.read_text().splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.startswith("| fault |")]


def test_every_row_names_an_existing_test():
    assert len(rows()) >= ROWS_LEAST
    for row in rows():
        *_, tests, _ = re.split(r"(?<!\\) \| |\|$", row)
        if "not written" in tests:
            continue
        named = re.findall(r"`(?:([\w/]+/test_\w+\.py))?(?:::(\w+))?(?:\[[^`]*\])?`", tests)
        in_rust = re.findall(r"`([\w/-]+\.rs)(?:::(\w+))?`", tests)
        assert named or in_rust, row
        for file, name in in_rust:
            assert (ROOT / file).is_file(), row
            assert not name or name in rust_functions(ROOT / file), f"{file}::{name}"
        file = ""
        for here, name in named:
            # Further tests of the same file are given without it. `T/` is the folder of this list.
            file = here or file
            path = TESTS / file[2:] if file.startswith("T/") else ROOT / file
            assert path.is_file(), row
            assert not name or name in functions(path), f"{file}::{name}"
