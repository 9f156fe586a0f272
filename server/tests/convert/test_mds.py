"""`forebay convert` of MDS: folders of shards with an index, and shards that do not fit it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from harness.convert import convert, peak_bytes
from harness.mds import edit_index, write_mds

COLUMNS = {
    "z": "int",
    "i8": "int8",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "text": "str",
    "image": "jpeg",
    "raw": "bytes",
    "big": "str_int",
    "price": "str_decimal",
    "meta": "json",
    "embedding": "ndarray:float32:2,3",
}

TYPES = {
    "z": pa.int64(),
    "i8": pa.int8(),
    "u64": pa.uint64(),
    "f16": pa.float16(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "text": pa.string(),
    "image": pa.binary(),
    "raw": pa.binary(),
    "big": pa.string(),
    "price": pa.string(),
}


def rows_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    random = Random(seed)
    return [
        {
            "z": random.randint(-(2**63), 2**63 - 1),
            "i8": random.randint(-128, 127),
            "u64": random.randint(0, 2**64 - 1),
            "f16": random.choice([0.5, -2.0, math.inf]),
            "f32": random.choice([0.25, -3.0]),
            "f64": random.gauss(0, 1),
            "text": random.choice(["", "漢字", "two\nlines"]),
            "image": random.randbytes(random.randint(0, 1000)),
            "raw": random.randbytes(random.randint(0, 5)),
            "big": str(random.randint(0, 10**40)),
            "price": "1.10",
            "meta": {"row": row, "tags": ["a"] * random.randint(0, 2)},
            "embedding": [float(random.randint(0, 9)) for _ in range(6)],
        }
        for row in range(count)
    ]


@pytest.mark.parametrize("codec", [None, "zstd", "zstd:7", "gz"])
def test_samples_survive(tmp_path: Path, codec: str | None):
    shards = [rows_of(count, seed) for seed, count in enumerate([997, 1, 0, 8193])]
    source = write_mds(tmp_path / "in", COLUMNS, shards, codec)
    done = convert(source, tmp_path / "out")
    assert (done.result["format"], done.result["sources"]) == ("mds", 1)
    table = done.table()
    assert table.schema.names == list(COLUMNS)
    assert {name: table.schema.field(name).type for name in TYPES} == TYPES
    assert table.schema.field("embedding").type.list_size == 6
    assert table.to_pylist() == [row for rows in shards for row in rows]


def test_folders_are_in_order_and_have_their_shards_only(tmp_path: Path):
    columns = {"x": "int32"}
    for folder, start in {"b": 10, "a/part": 0, "c": 20}.items():
        write_mds(tmp_path / "in" / folder, columns, [[{"x": start}], [{"x": start + 1}]])
    (tmp_path / "in/a/part/stray.csv").write_text("x\n1\n")
    done = convert(tmp_path / "in", tmp_path / "out")
    assert done.result["sources"] == 3
    assert done.table()["x"].to_pylist() == [0, 1, 10, 11, 20, 21]
    # An index of several folders names their shards.
    merged = write_mds(tmp_path / "merged/sub", columns, [[{"x": 5}]]).parent
    (merged / "sub/index.json").rename(merged / "index.json")

    def into_folder(index: dict[str, Any]) -> None:
        index["shards"][0]["raw_data"]["basename"] = "sub/shard.00000.mds"

    edit_index(merged, into_folder)
    assert convert(merged, tmp_path / "merged_out").table()["x"].to_pylist() == [5]


def test_types_are_set(tmp_path: Path):
    rows = [{"big": "7", "price": "1.10", "meta": {"a": 1}, "text": b"\xff"}]
    columns = {"big": "str_int", "price": "str_decimal", "meta": "json", "text": "str"}
    source = write_mds(tmp_path / "in", columns, [rows])
    flags = ["big=int16", "price=decimal128(5, 2)", "meta=string", "text=binary"]
    table = convert(source, tmp_path / "out", *[part for flag in flags for part in ("--type", flag)]).table()
    assert [str(kind) for kind in table.schema.types] == ["int16", "decimal128(5, 2)", "string", "binary"]
    assert table["meta"].to_pylist() == ['{"a": 1}']


Edit = Callable[[dict[str, Any]], Any]


def in_shard(key: str, value: Any) -> Edit:
    """Set a key of the second shard."""
    return lambda index: index["shards"][1].update({key: value})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda index: index.update(version=3), "has version 3, and version 2 is read"),
        (lambda index: index.update(shards=[]), "it has no shards"),
        (in_shard("format", "json"), 'its shard "shard.00001.mds" has the format json'),
        (in_shard("samples", 3), "it has 2 samples, and 3 in the index"),
        (in_shard("column_encodings", ["int", "pkl"]), 'column "y" has the encoding pkl: pickled objects run code'),
        (in_shard("column_encodings", ["int", "pil"]), "write it as png or jpeg"),
        (in_shard("column_encodings", ["int", "ndarray"]), "arrays need a type and a shape"),
        (in_shard("column_encodings", ["int", "bytes"]), 'its shard "shard.00001.mds" has other columns'),
        (in_shard("column_names", ["x", "z"]), 'its shard "shard.00001.mds" has other columns'),
        (in_shard("column_names", ["x"]), "columns without a name, encoding or size"),
        (in_shard("column_names", ["x", "x"]), 'two columns have the name "x"'),
        (in_shard("column_sizes", [4, None]), 'column "x" has another size than its encoding int'),
        (in_shard("raw_data", {"basename": "../shard.mds", "bytes": 1}), "which is outside the folder"),
        (in_shard("raw_data", {"basename": "/shard.mds", "bytes": 1}), "which is outside the folder"),
        (in_shard("raw_data", {"basename": "gone.mds", "bytes": 1}), "the index names it, and it does not exist"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(tmp_path: Path, edit: Edit, message: str):
    rows = [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    source = write_mds(tmp_path / "in", {"x": "int", "y": "str"}, [rows, rows])
    edit_index(source, edit)
    done = convert(source, tmp_path / "out")
    assert (done.code, message in done.error, str(source) in done.error) == (1, True, True), done.error
    assert not (tmp_path / "out").exists()


def test_other_codecs_are_refused_by_name(tmp_path: Path):
    source = write_mds(tmp_path / "in", {"x": "int"}, [[{"x": 1}]], "br:3")
    done = convert(source, tmp_path / "out")
    assert (done.code, "it is compressed with br, and zstd and gz are read" in done.error) == (1, True), done.error


@pytest.mark.parametrize("codec", [None, "zstd", "gz"])
def test_shards_that_end_early_are_refused(tmp_path: Path, codec: str | None):
    source = write_mds(
        tmp_path / "in", {"x": "int", "y": "str"}, [[{"x": row, "y": "text"} for row in range(3)]], codec
    )
    shard = next(path for path in source.iterdir() if path.name != "index.json")
    whole = shard.read_bytes()
    for size in [0, 3, 4, 19, 20, 30, len(whole) - 20, len(whole) - 1]:
        shard.write_bytes(whole[:size])
        done = convert(source, tmp_path / "out")
        assert (done.code, shard.name in done.error) == (1, True), (size, done.error)
        if codec is None:
            assert "ends early" in done.error
    shard.write_bytes(whole + whole[-1:])
    done = convert(source, tmp_path / "out")
    assert done.code == 1 or codec == "gz", done.error


def test_offsets_and_sizes_that_do_not_fit_are_refused(tmp_path: Path):
    columns = {"x": "int", "y": "str"}
    source = write_mds(tmp_path / "in", columns, [[{"x": row, "y": "text"} for row in range(3)]])
    shard = source / "shard.00000.mds"
    whole = shard.read_bytes()
    start = struct.unpack_from("<I", whole, 4)[0]
    for place, value in [
        (4, 0),
        (4, 8),
        (8, 2**32 - 1),
        (8, 0),
        (16, 2**31),
        (start, 0),
        (start, 5),
        (start, 2**32 - 1),
    ]:
        damaged = bytearray(whole)
        struct.pack_into("<I", damaged, place, value)
        shard.write_bytes(damaged)
        done = convert(source, tmp_path / "out")
        assert (done.code, "damaged" in done.error) == (1, True), (place, value, done.error)


def test_bad_values_have_their_record(tmp_path: Path):
    rows = [{"y": "a", "j": {"a": 1}}, {"y": b"\xff", "j": {"a": 1}}]
    source = write_mds(tmp_path / "in", {"y": "str", "j": "json"}, [rows])
    done = convert(source, tmp_path / "out")
    assert 'record 2, column "y": it is not UTF-8: set --type y=binary' in done.error
    rows = [{"y": "a", "j": {"a": 1}}, {"y": "a", "j": {"a": "x"}}]
    source = write_mds(tmp_path / "in", {"y": "str", "j": "json"}, [rows])
    assert 'record 2, column "j.a": it is a text here' in convert(source, tmp_path / "out").error
    done = convert(source, tmp_path / "out", "--infer-rows", "1")
    assert '"j.a": it is a text, the column is Int64: raise --infer-rows' in done.error, done.error
    done = convert(source / "index.json", tmp_path / "out", "--from", "mds")
    assert "mds are folders: name the folder that has this file" in done.error


def test_memory_is_bounded(tmp_path: Path):
    image = Random(1).randbytes(1 << 20)
    images = [number.to_bytes(8, "big") + image for number in range(400)]
    shards = [[{"image": image} for image in images[start : start + 100]] for start in range(0, 400, 100)]
    source = write_mds(tmp_path / "in", {"image": "jpeg"}, shards)
    peak = peak_bytes(source, tmp_path / "out")
    assert peak < 200 << 20, f"{peak} bytes of memory for 400 MiB of images"
