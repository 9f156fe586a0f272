"""Datasets whose files differ in their schemas: matched by name, widened without loss, or refused by name.

Each is compared with a dataset of the same rows in one file, written in the common schema with the same row groups.
"""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.faults import outcome
from harness.serving import Serve, Server, fit, info, plan_of, raw_table, stored

ROWS = 120
GROUP_ROWS = 50
WORDS = [None if i % 7 == 3 else f"wörd {i % 5}" for i in range(ROWS)]
STAMPS = [dt.datetime(1969, 12, 31) + dt.timedelta(hours=i) for i in range(ROWS)]
POINTS = [None if i % 9 == 4 else {"x": i, "tag": f"t{i % 3}"} for i in range(ROWS)]
TEXT_KEYS = pa.dictionary(pa.int8(), pa.string())
MAP, WIDE_MAP = pa.map_(pa.string(), pa.int8()), pa.map_(pa.large_string(), pa.int32())


def numbers(kind: pa.DataType) -> pa.Array:
    return pa.array([None if i % 5 == 2 else i for i in range(ROWS)], pa.int64()).cast(kind)


def words(kind: pa.DataType) -> pa.Array:
    return pa.array(WORDS, kind)


def prices(precision: int, scale: int) -> pa.Array:
    return pa.array([None if i % 4 == 1 else Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(precision, scale))


def nothing() -> pa.Array:
    return pa.nulls(ROWS)


def lists(kind: pa.DataType) -> pa.Array:
    return pa.array([None if i % 6 == 1 else [i] * (i % 3) + [None] for i in range(ROWS)], kind)


def maps(kind: pa.DataType) -> pa.Array:
    return pa.array([None if i % 6 == 1 else [(f"k{i}", i)] for i in range(ROWS)], kind)


def points(*fields: tuple[str, pa.DataType]) -> pa.Array:
    rows = [point and {name: point.get(name) for name, _ in fields} for point in POINTS]
    return pa.array(rows, pa.struct(list(fields)))


def stamps(unit: str, zone: str | None = None) -> pa.Array:
    return pa.array(STAMPS, pa.timestamp(unit, zone))


def days(kind: pa.DataType) -> pa.Array:
    return pa.array([None if i % 5 == 2 else i for i in range(ROWS)], pa.int32()).cast(pa.date32()).cast(kind)


# The column `c` of each file (none where it has none), its type in the dataset, and filters on it.
UNIONS: dict[str, tuple[list[pa.Array | None], pa.DataType, list[str]]] = {
    "missing first": ([None, numbers(pa.int64())], pa.int64(), ["c IS NULL", "c > 50"]),
    "missing later": ([words(pa.string()), None], pa.string(), ["c IS NULL", "c = 'wörd 1'", "c LIKE 'w%'"]),
    "null first": ([nothing(), numbers(pa.float64())], pa.float64(), ["c IS NOT NULL", "c < 7.5"]),
    "null later": ([words(pa.string()), nothing()], pa.string(), ["c <> 'wörd 2'"]),
    "null and lists": ([nothing(), lists(pa.list_(pa.int64()))], pa.list_(pa.int64()), ["c IS NULL"]),
    "null and a dictionary": ([words(TEXT_KEYS), nothing()], TEXT_KEYS, ["c = 'wörd 1'"]),
    "all null": ([nothing(), None], pa.null(), []),
    "signed": ([numbers(pa.int8()), numbers(pa.int64()), numbers(pa.int16())], pa.int64(), ["c > 100", "c = 6"]),
    "unsigned": ([numbers(pa.uint8()), numbers(pa.uint32())], pa.uint32(), ["c BETWEEN 10 AND 20"]),
    "signs": ([numbers(pa.uint16()), numbers(pa.int8())], pa.int32(), ["c >= 118"]),
    "floats": ([numbers(pa.float32()), numbers(pa.float64())], pa.float64(), ["c > 100.5"]),
    "half floats": ([numbers(pa.float16()), numbers(pa.float32())], pa.float32(), ["c > 100"]),
    "small integers and floats": ([numbers(pa.int16()), numbers(pa.float32())], pa.float32(), ["c > 100"]),
    "integers and floats": ([numbers(pa.int32()), numbers(pa.float32())], pa.float64(), ["c > 100"]),
    "decimals": ([prices(6, 2), prices(12, 5)], pa.decimal128(12, 5), ["c > 2.25", "c = 20"]),
    "integers and decimals": ([numbers(pa.int32()), prices(6, 2)], pa.decimal128(12, 2), ["c > 2.25", "c = 20"]),
    "decimals and long integers": ([prices(6, 2), numbers(pa.int64())], pa.decimal128(21, 2), ["c > 100", "c IS NULL"]),
    "wide decimals": ([prices(38, 10), prices(38, 30)], pa.decimal256(58, 30), []),
    "days": ([days(pa.date64()), days(pa.date32())], pa.date64(), ["c > DATE '1970-02-01'", "c IS NULL"]),
    "times": ([stamps("ms"), stamps("us")], pa.timestamp("us"), ["c > TIMESTAMP '1970-01-02 01:00:00'"]),
    "zoned times": ([stamps("ms", "UTC"), stamps("ns", "UTC")], pa.timestamp("ns", "UTC"), []),
    "dictionary and text": ([words(TEXT_KEYS), words(pa.string())], pa.string(), ["c = 'wörd 4'"]),
    "text and dictionary": ([words(pa.large_string()), words(TEXT_KEYS)], pa.large_string(), ["c = 'wörd 4'"]),
    "large text": ([words(pa.string()), words(pa.large_string())], pa.large_string(), ["c > 'wörd 2'"]),
    "views and text": ([words(pa.string_view()), words(pa.string())], pa.string(), ["c > 'wörd 2'"]),
    "binary": ([words(pa.binary()), words(pa.large_binary())], pa.large_binary(), ["c IS NULL"]),
    "items": ([lists(pa.list_(pa.int8())), lists(pa.list_(pa.int32()))], pa.list_(pa.int32()), []),
    "large lists": ([lists(pa.list_(pa.int8())), lists(pa.large_list(pa.int8()))], pa.large_list(pa.int8()), []),
    "maps": ([maps(MAP), maps(WIDE_MAP)], WIDE_MAP, []),
    "fields": (
        [points(("x", pa.int8()), ("tag", pa.string())), points(("more", pa.int8()), ("x", pa.int64()))],
        pa.struct([("x", pa.int64()), ("tag", pa.string()), ("more", pa.int8())]),
        ["c IS NULL"],
    ),
}


def as_type(column: pa.Array | None, kind: pa.DataType) -> pa.Array:
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(ROWS, kind)
    is_plain = not pa.types.is_nested(kind) and not pa.types.is_dictionary(column.type)
    return column.cast(kind) if is_plain else pa.array(column.to_pylist(), kind)


def write(path: Path, tables: list[pa.Table], group_rows: int = GROUP_ROWS) -> None:
    """One file whose row groups end where the tables do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=group_rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each union, a folder of files with columns in different orders, and one of the same rows in one file."""
    root = tmp_path_factory.mktemp("unions")
    for name, (columns, kind, _) in UNIONS.items():
        united: list[pa.Table] = []
        for part, column in enumerate(columns):
            ids = pa.array(range(part * ROWS, (part + 1) * ROWS), pa.int64())
            data = {"id": ids, "c": column, "part": pa.array([part] * ROWS, pa.int32())}
            names = [key for key in (list(data), list(reversed(data)))[part % 2] if data[key] is not None]
            write(root / name / f"{part}.parquet", [pa.table({key: data[key] for key in names})])
            united.append(pa.table(data | {"c": as_type(column, kind)}))
        write(root / f"{name}, one file" / "a.parquet", united)
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({folder.name: folder for folder in root.iterdir()})


def batches(client: fl.FlightClient, request: dict[str, Any]) -> list[bytes]:
    """Every batch of rank 0 of 2, as Arrow IPC."""
    found = info(client, {"batch_size": 32, "world_size": 2, "with_row_ids": True, **request})
    return [chunk.data.serialize().to_pybytes() for chunk in client.do_get(found.endpoints[0].ticket)]


ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "seed": 5},
    {"shuffle": True, "seed": 6, "sample": 0.5},
]
HASH = [{"fill_null": {"text": "none"}}, {"hash_bucket": {"buckets": 1000}}]


