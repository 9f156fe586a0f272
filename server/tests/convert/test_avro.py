"""`forebay convert` of Avro: every type and codec of fastavro and Polars, and files that are damaged or hostile."""

from __future__ import annotations

import datetime as dt
import io
import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import fastavro
import polars as pl
import pyarrow as pa
import pytest

from harness.avros import SYNC, block, header, long, record, text
from harness.convert import convert, peak_bytes

CODECS = ["null", "deflate", "snappy", "zstandard"]
UTC = dt.timezone.utc


def avro_bytes(schema: dict[str, Any], rows: Sequence[dict[str, Any]], **options: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, **options)
    return file.getvalue()


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


FIXED = {"type": "fixed", "name": "code", "size": 3}
POINT = record({"x": "int", "tag": ["null", "string"]}) | {"name": "point"}


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int", [-(2**31), 2**31 - 1], pa.int32()),
        ("long", [-(2**63), 2**63 - 1], pa.int64()),
        ("boolean", [True, False], pa.bool_()),
        ("float", [1.5, float("inf")], pa.float32()),
        ("double", [1e300, -0.0], pa.float64()),
        ("string", ["", "漢字"], pa.string()),
        ("bytes", [b"", b"\xff\0"], pa.binary()),
        (["null", "long"], [None, 5], pa.int64()),
        (["double", "null"], [0.5, None], pa.float64()),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"], pa.dictionary(pa.int32(), pa.string())),
        (FIXED, [b"abc", b"\0\1\2"], pa.binary(3)),
        (["null", FIXED], [None, b"abc"], pa.binary(3)),
        ({"type": "array", "items": ["null", "int"]}, [[1, None], []], pa.list_(pa.int32())),
        ({"type": "map", "values": "long"}, [[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        (["null", POINT], [None, {"x": 1, "tag": None}], pa.struct({"x": pa.int32(), "tag": pa.string()})),
        (logical("bytes", "decimal", precision=9, scale=2), [Decimal("-9999999.99")], pa.decimal128(9, 2)),
        (logical("bytes", "decimal", precision=50, scale=0), [Decimal(10**49)], pa.decimal256(50, 0)),
        (FIXED | logical("fixed", "decimal", precision=5, scale=1), [Decimal("-1234.5")], pa.decimal128(5, 1)),
        (logical("int", "date"), [dt.date(1900, 1, 1), dt.date(9999, 12, 31)], pa.date32()),
        (logical("int", "time-millis"), [dt.time(23, 59, 59, 999000)], pa.time32("ms")),
        (logical("long", "time-micros"), [dt.time(23, 59, 59, 999999)], pa.time64("us")),
        (logical("long", "timestamp-millis"), [dt.datetime(1960, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC")),
        (logical("long", "timestamp-micros"), [dt.datetime(2262, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        (logical("long", "local-timestamp-micros"), [dt.datetime(2020, 1, 2, 3, 4, 5, 6)], pa.timestamp("us")),
        (logical("string", "uuid"), [UUID(int=5)], pa.string()),
        (logical("long", "another"), [7], pa.int64()),
    ],
)
def test_types_survive(tmp_path: Path, kind: Any, values: list[Any], expected: pa.DataType):
    given = [{"x": dict(value) if isinstance(value, list) and kind["type"] == "map" else value} for value in values]
    (tmp_path / "a.avro").write_bytes(avro_bytes(record({"x": kind}), given))
    column = convert(tmp_path / "a.avro", tmp_path / "out").table()["x"]
    # Names and nullability of items are the writer's.
    assert column.cast(expected).type == expected
    assert pa.types.is_nested(expected) or column.type == expected
    assert column.to_pylist() == [str(value) if isinstance(value, UUID) else value for value in values]


def rows_of(random: Random, count: int) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        yield {
            "id": random.randint(-(2**63), 2**63 - 1),
            "name": random.choice([None, "", "漢字", "x" * random.randint(0, 300)]),
            "tags": [random.choice("abc") for _ in range(random.randint(0, 4))],
            "inner": random.choice([None, {"x": random.randint(-9, 9), "tag": random.choice([None, "t"])}]),
        }


@pytest.mark.parametrize("codec", CODECS)
def test_rows_of_several_files_survive(tmp_path: Path, codec: str):
    source = tmp_path / "in"
    source.mkdir()
    fields: dict[str, Any] = {"id": "long", "name": ["null", "string"], "tags": {"type": "array", "items": "string"}}
    random = Random(codec)
    expected: list[dict[str, Any]] = []
    for part, count in enumerate([20_011, 0, 1, 13]):
        rows = list(rows_of(random, count))
        # The last files lack a column, and the extension.
        kinds = fields if part > 1 else {"inner": ["null", POINT], **fields}
        data = avro_bytes(record(kinds), rows, codec=codec, sync_interval=random.choice([100, 16_000, 1_000_000]))
        (source / f"{part}{'' if part > 1 else '.avro'}").write_bytes(data)
        expected += [{"inner": row["inner"] if part < 2 else None} | row for row in rows]
        if part > 1:
            expected[-count:] = [row | {"inner": None} for row in expected[-count:]]
    done = convert(source, tmp_path / "out")
    assert (done.result["format"], done.result["sources"], done.result["rows"]) == ("avro", 4, len(expected))
    table = done.table()
    assert table.schema.names == ["inner", "id", "name", "tags"]
    assert table.to_pylist() == expected


def test_names_are_those_of_the_format(tmp_path: Path):
    inner = record({"f": FIXED, "none": "int"}) | {"name": "other.space.inner"}
    kind = record({"x": inner, "y": ["null", "other.space.inner"], "z": "other.space.code", "none": "null"})
    inside = {"f": b"abc", "none": 1}
    (tmp_path / "a.avro").write_bytes(avro_bytes(kind, [{"x": inside, "y": inside, "z": b"def", "none": None}]))
    table = convert(tmp_path / "a.avro", tmp_path / "out").table()
    assert table.to_pylist() == [{"x": inside, "y": inside, "z": b"def", "none": None}]
    assert [field.nullable for field in table.schema] == [False, True, False, True]


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "deflate"])
def test_files_of_polars(tmp_path: Path, compression: Any):
    frame = pl.DataFrame(
        {"i": [1, None, 3], "x": [0.5, 1.5, None], "s": ["a", None, "ß"], "d": [dt.date(2020, 1, 1), None, None]}
    )
    frame.write_avro(tmp_path / "a.avro", compression=compression)
    table = convert(tmp_path / "a.avro", tmp_path / "out").table()
    assert table.to_pylist() == frame.to_dicts()


ONE_LONG = record({"x": "long"})


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def refused(tmp_path: Path, data: bytes, *flags: str) -> str:
    (tmp_path / "a.avro").write_bytes(data)
    done = convert(tmp_path / "a.avro", tmp_path / "out", *flags)
    assert done.code in (1, 2), done.stdout
    assert not (tmp_path / "out").exists()
    return done.error


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (block(1, b"\2\4"), "records 1 to 1: their blocks have other records than they declare"),
        (block(1, b"\2\4\6\x08"), "records 1 to 1: their blocks have other records than they declare"),
        (block(2, b"\2\x80"), "bad varint"),
        (block(2, b"\2" * 2) + block(3, b"\2" * 2), "block 2: it has 3 records in 2 bytes"),
        (block(-1, b"\2"), "block 1: it has -1 records"),
        (block(2**62, b"\2"), f"block 1: it has {2**62} records in 1 bytes"),
        (block(0, b"\2"), "a block has bytes without records"),
        (long(1) + long(-5) + SYNC, "block 1: it has -5 bytes"),
        (long(1) + long(2**62) + b"\2" + SYNC, "block 1: it has more than 64 MiB"),
        (long(1) + long(2**20) + b"\2" + SYNC, "it ends early"),
        (block(1, b"\2", SYNC[::-1]), "block 1: another mark follows it"),
        (block(1, b"\2") + block(1, b"\2", bytes(16)), "block 2: another mark follows it"),
        (block(1, b"\2") + b"\xff" * 11, "an integer has more than 64 bits"),
    ],
)
def test_damaged_blocks_are_refused(tmp_path: Path, blocks: bytes, message: str):
    error = refused(tmp_path, header(ONE_LONG) + blocks)
    assert message in error, error
    assert str(tmp_path / "a.avro") in error


def test_an_empty_block_is_none(tmp_path: Path):
    (tmp_path / "a.avro").write_bytes(header(ONE_LONG) + block(0, b"") + block(1, b"\2") + block(0, b""))
    assert convert(tmp_path / "a.avro", tmp_path / "out").table()["x"].to_pylist() == [1]


def test_files_that_end_early_are_refused(tmp_path: Path):
    start = header(ONE_LONG)
    first = start + block(2, b"\2\4")
    whole = first + block(1, b"\6")
    for size in range(len(whole)):
        if size in (len(start), len(first)):
            continue
        error = refused(tmp_path, whole[:size], "--from", "avro")
        assert "it ends early" in error or "begin with the mark" in error or "without records" in error, (size, error)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damaged_compression_is_refused(tmp_path: Path, codec: str):
    random = Random(codec)
    # One block, whose values no other bytes have by accident.
    whole = avro_bytes(record({"x": "bytes"}), [{"x": random.randbytes(30)} for _ in range(50)], codec=codec)
    kept = fastavro.reader(io.BytesIO(whole))
    rows = [row["x"] for row in kept if isinstance(row, dict)]
    start = whole.index(b"avro.schema") + 200
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[random.randrange(start, len(whole))] ^= 1 << random.randrange(8)
        (tmp_path / "a.avro").write_bytes(damaged)
        done = convert(tmp_path / "a.avro", tmp_path / "out", "--force")
        # Deflate has no checksum, so that other values may result there.
        if done.code == 0 and codec == "snappy":
            assert done.table()["x"].to_pylist() == rows
        elif done.code != 0:
            assert "it is not a readable Avro file" in done.error, done.error


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        ("deflate", raw_deflate(bytes(200 << 20))),
        ("snappy", long(2**31)[:5] + b"\0" * 9),
        ("zstandard", pa.Codec("zstd").compress(bytes(200 << 20), asbytes=True)),
    ],
)
def test_blocks_that_grow_are_refused(tmp_path: Path, codec: str, stored: bytes):
    error = refused(tmp_path, header(ONE_LONG, codec) + block(1, stored))
    assert "block 1: it" in error, error
    assert "more than 64 MiB" in error or "it is damaged" in error, error


def laughs(levels: int) -> list[Any]:
    """Types of which each has two fields of the one before."""
    kinds: list[Any] = ["int"]
    for level in range(levels):
        inner = kinds[-1] if level == 0 else f"T{level - 1}"
        kinds.append(record({"a": inner, "b": inner}) | {"name": f"T{level}", "namespace": ""})
    return kinds[1:]


FIXED_OF_A_MEGABYTE = ["null", {"type": "fixed", "name": "f", "size": 1 << 20}]


@pytest.mark.parametrize(
    ("schema", "data", "message"),
    [
        (b"[not json", b"\2", "its schema is not JSON"),
        (b"\xff", b"\2", "its header has no schema"),
        ("string", b"\2a", "its schema is not a record"),
        (record({"x": ["null", "row"]}), b"\0", 'has the type "row" within itself'),
        (record({"x": "nothing"}), b"\0", 'the unknown type "nothing"'),
        (record({f"x{at}": kind for at, kind in enumerate(laughs(30))}), b"\0", "more than 100000 fields"),
        (record({"x": ["null", "int", "string"]}), b"\0", 'Parquet cannot store the column "x" of type Union'),
        (record({"x": FIXED | logical("fixed", "duration") | {"size": 12}}), b"\0" * 12, "cannot store the column"),
        (record({"x": {"type": "array", "items": "null"}}), b"\2\0", "lists of values without bytes"),
        (record({"x": FIXED_OF_A_MEGABYTE}), b"\0" * 5000, "values of type fixed take too much memory"),
        (record({"x": "null"}), b"", "records in 0 bytes"),
        (record({"x": {"type": "enum", "name": "e", "symbols": ["A"]}}), b"\x08", "records 1 to 1: "),
        (record({"x": "string"}), b"\2\xff", "records 1 to 1: "),
        (record({"x": logical("string", "uuid")}), b"\2\xff", "records 1 to 1: "),
        (record({"x": ["null", "long"]}), b"\x0a", "records 1 to 1: "),
        (record({"x": logical("bytes", "decimal", precision=2, scale=0)}), b"\4\x7f\xff", 'column "x": '),
        (record({"x": logical("bytes", "decimal", precision=9, scale=0)}), b"\x28" + b"\x7f" * 20, "records 1 to 1: "),
    ],
)
def test_hostile_schemas_are_refused(tmp_path: Path, schema: Any, data: bytes, message: str):
    count = len(data) if message.startswith("values of type fixed") else 1
    error = refused(tmp_path, header(schema) + block(count, data))
    assert message in error, error


def test_other_files_are_refused_by_what_they_lack(tmp_path: Path):
    for codec in ("bzip2", "xz"):
        data = header(ONE_LONG, codec) + block(1, b"\2")
        assert f'its blocks are compressed as "{codec}": write it again as deflate' in refused(tmp_path, data)
    assert "--type does not apply: avro files have types" in refused(tmp_path, header(ONE_LONG), "--type", "x=int8")
    (tmp_path / "b.avro").write_bytes(header(record({"x": "string"})))
    (tmp_path / "a.avro").write_bytes(header(ONE_LONG))
    done = convert([tmp_path / "a.avro", tmp_path / "b.avro"], tmp_path / "out")
    assert (done.code, 'column "x" is Utf8, and Int64 in' in done.error) == (1, True), done.error


def test_memory_is_bounded(tmp_path: Path):
    pixels = text(Random(1).randbytes(1 << 20))
    with (tmp_path / "a.avro").open("wb") as file:
        file.write(header(record({"image": "bytes"})))
        for _ in range(400):
            file.write(block(1, pixels))
    peak = peak_bytes(tmp_path / "a.avro", tmp_path / "out")
    assert peak < 200 << 20, f"{peak} bytes of memory for 400 MiB of images"
