"""`Client.groups`: keys as Python values, streams that any process opens, and resuming within a group."""

from __future__ import annotations

import datetime
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve, Server

ROWS = 900
PLAN = fb.Plan(outputs={"id": fb.cols("id"), "x": fb.cols("x").standardize()})
DAYS = [datetime.date(2013, 1, day) for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("groups")
    rows = np.arange(ROWS)
    table = pa.table(
        {
            "id": rows,
            "x": rows.astype(float),
            "carrier": [None if row % 10 == 0 else f"c{row % 3}" for row in rows],
            "day": [DAYS[row % 3] for row in rows],
            "price": pa.array([Decimal(int(row) % 2) / 4 for row in rows], pa.decimal128(9, 2)),
            "time": pa.array([int(row) % 2 for row in rows], pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, folder / "0.parquet", row_group_size=100)
    return serve({"t": folder})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def ids(stream: fb.Stream) -> list[int]:
    return [int(value) for batch in stream for value in np.asarray(batch["id"])]


# Opens a pickled group and writes its rows, as a worker would.
WORKER = """
import json, pickle, sys
group = pickle.load(sys.stdin.buffer)
print(json.dumps([int(value) for batch in group.open() for value in batch["id"]]))
"""


def in_another_process(group: fb.Group) -> list[int]:
    ended = subprocess.run([sys.executable, "-c", WORKER], input=pickle.dumps(group), capture_output=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def wanted(key: str | None) -> list[int]:
    return [row for row in range(ROWS) if (None if row % 10 == 0 else f"c{row % 3}") == key]


def test_keys_unpack_beside_their_batches(client: fb.Client):
    got = {key: ids(batches) for key, batches in client.groups("t", PLAN, by="carrier", batch_size=32)}
    assert list(got) == ["c0", "c1", "c2", None]
    assert got == {key: wanted(key) for key in got}


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("day", DAYS),
        ("price", [Decimal("0.00"), Decimal("0.25")]),
        ("time", [datetime.datetime(1970, 1, 1, 0, 0, 0, us, tzinfo=datetime.timezone.utc) for us in (0, 1)]),
        ("id", list(range(ROWS))),
    ],
)
def test_keys_are_python_values(client: fb.Client, by: str, keys: list[Any]):
    groups = client.groups("t", PLAN, by=by)
    assert [group.key for group in groups] == keys
    assert sum(group.rows for group in groups) == ROWS


def test_groups_open_in_other_processes(client: fb.Client):
    groups = client.groups("t", PLAN, by="carrier", batch_size=64, shuffle=True, seed=3, window_rows=32)
    got = {group.key: in_another_process(group) for group in groups}
    assert got == {group.key: ids(group.open()) for group in groups}
    assert {key: sorted(rows) for key, rows in got.items()} == {key: wanted(key) for key in got}
    assert len(pickle.dumps(groups[0])) < 16_384


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 4, "window_rows": 30}])
def test_a_group_resumes_from_its_cursor(client: fb.Client, options: dict[str, Any]):
    (_, group, *_) = client.groups("t", PLAN, by="carrier", batch_size=16, **options)
    stream = group.open()
    assert len(stream) == group.steps
    first = [int(value) for _ in range(3) for value in np.asarray(next(stream)["id"])]
    cursor = stream.cursor()
    stream.close()
    rest = pickle.loads(pickle.dumps(group)).open(cursor=cursor.to_json())
    assert first + ids(rest) == ids(group.open())


def test_buckets_hold_every_row_once(client: fb.Client):
    groups = client.groups("t", PLAN, by="id", buckets=7)
    assert [group.key for group in groups] == list(range(7))
    assert sorted(row for _, batches in groups for row in ids(batches)) == list(range(ROWS))


def test_one_batch_holds_a_group_that_fits(client: fb.Client):
    for group in client.groups("t", PLAN, by="day", batch_size=ROWS):
        (batch,) = group.open()
        assert len(np.asarray(batch["x"])) == group.rows == ROWS // 3


def test_wrong_arguments_are_refused(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match='column "x" is double'):
        client.groups("t", PLAN, by="x")
    with pytest.raises(fb.InvalidRequest, match="world_size"):
        client.groups("t", PLAN, by="day", world_size=2)
    with pytest.raises(fb.InvalidRequest, match="--groups-max"):
        client.groups("t", PLAN, by="day", buckets=10_001)
    with pytest.raises(fb.InvalidRequest, match="buckets must be at least 1"):
        client.groups("t", PLAN, by="day", buckets=0)
    with pytest.raises(TypeError, match="by must be the name of a column"):
        client.groups("t", PLAN, by=["day"])  # pyright: ignore[reportArgumentType]
    (group, *_) = client.groups("t", PLAN, by="day", batch_size=16)
    other = fb.Cursor(0, 16, 1, snapshot="0" * 32)
    with pytest.raises(fb.SnapshotChanged, match="the groups are of"):
        group.open(cursor=other)


def test_keys_that_a_double_does_not_hold_are_text_in_json(serve: Serve, tmp_path: Path):
    large = [-(2**63), -(2**53) - 1, -(2**53), 7, 2**53, 2**53 + 1, 2**63 - 1]
    unsigned = [0, 1, 2, 3, 2**53, 2**53 + 1, 2**64 - 1]
    # The names of columns are part of the message, too.
    columns = {'"integer":9007199254740993': large, "unsigned": pa.array(unsigned, pa.uint64())}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    url = serve({"t": tmp_path}).url
    plan = fb.Plan(outputs={"x": fb.cols("unsigned").as_stored()})
    with fb.connect(url) as client:
        for by, keys in columns.items():
            field = "unsigned" if by == "unsigned" else "integer"
            keys = unsigned if by == "unsigned" else large
            assert [group.key for group in client.groups("t", plan, by=by)] == sorted(keys)
            assert [
                sum(batch.data.num_rows for batch in batches) for _, batches in client.groups("t", plan, by=by)
            ] == [1] * 7
            raw = fl.connect(url)
            request = {"dataset": "t", "plan": plan.to_dict(), "group_by": by}
            info = raw.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request).encode()))
            # A client of JavaScript reads every number as a double.
            read = [json.loads(one.app_metadata, parse_int=float)["group"] for one in info.endpoints]
            for group, key in zip(read, sorted(keys), strict=True):
                assert group == {field: str(key) if abs(key) > 2**53 else float(key)}
                sent = {**request, "group": group if isinstance(group[field], str) else {field: int(group[field])}}
                one = raw.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(sent).encode()))
                assert one.total_records == 1