def features(kind: pa.DataType) -> list[dict[str, Any]]:
    """Outputs that compute with `c`."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == TEXT_KEYS:
        return [{"name": "x", "dtype": "INT64", "parts": [{"columns": ["c"], "ops": HASH}]}]
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        ops = [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]
        return [{"name": "x", "dtype": "FLOAT64", "parts": [{"columns": ["c"], "ops": ops}]}]
    return []


@pytest.mark.parametrize("name", UNIONS)
def test_streams_are_those_of_one_file(server: Server, name: str):
    _, kind, filters = UNIONS[name]
    with fl.connect(server.url) as client:
        got, want = raw_table(client, name), raw_table(client, f"{name}, one file")
        assert got.schema.field("c").type == kind
        assert got.select(["id", "c", "part"]).combine_chunks().equals(want.combine_chunks()), got["c"]
        for text in ["", *filters, "part = 1", "id % 3 = 1"]:
            plan = plan_of(stored("part", "c", "id"), **({"filter": text} if text else {}))
            for order in ORDERS:
                of_files = batches(client, {"dataset": name, "plan": plan, **order})
                assert of_files == batches(client, {"dataset": f"{name}, one file", "plan": plan, **order}), (
                    text,
                    order,
                )
            assert of_files or text


def learned(client: fl.FlightClient, dataset: str, plan: dict[str, Any]) -> dict[str, Any]:
    return fit(client, dataset, plan)[-1]["result"]["plan"]


@pytest.mark.parametrize("name", UNIONS)
def test_fits_features_and_descriptions_are_those_of_one_file(server: Server, name: str):
    _, kind, _ = UNIONS[name]
    one = f"{name}, one file"
    with fb.connect(server.url) as client, fl.connect(server.url) as flights:
        described, want = client.describe(name), client.describe(one)
        assert described["c"] == want["c"]
        assert client.head(name, 130)["c"].to_pylist() == client.head(one, 130)["c"].to_pylist()
        if outputs := features(kind):
            plan: dict[str, Any] = {"outputs": outputs}
            fitted = [learned(flights, dataset, plan) for dataset in (name, one)]
            assert fitted[0] == fitted[1]
            for order in ORDERS[:2]:
                of_files = batches(flights, {"dataset": name, "plan": fitted[0], **order})
                assert of_files == batches(flights, {"dataset": one, "plan": fitted[0], **order})


def ids(group: fb.Group) -> list[int]:
    return sorted(int(i) for batch in group.open() for i in batch["id"].ravel())


def test_groups_and_explanations(server: Server):
    for name in ("missing first", "signed", "text and dictionary", "null later"):
        with fb.connect(server.url) as client:
            plan = fb.Plan(outputs={"id": fb.cols("id")})
            kept: list[dict[Any, list[int]]] = []
            for dataset in (name, f"{name}, one file"):
                groups = client.groups(dataset, plan, by="c", batch_size=64)
                kept.append(
                    {group.key: sorted(int(i) for b in group.open() for i in b["id"].ravel()) for group in groups}
                )
            assert kept[0] == kept[1]
            explained = client.explain(name, plan, batch_size=64)
            assert explained.rows == len(UNIONS[name][0]) * ROWS


# === Random splits ===

COLUMNS = ("i", "f", "t", "d", "s", "l")


def random_table(random: Random, rows: int) -> pa.Table:
    def gappy(values: list[Any], kind: pa.DataType) -> pa.Array:
        gap = random.choice([0, 0.2, 0.9])
        return pa.array([None if random.random() < gap else value for value in values], kind)

    spread = random.choice([100, 30_000, 2**40])
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "i": gappy([random.randrange(-spread, spread) for _ in range(rows)], pa.int64()),
            "f": gappy([float(random.randrange(-100, 100)) / 2 for _ in range(rows)], pa.float64()),
            "t": gappy([f"t{random.randrange(9)}" for _ in range(rows)], pa.string()),
            "d": gappy([Decimal(random.randrange(-999, 999)) / 100 for _ in range(rows)], pa.decimal128(20, 4)),
            "s": gappy([dt.datetime(2020, 1, 1) + dt.timedelta(seconds=i) for i in range(rows)], pa.timestamp("us")),
            "l": gappy([[i, None][: random.randrange(3)] for i in range(rows)], pa.list_(pa.int32())),
        }
    )


NARROWER: dict[str, list[pa.DataType]] = {
    "i": [pa.int8(), pa.int16(), pa.int32()],
    "f": [pa.float32(), pa.float16()],
    "t": [pa.dictionary(pa.int8(), pa.string()), pa.string_view()],
    "d": [pa.decimal128(6, 2), pa.decimal128(7, 3)],
    "s": [pa.timestamp("ms"), pa.timestamp("s")],
    "l": [pa.list_(pa.int16())],
}


def narrowed(random: Random, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """The same values in a narrower type, or no column if there are none."""
    if column.null_count == len(column) and random.random() < 0.7:
        return random.choice([None, pa.chunked_array([pa.nulls(len(column))])])
    kind = random.choice([column.type, *NARROWER[name]])
    if pa.types.is_dictionary(kind):
        return column.dictionary_encode().cast(kind)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_random_splits_stream_the_bytes_of_one_file(tmp_path: Path, first: int):
    for seed in range(first, first + 8):
        random = Random(seed)
        rows = random.choice([200, 700])
        table = random_table(random, rows)
        cuts = [0, *sorted(random.sample(range(1, rows), random.choice([1, 3, 6]))), rows]
        slices = [table.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
        write(tmp_path / f"{seed}-one/a.parquet", slices, 64)
        for index, part in enumerate(slices):
            # For each column, some file has the whole type.
            kept = {name for place, name in enumerate(COLUMNS) if (place + seed) % len(slices) == index}
            columns = {name: part[name] if name in kept else narrowed(random, part[name], name) for name in COLUMNS}
            names = ["id", *(name for name in COLUMNS if columns[name] is not None)]
            random.shuffle(names)
            data = {"id": part["id"], **columns}
            write(tmp_path / f"{seed}-files/{index}.parquet", [pa.table({name: data[name] for name in names})], 64)
    server = Server({folder.name: folder for folder in tmp_path.iterdir()})
    try:
        with fl.connect(server.url) as client:
            for seed in range(first, first + 8):
                for text in ("", "i > 0", "t = 't3' OR f < 0", "s IS NULL", "d >= 1.5 AND id > 20"):
                    plan = plan_of(stored("id", *COLUMNS), **({"filter": text} if text else {}))
                    for order in ORDERS:
                        request = {"plan": plan, "seed": seed, **order}
                        want = batches(client, {"dataset": f"{seed}-one", **request})
                        assert batches(client, {"dataset": f"{seed}-files", **request}) == want, (seed, text, order)
    finally:
        server.stop()


# === Other writers ===


def test_files_of_pandas_polars_duckdb_and_pyarrow_are_one_dataset(tmp_path: Path, serve: Serve):
    """An all-null column of pandas is Null, one of integers with gaps is float; Polars writes large text and views."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    when = dt.datetime(2024, 2, 29, 12, 30)
    frame = pd.DataFrame({"word": [None, None], "count": pd.array([1, 2], "int32"), "when": [when, when]})
    frame.to_parquet(folder / "a.parquet")
    columns = {"count": [3.5, None], "word": ["x", "y"]}
    pl.DataFrame(columns, schema={"count": pl.Float64, "word": pl.Categorical}).write_parquet(folder / "b.parquet")
    query = "SELECT TIMESTAMP '2024-02-29 12:30:00' AS \"when\", 'z' AS word, 7::TINYINT AS count, [1, 2] AS more"
    duckdb.sql(query).write_parquet(str(folder / "c.parquet"))
    empty = pa.table({"word": pa.nulls(0), "more": pa.array([], pa.list_(pa.int64()))})
    pq.write_table(empty, folder / "d.parquet")
    with fl.connect(serve({"mixed": folder}).url) as client:
        got = raw_table(client, "mixed")
        assert got["word"].to_pylist() == [None, None, "x", "y", "z"]
        assert got["count"].to_pylist() == [1, 2, 3.5, None, 7]
        assert [value and pd.Timestamp(value) for value in got["when"].to_pylist()] == [when, when, None, None, when]
        assert got["more"].to_pylist() == [None] * 4 + [[1, 2]]
        assert got.schema.field("count").type == pa.float64()
        assert got.schema.field("more").type.value_type == pa.int64()


