"""Corrupt footers: DATA_LOSS naming the file, or correct data if the damage is not read."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.damaged_files import (
    PAGES,
    Patient,
    as_stored,
    ended,
    raw,
    sample_table,
    stream,
)
from harness.parquet.surgery import (
    Chunk,
    FileMeta,
    Parquet,
    RowGroup,
    SchemaElement,
    dissect,
    name_of,
    with_footer,
    written,
)
from harness.parquet.thrift_compact import BINARY, Items, Struct

HUGE = 2**31 - 1
TABLE = sample_table()

Damage = Callable[[Parquet], None]


def sample() -> Parquet:
    return dissect(TABLE, PAGES)


# === The ends of the file ===


def test_an_undamaged_file_is_served(patient: Patient):
    patient.serves(sample().build(), TABLE)


def test_wrong_magic_at_the_start_of_the_file(patient: Patient):
    patient.refuses_or_serves(b"ORC\0" + written(TABLE)[4:], TABLE)


@pytest.mark.parametrize("magic", [b"PAR2", b"1RAP", b"ORC\0"])
def test_wrong_magic_at_the_end_of_the_file(patient: Patient, magic: bytes):
    patient.refuses(written(TABLE)[:-4] + magic, "a.parquet")


def test_truncated_footer(patient: Patient):
    data = written(TABLE)
    footer = struct.unpack("<I", data[-8:-4])[0]
    for kept in (0, 1, footer // 2, footer - 1):
        cut = data[-8 - footer : -8][:kept]
        patient.refuses(with_footer(data[: -8 - footer], cut), "a.parquet")


def test_footer_pointing_into_itself(patient: Patient):
    data = written(TABLE)
    footer = struct.unpack("<I", data[-8:-4])[0]
    for length in (0, 1, footer // 2, footer - 1, footer + 1, len(data), HUGE, 2**32 - 1):
        patient.refuses(data[:-8] + struct.pack("<I", length) + b"PAR1", "a.parquet")


# === Lists that claim to be longer than they are ===

LISTS: dict[str, Callable[[Parquet], Items]] = {
    "schema": lambda file: file.footer[FileMeta.SCHEMA],
    "row groups": lambda file: file.footer[FileMeta.GROUPS],
    "columns": lambda file: file.groups[0][RowGroup.COLUMNS],
    "path": lambda file: file.chunk(0, "word")[Chunk.PATH],
    "key values": lambda file: file.footer[FileMeta.KEY_VALUES],
}


@pytest.mark.parametrize("claimed", [1000, 10**6, HUGE])
@pytest.mark.parametrize("name", LISTS)
def test_footer_list_with_an_excessive_count(patient: Patient, name: str, claimed: int):
    file = sample()
    LISTS[name](file).claimed = claimed
    patient.refuses(file.build(), "a.parquet")


# === Counts of rows and values ===


@pytest.mark.parametrize("rows", [0, 1, 999, 1001, -1, 2**62])
def test_wrong_row_count_of_the_file(patient: Patient, rows: int):
    file = sample()
    file.footer[FileMeta.ROWS] = rows
    patient.refuses_or_serves(file.build(), TABLE)


COUNTS = (0, 1, 499, 501, 8000, -1, HUGE, 2**40, 2**62, 2**63 - 1)


@pytest.mark.parametrize("rows", COUNTS)
def test_wrong_row_count_of_a_row_group(patient: Patient, rows: int):
    file = sample()
    file.groups[1][RowGroup.ROWS] = rows
    patient.refuses(file.build(), "a.parquet", "row group 1")


@pytest.mark.parametrize("values", [0, 499, 501, -1, 2**62])
def test_wrong_value_count_of_a_column(patient: Patient, values: int):
    file = sample()
    file.chunk(1, "word")[Chunk.VALUES] = values
    patient.refuses_or_serves(file.build(), TABLE)


# === Offsets and lengths of column chunks ===


def offset(column: str, field: int, value: int | Callable[[Struct], int]) -> Damage:
    """Damage to the column's chunk in row group 1: `word` has a dictionary, `unique` has none."""

    def damage(file: Parquet) -> None:
        chunk = file.chunk(1, column)
        chunk[field] = value if isinstance(value, int) else value(chunk)

    return damage


