"""`forebay prepare` runs forebay-prepare where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.prepare import prepare_binary
from harness.serving import server_binary

OPTIONS = ["--sql", "SELECT 1 AS one", "--out"]


@pytest.fixture
def forebay(tmp_path: Path) -> Path:
    """The program alone in a folder."""
    source, program = Path(server_binary()).with_name("forebay"), tmp_path / "bin/forebay"
    program.parent.mkdir()
    try:
        os.link(source, program)
    except OSError:
        shutil.copy(source, program)
    return program


def run(program: Path, *arguments: str, path: str = "/nowhere") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_without_the_program_the_error_says_how_to_build_it(forebay: Path, tmp_path: Path):
    ended = run(forebay, "prepare", *OPTIONS, str(tmp_path / "out"))
    assert ended.returncode == 1
    assert "make build-all" in ended.stderr


def test_the_program_is_found_next_to_forebay_and_on_the_path(forebay: Path, tmp_path: Path):
    path = str(Path(prepare_binary()).parent)
    for name, arguments in [("first", ["prepare", "--json"]), ("second", ["--json", "prepare"])]:
        ended = run(forebay, *arguments, *OPTIONS, str(tmp_path / name), path=path)
        assert json.loads(ended.stdout)["rows"] == 1, ended.stderr
    (forebay.parent / "forebay-prepare").symlink_to(prepare_binary())
    ended = run(forebay, "prepare", *OPTIONS, str(tmp_path / "third"))
    assert ended.stdout.startswith("wrote "), ended.stderr


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("ballista://127.0.0.1:50050", "make build-all PREPARE_FEATURES=ballista"),
        ("ballista://127.0.0.1", "expected embedded or ballista://HOST:PORT"),
        ("spark", "expected embedded or ballista://HOST:PORT"),
    ],
)
def test_an_engine_that_the_build_lacks_is_invalid_usage(engine: str, reason: str, tmp_path: Path):
    ended = run(Path(prepare_binary()), *OPTIONS, str(tmp_path / "out"), "--engine", engine)
    assert ended.returncode == 2
    assert engine in ended.stderr
    assert reason in ended.stderr
    assert not (tmp_path / "out").exists()


def test_arguments_and_exit_codes_are_those_of_the_program(forebay: Path, tmp_path: Path):
    path = str(Path(prepare_binary()).parent)
    ended = run(forebay, "prepare", "--help", path=path)
    assert "--memory-bytes" in ended.stdout
    ended = run(forebay, "prepare", "--sql", "SELEC", "--out", str(tmp_path / "out"), path=path)
    assert ended.returncode == 2
    assert "error: SQL, line 1, column 1" in ended.stderr
    assert "prepare" in run(forebay, "--help").stdout
