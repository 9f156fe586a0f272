"""`forebay-server check`: validates a configuration without serving."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from harness.certificates import Authority, principal
from harness.daemon import run_to_end

TOKEN = "token-of-trainer-0123456789"


@pytest.fixture
def valid(tiny_folder: Path, tmp_path: Path) -> dict[str, str]:
    """Lines of a valid file by key; the address is in use, as it is before a running server is reloaded."""
    pair = Authority(tmp_path / "authority").issue("server", "localhost")
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    return {
        "listen": '["127.0.0.1:0"]',
        "state": f'"{tmp_path}/state"',
        "principals": f'"{tmp_path}/principals.toml"',
        "tls_cert": f'"{pair.cert}"',
        "tls_key": f'"{pair.key}"',
        "dataset": f'["tiny={tiny_folder}"]',
    }


def check(tmp_path: Path, lines: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "forebay.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    return run_to_end("check", "--config", str(file), *flags)


def test_valid_configuration_exits_with_0_and_lists_what_it_found(valid: dict[str, str], tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        valid["listen"] = f'["127.0.0.1:{taken.getsockname()[1]}"]'
        done = check(tmp_path, valid)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(line.startswith("ok: ") for line in lines), lines
    for words in ("100 rows", "principals.toml", "server.pem", f"{tmp_path}/state"):
        assert any(words in line for line in lines), (words, lines)
    # It leaves nothing behind: a state directory created by another user would not be the server's.
    assert not (tmp_path / "state").exists()


def test_every_problem_has_a_line(valid: dict[str, str], tmp_path: Path):
    (tmp_path / "principals.toml").write_text("[")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.parquet").write_text("PAR1 this is no Parquet file PAR1")
    valid |= {
        "dataset": f'["broken={tmp_path}/broken", "bad=ftp://host/x"]',
        "tls_key": f'"{tmp_path}/nowhere.key"',
        "listen": '["nowhere"]',
        "metrics_listen": '"0.0.0.0:1"',
        "device": '"gpu"',
        "state": f'"{tmp_path}/file/state"',
    }
    done = check(tmp_path, valid)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert all(line.startswith("error: ") for line in lines), lines
    for words in ("--dataset", "--principals", "--tls-cert", "--listen", "--metrics-listen", "--device", "--state"):
        assert sum(words in line.split('"')[0] for line in lines) >= 1, (words, lines)
    assert any("broken" in line and "a.parquet" in line for line in lines), lines
    assert any("ftp://" in line for line in lines), lines
    assert len(lines) == 8, lines
    assert "panic" not in done.stderr


def test_unknown_keys_and_flags_exit_with_2(valid: dict[str, str], tmp_path: Path):
    done = check(tmp_path, valid | {"drain_second": "3"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "drain_seconds" in done.stderr
    assert check(tmp_path, valid, "--drain-second", "3").returncode == 2
    assert run_to_end("chek", "--dataset", "a=/tmp").returncode == 2


def test_flags_and_variables_are_checked_too(tiny_folder: Path, tmp_path: Path):
    state = ("--state", str(tmp_path / "state"))
    assert run_to_end("check", *state, "--dataset", f"tiny={tiny_folder}").returncode == 0
    assert run_to_end(*state, "check", env={"FOREBAY_DATASET": f"tiny={tiny_folder}"}).returncode == 0
    done = run_to_end("check", *state, "--dataset", f"tiny={tiny_folder}", "--device", "gpu")
    assert done.returncode == 2
    assert "--device" in done.stderr


def test_state_directory_that_cannot_be_written_is_a_problem(valid: dict[str, str], tmp_path: Path):
    (tmp_path / "state").mkdir()
    assert check(tmp_path, valid).returncode == 0
    assert list((tmp_path / "state").iterdir()) == []
    if os.geteuid() == 0:
        valid["state"] = '"/proc/forebay/state"'
    else:
        (tmp_path / "state").chmod(0o500)
    done = check(tmp_path, valid)
    assert done.returncode == 2
    assert "--state" in done.stderr


def test_help_names_the_command():
    done = run_to_end("--help")
    assert "check" in done.stdout
    assert "validates the configuration" in done.stdout.lower()
