from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forebay as fb
from forebay._client import private_server, server_program

PLAN = fb.Plan(outputs={"x": fb.cols("x").standardize()})
SOURCE = str(Path(fb.__file__).parents[1])


def wait_for_end(pid: int, seconds: float = 20) -> None:
    """Return when a process that is not our child has ended; no polling."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], seconds)[0], f"process {pid} still runs after {seconds} s"
    finally:
        os.close(descriptor)


def test_from_a_directory_to_batches_in_three_lines(tiny_folder: Path):
    url = fb.local(tiny=tiny_folder)
    with fb.connect(url) as client:
        assert sum(len(batch["x"]) for batch in client.stream("tiny", PLAN)) == 100


def test_it_listens_on_a_unix_socket(tiny_folder: Path):
    assert fb.local(tiny=tiny_folder).startswith("grpc+unix:///")


def test_the_same_datasets_give_the_same_server(tiny_folder: Path):
    url = fb.local(tiny=tiny_folder)
    assert fb.local({"tiny": str(tiny_folder)}) == url
    assert fb.local(other=tiny_folder) != url


def test_a_missing_path_fails_at_once_with_its_name(tmp_path: Path):
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"dataset 'ev': there is no file or directory {tmp_path}/gone")
    ):
        fb.local(ev=tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=re.escape(f"{Path.cwd()}/gone.parquet")):
        fb.local(ev="gone.parquet")
    # Only the server reads globs and URLs.
    for location, words in (
        (f"{tmp_path}/gone/*.parquet", f"there is no directory {tmp_path}/gone"),
        (f"file://{tmp_path}/gone", f'dataset "ev" at "{tmp_path}/gone": there is no such file or directory'),
    ):
        with pytest.raises(RuntimeError, match="did not start") as raised:
            fb.local(ev=location)
        assert words in str(raised.value)


def test_deep_temporary_directory_falls_back_to_a_port(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deep = tmp_path / ("d" * 110)
    deep.mkdir()
    monkeypatch.setattr(private_server.tempfile, "tempdir", str(deep))
    url = fb.local(deep=tiny_folder)
    assert re.fullmatch(r"grpc://127\.0\.0\.1:\d+", url)
    with fb.connect(url) as client:
        assert set(client.datasets()) == {"deep"}


def test_dead_server_is_restarted_and_its_last_log_lines_are_reported(tiny_folder: Path):
    url = fb.local(mortal=tiny_folder)
    server = next(s for s in private_server._servers.values() if s.url == url)
    with fb.connect(url) as client:
        os.kill(server.pid, signal.SIGKILL)
        wait_for_end(server.pid)
        with pytest.raises(fb.Unavailable, match="ended with -9; its last lines"):
            client.datasets()
    again = fb.local(mortal=tiny_folder)
    assert again != url
    with fb.connect(again) as client:
        assert set(client.datasets()) == {"mortal"}


def test_missing_server_program_error_names_both_remedies(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FOREBAY_SERVER_BIN")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(server_program, "__file__", "/nowhere/server_program.py")
    with pytest.raises(FileNotFoundError, match="PATH.*FOREBAY_SERVER_BIN"):
        fb.local(missing=tiny_folder)
    monkeypatch.setenv("FOREBAY_SERVER_BIN", "/nowhere/forebay-server")
    with pytest.raises(FileNotFoundError, match="FOREBAY_SERVER_BIN=/nowhere/forebay-server"):
        fb.local(missing=tiny_folder)


def test_server_program_of_the_checkout_is_found_and_built_ones_only(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = os.environ["FOREBAY_SERVER_BIN"]
    monkeypatch.delenv("FOREBAY_SERVER_BIN")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(
        server_program, "__file__", str(tmp_path / "client/python/src/forebay/_client/server_program.py")
    )
    with pytest.raises(FileNotFoundError, match=f"run `make build` in {tmp_path}, "):
        fb.local(built=tiny_folder)
    (tmp_path / "target/demo").mkdir(parents=True)
    (tmp_path / "target/demo/forebay-server").symlink_to(program)
    with fb.connect(fb.local(built=tiny_folder)) as client:
        assert set(client.datasets()) == {"built"}
    (tmp_path / "target/release").mkdir()
    (tmp_path / "target/release/forebay-server").symlink_to(program)
    assert server_program.server_program() == str(tmp_path / "target/release/forebay-server")


def test_server_program_of_no_checkout_is_not_looked_up(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("FOREBAY_SERVER_BIN")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(server_program, "__file__", str(tmp_path / "site-packages/forebay/_client/server_program.py"))
    with pytest.raises(
        FileNotFoundError,
        match="was not found: this installation of the package has no programs for Linux .*Install the package's wheel",
    ):
        fb.local(installed=tiny_folder)


def test_a_program_for_another_machine_is_named_as_such(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The header of an ELF file for a machine that does not exist.
    program = tmp_path / "forebay-server"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xfe\xfe" + bytes(100))
    program.chmod(0o755)
    monkeypatch.setenv("FOREBAY_SERVER_BIN", str(program))
    with pytest.raises(RuntimeError, match="does not start: it is not a program for Linux .*Exec format error"):
        fb.local(foreign=tiny_folder)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "target"])
def test_installed_server_program_precedes_the_path(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
):
    program = os.environ["FOREBAY_SERVER_BIN"]
    monkeypatch.delenv("FOREBAY_SERVER_BIN")
    other = tmp_path / "path"
    other.mkdir()
    (other / "forebay-server").write_text("#!/bin/sh\necho the wrong one >&2; exit 1\n")
    (other / "forebay-server").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}{os.pathsep}{os.environ['PATH']}")
    site = tmp_path / "lib/site-packages"
    # `pip install --target` leaves a list that names the place before the move.
    metadata, scripts = site / "forebay-1.dist-info", (tmp_path / "bin" if listed else site / "bin")
    for folder in (metadata, scripts):
        folder.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: forebay\nVersion: 1\n")
    (metadata / "RECORD").write_text("../../bin/forebay-server,,\nforebay/__init__.py,,\n")
    monkeypatch.setattr(server_program, "__file__", str(site / "forebay/_client/server_program.py"))
    with pytest.raises(RuntimeError, match="the wrong one"):
        fb.local(before=tiny_folder)
    (scripts / "forebay-server").symlink_to(program)
    assert server_program.server_program() == str(scripts / "forebay-server")
    with fb.connect(fb.local(installed=tiny_folder)) as client:
        assert set(client.datasets()) == {"installed"}


def test_failed_start_reports_the_log(tiny_folder: Path):
    with pytest.raises(RuntimeError, match="its last lines:\n.*"):
        fb.local({"": tiny_folder})


def test_rejects_an_empty_list_of_datasets():
    with pytest.raises(TypeError, match="requires a dataset"):
        fb.local()


SCRIPT = """
import os, sys
import forebay as fb
from forebay._client import private_server
url = fb.local(tiny=sys.argv[1])
plan = fb.Plan(outputs={"x": fb.cols("x")})
stream = fb.connect(url).stream("tiny", plan, batch_size=1)
next(stream)
server = next(iter(private_server._servers.values()))
print(server.pid, server._folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["leaves", "killed", "terminated"])
def test_server_ends_with_its_parent_process(tiny_folder: Path, end: str):
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tiny_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        pid, folder = child.stdout.readline().split()
        os.kill(int(pid), 0)
        if end == "leaves":
            child.stdin.close()
            child.wait(30)
            assert not os.path.exists(folder)
        else:
            child.send_signal(signal.SIGKILL if end == "killed" else signal.SIGTERM)
            child.wait(30)
        wait_for_end(int(pid))
        # A killed process leaves its temporary directory, as any does.
        shutil.rmtree(folder, ignore_errors=True)


