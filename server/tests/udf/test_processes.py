"""The command ``python -m forebay.udf``: its errors, its socket and its end."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.udf import functions as declared
from harness.udf.pool import Functions, searching, served

(LENGTH,) = served("length")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay.udf", *arguments]
    return subprocess.run(command, env=searching(folder), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        (["missing:f"], "No module named 'missing'"),
        (["functions:missing"], "functions:missing is not a function declared with @forebay.udf.function"),
        (["functions:pa"], "is not a function declared"),
        (["functions"], "write module:function"),
        (["functions:length", "other:length"], "two functions are named 'length'"),
        (["broken:f"], "on purpose"),
    ],
)
def test_functions_that_cannot_be_loaded_end_the_command(tmp_path: Path, functions: list[str], words: str):
    (tmp_path / "functions.py").write_text(Path(declared.__file__).read_text())
    (tmp_path / "other.py").write_text(Path(declared.__file__).read_text())
    (tmp_path / "broken.py").write_text("raise RuntimeError('on purpose')\n")
    ended = run(tmp_path, *functions, "--listen", f"unix:{tmp_path}/s", "--processes", "1")
    assert (ended.returncode, words in ended.stderr) == (1, True), ended.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "/tmp/s"], "expected unix: and a path"),
        (["--listen", "unix:"], "expected unix: and a path"),
        (["--listen", "unix:/tmp/s", "--processes", "0"], "expected 1 to 1024"),
        ([], "--listen"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: list[str], words: str):
    ended = run(tmp_path, LENGTH, *arguments)
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr


def test_a_socket_that_was_left_behind_is_replaced_and_a_served_one_is_not(tmp_path: Path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Functions([LENGTH], path, processes=1):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        second = run(tmp_path, LENGTH, "--listen", f"unix:{path}", "--processes", "1")
        assert (second.returncode, "cannot listen on" in second.stderr) == (1, True), second.stderr
        assert path.is_socket()
    assert not path.exists()


def test_a_file_is_not_replaced(tmp_path: Path):
    (tmp_path / "s").write_text("mine")
    ended = run(tmp_path, LENGTH, "--listen", f"unix:{tmp_path}/s", "--processes", "1")
    assert ended.returncode == 1
    assert (tmp_path / "s").read_text() == "mine"


def test_sigterm_ends_every_process(tmp_path: Path):
    served = Functions([LENGTH], tmp_path / "s").started()
    pid = served.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 2
    assert served.stop() == 0
    assert not any(Path(f"/proc/{child}").exists() for child in children)
