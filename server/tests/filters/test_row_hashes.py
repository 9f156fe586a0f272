"""`hash64` and `__row_id` in expressions: hashes equal those of xxhash, and ids are the rows of the snapshot."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
import xxhash

from harness.daemon import LOOPBACK, Daemon
from harness.exchange import exchange, refused
from harness.serving import Serve, fit, info, plan_of, read, stored

ROWS = 3000
GROUP = 170
FILES = 3
NAN = 0x7FF8_0000_0000_0000


def integer(value: int) -> bytes:
    return (value % 2**64).to_bytes(8, "little")


def double(value: float) -> bytes:
    return struct.pack("<Q", NAN) if value != value else struct.pack("<d", value + 0.0)


def days(value: dt.date) -> bytes:
    return integer((value - dt.date(1970, 1, 1)).days)


def microseconds(value: dt.datetime) -> bytes:
    return integer((value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))


def identity(value: bytes) -> bytes:
    return value


def columns() -> dict[str, tuple[pa.Array, Callable[[Any], bytes]]]:
    """Columns of every type, with extreme values and nulls, and the bytes of a value that are hashed."""
    random = np.random.default_rng(8)
    gaps = random.random(ROWS) < 0.1
    wide = random.integers(-(2**63), 2**63 - 1, ROWS)
    wide[:4] = [0, -1, 2**63 - 1, -(2**63)]
    floats = random.normal(0, 1e10, ROWS)
    floats[:6] = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324]
    words = ["é" * (i % 9) + f"user {i % 211}" * (i % 4) for i in range(ROWS)]
    start = dt.datetime(1899, 12, 31, 23, 59, 59)
    times = [start + dt.timedelta(hours=i * 11, microseconds=i) for i in range(ROWS)]
    decimals = [Decimal(int(i) - 1500).scaleb(-2) for i in range(ROWS)]
    return {
        "i64": (pa.array(wide, mask=gaps), integer),
        "i32": (pa.array((wide % 2**32 - 2**31).astype(np.int32)), integer),
        "u64": (pa.array(wide.astype(np.uint64), mask=gaps), integer),
        "flag": (pa.array(wide % 2 == 0, mask=gaps), integer),
        "f64": (pa.array(floats, mask=gaps), double),
        "f32": (pa.array(floats.astype(np.float32)), double),
        "decimal": (pa.array(decimals, pa.decimal128(20, 2)), lambda value: double(float(value))),
        "word": (pa.array(words, mask=gaps), str.encode),
        "large": (pa.array(words, pa.large_string(), mask=gaps), str.encode),
        "category": (pa.array(words, mask=gaps).dictionary_encode(), str.encode),
        "bytes": (pa.array([bytes([i % 256]) * (i % 20) for i in range(ROWS)], mask=gaps), identity),
        "day": (pa.array([time.date() for time in times], mask=gaps), days),
        "time": (pa.array(times, pa.timestamp("us"), mask=gaps), microseconds),
    }


COLUMNS = columns()


def digests(name: str, seed: int) -> list[int]:
    values, encode = COLUMNS[name]
    bytes_of = [b"" if value is None else encode(value) for value in values.to_pylist()]
    return [xxhash.xxh3_64_intdigest(data, seed=seed) for data in bytes_of]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hashes")
    table = pa.table({name: values for name, (values, _) in COLUMNS.items()})
    layouts: dict[str, dict[str, Any]] = {
        "plain": {},
        "keyed": {"use_dictionary": True},
        "raw": {"use_dictionary": False},
    }
    size = ROWS // FILES
    for name, options in layouts.items():
        (root / name).mkdir()
        for file in range(FILES):
            part = table.slice(file * size, size)
            pq.write_table(part, root / name / f"{file}.parquet", row_group_size=GROUP, **options)
    (root / "own").mkdir()
    own = pa.table({"__row_id": pa.array([7, 8, 9]), "x": pa.array([1, 2, 3])})
    pq.write_table(own, root / "own" / "a.parquet")
    return {name: root / name for name in (*layouts, "own")}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path], serve: Serve) -> Iterator[fl.FlightClient]:
    with fl.connect(serve(folders).url) as connected:
        yield connected


def derived(client: fl.FlightClient, dataset: str, expr: str, **more: Any) -> list[Any]:
    plan = plan_of(stored("v"), derive=[{"name": "v", "expr": expr}], **more)
    return read(client, dataset, plan)["v"].to_pylist()


def ids(client: fl.FlightClient, dataset: str, text: str, **more: Any) -> list[int]:
    request = {"dataset": dataset, "plan": plan_of(stored("i32"), filter=text), "with_row_ids": True, **more}
    found = info(client, request)
    got = [row for end in found.endpoints for row in client.do_get(end.ticket).read_all()["__row_id"].to_pylist()]
    assert found.total_records == len(got)
    return got


@pytest.mark.parametrize("name", COLUMNS)
def test_hashes_are_those_of_xxhash(client: fl.FlightClient, name: str):
    for seed, expr in ((0, f"hash64({name})"), (7, f"hash64({name}, 7)"), (2**64 - 1, f"hash64({name}, {2**64 - 1})")):
        want = digests(name, seed)
        for dataset in ("plain", "keyed", "raw"):
            assert derived(client, dataset, expr) == want, (dataset, expr)


@pytest.mark.parametrize("name", ["i64", "f64", "word", "bytes", "time", "decimal"])
def test_hashes_are_the_buckets_of_the_op(client: fl.FlightClient, name: str):
    ops = [{"hash_bucket": {"buckets": 10, "seed": 7}}]
    bucket = {"name": "b", "dtype": "INT64", "parts": [{"columns": [name], "ops": ops}]}
    plan = plan_of([bucket, *stored("v")], filter=f"{name} IS NOT NULL")
    plan["derive"] = [{"name": "v", "expr": f"hash64({name}, 7) % 10"}]
    got = read(client, "plain", plan)
    assert got["b"].to_pylist() == got["v"].to_pylist()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_split_and_its_complement_hold_every_row_once(client: fl.FlightClient, name: str):
    want = [row for row, digest in enumerate(digests(name, 7)) if digest % 10 == 0]
    held = ids(client, "plain", f"hash64({name}, 7) % 10 = 0")
    assert held == want
    assert sorted(held + ids(client, "keyed", f"hash64({name}, 7) % 10 <> 0")) == list(range(ROWS))


ROW_FILTERS: dict[str, Callable[[int], bool]] = {
    "__row_id % 10 <> 0": lambda row: row % 10 != 0,
    "__row_id = 1234": lambda row: row == 1234,
    "__row_id < 300 AND i32 > 0": lambda row: row < 300 and COLUMNS["i32"][0][row].as_py() > 0,
    "__row_id BETWEEN 999 AND 1001": lambda row: 999 <= row <= 1001,
    "__row_id IN (0, 169, 170, 2999, 3000)": lambda row: row in (0, 169, 170, 2999),
    "__row_id >= 2990.5": lambda row: row >= 2991,
    "__row_id - 5 < 0": lambda row: row < 5,
    "__row_id IS NULL": lambda _: False,
    "NOT (__row_id < 2998)": lambda row: row >= 2998,
    "hash64(__row_id, 3) % 100 < 5": lambda row: xxhash.xxh3_64_intdigest(integer(row), seed=3) % 100 < 5,
}


@pytest.mark.parametrize("text", ROW_FILTERS)
def test_row_ids_are_the_rows_of_the_snapshot(client: fl.FlightClient, text: str):
    want = [row for row in range(ROWS) if ROW_FILTERS[text](row)]
    assert ids(client, "plain", text) == want
    assert sorted(ids(client, "plain", text, world_size=3)) == want
    shuffled = ids(client, "plain", text, world_size=2, shuffle=True, window_rows=64, lanes=4)
    assert sorted(shuffled) == want
    plan = plan_of(stored("v"), derive=[{"name": "v", "expr": "__row_id"}], filter=text)
    assert read(client, "plain", plan)["v"].to_pylist() == want


def test_a_stream_by_row_ids_resumes_and_replays(client: fl.FlightClient):
    plan = plan_of(stored("v"), derive=[{"name": "v", "expr": "__row_id"}], filter="hash64(__row_id) % 3 = 0")
    request = {"dataset": "plain", "plan": plan, "batch_size": 32, "shuffle": True, "window_rows": 128, "lanes": 4}
    whole = client.do_get(info(client, request).endpoints[0].ticket).read_all()["v"].to_pylist()
    rest = info(client, {**request, "start_position": 96})
    assert client.do_get(rest.endpoints[0].ticket).read_all()["v"].to_pylist() == whole[96:]
    body = json.dumps({"stream": request, "rank": 0, "step": 3}).encode()
    rows = [row for part in client.do_action(fl.Action("replay", body)) for row in json.loads(bytes(part.body))["rows"]]
    assert [row["row_id"] for row in rows] == whole[96:128]


def test_counts_by_row_ids_are_kept_and_pruned(folders: dict[str, Path], tmp_path: Path):
    counts = []
    for _ in range(2):
        flags = ("--state", f"{tmp_path}/state", "--dataset", f"plain={folders['plain']}")
        daemon = Daemon(*LOOPBACK, *flags)
        with fl.connect(daemon.url) as client:
            body = json.dumps({"dataset": "plain", "plan": plan_of(stored("i32"), filter="__row_id < 200")}).encode()
            explained = json.loads(bytes(next(iter(client.do_action(fl.Action("explain", body)))).body))
            counts.append((explained["rows"], explained["row_groups"]))
            assert ids(client, "plain", "__row_id < 200") == list(range(200))
        daemon.stop()
    assert counts == [(200, 2), (200, 2)]


def test_a_fit_reads_row_ids(client: fl.FlightClient):
    part = {"columns": ["v"], "ops": [{"min_max": {}}]}
    plan = plan_of([{"name": "o", "parts": [part]}], derive=[{"name": "v", "expr": "__row_id"}])
    plan["filter"] = "__row_id % 1000 = 777 OR __row_id = 2999"
    learned = fit(client, "plain", plan)[-1]["result"]["plan"]["outputs"][0]["parts"][0]["ops"][0]["min_max"]
    assert (learned["min"], learned["max"]) == (777, 2999)


def test_row_ids_exist_only_in_datasets(client: fl.FlightClient):
    rows = pa.record_batch({"x": pa.array([1, 2, None])})
    for plan, path in (
        (plan_of(stored("x"), filter="__row_id % 10 <> 0"), "plan.filter"),
        (plan_of(stored("v"), derive=[{"name": "v", "expr": "hash64(__row_id)"}]), "plan.derive[0].expr"),
    ):
        code, message = refused(client, {"plan": plan}, rows)
        assert code == "INVALID_ARGUMENT"
        assert path in message
        assert "__row_id is the index of a row in a dataset" in message
    hashed = plan_of(stored("v"), derive=[{"name": "v", "expr": "hash64(x, 1)"}])
    (answer,) = exchange(client, {"plan": hashed}, [rows])
    assert answer["v"].to_pylist() == [xxhash.xxh3_64_intdigest(d, seed=1) for d in (integer(1), integer(2), b"")]


def test_a_column_named_like_the_row_id_is_never_taken_for_it(client: fl.FlightClient):
    for plan, more in (
        (plan_of(stored("x"), filter="__row_id < 9"), {}),
        (plan_of(stored("v"), derive=[{"name": "v", "expr": "__row_id + 1"}]), {}),
        (plan_of(stored("x")), {"with_row_ids": True}),
    ):
        with pytest.raises(pa.ArrowInvalid, match="rename the column"):
            info(client, {"dataset": "own", "plan": plan, **more})
    assert read(client, "own", plan_of(stored("x"), filter="x > 1"))["x"].to_pylist() == [2, 3]
