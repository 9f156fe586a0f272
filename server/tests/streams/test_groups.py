"""Grouped streams: an endpoint per value of a column, each a stream of the rows that have it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
import xxhash

from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server, info, plan_of, stored

ROWS = 6000
GROUP_ROWS = 250
PLAN = plan_of(stored("id"))
LONG = 2**63 - 1


def keys_by_column() -> dict[str, pa.Array]:
    """Odd columns to group by, of the same rows: scattered unless the name says otherwise."""
    rng = np.random.default_rng(3)
    code = rng.integers(0, 7, ROWS)
    nulls = rng.random(ROWS) < 0.1
    words = ["", "AA", "Zürich", "日本 🛫", "a" * 300, "a'b\"c\\", "\x00\n"]
    days = [datetime.date(1969, 12, 31), datetime.date(2013, 1, 1), datetime.date(2400, 2, 29)]
    longs = [-(2**63), -1, 0, 1, 2**53 + 1, LONG - 1, LONG]
    text = pa.array([words[c] for c in code], mask=nulls)
    clustered = np.sort(code)
    return {
        "text": text,
        "coded": text.dictionary_encode(),
        "large": text.cast(pa.large_string()),
        "plain": pa.array([words[c] for c in clustered]),
        "clustered": pa.array(clustered),
        "long": pa.array([longs[c] for c in code], pa.int64(), mask=nulls),
        "unsigned": pa.array([2**64 - 1 - int(c) for c in code], pa.uint64()),
        "small": pa.array(code, pa.int8(), mask=nulls),
        "flag": pa.array(code % 2 == 0, mask=nulls),
        "day": pa.array([days[c % 3] for c in code], pa.date32(), mask=nulls),
        "time": pa.array([1_357_000_000_000_001 + int(c) for c in code], pa.timestamp("us", tz="Europe/Berlin")),
        "nanosecond": pa.array([1 + int(c) for c in code], pa.timestamp("ns"), mask=nulls),
        "price": pa.array([Decimal(int(c) - 3) / 4 for c in code], pa.decimal128(20, 2), mask=nulls),
        "nothing": pa.array([None] * ROWS, pa.string()),
        "one": pa.array([5] * ROWS, pa.int32()),
    }


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(4)
    return pa.table({"id": np.arange(ROWS), "x": rng.normal(size=ROWS), **keys_by_column()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> Path:
    folder = tmp_path_factory.mktemp("groups")
    half = ROWS // 2
    coded = [name for name in table.column_names if name not in ("plain", "id")]
    for file in range(2):
        part = table.slice(file * half, half)
        pq.write_table(part, folder / f"{file}.parquet", row_group_size=GROUP_ROWS, use_dictionary=coded)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, serve: Serve) -> Server:
    one = folder.parent / "one_row"
    one.mkdir()
    pq.write_table(
        pa.table({"id": [1], "k": ["x"], "f": [1.5], "l": [[1]], "b": [b"x"], "s": [{"a": 1}]}), one / "0.parquet"
    )
    many = folder.parent / "many"
    many.mkdir()
    keys = np.random.default_rng(5).permutation(100_000)
    pq.write_table(pa.table({"id": np.arange(100_000), "k": keys}), many / "0.parquet", row_group_size=30_000)
    return serve({"t": folder, "one": one, "many": many})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


@contextmanager
def daemon(*flags: str) -> Iterator[Daemon]:
    running = Daemon(*flags)
    try:
        yield running
    finally:
        running.stop()


def meta(endpoint: fl.FlightEndpoint) -> dict[str, Any]:
    return json.loads(endpoint.app_metadata)


def groups(
    client: fl.FlightClient, column: str, plan: dict[str, Any] = PLAN, **request: Any
) -> list[tuple[Any, list[int]]]:
    """The plain keys and the ids of the rows of every endpoint."""
    found = info(client, {"dataset": "t", "plan": plan, "group_by": column, **request})
    got = []
    for endpoint in found.endpoints:
        about = meta(endpoint)
        rows = client.do_get(endpoint.ticket).read_all()["id"].to_pylist()
        assert about["rows"] == len(rows)
        assert about["column"] == column
        got.append((about["key"], rows))
    assert found.total_records == sum(len(rows) for _, rows in got)
    return got


def plain(value: Any) -> Any:
    """A value as the key in JSON."""
    if isinstance(value, pd.Timestamp):
        zone = "Z" if value.tz is not None else ""
        value = value.tz_convert("UTC").tz_localize(None) if value.tz is not None else value
        seconds, fraction = value.strftime("%Y-%m-%dT%H:%M:%S"), f"{value.microsecond * 1000 + value.nanosecond:09d}"
        return seconds + ("" if set(fraction) == {"0"} else f".{fraction.removesuffix('000')}") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    return f"{value:.2f}" if isinstance(value, Decimal) else value


def grouped(table: pa.Table, column: str) -> list[tuple[Any, list[int]]]:
    """The oracle: pandas' groups in ascending order, null last."""
    values = table[column].combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    frame = pd.DataFrame({"k": values.to_pandas(types_mapper=pd.ArrowDtype), "id": table["id"].to_numpy()})
    found = [(key, rows["id"].tolist()) for key, rows in frame.groupby("k", dropna=False, sort=True)]
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found.sort(key=lambda group: (pd.isna(group[0]), "" if pd.isna(group[0]) else group[0].encode()))
    return [(None if pd.isna(key) else plain(key), rows) for key, rows in found]