OFFSETS: dict[str, tuple[str, Damage]] = {
    "data page at 0": ("unique", offset("unique", Chunk.DATA_PAGE, 0)),
    "data page at -1": ("unique", offset("unique", Chunk.DATA_PAGE, -1)),
    "data page past the end": ("unique", offset("unique", Chunk.DATA_PAGE, 2**40)),
    "data page at the last number": ("unique", offset("unique", Chunk.DATA_PAGE, 2**63 - 1)),
    "dictionary at 0": ("word", offset("word", Chunk.DICTIONARY_PAGE, 0)),
    "dictionary at -1": ("word", offset("word", Chunk.DICTIONARY_PAGE, -1)),
    "dictionary past the end": ("word", offset("word", Chunk.DICTIONARY_PAGE, 2**40)),
    "dictionary after the data": ("word", offset("word", Chunk.DICTIONARY_PAGE, lambda c: c[Chunk.DATA_PAGE] + 10)),
    "dictionary inside of itself": (
        "word",
        offset("word", Chunk.DICTIONARY_PAGE, lambda c: c[Chunk.DICTIONARY_PAGE] + 5),
    ),
    "length -1": ("word", offset("word", Chunk.COMPRESSED, -1)),
    "length 0": ("word", offset("word", Chunk.COMPRESSED, 0)),
    "length 1": ("word", offset("word", Chunk.COMPRESSED, 1)),
    "length one short": ("word", offset("word", Chunk.COMPRESSED, lambda c: c[Chunk.COMPRESSED] - 1)),
    "length past the end": ("word", offset("word", Chunk.COMPRESSED, 10**6)),
    "length of 4 EiB": ("word", offset("word", Chunk.COMPRESSED, 2**62)),
    "length of the last number": ("word", offset("word", Chunk.COMPRESSED, 2**63 - 1)),
}


@pytest.mark.parametrize("name", list(OFFSETS))
def test_wrong_offsets_and_lengths(patient: Patient, name: str):
    column, damage = OFFSETS[name]
    file = dissect(TABLE, PAGES, use_dictionary=["word"])
    patient.refuses(file.build(damage), "a.parquet", column=column)


def test_length_overlapping_the_next_column(patient: Patient):
    patient.refuses_or_serves(
        sample().build(offset("word", Chunk.COMPRESSED, lambda c: c[Chunk.COMPRESSED] + 1)), TABLE
    )


def test_unused_data_page_offset(patient: Patient):
    """The dictionary precedes it, and the pages are contiguous."""
    for place in (0, -1, 2**40, 2**63 - 1):
        patient.refuses_or_serves(sample().build(offset("word", Chunk.DATA_PAGE, place)), TABLE)


def test_overlapping_column_chunks(patient: Patient):
    plain = dissect(pa.table({"id": range(1000), "other": range(1000, 2000)}), use_dictionary=False)

    def damage(file: Parquet) -> None:
        for field in (Chunk.DATA_PAGE, Chunk.COMPRESSED):
            file.chunk(0, "other")[field] = file.chunk(0, "id")[field]

    patient.refuses(plain.build(damage), "a.parquet", column="other")


@pytest.mark.parametrize("size", [0, 1, -1, 2**40, 2**62])
def test_wrong_uncompressed_size(patient: Patient, size: int):
    file = sample()
    file.chunk(1, "word")[Chunk.UNCOMPRESSED] = size
    patient.put(file.build())
    with patient.aftermath() as client:
        ends = patient.ends(client, "word", TABLE)
    for found, text in ends.values():
        # Any declared size above the limit is rejected.
        assert found in ("OK", "DATA_LOSS", "RESOURCE_EXHAUSTED"), text
        assert found != "RESOURCE_EXHAUSTED" or "--" in text


def test_column_chunk_in_another_file_is_not_fetched(patient: Patient):
    file = sample()
    pq.write_table(TABLE.slice(0, 500), patient.root / "secret.parquet")
    chunk = next(c for c in file.groups[0][RowGroup.COLUMNS].values if name_of(c) == "word")
    for path in (b"../secret.parquet", b"/etc/passwd", b"http://127.0.0.1:1/"):
        chunk.add(Chunk.FILE_PATH, BINARY, path)
        patient.refuses_or_serves(file.build(), TABLE)


# === Statistics ===

# Fields of Statistics: the null count, the largest and the smallest value. A bound that is merely another number is
# beyond any reader: these have a form that their column's bounds cannot have.
NULLS, LARGEST, SMALLEST = 3, 5, 6

