"""The state directory: what survives a restart; damage to it never changes a result silently."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.daemon import LOOPBACK, Daemon
from harness.serving import fit, info

PLAN: dict[str, Any] = {
    "filter": "id > 33",
    "outputs": [{"name": "out", "parts": [{"columns": ["id"], "ops": [{"standardize": {}}]}]}],
}
FILTERED: dict[str, Any] = {
    "dataset": "data",
    "plan": {
        "filter": "id > 33",
        "outputs": [{"name": "out", "dtype": "INT64", "parts": [{"columns": ["id"]}]}],
    },
}
KEPT = np.arange(34, 100)

Start = Callable[[], Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": np.arange(100)}), tmp_path / "data/a.parquet", row_group_size=10)
    running: list[Daemon] = []

    def begin() -> Daemon:
        running.append(Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"data={tmp_path}/data"))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.stop()
        assert not any("panic" in line for line in daemon.lines)


def read(daemon: Daemon, request: dict[str, Any]) -> np.ndarray:
    with fl.connect(daemon.url) as client:
        found = info(client, {"dataset": "data", **request})
        out = client.do_get(found.endpoints[0].ticket).read_all()["out"].to_numpy()
        assert found.total_records == len(out)
    return out


def prepared(start: Start) -> tuple[str, np.ndarray]:
    """A state directory with a plan and the row counts of its filter; the plan's id and what it gives."""
    daemon = start()
    with fl.connect(daemon.url) as client:
        plan_id = fit(client, "data", PLAN)[-1]["result"]["plan_id"]
    want = read(daemon, {"plan_id": plan_id})
    assert np.allclose(want, (KEPT - KEPT.mean()) / KEPT.std())
    daemon.stop()
    return plan_id, want


def state_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "state").rglob("*") if path.is_file()]


def test_a_plan_is_known_after_a_restart(start: Start):
    plan_id, want = prepared(start)
    assert np.array_equal(read(start(), {"plan_id": plan_id}), want)


def test_missing_directory_is_recreated(start: Start, tmp_path: Path):
    plan_id, want = prepared(start)
    shutil.rmtree(tmp_path / "state")
    daemon = start()
    with pytest.raises(KeyError, match=plan_id):
        read(daemon, {"plan_id": plan_id})
    with fl.connect(daemon.url) as client:
        assert fit(client, "data", PLAN)[-1]["result"]["plan_id"] == plan_id
    assert np.array_equal(read(daemon, {"plan_id": plan_id}), want)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-3],
    "cut to a start": lambda data: data[:1],
    "garbage": lambda data: b'\xff\x00{"' * 9,
    "zeros": lambda data: bytes(len(data)),
    "another's JSON": lambda data: b"{}" if data[:1] == b"{" else b"[]",
    "another digit": lambda data: re.sub(rb"[1-9](?=[^1-9]*$)", lambda m: b"123456789"[m[0][0] % 9 :][:1], data),
    "a digit less": lambda data: re.sub(rb"([1-9])0", rb"\1", data),
    "a bit flipped": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
}


def damage(path: Path, name: str) -> None:
    """Damage a file; where the damage finds nothing to damage in it, cut it instead."""
    data = path.read_bytes()
    damaged = DAMAGES[name](data)
    path.write_bytes(damaged if damaged != data else data[:-1])


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_row_counts_are_counted_again(start: Start, tmp_path: Path, name: str):
    prepared(start)
    files = [path for path in state_files(tmp_path) if "plan" not in path.parent.name]
    assert files
    for path in files:
        damage(path, name)
    assert np.array_equal(read(start(), FILTERED), KEPT)


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_plan_is_not_found(start: Start, tmp_path: Path, name: str):
    plan_id, _ = prepared(start)
    (path,) = [path for path in state_files(tmp_path) if plan_id in path.name and path.parent.name == "plans"]
    damage(path, name)
    daemon = start()
    # The id is a digest of the plan: what gives other numbers has another id.
    with pytest.raises((pa.ArrowException, fl.FlightError)) as raised:
        read(daemon, {"plan_id": plan_id})
    error = translate(raised.value)
    assert error.code in ("NOT_FOUND", "DATA_LOSS", "FAILED_PRECONDITION"), f"{error.code}: {error}"
    assert plan_id in str(error)
    assert f'did you mean "{plan_id}"' not in str(error)
    # Another fit repairs it.
    with fl.connect(daemon.url) as client:
        assert fit(client, "data", PLAN)[-1]["result"]["plan_id"] == plan_id
    read(daemon, {"plan_id": plan_id})


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_plan_columns_stop_no_stream(start: Start, tmp_path: Path, name: str):
    """The columns that a fit saw are stored with its plan, for exchanges; streams use the snapshot's."""
    plan_id, want = prepared(start)
    (path,) = [path for path in state_files(tmp_path) if plan_id in path.name and "columns" in path.parent.name]
    damage(path, name)
    assert np.array_equal(read(start(), {"plan_id": plan_id}), want)


def test_streams_work_when_counts_cannot_be_stored(start: Start, tmp_path: Path):
    """A full or missing disk costs the server its memory of counts, not its streams."""
    daemon = start()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").write_text("in the way")
    assert np.array_equal(read(daemon, FILTERED), KEPT)


def test_two_servers_can_share_a_directory(start: Start):
    first, second = start(), start()
    with fl.connect(first.url) as client:
        plan_id = fit(client, "data", PLAN)[-1]["result"]["plan_id"]
    assert np.array_equal(read(second, {"plan_id": plan_id}), read(first, {"plan_id": plan_id}))