@pytest.mark.parametrize("column", list(keys_by_column()))
def test_groups_are_those_of_pandas(client: fl.FlightClient, table: pa.Table, column: str):
    assert groups(client, column, batch_size=100) == grouped(table, column)


@pytest.mark.parametrize("column", ["text", "clustered", "flag"])
def test_plan_filter_sample_and_order_apply_to_each_group(client: fl.FlightClient, table: pa.Table, column: str):
    filtered = table.filter(pc.greater(table["x"], 0.3))
    plan = {**PLAN, "filter": "x > 0.3"}
    assert groups(client, column, plan) == grouped(filtered, column)
    shuffled = groups(client, column, plan, shuffle=True, seed=9, window_rows=64, batch_size=33)
    assert [(key, sorted(rows)) for key, rows in shuffled] == grouped(filtered, column)
    assert shuffled != grouped(filtered, column)
    assert shuffled == groups(client, column, plan, shuffle=True, seed=9, window_rows=64, batch_size=33)
    end = 2**63
    chosen = [xxhash.xxh3_64_intdigest(row.to_bytes(8, "little")) < end for row in range(ROWS)]
    assert groups(client, column, sample=0.5) == grouped(table.filter(pa.array(chosen)), column)


def test_derived_and_joined_columns_group(client: fl.FlightClient, table: pa.Table):
    derived = table.append_column("odd", pc.cast(pc.bit_wise_and(table["id"], 3), pa.int64()))
    plan = {**PLAN, "derive": [{"name": "odd", "expr": "id % 4"}], "filter": "x < 1.0"}
    want = derived.filter(pc.less(derived["x"], 1.0))
    assert groups(client, "odd", plan) == grouped(want, "odd")
    joined = {**PLAN, "join": [{"table": "one", "on": "id", "key": "id", "columns": ["k"], "prefix": "of_"}]}
    assert groups(client, "of_k", joined) == [("x", [1]), (None, [row for row in range(ROWS) if row != 1])]


