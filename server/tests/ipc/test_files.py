"""Arrow IPC files of several writers and shapes, and files that are damaged, mixed or of another kind."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.big_endian import big_endian_file
from harness.faults import outcome
from harness.object_store import Store, s3_server
from harness.serving import Serve, Server, raw_table, read, stored

ROWS = 500


def every_type(rows: int = ROWS) -> pa.Table:
    """A column of each type, a fifth of its values null."""

    def column(kind: pa.DataType, value: Any) -> pa.Array:
        return pa.array([None if row % 5 == 2 else value(row) for row in range(rows)], kind)

    day = dt.datetime(2024, 2, 29)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "bool": column(pa.bool_(), lambda row: row % 3 == 0),
            "int8": column(pa.int8(), lambda row: row % 100),
            "uint64": column(pa.uint64(), lambda row: 2**63 + row),
            "half": pa.array(np.arange(rows, dtype=np.float16)),
            "double": column(pa.float64(), lambda row: row / 7),
            "decimal": column(pa.decimal128(20, 3), lambda row: Decimal(row) / 8),
            "wide": column(pa.decimal256(60, 3), lambda row: Decimal(row) * 10**40),
            "date": column(pa.date32(), lambda row: day.date() + dt.timedelta(days=row)),
            "date64": column(pa.date64(), lambda row: day.date() + dt.timedelta(days=row)),
            "seconds": column(pa.timestamp("s", "UTC"), lambda row: day + dt.timedelta(seconds=row)),
            "nanoseconds": column(pa.timestamp("ns"), lambda row: day + dt.timedelta(microseconds=row)),
            "time": column(pa.time64("us"), lambda row: (day + dt.timedelta(seconds=row)).time()),
            "duration": column(pa.duration("ms"), lambda row: dt.timedelta(milliseconds=row)),
            "string": column(pa.string(), lambda row: f"wört {row % 9}" * (row % 4)),
            "large": column(pa.large_string(), str),
            "view": column(pa.string_view(), lambda row: f"a text that is longer than twelve bytes {row}"),
            "binary": column(pa.binary(), lambda row: bytes([row % 256]) * (row % 5)),
            "fixed": column(pa.binary(4), lambda row: row.to_bytes(4, "little")),
            "list": column(pa.list_(pa.int16()), lambda row: [row, None] * (row % 3)),
            "vector": column(pa.list_(pa.float32(), 3), lambda row: [row, None, row / 2]),
            "struct": column(pa.struct([("a", pa.int32()), ("b", pa.string())]), lambda row: {"a": row, "b": None}),
            "map": column(pa.map_(pa.string(), pa.int8()), lambda row: [(f"k{row % 3}", row % 100)]),
            "key": column(pa.string(), lambda row: f"key {row % 11}").dictionary_encode(),
            "small key": column(pa.string(), lambda row: f"k{row % 3}").cast(pa.dictionary(pa.int8(), pa.string())),
            "keys": pa.array(
                [[f"k{row % 7}"] * (row % 3) for row in range(rows)], pa.list_(pa.dictionary(pa.int32(), pa.string()))
            ),
            "nothing": pa.nulls(rows),
        }
    )


def write(table: pa.Table, path: Path, rows: int = 120, **options: Any) -> None:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


def served(server: Server, name: str) -> pa.Table:
    with fl.connect(server.url) as client:
        return raw_table(client, name)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("version", ["V4", "V5"])
def test_every_type_survives(tmp_path: Path, serve: Serve, codec: str | None, version: str):
    table = every_type()
    (tmp_path / "in").mkdir()
    if version == "V4" and codec:
        pytest.skip("V4 has no compression")
    write(table, tmp_path / "in/a.arrow", compression=codec, metadata_version=getattr(pa.ipc.MetadataVersion, version))
    got = served(serve({"data": tmp_path / "in"}), "data")
    assert got.schema.names == table.schema.names
    for name in table.schema.names:
        assert got[name].to_pylist() == table[name].to_pylist(), name
        assert got[name].type == table[name].type, name


def test_dictionaries_grow_by_deltas(tmp_path: Path, serve: Serve):
    words = [f"word {row}" for row in range(300)]
    whole = pa.array(words).dictionary_encode()
    schema = pa.schema({"word": whole.type})
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_file(tmp_path / "a.arrow", schema, options=options) as writer:
        for end in (100, 200, 300):
            keys = pa.array(range(end - 100, end), pa.int32())
            column = pa.DictionaryArray.from_arrays(keys, pa.array(words[:end]))
            writer.write_batch(pa.record_batch([column], schema=schema))
    with pa.ipc.open_file(tmp_path / "a.arrow") as file:
        assert file.stats.num_dictionary_deltas == 0 or file.num_record_batches == 3
    server = serve({"data": tmp_path})
    assert served(server, "data")["word"].to_pylist() == words
    with fl.connect(server.url) as client:
        got = read(client, "data", {"filter": "word = 'word 250'", "outputs": stored("word")})
    assert got["word"].to_pylist() == ["word 250"]


def test_dictionaries_within_dictionaries_are_refused_by_name(tmp_path: Path, serve: Serve):
    inner = pa.array(["x", "y", "x"]).dictionary_encode()
    values = pa.StructArray.from_arrays([inner, pa.array([1, 2, None])], ["k", "n"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 1, 0], pa.int8()), values)
    path = tmp_path / "a.arrow"
    write(pa.table({"c": column, "id": range(5)}), path, rows=2)
    assert pa.ipc.open_file(path).read_all().num_rows == 5
    server = serve({"data": path})
    code, text = outcome(lambda: served(server, "data"))
    assert code == "UNIMPLEMENTED", text
    assert "a.arrow" in text, text
    assert "its types are not read" in text, text


def test_big_endian_files_are_refused_by_name(tmp_path: Path, serve: Serve):
    path = tmp_path / "a.arrow"
    path.write_bytes(big_endian_file("x", [1, 2, -3]))
    assert pa.ipc.open_file(path).read_all().to_pydict() == {"x": [1, 2, -3]}
    server = serve({"data": path})
    code, text = outcome(lambda: served(server, "data"))
    assert code == "UNIMPLEMENTED", text
    assert "a.arrow" in text, text
    assert "big-endian" in text, text
    assert not any("panicked" in line for line in server.log)


def test_files_of_other_writers(tmp_path: Path, serve: Serve):
    table = every_type().select(["id", "double", "string", "list", "date"])
    (tmp_path / "polars").mkdir()
    (tmp_path / "feather").mkdir()
    frame = pl.DataFrame(pl.from_arrow(table))
    frame.write_ipc(tmp_path / "polars/a.arrow", compression="zstd")
    frame.write_ipc(tmp_path / "polars/b.ipc", compression="uncompressed")
    feather.write_feather(table, str(tmp_path / "feather/a.feather"), chunksize=99)
    server = serve({name: tmp_path / name for name in ("polars", "feather")})
    assert served(server, "feather").to_pylist() == table.to_pylist()
    assert served(server, "polars").to_pylist() == table.to_pylist() * 2


def test_schemas_are_united(tmp_path: Path, serve: Serve):
    write(
        pa.table({"x": pa.array([1, 2], pa.int32()), "k": pa.array(["a", "b"]).dictionary_encode()}),
        tmp_path / "a.arrow",
    )
    write(pa.table({"k": pa.array(["c"]), "x": pa.array([2**40]), "new": [1.5]}), tmp_path / "b.arrow")
    got = served(serve({"data": tmp_path}), "data")
    assert got.to_pylist() == [
        {"x": 1, "k": "a", "new": None},
        {"x": 2, "k": "b", "new": None},
        {"x": 2**40, "k": "c", "new": 1.5},
    ]


def test_a_bucket_is_read_by_ranges(serve: Serve, tmp_path: Path):
    table = every_type()
    write(table, tmp_path / "a.arrow", compression="zstd")
    with s3_server() as endpoint:
        store = Store(endpoint, "arrow")
        store.put("data/a.arrow", (tmp_path / "a.arrow").read_bytes())
        server = serve({"data": store.url("data/")})
        assert served(server, "data").to_pylist() == table.to_pylist()
        # Another file of this name is another snapshot, never a mixture of both.
        write(table.slice(0, 7), tmp_path / "a.arrow")
        store.put("data/a.arrow", (tmp_path / "a.arrow").read_bytes())
        assert served(server, "data").num_rows == 7


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.arrow": "arrow", "b.parquet": "parquet"}, "is an Arrow IPC file and"),
        ({"a.arrow": "stream"}, "does not end as an Arrow IPC file"),
        ({"a.arrow": "text"}, "does not end as an Arrow IPC file"),
        ({"a.arrow": "union"}, 'column "u": the type'),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, serve: Serve, files: dict[str, str], message: str):
    table = pa.table({"x": [1]})
    for name, kind in files.items():
        path = tmp_path / name
        if kind == "parquet":
            pq.write_table(table, path)
        elif kind == "stream":
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
        elif kind == "text":
            path.write_text("a text, longer than a footer")
        elif kind == "union":
            union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
            write(pa.table({"u": union}), path)
        else:
            write(table, path)
    server = serve({"data": tmp_path})
    with fl.connect(server.url) as client:
        with pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
            raw_table(client, "data")
        error = translate(raised.value)
    assert error.code in ("FAILED_PRECONDITION", "DATA_LOSS", "NOT_FOUND", "UNIMPLEMENTED")
    assert message in str(error), str(error)
    assert "a.arrow" in str(error)


PLAN = {
    "filter": "id >= 3",
    "outputs": stored("id", "string", "list", "key", "view", "struct"),
}


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> tuple[Path, Server]:
    folder = tmp_path_factory.mktemp("ill")
    well = tmp_path_factory.mktemp("well")
    write(every_type(), well / "a.arrow")
    write(every_type(), folder / "a.arrow")
    return folder / "a.arrow", serve({"ill": folder, "well": well}, "--memory-limit-bytes", str(256 << 20))


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "overwritten", "footer"])
def test_damaged_files_end_in_an_error_or_their_rows(ill: tuple[Path, Server], damage: str, codec: str | None):
    path, server = ill
    table = every_type(100)
    write(table, path, rows=40, compression=codec)
    whole = path.read_bytes()
    random = Random(f"{damage} {codec}")
    footer = int.from_bytes(whole[-10:-6], "little") + 10
    for _ in range(40):
        damaged = bytearray(whole)
        place = random.randrange(8, len(whole))
        if damage == "truncated":
            del damaged[place:]
        elif damage == "flipped":
            damaged[place] ^= 1 << random.randrange(8)
        elif damage == "footer":
            damaged[len(whole) - random.randrange(1, footer)] = random.randrange(256)
        else:
            damaged[place : place + 8] = random.choice([b"\xff" * 8, b"\0" * 8, (2**62).to_bytes(8, "little")])
            del damaged[len(whole) :]
        path.unlink()
        path.write_bytes(damaged)
        for call in (lambda client: raw_table(client, "ill"), lambda client: read(client, "ill", PLAN)):
            with fl.connect(server.url) as client:
                code, message = outcome(lambda call=call, client=client: call(client))
            assert code in ("OK", "DATA_LOSS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"), message
    assert server.alive
    assert served(server, "well").num_rows == ROWS


def test_buffers_that_declare_too_much_end_within_the_limit(ill: tuple[Path, Server]):
    path, server = ill
    table = pa.table({"text": ["x" * 1000] * 1000})
    write(table, path, rows=1000, compression="zstd")
    whole = path.read_bytes()
    length = (1_000_000).to_bytes(8, "little")
    assert whole.count(length) == 1
    for declared in (2**40, 2**62, 999_999, 1_000_001, -2 & (2**64 - 1)):
        path.unlink()
        path.write_bytes(whole.replace(length, declared.to_bytes(8, "little")))
        with fl.connect(server.url) as client:
            code, message = outcome(lambda client=client: raw_table(client, "ill"))
        assert code in ("DATA_LOSS", "RESOURCE_EXHAUSTED"), (code, message)
    assert server.alive