STATISTICS: dict[str, tuple[str, int, bytes | int]] = {
    "a bound of a byte": ("id", SMALLEST, b"\1"),
    "a bound of nothing": ("id", LARGEST, b""),
    "a bound of nine bytes": ("id", LARGEST, (2**63 - 1).to_bytes(9, "little")),
    "a bound of half a number": ("number", SMALLEST, b"\1\2\3\4"),
    "a bound that is no text": ("word", SMALLEST, b"\xff\xfe"),
    "-1 nulls": ("word", NULLS, -1),
    "2^62 nulls": ("word", NULLS, 2**62),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_malformed_statistics(patient: Patient, name: str):
    column, field, value = STATISTICS[name]
    file = sample()
    file.chunk(1, column)[Chunk.STATISTICS][field] = value
    patient.put(file.build())
    with patient.aftermath() as client:
        ends = patient.ends(client, column, TABLE)
        bound = "k3" if column == "word" else 3
        literal = "'k3'" if column == "word" else "3"
        filtered_plan = {**as_stored(column), "filter": f"{column} > {literal}"}
        want = sum(value is not None and value > bound for value in TABLE[column].to_pylist())

        def pruned() -> None:
            assert stream(client, "ill", filtered_plan).num_rows == want

        ends["pruned"] = ended(pruned)
    for way, (found, text) in ends.items():
        assert found in ("OK", "DATA_LOSS"), f"{way}: {found}: {text[:300]}"
        assert found == "OK" or "a.parquet" in text


# === Kinds ===


@pytest.mark.parametrize("codec", [1, 3, 6, 7, 8, 99, -1])
def test_codec_differing_from_the_pages(patient: Patient, codec: int):
    file = sample()
    file.chunk(1, "word")[Chunk.CODEC] = codec
    patient.refuses(file.build(), "a.parquet")


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 5, 7, 8, -1])
def test_physical_type_differing_from_the_schema(patient: Patient, kind: int):
    file = sample()
    file.chunk(1, "word")[Chunk.TYPE] = kind
    patient.refuses_or_serves(file.build(), TABLE)


@pytest.mark.parametrize("length", [0, 1, 15, 17, -1, HUGE])
def test_wrong_fixed_length(patient: Patient, length: int):
    """A shorter one leaves bytes over at a page's end: not every reader looks there, but none may trip."""
    table = pa.table({"bytes": pa.array([bytes([i]) * 16 for i in range(200)], pa.binary(16)), "word": ["a"] * 200})
    file = dissect(table, use_dictionary=False, store_schema=False)
    file.element("bytes")[SchemaElement.TYPE_LENGTH] = length
    patient.put(file.build())
    with patient.aftermath() as client:
        for found, text in (
            ended(lambda: raw(client, "ill")),
            ended(lambda: stream(client, "ill", as_stored("bytes"))),
        ):
            assert found == "DATA_LOSS" or (found == "OK" and 0 < length < 16), f"{found}: {text[:300]}"
            assert found == "OK" or "a.parquet" in text


DECIMALS: dict[str, tuple[int, int]] = {
    "scale above precision": (SchemaElement.SCALE, 40),
    "scale below 0": (SchemaElement.SCALE, -1),
    "precision 0": (SchemaElement.PRECISION, 0),
    "precision 1000": (SchemaElement.PRECISION, 1000),
    "precision of the largest number": (SchemaElement.PRECISION, HUGE),
    "1 byte": (SchemaElement.TYPE_LENGTH, 1),
    "0 bytes": (SchemaElement.TYPE_LENGTH, 0),
    "1000 bytes": (SchemaElement.TYPE_LENGTH, 1000),
}


@pytest.mark.parametrize("name", DECIMALS)
def test_wrong_decimal_parameters(patient: Patient, name: str):
    table = pa.table({"money": pa.array(range(200), pa.decimal128(30, 4))})
    file = dissect(table, use_dictionary=False, store_schema=False)
    field, value = DECIMALS[name]
    file.element("money")[field] = value
    # Without the logical type, so that only the file's bytes contradict it.
    file.element("money").remove(SchemaElement.LOGICAL)
    patient.refuses(file.build(), "a.parquet", column="money")


def test_int96_without_a_timestamp(patient: Patient):
    table = pa.table({"day": pa.array(range(200), pa.timestamp("ns"))})
    file = dissect(table, use_dictionary=False, use_deprecated_int96_timestamps=True, store_schema=False)
    page = file.page(0, "day", 0)
    page.body = page.body[:-100] + b"\xff" * 100
    patient.put(file.build())
    with patient.aftermath() as client:
        for found, text in (ended(lambda: raw(client, "ill")), ended(lambda: stream(client, "ill", as_stored("day")))):
            assert found in ("OK", "DATA_LOSS"), text