def test_a_group_resumes_from_any_step_with_its_ticket_or_by_its_key(client: fl.FlightClient, table: pa.Table):
    for order in ({}, {"shuffle": True, "seed": 2, "window_rows": 50}):
        request = {"dataset": "t", "plan": PLAN, "group_by": "text", "batch_size": 32, "with_row_ids": True, **order}
        endpoint = next(end for end in info(client, request).endpoints if meta(end)["key"] == "Zürich")
        whole = client.do_get(endpoint.ticket).read_all()
        for start in (0, 32, 320):
            of_key = {**request, "group": meta(endpoint)["group"], "start_position": start}
            (rest,) = info(client, of_key).endpoints
            assert client.do_get(rest.ticket).read_all() == whole.slice(start)
            by_hand = json.dumps({"stream": {"request": of_key, "rank": 0}}).encode()
            assert client.do_get(fl.Ticket(by_hand)).read_all() == whole.slice(start)
        assert whole["__row_id"].to_pylist() == whole["id"].to_pylist()
    absent = {"dataset": "t", "plan": PLAN, "group_by": "text", "group": {"text": "nowhere"}}
    assert info(client, absent).total_records == 0


def test_the_schema_and_the_totals_are_those_of_the_plan(client: fl.FlightClient):
    request = {"dataset": "t", "plan": PLAN, "group_by": "text"}
    found = info(client, {**request, "batch_size": 100})
    assert found.schema.names == ["id"]
    descriptor = fl.FlightDescriptor.for_command(json.dumps(request).encode())
    assert client.get_schema(descriptor).schema == found.schema
    about = json.loads(found.app_metadata)
    assert (about["rows"], about["steps"]) == (ROWS, max(meta(end)["steps"] for end in found.endpoints))
    assert {meta(end)["type"] for end in found.endpoints} == {"string"}


def test_a_filter_that_no_row_passes_has_no_groups(client: fl.FlightClient):
    assert groups(client, "text", {**PLAN, "filter": "id < 0"}) == []
    assert groups(client, "k", dataset="one") == [("x", [1])]


@pytest.mark.parametrize("column", ["text", "long", "day", "coded"])
def test_buckets_hash_the_values(client: fl.FlightClient, table: pa.Table, column: str):
    buckets = 5
    got = groups(client, column, group_buckets=buckets, batch_size=64)
    assert [key for key, _ in got] == list(range(buckets))
    assert sorted(row for _, rows in got for row in rows) == list(range(ROWS))
    for bucket, rows in got:
        by_filter = {**PLAN, "filter": f"hash64({column}) % {buckets} = {bucket}"}
        (endpoint,) = info(client, {"dataset": "t", "plan": by_filter}).endpoints
        assert client.do_get(endpoint.ticket).read_all()["id"].to_pylist() == rows


def test_more_groups_than_the_limit_are_refused_and_buckets_are_not(client: fl.FlightClient):
    request = {"dataset": "many", "plan": PLAN, "group_by": "k"}
    with pytest.raises(pa.ArrowException, match=r"LIMIT: group_by: .*more than 10000 values.*--groups-max.*buckets"):
        info(client, request)
    found = info(client, {**request, "group_buckets": 100})
    assert len(found.endpoints) == 100
    assert sum(meta(end)["rows"] for end in found.endpoints) == 100_000
    rows = client.do_get(found.endpoints[42].ticket).read_all()["id"].to_pylist()
    assert len(rows) == meta(found.endpoints[42])["rows"] > 500
    few = groups(client, "k", {**PLAN, "filter": "k < 3"}, dataset="many")
    assert [key for key, _ in few] == [0, 1, 2]
    assert [len(rows) for _, rows in few] == [1, 1, 1]
    with pytest.raises(pa.ArrowException, match="INVALID_REQUEST: group_buckets: 10001 .*--groups-max"):
        info(client, {**request, "group_buckets": 10_001})


