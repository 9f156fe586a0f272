"""A local file that is replaced by one of the same inode, size, modification time and footer is another file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.faults import outcome
from harness.serving import Server, fit, info, stored

GROUP = 1_000


def facts(kept: int, rows: int) -> pa.Table:
    number = np.arange(rows)
    return pa.table({"id": number, "x": (number % 10 < kept).astype("i8"), "f": number * float(kept)})


def as_arrow(path: Path, table: pa.Table) -> None:
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, GROUP)


def as_parquet(path: Path, table: pa.Table) -> None:
    options: dict[str, Any] = {"write_statistics": False, "use_dictionary": False, "compression": "none"}
    pq.write_table(table, path, row_group_size=GROUP, write_page_index=False, **options)


FORMATS: dict[str, Callable[[Path, pa.Table], None]] = {"arrow": as_arrow, "parquet": as_parquet}
# Read as a whole with the footer, as a whole, and by samples.
ROWS = [2_000, 5_000, 60_000]


def put(path: Path, table: pa.Table) -> None:
    """Write a file; one that is there keeps inode, size and modification time."""
    write = FORMATS[path.suffix[1:]]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, table)
        return
    before = path.stat()
    write(path.with_name("_new"), table)
    with path.open("r+b") as file:
        file.write(path.with_name("_new").read_bytes())
    path.with_name("_new").unlink()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)


PASSING = {"filter": "x = 1", "outputs": stored("id", "f")}
JOINED = {"join": [{"table": "dim", "on": "id", "columns": ["v"]}], "outputs": stored("v")}
SCALED = {"outputs": [{"name": "f", "parts": [{"columns": ["f"], "ops": [{"standardize": {}}]}]}]}


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    return tmp_path, request.param


def start(root: Path) -> Daemon:
    """A server that keeps its state in the folder."""
    datasets = (f"--dataset={name}={root / name}" for name in ("t", "dim"))
    return Daemon(*LOOPBACK, "--state", str(root / "state"), *datasets)


def read(client: fl.FlightClient, plan: dict[str, Any]) -> pa.Table:
    return client.do_get(info(client, {"dataset": "t", "plan": plan}).endpoints[0].ticket).read_all()


def mean(client: fl.FlightClient) -> float:
    plan = fit(client, "t", SCALED)[-1]["result"]["plan"]
    return plan["outputs"][0]["parts"][0]["ops"][0]["standardize"]["mean"]


@pytest.mark.parametrize("rows", ROWS)
def test_nothing_of_the_old_file_is_used(folder: tuple[Path, str], rows: int):
    root, kind = folder
    dim = pa.table({"id": np.arange(rows), "v": np.arange(rows) * 1.0})
    put(root / f"t/a.{kind}", facts(3, rows))
    put(root / f"dim/a.{kind}", dim)
    server = start(root)
    try:
        with fl.connect(server.urls[0]) as client:
            assert read(client, PASSING).num_rows == rows * 3 // 10
            assert read(client, JOINED)["v"].to_pylist() == dim["v"].to_pylist()
            old = mean(client)
            ticket = info(client, {"dataset": "t", "plan": PASSING}).endpoints[0].ticket
        for again in (False, True):
            put(root / f"t/a.{kind}", facts(7, rows))
            put(root / f"dim/a.{kind}", dim.set_column(1, "v", pa.array(np.arange(rows) * 5.0)))
            if again:
                server.stop()
                server = start(root)
            with fl.connect(server.urls[0]) as client:
                got, want = read(client, PASSING), facts(7, rows)
                assert got["f"].to_pylist() == [row["f"] for row in want.to_pylist() if row["x"] == 1]
                assert read(client, JOINED)["v"].to_pylist() == [value * 5.0 for value in range(rows)]
                assert mean(client) == pytest.approx(old * 7 / 3)
                code, text = outcome(lambda client=client: client.do_get(ticket).read_all())
                assert (code, "snapshot changed" in text) == ("ABORTED", True), text
    finally:
        server.stop()


def test_a_change_that_no_sample_shows_is_another_state(folder: tuple[Path, str]):
    """One value of a large file: the digest is that of the old file, but counts and fits are not."""
    root, kind = folder
    rows = 200_000
    table = facts(3, rows)
    put(root / f"t/a.{kind}", table)
    put(root / f"dim/a.{kind}", table.slice(0, 1))
    server = start(root)
    try:
        with fl.connect(server.urls[0]) as client:
            before = json.loads(info(client, {"dataset": "t", "plan": PASSING}).app_metadata)["snapshot"]
            assert (read(client, PASSING).num_rows, mean(client)) == (60_000, pytest.approx(3 * (rows - 1) / 2))
            values = table["x"].to_numpy().copy()
            values[5] = 1
            other = table.set_column(1, "x", pa.array(values))
            floats = table["f"].to_numpy().copy()
            floats[5] += rows
            put(root / f"t/a.{kind}", other.set_column(2, "f", pa.array(floats)))
            after = json.loads(info(client, {"dataset": "t", "plan": PASSING}).app_metadata)["snapshot"]
            assert read(client, PASSING).num_rows == 60_001
            assert mean(client) == pytest.approx(3 * (rows - 1) / 2 + 1)
            assert before == after, "the change is in a sample: choose another row"
    finally:
        server.stop()


def test_streams_of_the_old_file_and_of_the_new_one_do_not_mix(tmp_path: Path):
    rows = 400_000
    tables = [pa.table({"id": np.arange(rows), "g": np.full(rows, state)}) for state in (1, 2)]
    put(tmp_path / "t/a.arrow", tables[0])
    server = Server({"t": tmp_path / "t"})
    try:
        with fl.connect(server.url) as client:
            request = {"dataset": "t", "plan": {"outputs": stored("g", "id")}, "batch_size": 20_000}
            opened = []
            for position in range(0, rows, 100_000):
                reader = client.do_get(info(client, {**request, "start_position": position}).endpoints[0].ticket)
                reader.read_chunk()
                opened.append(reader)
            put(tmp_path / "t/a.arrow", tables[1])
            for _ in range(2):
                assert set(read(client, request["plan"])["g"].to_pylist()) == {2}
    finally:
        server.stop()
