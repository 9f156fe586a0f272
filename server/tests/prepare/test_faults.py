"""An interrupted forebay-prepare leaves no half dataset, says what happened, and does not hinder the next run."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.prepare import MANIFEST, Start, command, manifest, prepare, prepare_binary, written
from harness.serving import Serve, info, raw_table, stored

ROWS = 20_000
ALL = "SELECT * FROM t ORDER BY id"
# Counts pairs for some seconds after its first read.
SLOW = "SELECT count(*) AS n FROM t a JOIN t b ON a.id % 1009 < b.id % 7 AND a.x <> b.x"
# Writes rows for minutes.
ENDLESS = "SELECT a.id, b.id AS other, a.x + b.x AS x FROM t a CROSS JOIN t b"


def table(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"id": np.arange(rows), "x": random.random(rows), "s": [f"text {n}" for n in range(rows)]})


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "in").mkdir()
    pq.write_table(table(ROWS), tmp_path / "in/a.parquet", row_group_size=5_000)
    return {"t": tmp_path / "in"}


def staged(out: Path) -> list[Path]:
    """The hidden folders of runs."""
    return sorted(out.parent.glob(f".{out.name}.preparing-*"))


def until(is_so: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


def test_a_killed_run_leaves_no_dataset_and_the_next_removes_its_files(
    start_program: Start, inputs: dict[str, Path], tmp_path: Path
):
    out = tmp_path / "out"
    process = start_program(*command(ENDLESS, inputs, out, "--row-group-rows", "10000"))
    until(lambda: any(path.stat().st_size for folder in staged(out) for path in folder.iterdir()))
    process.kill()
    process.wait()
    assert not out.exists()
    assert len(staged(out)) == 1
    assert prepare(ALL, inputs, out).result["rows"] == ROWS
    assert staged(out) == []


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_removes_its_files(
    ending: signal.Signals, start_program: Start, inputs: dict[str, Path], tmp_path: Path
):
    out = tmp_path / "out"
    process = start_program(*command(ENDLESS, inputs, out))
    until(lambda: staged(out))
    # The handler of signals is installed before the folder exists.
    process.send_signal(ending)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "interrupted" in error
    assert not out.exists()
    assert staged(out) == []


def test_a_run_does_not_remove_the_files_of_another_that_is_running(
    start_program: Start, inputs: dict[str, Path], tmp_path: Path
):
    out = tmp_path / "out"
    process = start_program(*command(ENDLESS, inputs, out))
    until(lambda: staged(out))
    (running,) = staged(out)
    assert prepare(ALL, inputs, out).code == 0
    assert staged(out) == [running]
    assert process.poll() is None


@pytest.mark.parametrize("change", ["replaced", "rewritten in place", "removed"])
def test_an_input_that_changes_during_a_run_is_an_error(
    change: str, start_program: Start, inputs: dict[str, Path], tmp_path: Path
):
    out, file = tmp_path / "out", inputs["t"] / "a.parquet"
    process = start_program(*command(SLOW, inputs, out))
    until(lambda: staged(out) or process.poll() is not None)
    process.send_signal(signal.SIGSTOP)
    assert staged(out), "the query ended too early"
    if change == "removed":
        file.unlink()
    elif change == "replaced":
        pq.write_table(table(ROWS, seed=1), tmp_path / "new.parquet")
        (tmp_path / "new.parquet").replace(file)
    else:
        time.sleep(0.02)
        with file.open("r+b") as opened:
            opened.write(b"PAR1")
    process.send_signal(signal.SIGCONT)
    _, error = process.communicate(timeout=100)
    assert process.returncode == 1, error
    assert "changed during the run" in error
    assert str(file) in error
    assert not out.exists()
    assert staged(out) == []


def test_an_existing_result_is_up_to_date_or_replaced_on_request_only(inputs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    assert prepare(ALL, inputs, out).result["status"] == "written"
    before = (out / MANIFEST).read_bytes()
    again = prepare(ALL, inputs, out).result
    assert (again["status"], again["rows"], again["files"]) == ("up_to_date", ROWS, 1)
    assert (out / MANIFEST).read_bytes() == before

    other = prepare("SELECT id FROM t", inputs, out)
    assert other.code == 1
    assert "--replace" in other.error
    assert (out / MANIFEST).read_bytes() == before
    assert prepare("SELECT id FROM t", inputs, out, "--replace").result["status"] == "replaced"
    assert written(out).schema.names == ["id"]
    assert prepare("SELECT id FROM t", inputs, out, "--replace").result["status"] == "up_to_date"

    # Other inputs.
    pq.write_table(table(10), inputs["t"] / "b.parquet")
    assert prepare("SELECT id FROM t", inputs, out).code == 1
    assert prepare("SELECT id FROM t", inputs, out, "--replace").result["rows"] == ROWS + 10
    # Other options.
    assert prepare("SELECT id FROM t", inputs, out, "--row-group-rows", "7").code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_query_of_the_time_is_never_up_to_date(inputs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    for sql in ["SELECT id, now() AS at FROM t", "SELECT id, (SELECT random()) AS r FROM t"]:
        shutil.rmtree(out, ignore_errors=True)
        assert prepare(sql, inputs, out).code == 0
        assert manifest(out)["volatile"] is True
        assert prepare(sql, inputs, out).code == 1
        assert prepare(sql, inputs, out, "--replace").result["status"] == "replaced"


@pytest.mark.parametrize("damage", ["missing file", "shorter file", "no JSON"])
def test_a_damaged_result_is_reported_and_replaced_on_request(damage: str, inputs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    prepare(ALL, inputs, out)
    if damage == "missing file":
        (out / "part-00000.parquet").unlink()
    elif damage == "shorter file":
        os.truncate(out / "part-00000.parquet", 100)
    else:
        (out / MANIFEST).write_text("{")
    run = prepare(ALL, inputs, out)
    assert run.code == 1
    assert "damaged" in run.error
    assert prepare(ALL, inputs, out, "--replace").result["status"] == "replaced"
    assert written(out)["id"].to_pylist() == list(range(ROWS))


@pytest.mark.parametrize("flags", [(), ("--replace",)])
def test_what_forebay_prepare_did_not_write_is_never_replaced(
    flags: tuple[str, ...], inputs: dict[str, Path], tmp_path: Path
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("folder", "file"):
        run = prepare(ALL, inputs, tmp_path / name, *flags)
        assert run.code == 1
        assert "choose another folder" in run.error
    assert (tmp_path / "folder/notes.txt").read_text() == (tmp_path / "file").read_text() == "mine"
    for out in (inputs["t"], tmp_path):
        run = prepare(ALL, inputs, out, *flags)
        assert run.code == 2
        assert "choose another folder" in run.error
    assert (inputs["t"] / "a.parquet").is_file()


def test_an_empty_folder_becomes_the_dataset(inputs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "deep/er/out"
    out.mkdir(parents=True)
    assert prepare(ALL, inputs, out).result["rows"] == ROWS
    assert prepare(ALL, inputs, tmp_path / "new/folder/out").result["rows"] == ROWS


def test_an_out_that_cannot_be_written_is_an_error(inputs: dict[str, Path], tmp_path: Path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file/out", Path("/proc/forebay/out")):
        run = prepare(ALL, inputs, out)
        assert run.code == 1
        assert f"error: --out {out}: " in run.error


def test_too_little_memory_is_an_error_that_names_the_flag(inputs: dict[str, Path], tmp_path: Path):
    sql = "SELECT array_agg(repeat(s, 500)) AS texts FROM t"
    run = prepare(sql, inputs, tmp_path / "out", "--memory-bytes", "16MiB")
    assert run.code == 1
    assert "--memory-bytes 16MiB" in run.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_an_error_of_the_data_is_an_error_of_the_run(inputs: dict[str, Path], tmp_path: Path):
    run = prepare("SELECT 1 / (id - 19999) AS x FROM t", inputs, tmp_path / "out")
    assert run.code == 1
    assert "ivide by zero" in run.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_corrupt_input_is_an_error(inputs: dict[str, Path], tmp_path: Path):
    file = inputs["t"] / "a.parquet"
    body = bytearray(file.read_bytes())
    body[100:5000] = bytes(4900)
    file.write_bytes(body)
    run = prepare(ALL, inputs, tmp_path / "out")
    assert run.code == 1
    file.write_bytes(body[:-8])
    run = prepare(ALL, inputs, tmp_path / "out")
    assert run.code == 1
    assert "not a readable Parquet or Arrow file" in run.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def limited(folder: Path, blocks: int) -> str:
    """A program whose files have at most this many blocks of 512 bytes. Without the signal, a longer write fails."""
    script = folder / "limited"
    script.write_text(f'#!/bin/sh\ntrap "" XFSZ\nulimit -S -f {blocks}\nexec "{prepare_binary()}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_full_disk_under_the_result_is_an_error(inputs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    run = prepare(ALL, inputs, out, program=limited(tmp_path, 16))
    assert run.code == 1
    assert f"--out {out}" in run.error
    assert "File too large" in run.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "limited"]


def test_a_full_disk_under_spilled_data_is_an_error(inputs: dict[str, Path], tmp_path: Path):
    sql = "SELECT id, repeat(s, 300) AS long FROM t ORDER BY s, id"
    spill = tmp_path / "spill"
    spill.mkdir()
    flags = ("--memory-bytes", "16MiB", "--spill-dir", str(spill))
    run = prepare(sql, inputs, tmp_path / "out", *flags, program=limited(tmp_path, 16))
    assert run.code == 1
    assert f"cannot spill to {spill}" in run.error
    assert "File too large" in run.error
    assert list(spill.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "limited", "spill"]


def test_spilled_data_is_limited(inputs: dict[str, Path], tmp_path: Path):
    sql = "SELECT id, repeat(s, 300) AS long FROM t ORDER BY s, id"
    run = prepare(sql, inputs, tmp_path / "out", "--memory-bytes", "16MiB", "--spill-bytes", "1MiB")
    assert run.code == 1
    assert "--spill-bytes" in run.error


def test_the_server_reads_only_what_the_manifest_names(serve: Serve, inputs: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    prepare(ALL, inputs, out)
    pq.write_table(table(5), out / "stray.parquet")
    request = {"dataset": "out", "plan": {"outputs": stored("id")}}
    with fl.connect(serve({"out": out}).url) as client:
        assert raw_table(client, "out")["id"].to_pylist() == list(range(ROWS))
        (out / "part-00000.parquet").rename(tmp_path / "away.parquet")
        with pytest.raises(fl.FlightError, match=r'there is no "part-00000\.parquet"'):
            info(client, request)
        (tmp_path / "away.parquet").rename(out / "part-00000.parquet")
        assert info(client, request).total_records == ROWS


def test_a_dataset_is_replaced_at_once(serve: Serve, inputs: dict[str, Path], tmp_path: Path):
    """While datasets are replaced, the server sees one or the other, and never none."""
    out = tmp_path / "out"
    prepare("SELECT id FROM t", inputs, out)
    seen: list[int] = []
    failed: list[fl.FlightError] = []
    ended = threading.Event()

    def watch(client: fl.FlightClient) -> None:
        while not ended.is_set():
            try:
                seen.append(raw_table(client, "out").num_rows)
            except fl.FlightError as error:
                # Replaced between the call that pins the files and the one that reads them.
                if "SNAPSHOT_CHANGED" not in str(error):
                    failed.append(error)

    with fl.connect(serve({"out": out}).url) as client:
        watcher = threading.Thread(target=watch, args=(client,))
        watcher.start()
        for limit in (1, 2, 3):
            assert prepare(f"SELECT id FROM t LIMIT {limit}", inputs, out, "--replace").code == 0
        ended.set()
        watcher.join()
    assert set(seen) <= {ROWS, 1, 2, 3}
    assert seen
    assert not failed
