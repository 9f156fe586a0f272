"""Corrupt encoded values: indices, runs, lengths, levels. DATA_LOSS naming file, row group and column."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

from harness.damaged_files import (
    PAGES,
    Patient,
    as_stored,
    ended,
    raw,
    sample_table,
    stream,
    through,
)
from harness.parquet.surgery import (
    DataHeaderV2,
    Page,
    Parquet,
    dissect,
)
from harness.parquet.thrift_compact import varint

HUGE = 2**31 - 1
TABLE = sample_table()
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
PLACE = ("a.parquet", "row group 1", 'column "word"')


def sample(codec: str = "none", version: str = "1.0", **options: object) -> Parquet:
    return dissect(TABLE, PAGES, compression=codec, data_page_version=version, **options)


# === Runs and bit widths: a page of 500 indices without nulls is its bit width and its runs ===

REQUIRED = pa.schema([pa.field("word", pa.string(), nullable=False)])


def indices(body: bytes) -> bytes:
    table = pa.table({"word": [f"k{i % 20}" for i in range(500)]}, schema=REQUIRED)
    file = dissect(table)
    file.page(0, "word", 0).store(body)
    return file.build()


def run(count: int, index: int, width: int = 1) -> bytes:
    return varint(count << 1) + index.to_bytes(width, "little")


@pytest.mark.parametrize("index", [20, 21, 255])
def test_dictionary_index_out_of_range(patient: Patient, index: int):
    patient.refuses(indices(b"\x08" + run(499, 3) + run(1, index)), "a.parquet", "row group 0", 'column "word"')


@pytest.mark.parametrize("index", [2**31 - 1, 2**31, 2**32 - 1])
def test_dictionary_index_that_is_negative_or_huge(patient: Patient, index: int):
    patient.refuses(indices(b"\x20" + run(500, index, 4)), "a.parquet", "row group 0", 'column "word"')


def test_dictionary_index_out_of_range_in_a_bit_packed_run(patient: Patient):
    body = b"\x08" + varint((63 << 1) | 1) + bytes([3] * 499) + bytes([77]) + bytes(4)
    patient.refuses(indices(body), "a.parquet", "row group 0", 'column "word"')


@pytest.mark.parametrize("width", [127, 255])
def test_bit_widths_above_64(patient: Patient, width: int):
    patient.refuses(indices(bytes([width]) + run(500, 3, 8) + bytes(100)), "a.parquet", "row group 0", 'column "word"')


@pytest.mark.parametrize("width", [33, 64])
def test_bit_widths_above_32_are_rejected_or_read(patient: Patient, width: int):
    table = pa.table({"word": ["k3"] * 500}, schema=REQUIRED)
    patient.refuses_or_serves(indices(bytes([width]) + run(500, 3, -(-width // 8))), table)


RUNS: dict[str, bytes] = {
    "a run of 2^31 - 1": b"\x08" + run(HUGE, 3),
    "a run of 2^31": b"\x08" + run(2**31, 3),
    "a run of 2^62": b"\x08" + run(2**62, 3),
    "a run of 2^63 - 1": b"\x08" + run(2**63 - 1, 3),
    "2^31 - 1 packed groups": b"\x08" + varint(HUGE << 1 | 1) + bytes([3] * 500),
    "2^61 packed groups": b"\x08" + varint(2**61 << 1 | 1) + bytes([3] * 500),
    "a length that does not end": b"\x08" + b"\xff" * 500,
    "a length of eleven bytes": b"\x08" + b"\xff" * 10 + b"\x01" + bytes(500),
    "nothing": b"",
    "a bit width alone": b"\x08",
    "a run without its value": b"\x08" + varint(500 << 1),
    "a run too short": b"\x08" + run(499, 3),
    "bit width 0": b"\0" + run(500, 0, 0),
}


@pytest.mark.parametrize("name", RUNS)
def test_wrong_run_lengths(patient: Patient, name: str):
    same = "k0" if name == "bit width 0" else "k3"
    table = pa.table({"word": [same] * 500}, schema=REQUIRED)
    codes = patient.refuses_or_serves(indices(RUNS[name]), table)
    if name in ("nothing", "a bit width alone", "a run without its value", "a run too short"):
        assert codes == {"DATA_LOSS"}


@pytest.mark.parametrize("rest", [b"", run(500, 3)])
def test_empty_runs(patient: Patient, rest: bytes):
    """No writer makes them, and some pad pages with them: readers differ in what they take them for."""
    patient.put(indices(b"\x08" + run(0, 3) * 1000 + rest))
    with patient.aftermath() as client:
        for found, text in patient.ends(client, "word").values():
            assert found in ("OK", "DATA_LOSS"), text


# === Plain and delta-encoded bodies ===


def plain_texts(body: bytes) -> bytes:
    table = pa.table({"word": ["abc"] * 100}, schema=REQUIRED)
    file = dissect(table, use_dictionary=False)
    file.page(0, "word", 0).store(body)
    return file.build()


ABC = struct.pack("<I", 3) + b"abc"

TEXT_BODIES: dict[str, bytes] = {
    "a length of 2 GiB": ABC * 99 + struct.pack("<I", HUGE) + b"abc",
    "a length of -1": ABC * 99 + struct.pack("<i", -1) + b"abc",
    "a length of one too many": ABC * 99 + struct.pack("<I", 4) + b"abc",
    "half a length": ABC * 99 + b"\x03\0",
    "lengths that add up to 4 GiB": struct.pack("<I", HUGE) * 100,
}


@pytest.mark.parametrize("name", TEXT_BODIES)
def test_wrong_text_lengths(patient: Patient, name: str):
    patient.refuses(plain_texts(TEXT_BODIES[name]), "a.parquet", "row group 0", 'column "word"')


BAD_TEXTS: dict[str, bytes] = {
    "a byte that is none": b"a\xffc",
    "half a letter": b"ab\xc3",
    "a surrogate": b"\xed\xa0\x80",
    "an overlong slash": b"a\xc0\xaf",
    "beyond the last letter": b"\xf5\x80\x80",
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_invalid_utf8_in_a_plain_page(patient: Patient, name: str):
    body = ABC * 99 + struct.pack("<I", 3) + BAD_TEXTS[name]
    patient.refuses(plain_texts(body), "a.parquet", "row group 0", 'column "word"')


def test_invalid_utf8_of_a_character_split_across_values(patient: Patient):
    body = ABC * 98 + struct.pack("<I", 3) + b"ab\xc3" + struct.pack("<I", 3) + b"\xa9bc"
    patient.refuses(plain_texts(body), "a.parquet", "row group 0", 'column "word"')


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_invalid_utf8_in_a_dictionary(patient: Patient, name: str):
    file = dissect(pa.table({"word": ["abc", "def"] * 50}))
    page = file.dictionary(0, "word")
    page.body = page.body.replace(b"def", BAD_TEXTS[name])
    patient.refuses(file.build(), "a.parquet", "row group 0", 'column "word"')


def delta(encoding: str, column: str) -> tuple[Parquet, Page]:
    file = dissect(TABLE, column_encoding={column: encoding}, use_dictionary=False, data_page_version="2.0")
    return file, file.page(0, column, 0)


DELTA_HEADERS: dict[str, bytes] = {
    "no values in a block": varint(0) + varint(4) + varint(1000) + varint(0),
    "no miniblocks": varint(128) + varint(0) + varint(1000) + varint(0),
    "blocks of 2^62": varint(2**62) + varint(4) + varint(1000) + varint(0),
    "2^62 miniblocks": varint(128) + varint(2**62) + varint(1000) + varint(0),
    "miniblocks that do not divide": varint(128) + varint(7) + varint(1000) + varint(0),
    "2^62 values": varint(128) + varint(4) + varint(2**62) + varint(0),
    "2^45 values": varint(128) + varint(4) + varint(2**45) + varint(0),
    "fewer values": varint(128) + varint(4) + varint(10) + varint(0),
    "bit widths of 255": varint(128) + varint(4) + varint(1000) + varint(0) + varint(0) + b"\xff" * 4 + bytes(4096),
    "nothing": b"",
    "lengths that do not end": b"\xff" * 100,
}


DELTAS = {(column, name) for column in ("id", "unique") for name in DELTA_HEADERS}


@pytest.mark.parametrize(
    "damage",
    sorted(DELTAS),
    ids=" ".join,
)
def test_corrupt_delta_blocks(patient: Patient, damage: tuple[str, str]):
    column, name = damage
    encoding = "DELTA_BINARY_PACKED" if column == "id" else "DELTA_LENGTH_BYTE_ARRAY"
    file, page = delta(encoding, column)
    levels = page.body[: page.own[DataHeaderV2.DEFINITION_BYTES]]
    page.store(levels + DELTA_HEADERS[name])
    patient.refuses(file.build(), "a.parquet", "row group 0", f'column "{column}"', column=column)


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_wrong_lengths_of_delta_texts(patient: Patient, encoding: str):
    choose = random.Random(3)
    file, page = delta(encoding, "unique")
    start = page.own[DataHeaderV2.DEFINITION_BYTES]
    whole = page.body
    for _ in range(6):
        page.body = whole
        for _ in range(4):
            page.flip(start + choose.randrange(60), choose.randrange(1, 256))
        patient.put(file.build())
        with patient.aftermath() as client:
            for found, text in patient.ends(client, "unique").values():
                assert found in ("OK", "DATA_LOSS"), text


# === Levels ===


LISTS = pa.table({"word": ["a"] * 100, "list": [[i] * (i % 4) for i in range(100)]})


@pytest.mark.parametrize("size", [0, 1, 10_000, HUGE, 2**32 - 1])
@pytest.mark.parametrize("column", ["word", "list"])
def test_wrong_level_lengths_in_a_v1_page(patient: Patient, column: str, size: int):
    file = dissect(LISTS, use_dictionary=False)
    page = file.page(0, "word" if column == "word" else "list.list.element", 0)
    page.body = struct.pack("<I", size) + page.body[4:]
    patient.put(file.build())
    with patient.aftermath() as client:
        for found, text in (ended(lambda: raw(client, "ill")), ended(lambda: stream(client, "ill", as_stored(column)))):
            assert found == "DATA_LOSS", text[:300]
            assert "a.parquet" in text
            assert "row group 0" in text


@pytest.mark.parametrize("flips", range(8))
def test_levels_out_of_range(patient: Patient, flips: int):
    choose = random.Random(flips)
    file = dissect(LISTS, use_dictionary=False)
    page = file.page(0, "list.list.element", 0)
    for _ in range(3):
        page.flip(4 + choose.randrange(40), choose.randrange(1, 256))
    patient.put(file.build())
    with patient.aftermath() as client:
        plan = through("list", {"first_n": {"n": 2}}, dtype="INT64")
        for call in (
            lambda: raw(client, "ill"),
            lambda: stream(client, "ill", as_stored("list")),
            lambda: stream(client, "ill", plan),
        ):
            found, text = ended(call)
            assert found in ("OK", "DATA_LOSS", "INVALID_ARGUMENT"), text[:300]


def test_definition_level_above_the_maximum(patient: Patient):
    file = dissect(pa.table({"word": ["a"] * 100}), use_dictionary=False)
    page = file.page(0, "word", 0)
    (length,) = struct.unpack("<I", page.body[:4])
    levels = varint(100 << 1) + b"\xff"
    page.store(struct.pack("<I", len(levels)) + levels + page.body[4 + length :])
    patient.refuses_or_serves(file.build(), pa.table({"word": ["a"] * 100}))
