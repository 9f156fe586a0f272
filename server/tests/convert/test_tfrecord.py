"""`forebay convert` of TFRecord: features of tf.train.Example, and files that are damaged or of another schema."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from harness.convert import convert, peak_bytes
from harness.tfrecords import Values, example, framed, masked_crc, message, tfrecord_bytes


def rows_of(count: int, seed: int = 0) -> list[dict[str, Values]]:
    random = Random(seed)

    def integer() -> int:
        return random.randint(-(2**63), 2**63 - 1)

    rows: list[dict[str, Values]] = []
    for row in range(count):
        features: dict[str, Values] = {
            "label": [integer()],
            "image/encoded": [random.randbytes(random.randint(0, 300)) + b"\xff"],
            "image/format": [random.choice(["JPEG", "漢字", ""])],
            "box": [random.random() for _ in range(random.randint(0, 4))],
            "ids": [integer() for _ in range(random.randint(2, 3))],
            "names": [random.choice(["a", "b"]) for _ in range(random.randint(1, 3))],
            "score": [0.5],
        }
        names = list(features)
        random.shuffle(names)
        # The first rows have every feature, so that few rows suffice to infer types.
        kept = {name: features[name] for name in names if row < 10 or random.random() < 0.9}
        rows.append({name: None if row > 10 and random.random() < 0.1 else values for name, values in kept.items()})
    return rows


LISTS = ("box", "ids", "names")


def expected(rows: list[dict[str, Values]]) -> list[dict[str, Any]]:
    names = sorted({name for row in rows for name in row})

    def value(name: str, values: Values) -> Any:
        if values is None:
            return None
        values = [struct.unpack("<f", struct.pack("<f", x))[0] if isinstance(x, float) else x for x in values]
        return values if name in LISTS else values[0]

    return [{name: value(name, row.get(name)) for name in names} for row in rows]


@pytest.mark.parametrize("packed", [True, False])
def test_examples_survive(tmp_path: Path, packed: bool):
    source = tmp_path / "in"
    source.mkdir()
    rows: list[dict[str, Values]] = []
    for part, count in enumerate([1009, 1, 8193, 13]):
        part_rows = rows_of(count, part)
        data = tfrecord_bytes(part_rows, packed)
        name, stored = [
            ("0.tfrecord-00000-of-00001", data),
            ("1.tfrecords", gzip.compress(data)),
            ("2.tfrec.gz", gzip.compress(data)),
            ("3.tfrecord", zlib.compress(data)),
        ][part]
        (source / name).write_bytes(stored)
        rows += part_rows
    done = convert(source, tmp_path / "out")
    assert (done.result["format"], done.result["sources"]) == ("tfrecord", 4)
    table = done.table()
    assert {name: table.schema.field(name).type for name in table.schema.names} == {
        "box": pa.list_(pa.float32()),
        "ids": pa.list_(pa.int64()),
        "image/encoded": pa.binary(),
        "image/format": pa.string(),
        "label": pa.int64(),
        "names": pa.list_(pa.string()),
        "score": pa.float32(),
    }
    assert table.schema.names == sorted(table.schema.names)
    assert table.to_pylist() == expected(rows)


def test_absent_and_empty_features(tmp_path: Path):
    rows: list[dict[str, Values]] = [{"x": [1], "l": [1, 2]}, {}, {"x": None, "l": None}, {"x": [], "l": []}]
    # An empty list of bytes and one of another type hold no values.
    (tmp_path / "a.tfrecord").write_bytes(tfrecord_bytes(rows))
    table = convert(tmp_path / "a.tfrecord", tmp_path / "out").table()
    assert table["x"].to_pylist() == [1, None, None, None]
    assert table["l"].to_pylist() == [[1, 2], None, None, []]


def test_a_length_that_looks_like_gzip(tmp_path: Path):
    # The length begins with the bytes 1f 8b.
    overhead = len(example({"x": [b"x" * 30_000]})) - 30_000
    record = example({"x": [b"x" * (0x8B1F - overhead)]})
    assert struct.pack("<Q", len(record))[:2] == b"\x1f\x8b"
    (tmp_path / "a.tfrecord").write_bytes(framed(record))
    assert convert(tmp_path / "a.tfrecord", tmp_path / "out").result["rows"] == 1


def test_parts_without_an_extension(tmp_path: Path):
    source = tmp_path / "in"
    source.mkdir()
    for part in range(3):
        (source / f"train-{part:05}-of-00003").write_bytes(tfrecord_bytes([{"x": [part]}]))
    assert convert(source, tmp_path / "out", "--from", "tfrecord").table()["x"].to_pylist() == [0, 1, 2]


def test_types_are_set(tmp_path: Path):
    rows: list[dict[str, Values]] = [{"a": ["x"], "b": [5], "c": [0.5], "d": [1, 2]}, {"a": [b"\xff"]}]
    (tmp_path / "a.tfrecord").write_bytes(tfrecord_bytes(rows))
    flags = [part for flag in ("a=binary", "b=uint8", "c=double", "d=int16") for part in ("--type", flag)]
    table = convert(tmp_path / "a.tfrecord", tmp_path / "out", "--infer-rows", "1", *flags).table()
    kinds = [table.schema.field(name).type for name in "abcd"]
    assert kinds == [pa.binary(), pa.uint8(), pa.float64(), pa.list_(pa.int16())]
    assert table.to_pylist()[0] == {"a": b"x", "b": 5, "c": 0.5, "d": [1, 2]}


LATER = ["--infer-rows", "1"]


@pytest.mark.parametrize(
    ("rows", "flags", "message"),
    [
        ([{"x": [1]}, {"x": [0.5]}], [], 'record 2, column "x": it is a float_list here, and an int64_list before'),
        ([{"x": [1]}, {"x": [0.5]}], LATER, 'record 2, column "x": it is a float_list here, and an int64_list before'),
        ([{"x": [1]}, {"x": [1, 2]}], LATER, 'record 2, column "x": it has 2 values, and at most one in the first 1'),
        ([{"x": [1]}, {"y": [1]}], LATER, 'record 2, column "y": the first 1 records do not have it'),
        ([{"x": ["a"]}, {"x": [b"\xff"]}], LATER, 'record 2, column "x": it is not UTF-8: set --type x=binary'),
        (
            [{"x": ["a", "b"]}, {}, {"x": ["a", "b", b"\xff"]}],
            LATER,
            'record 3, column "x": it is not UTF-8: set --type x=binary',
        ),
        ([{"x": [1]}, {"x": [300]}], ["--type", "x=uint8"], 'record 2, column "x": the type of --type does not hold'),
        ([{"x": [1]}], ["--type", "x=string"], "the feature is an int64_list, which becomes an integer type"),
        ([{"x": [1]}], ["--type", "y=int8"], "no file has this column"),
        ([{}], [], "it has no record with a feature"),
        ([], [], "it has no record with a feature"),
    ],
)
def test_errors_name_the_record(tmp_path: Path, rows: list[dict[str, Values]], flags: list[str], message: str):
    (tmp_path / "a.tfrecord").write_bytes(tfrecord_bytes(rows))
    done = convert(tmp_path / "a.tfrecord", tmp_path / "out", *flags)
    assert done.code in (1, 2)
    assert message in done.error, done.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (message(1, b"") + message(2, b""), "it has the field 2, as a tf.train.SequenceExample"),
        (b"\xff\xd8\xff\xe0 a JPEG", "it is not a tf.train.Example"),
        (b"plain text", "it is not a tf.train.Example"),
        (example({"x": [1]})[:-1], "it is not a tf.train.Example"),
        (example({"x": [1]}) + example({"x": [1]}), 'column "x": the record has this feature twice'),
    ],
)
def test_records_of_other_schemas_are_refused(tmp_path: Path, record: bytes, message: str):
    (tmp_path / "a.tfrecord").write_bytes(tfrecord_bytes([{"x": [1]}]) + framed(record))
    done = convert(tmp_path / "a.tfrecord", tmp_path / "out")
    assert (done.code, "record 2" in done.error, message in done.error) == (1, True, True), done.error


def test_every_flipped_bit_is_found(tmp_path: Path):
    rows = [{"x": [1], "y": ["text"]}, {"x": [2], "y": ["more"]}]
    whole = tfrecord_bytes(rows)
    random = Random(1)
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        (tmp_path / "a.tfrecord").write_bytes(damaged)
        done = convert(tmp_path / "a.tfrecord", tmp_path / "out")
        assert (done.code, "is wrong: the file is damaged" in done.error) == (1, True), done.error


def test_files_that_end_early_are_refused(tmp_path: Path):
    first = len(tfrecord_bytes([{"x": [1]}]))
    whole = tfrecord_bytes([{"x": [1]}, {"x": [2]}])
    for size in range(1, len(whole)):
        if size == first:
            continue
        if size % 7 == 0 or size in (1, 11, 12, first - 1, first + 1, len(whole) - 1):
            (tmp_path / "a.tfrecord").write_bytes(whole[:size])
            done = convert(tmp_path / "a.tfrecord", tmp_path / "out")
            place = f"record {1 if size < first else 2}: the file ends early"
            assert (done.code, place in done.error) == (1, True), (size, done.error)
    for packed in (gzip.compress(whole), zlib.compress(whole), pa.Codec("zstd").compress(whole, asbytes=True)):
        for cut in (1, 5, 20):
            (tmp_path / "b.tfrecord").write_bytes(packed[:-cut])
            done = convert(tmp_path / "b.tfrecord", tmp_path / "out")
            assert (done.code, "b.tfrecord" in done.error) == (1, True), done.error


@pytest.mark.parametrize("length", [(64 << 20) + 1, 2**40, 2**64 - 1])
def test_declared_lengths_allocate_nothing(tmp_path: Path, length: int):
    header = struct.pack("<Q", length)
    (tmp_path / "a.tfrecord").write_bytes(tfrecord_bytes([{"x": [1]}]) + header + masked_crc(header) + b"data")
    done = convert(tmp_path / "a.tfrecord", tmp_path / "out")
    assert (done.code, f"record 2: it has {length} bytes, and a record has at most" in done.error) == (1, True)


def test_memory_is_bounded(tmp_path: Path):
    record = framed(example({"image": [Random(1).randbytes(1 << 20)], "label": [1]}))
    with (tmp_path / "a.tfrecord").open("wb") as file:
        for _ in range(400):
            file.write(record)
    peak = peak_bytes(tmp_path / "a.tfrecord", tmp_path / "out")
    assert peak < 200 << 20, f"{peak} bytes of memory for 400 MiB of images"