def test_a_raised_limit_lists_every_group(server: Server, folder: Path, serve: Serve):
    del server
    raised = serve({"many": folder.parent / "many"}, "--groups-max", "100000")
    with fl.connect(raised.url) as client:
        found = info(client, {"dataset": "many", "plan": PLAN, "group_by": "k"})
        assert [meta(endpoint)["key"] for endpoint in found.endpoints] == list(range(100_000))
        ids = pq.read_table(folder.parent / "many")["id"].to_numpy()
        keys = pq.read_table(folder.parent / "many")["k"].to_numpy()
        for key in (0, 54_321, 99_999):
            rows = client.do_get(found.endpoints[key].ticket).read_all()["id"].to_pylist()
            assert rows == ids[keys == key].tolist()


def test_ten_million_values_take_bounded_memory(tmp_path: Path, serve: Serve):
    rows = 10_000_000
    (tmp_path / "t").mkdir()
    keys = np.random.default_rng(5).permutation(rows)
    pq.write_table(pa.table({"id": np.arange(rows), "k": keys}), tmp_path / "t/0.parquet", row_group_size=1_000_000)
    server = serve({"t": tmp_path / "t"})

    def peak_bytes() -> int:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    before = peak_bytes()
    with fl.connect(server.url) as client:
        request = {"dataset": "t", "plan": PLAN, "group_by": "k", "batch_size": 8192}
        with pytest.raises(pa.ArrowException, match="LIMIT: group_by: .*--groups-max"):
            info(client, request)
        found = info(client, {**request, "group_buckets": 500})
        got = client.do_get(found.endpoints[7].ticket).read_all()["id"].to_numpy()
        assert len(got) == meta(found.endpoints[7])["rows"]
        some = [xxhash.xxh3_64_intdigest(int(keys[row]).to_bytes(8, "little")) % 500 for row in got[:1000]]
        assert set(some) == {7}
    # All keys as integers take 80 MB, in a table of hashes several times that.
    assert peak_bytes() - before < 160_000_000


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        ({"group_by": "x"}, 'group_by: column "x" is double: group by integers, booleans, strings'),
        ({"group_by": "txt"}, 'group_by: no column "txt": did you mean "text"'),
        ({"group_by": "f", "dataset": "one"}, 'column "f" is double'),
        ({"group_by": "l", "dataset": "one"}, 'column "l" is list<'),
        ({"group_by": "b", "dataset": "one"}, 'column "b" is binary'),
        ({"group_by": "s", "dataset": "one"}, 'column "s" is struct<'),
        ({"group_by": "x", "group_buckets": 4}, 'column "x" is double'),
        ({"group_by": "text", "world_size": 2}, "world_size: 2 cannot be combined with group_by"),
        ({"group_by": "text", "start_position": 1024}, "start_position: 1024 is a position within one group"),
        ({"group_buckets": 4}, "group_buckets: needs group_by"),
        ({"group": {"text": "a"}}, "group: needs group_by"),
        ({"group_by": "text", "group": {}}, "group: empty"),
        (
            {"group_by": "text", "group": {"integer": 3}},
            'group: not a value of column "text", which is string: set text',
        ),
        ({"group_by": "unsigned", "group": {"integer": -3}}, "which is uint64: set unsigned"),
        ({"group_by": "price", "group": {"decimal": "1.234"}}, r"which is decimal128\(20, 2\): set decimal"),
        ({"group_by": "text", "group": {"bucket": 3}}, "group.bucket: needs group_buckets"),
        ({"group_by": "text", "group_buckets": 4, "group": {"bucket": 4}}, "group: expected a bucket below"),
        ({"group_by": "text", "group": {"text": "a", "integer": 1}}, "StreamRequest"),
        ({"group_by": "text", "group_buckets": -1}, "group_buckets"),
    ],
)
def test_contradictions_and_unusable_columns_are_refused(client: fl.FlightClient, request_: dict[str, Any], match: str):
    with pytest.raises(pa.ArrowInvalid, match=f"INVALID_REQUEST: .*{match}"):
        info(client, {"dataset": "t", "plan": PLAN, **request_})