def test_new_files_with_other_columns_are_a_new_snapshot(tmp_path: Path, serve: Serve):
    write(tmp_path / "a.parquet", [pa.table({"x": pa.array([1, 2], pa.int32())})])
    with fl.connect(serve({"t": tmp_path}).url) as client:
        plan = plan_of(stored("x"))
        ticket = info(client, {"dataset": "t", "plan": plan, "batch_size": 2}).endpoints[0].ticket
        before = raw_table(client, "t")
        write(tmp_path / "b.parquet", [pa.table({"y": ["z"], "x": pa.array([3], pa.int64())})])
        assert raw_table(client, "t").to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": None}, {"x": 3, "y": "z"}]
        # A ticket keeps its snapshot, with the types that it had.
        assert client.do_get(ticket).read_all()["x"].equals(before["x"])


# === Refusals ===

DRIFTS: dict[str, list[pa.DataType]] = {
    "text and numbers": [pa.string(), pa.int64()],
    "64 bits with and without a sign": [pa.int64(), pa.uint64()],
    "64 bits and floats": [pa.int64(), pa.float64()],
    "text and bytes": [pa.string(), pa.binary()],
    "time zones": [pa.timestamp("us", "UTC"), pa.timestamp("us")],
    "dates and times": [pa.date32(), pa.timestamp("us")],
    "lists and numbers": [pa.list_(pa.int64()), pa.int64()],
    "items": [pa.list_(pa.int64()), pa.list_(pa.string())],
    "fields": [pa.struct([("x", pa.int64())]), pa.struct([("x", pa.string())])],
}