def test_lists_of_files_and_tables_have_absolute_paths(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = sorted(tiny_folder.rglob("*.parquet"))
    (tmp_path / "list.txt").write_text("".join(f"{file}\n" for file in files))
    monkeypatch.chdir(tmp_path)
    with fb.connect(fb.local(tiny="@list.txt")) as client:
        assert client.datasets()["tiny"].files == len(files)
    with pytest.raises(FileNotFoundError, match=re.escape(f"{tmp_path}/gone.txt")):
        fb.local(tiny="@gone.txt")
    with pytest.raises(FileNotFoundError, match=re.escape(f"there is no file or directory {tmp_path}/gone")):
        fb.local(tiny="delta+gone@version=3")


def test_a_folder_of_several_splits_is_reported(tiny_folder: Path, tmp_path: Path):
    file = next(iter(tiny_folder.rglob("*.parquet")))
    for name in ("hub/data/train-00000-of-00001.parquet", "hub/data/test-00000-of-00001.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / name)
    with pytest.warns(UserWarning, match="splits test and train, which one dataset mixes: name each one") as seen:
        fb.local(hub=tmp_path / "hub")
    named = re.search(r"test='([^']+)'", str(seen[0].message))
    assert named is not None
    with fb.connect(fb.local(test=named[1])) as client:
        assert client.datasets()["test"].files == 1


def test_an_interrupt_of_the_process_group_leaves_the_server_running(tiny_folder: Path):
    script = f"""
import os, signal, sys
import forebay as fb
from forebay._client import private_server
signal.signal(signal.SIGINT, lambda *_: None)
url = fb.local(tiny={str(tiny_folder)!r})
os.killpg(0, signal.SIGINT)
(server,) = private_server._servers.values()
assert not server.ends_within(1), server.exit_report()
with fb.connect(url) as client:
    print(client.datasets()["tiny"].rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert (done.returncode, done.stdout.split()) == (0, ["100"]), done.stderr
