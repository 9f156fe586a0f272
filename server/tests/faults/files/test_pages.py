"""Corrupt pages: DATA_LOSS naming file, row group and column, within the memory limit."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

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
)
from harness.parquet.surgery import (
    DELTA_BINARY_PACKED,
    PLAIN,
    RLE_DICTIONARY,
    Chunk,
    DataHeader,
    DataHeaderV2,
    Header,
    Parquet,
    dissect,
    written,
)
from harness.parquet.thrift_compact import I32, STRUCT, Struct

HUGE = 2**31 - 1
TABLE = sample_table()
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
PLACE = ("a.parquet", "row group 1", 'column "word"')


def sample(codec: str = "none", version: str = "1.0", **options: object) -> Parquet:
    return dissect(TABLE, PAGES, compression=codec, data_page_version=version, **options)


# === Bodies ===


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_corrupt_page_truncated(patient: Patient, codec: str, version: str):
    file = sample(codec, version)
    page = file.page(1, "word", 1)
    uncompressed = page.header[Header.UNCOMPRESSED]
    page.store(page.body[: len(page.body) // 2], uncompressed)
    patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_corrupt_page_of_random_bytes(patient: Patient, codec: str, version: str):
    file = sample(codec, version)
    page = file.page(1, "word", 1)
    page.body = random.Random(5).randbytes(len(page.body))
    patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_wrong_page_checksum(patient: Patient, codec: str, version: str):
    file = sample(codec, version, write_page_checksum=True)
    file.page(1, "word", 1).header[Header.CRC] ^= 1
    patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_flipped_bit_detected_only_by_the_checksum(patient: Patient, version: str):
    file = sample(version=version, use_dictionary=False, write_page_checksum=True)
    file.page(1, "id", 1).flip(-3, 1)
    patient.refuses(file.build(), "a.parquet", "row group 1", 'column "id"', column="id")


def test_flipped_dictionary_bit_detected_only_by_the_checksum(patient: Patient):
    file = sample(write_page_checksum=True)
    file.dictionary(1, "word").flip(-1, 1)
    patient.refuses(file.build(), *PLACE)


def test_correct_checksums_are_accepted(patient: Patient):
    for version in ("1.0", "2.0"):
        for codec in CODECS:
            patient.serves(sample(codec, version, write_page_checksum=True).build(), TABLE)


# === Counts ===


@pytest.mark.parametrize("values", [0, 1, 51, 10_000, HUGE, -1])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_wrong_value_count_of_a_page(patient: Patient, version: str, values: int):
    file = sample(version=version)
    file.page(1, "word", 0).own[DataHeader.VALUES] = values
    patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("values", [0, 1, 19, 21, HUGE, -1])
def test_wrong_value_count_of_a_dictionary(patient: Patient, values: int):
    file = sample()
    file.dictionary(1, "word").own[DataHeader.VALUES] = values
    if values > 20:
        # Missing values that no index references.
        patient.refuses_or_serves(file.build(), TABLE)
    else:
        patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("field", ["NULLS", "ROWS"])
@pytest.mark.parametrize("count", [0, 1, 10_000, HUGE, -1])
def test_wrong_null_or_row_count_of_a_v2_page(patient: Patient, field: str, count: int):
    file = sample(version="2.0")
    file.page(1, "word", 0).own[getattr(DataHeaderV2, field)] = count
    patient.refuses_or_serves(file.build(), TABLE)


LEVEL_LENGTHS = [
    (codec, field, size)
    for codec in ("none", "zstd")
    for field in ("DEFINITION_BYTES", "REPETITION_BYTES")
    for size in (1, 10_000, HUGE, -1, -(2**31))
]


@pytest.mark.parametrize(
    "case",
    LEVEL_LENGTHS,
    ids=lambda case: " ".join(map(str, case)),
)
def test_wrong_level_lengths_in_a_v2_page(patient: Patient, case: tuple[str, str, int]):
    codec, field, size = case
    file = sample(codec, "2.0")
    file.page(1, "word", 0).own[getattr(DataHeaderV2, field)] = size
    patient.refuses(file.build(), *PLACE)


# === Encodings ===


@pytest.mark.parametrize("encoding", [PLAIN, 1, 4, DELTA_BINARY_PACKED, 6, 7, 9, 99, -1])
def test_wrong_encoding_of_a_page(patient: Patient, encoding: int):
    file = sample()
    file.page(1, "word", 0).own[DataHeader.ENCODING] = encoding
    patient.refuses(file.build(), *PLACE)


def without_dictionary(file: Parquet) -> None:
    file.pages[1, "word"].pop(0)
    file.chunk(1, "word").remove(Chunk.DICTIONARY_PAGE)


def dictionary_twice(file: Parquet) -> None:
    file.pages[1, "word"].insert(0, file.pages[1, "word"][0])


def dictionary_last(file: Parquet) -> None:
    file.pages[1, "word"].append(file.pages[1, "word"].pop(0))


def dictionary_alone(file: Parquet) -> None:
    del file.pages[1, "word"][1:]


def no_pages(file: Parquet) -> None:
    file.pages[1, "word"].clear()


def a_page_of_no_known_kind(file: Parquet) -> None:
    file.page(1, "word", 0).header[Header.KIND] = 99


def a_page_of_another_kind(file: Parquet) -> None:
    file.page(1, "word", 0).header[Header.KIND] = 2


def a_page_less(file: Parquet) -> None:
    file.pages[1, "word"].pop()


def a_page_more(file: Parquet) -> None:
    file.pages[1, "word"].append(file.pages[1, "word"][-1])


def an_index_page(file: Parquet) -> None:
    file.page(1, "word", 0).header[Header.KIND] = 1


OUT_OF_PLACE: list[Callable[[Parquet], None]] = [
    without_dictionary,
    dictionary_last,
    dictionary_alone,
    no_pages,
    a_page_of_no_known_kind,
    a_page_of_another_kind,
    a_page_less,
    an_index_page,
]


@pytest.mark.parametrize("arrange", OUT_OF_PLACE)
def test_missing_or_misplaced_pages(patient: Patient, arrange: Callable[[Parquet], None]):
    file = sample()
    arrange(file)
    patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("arrange", [dictionary_twice, a_page_more])
def test_unused_pages(patient: Patient, arrange: Callable[[Parquet], None]):
    file = sample()
    arrange(file)
    patient.refuses_or_serves(file.build(), TABLE)


# === Anything, anywhere ===

FLIPS = 200


def test_random_bit_flips_give_a_defined_status_code(patient: Patient):
    """Two in three hit footer or headers. What a flip makes of a value or a name, only a checksum could tell."""
    data = written(TABLE, PAGES, compression="snappy")
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    choose = random.Random(2026)
    wrong: list[str] = []
    with patient.aftermath() as client:
        for case in range(FLIPS):
            damaged = bytearray(data)
            low, high = [(4, footer), (footer, len(data) - 8), (4, len(data))][case % 3]
            for _ in range(choose.choice((1, 1, 4))):
                damaged[choose.randrange(low, high)] ^= 1 << choose.randrange(8)
            patient.put(bytes(damaged))
            for call in (
                lambda: raw(client, "ill"),
                lambda: stream(client, "ill", as_stored("unique"), shuffle=True),
            ):
                found, text = ended(call)
                if found not in ("OK", "DATA_LOSS", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED") or "panic" in text:
                    wrong.append(f"case {case}: {found}: {text[:300]}")
            assert patient.server.alive, f"case {case}"
    assert wrong == []


def test_random_bit_flips_in_checksummed_pages_never_give_wrong_data(patient: Patient):
    choose = random.Random(7)
    table, wrong = TABLE.select(["id", "word"]), 0
    whole = dissect(table, PAGES, write_page_checksum=True)
    places = [(key, i) for key, pages in whole.pages.items() for i in range(len(pages))]
    with patient.aftermath() as client:
        for _ in range(60):
            file = Parquet(whole.build())
            key, index = choose.choice(places)
            page = file.pages[key][index]
            page.flip(choose.randrange(len(page.body)), 1 << choose.randrange(8))
            patient.put(file.build())
            try:
                wrong += not raw(client, "ill").equals(table)
            except pa.ArrowException as raised:
                found, text = ended(lambda raised=raised: (_ for _ in ()).throw(raised))
                assert found == "DATA_LOSS", text
    assert wrong == 0


def test_unknown_fields_of_a_page_header_are_skipped(patient: Patient):
    file = sample()
    deep = Struct()
    for _ in range(10):
        deep = Struct({1: (STRUCT, deep), 2: (I32, 7)})
    file.page(1, "word", 0).header.add(20, STRUCT, deep)
    patient.serves(file.build(), TABLE)


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
def test_deeply_nested_page_header(patient: Patient, depth: int):
    file = sample()
    one_more_inside = bytes([1 << 4 | STRUCT])
    file.page(1, "word", 0).header.add(20, STRUCT, one_more_inside * depth + bytes(depth + 1))
    patient.refuses(file.build(), *PLACE)


def test_samples_contain_dictionary_pages():
    file = sample()
    assert file.page(1, "word", 0).own[DataHeader.ENCODING] == RLE_DICTIONARY