def test_types_without_a_common_one_are_refused_by_name(tmp_path: Path, serve: Serve):
    for name, kinds in DRIFTS.items():
        for file, kind in enumerate([pa.null(), *kinds]):
            write(tmp_path / name / f"{file}.parquet", [pa.table({"ok": [1], "Ünlike": pa.nulls(1, kind)})])
    server = serve({name: tmp_path / name for name in DRIFTS})
    with fl.connect(server.url) as client:
        for name in DRIFTS:
            for request in (
                lambda name=name: raw_table(client, name),
                lambda name=name: info(client, {"dataset": name, "plan": plan_of(stored("ok")), "batch_size": 1}),
            ):
                code, text = outcome(request)
                assert code == "FAILED_PRECONDITION", text
                for word in ('"Ünlike"', "1.parquet", "2.parquet", "--dataset-schema"):
                    assert word in text, (word, text)
    with fb.connect(server.url) as client, pytest.raises(fb.SchemaDrift):
        client.schema("fields")


def test_a_value_that_the_common_type_cannot_hold_is_an_error(tmp_path: Path, serve: Serve):
    """Nanoseconds end in 2262."""
    write(tmp_path / "a.parquet", [pa.table({"at": pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("ms"))})])
    write(tmp_path / "b.parquet", [pa.table({"at": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ns"))})])
    with fl.connect(serve({"t": tmp_path}).url) as client:
        code, text = outcome(lambda: raw_table(client, "t"))
    assert code == "FAILED_PRECONDITION", text
    for word in ("a.parquet", "row group 0", '"at"', "Timestamp"):
        assert word in text


def test_a_column_that_no_file_has_is_unknown(server: Server):
    with fl.connect(server.url) as client:
        request = {"dataset": "missing first", "plan": plan_of(stored("cc")), "batch_size": 1}
        code, text = outcome(lambda: info(client, request))
        assert (code, '"cc"' in text) == ("INVALID_ARGUMENT", True), text