def test_actions_and_hand_written_tickets_need_the_group(client: fl.FlightClient):
    request = {"dataset": "t", "plan": PLAN, "group_by": "flag"}
    with pytest.raises(pa.ArrowInvalid, match="INVALID_REQUEST: group: missing"):
        client.do_get(fl.Ticket(json.dumps({"stream": {"request": request}}).encode())).read_all()
    with pytest.raises(pa.ArrowInvalid, match="INVALID_REQUEST: group: missing"):
        list(client.do_action(fl.Action("explain", json.dumps(request).encode())))
    of_null = {**request, "group": {"null": True}, "batch_size": 10}
    (explained,) = (
        json.loads(r.body.to_pybytes()) for r in client.do_action(fl.Action("explain", json.dumps(of_null).encode()))
    )
    assert explained["rows"] == info(client, of_null).total_records
    body = json.dumps({"stream": of_null, "step": 2}).encode()
    (replayed,) = (json.loads(r.body.to_pybytes()) for r in client.do_action(fl.Action("replay", body)))
    rows = client.do_get(info(client, of_null).endpoints[0].ticket).read_all()["id"].to_pylist()
    assert [row["row_id"] for row in replayed["rows"]] == rows[20:30]


def test_many_groups_stream_at_once(server: Server, client: fl.FlightClient, table: pa.Table):
    endpoints = info(client, {"dataset": "t", "plan": PLAN, "group_by": "text"}).endpoints

    def rows(endpoint: fl.FlightEndpoint) -> tuple[Any, list[int]]:
        with fl.connect(server.url) as own:
            return meta(endpoint)["key"], own.do_get(endpoint.ticket).read_all()["id"].to_pylist()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(rows, list(endpoints) * 3)) == grouped(table, "text") * 3


def test_counts_survive_a_restart_and_tickets_work_on_another_server(folder: Path, tmp_path: Path, table: pa.Table):
    flags = ("--dataset", f"t={folder}", "--state", str(tmp_path / "state"), *LOOPBACK)
    want = grouped(table, "long")
    with daemon(*flags) as first, fl.connect(first.url) as client:
        found = info(client, {"dataset": "t", "plan": PLAN, "group_by": "long"})
    (kept,) = (tmp_path / "state/group-counts").iterdir()
    for is_damaged in (False, True):
        if is_damaged:
            kept.write_bytes(kept.read_bytes()[:-1] + b"\x00")
        with daemon(*flags) as second, fl.connect(second.url) as client:
            got = [client.do_get(end.ticket).read_all()["id"].to_pylist() for end in found.endpoints]
            assert [(meta(end)["key"], rows) for end, rows in zip(found.endpoints, got, strict=True)] == want


def test_a_group_reads_only_row_groups_with_its_rows(folder: Path, tmp_path: Path):
    plan = plan_of(stored("id", "x"))
    with (
        daemon("--dataset", f"t={folder}", "--state", str(tmp_path / "state"), *LOOPBACK) as server,
        fl.connect(server.url) as client,
    ):
        endpoints = info(client, {"dataset": "t", "plan": plan, "group_by": "clustered"}).endpoints

        def read_bytes() -> float:
            return scrape(server).value("forebay_storage_read_bytes_total")

        def bytes_of(ticket: fl.Ticket) -> float:
            before = read_bytes()
            client.do_get(ticket).read_all()
            return read_bytes() - before

        of_groups = [bytes_of(endpoint.ticket) for endpoint in endpoints]
        for endpoint, of_group in zip(endpoints, of_groups, strict=True):
            one = {**plan, "filter": f"clustered = {meta(endpoint)['key']}"}
            assert bytes_of(info(client, {"dataset": "t", "plan": one}).endpoints[0].ticket) == of_group
        every = {**plan, "filter": "clustered >= 0"}
        whole = bytes_of(info(client, {"dataset": "t", "plan": every}).endpoints[0].ticket)
        assert 0 < max(of_groups) < whole / 2
