"""Pages that declare or decompress to more bytes than the memory limit: rejected by name, within the limit."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from harness.damaged_files import PAGES, TWO_WAYS, Patient, sample_table
from harness.parquet.decompression_bombs import (
    BOMB_BYTES,
    bomb,
    framed,
    framed_as_before_lz4_had_a_standard,
    streamed_bomb,
)
from harness.parquet.surgery import Chunk, DataHeaderV2, Header, Parquet, dissect
from harness.parquet.thrift_compact import varint

HUGE = 2**31 - 1
LZ4_OF_OLD = 5
TABLE = sample_table()
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
V2 = {"compression": "none", "data_page_version": "2.0"}
PLACE = ("a.parquet", "row group 1", 'column "word"')


def sample(codec: str = "none", version: str = "1.0") -> Parquet:
    return dissect(TABLE, PAGES, compression=codec, data_page_version=version)


# === Sizes that page headers claim ===


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_page_header_claiming_2_gib(patient: Patient, codec: str, version: str):
    file = sample(codec, version)
    file.page(1, "word", 0).header[Header.UNCOMPRESSED] = HUGE
    if codec == "none":
        # Nothing is decompressed: the stored size is what counts.
        patient.refuses_or_serves(file.build(), TABLE)
    else:
        patient.refuses(file.build(), *PLACE, ways=TWO_WAYS)


@pytest.mark.parametrize("codec", CODECS)
def test_a_dictionary_header_claiming_2_gib(patient: Patient, codec: str):
    file = sample(codec)
    file.dictionary(1, "word").header[Header.UNCOMPRESSED] = HUGE
    if codec == "none":
        patient.refuses_or_serves(file.build(), TABLE)
    else:
        patient.refuses(file.build(), *PLACE, ways=TWO_WAYS)


@pytest.mark.parametrize("size", [HUGE, 10**6, 1, 0, -1, -(2**31)])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_wrong_stored_size_in_a_page_header(patient: Patient, codec: str, size: int):
    file = sample(codec)
    file.page(1, "word", 0).header[Header.COMPRESSED] = size
    patient.refuses(file.build(), *PLACE)


@pytest.mark.parametrize("size", [10**6, 1, 0, -1, -(2**31)])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_wrong_uncompressed_size_in_a_page_header(patient: Patient, codec: str, size: int):
    file = sample(codec)
    file.page(1, "word", 0).header[Header.UNCOMPRESSED] = size
    if codec == "snappy" and size > 0:
        # The decoder zero-fills the buffer after the values that are read.
        patient.refuses_or_serves(file.build(), TABLE)
    else:
        patient.refuses(file.build(), *PLACE)


# === Bombs ===


def with_bomb(codec: str, claimed: int, *, footer_says_so: bool) -> bytes:
    """500 empty texts, followed by a gibibyte."""
    table = pa.table({"id": range(500), "word": [""] * 500})
    file = dissect(table, compression=codec, use_dictionary=False)
    file.page(0, "word", 0).store(bomb(codec), claimed)
    if footer_says_so:
        file.chunk(0, "word")[Chunk.UNCOMPRESSED] = claimed
    return file.build()


@pytest.mark.parametrize("footer_says_so", [False, True], ids=["under a silent footer", "under a footer that tells"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "brotli"])
def test_decompression_bomb(patient: Patient, codec: str, footer_says_so: bool):
    patient.put(with_bomb(codec, BOMB_BYTES, footer_says_so=footer_says_so))
    with patient.aftermath() as client:
        for way, (found, text) in patient.ends(client, "word", ways=("raw",)).items():
            assert found in ("DATA_LOSS", "RESOURCE_EXHAUSTED"), f"{way}: {found}: {text[:300]}"
            assert found == "DATA_LOSS" or "--memory-limit-bytes" in text


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "brotli"])
def test_decompression_bomb_with_a_small_declared_size(patient: Patient, codec: str):
    patient.refuses(with_bomb(codec, 2000, footer_says_so=False), "a.parquet", "row group 0", ways=("raw",))


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "brotli"])
def test_decompression_bombs_in_many_columns_within_the_page_limit(patient: Patient, codec: str):
    """Together they are more than the budget, and their footer says nothing of it."""
    columns, rows, page_bytes = 20, 1000, 200 << 20
    table = pa.table({f"c{n}": [0.0] * rows for n in range(columns)})
    file = dissect(table, compression=codec, use_dictionary=False)
    run = varint(rows << 1) + b"\1"
    levels = struct.pack("<I", len(run)) + run
    body = pa.compress(levels + bytes(page_bytes - len(levels)), "lz4_raw" if codec == "lz4" else codec, asbytes=True)
    for n in range(columns):
        file.page(0, f"c{n}", 0).store(body, page_bytes)
    patient.put(file.build())
    with patient.aftermath() as client:
        for way, (found, text) in patient.ends(client, "c0", ways=("raw",)).items():
            assert found == "RESOURCE_EXHAUSTED", f"{way}: {found}: {text[:300]}"
            assert "--memory-limit-bytes" in text


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["gzip", "brotli", "lz4 frame", "lz4 frame of old"])
def test_decompression_bomb_in_a_dictionary_and_after_levels(patient: Patient, codec: str, version: str):
    file = sample(codec.partition(" ")[0], version)
    body = framed_as_before_lz4_had_a_standard() if "of old" in codec else streamed_bomb(codec.partition(" ")[0])
    page = file.page(1, "word", 0)
    levels = page.body[: page.own[DataHeaderV2.DEFINITION_BYTES]] if version == "2.0" else b""
    for bombed, before in ((page, levels), (file.dictionary(1, "word"), b"")):
        bombed.store(before + body, 100_000)
    if "frame" in codec:
        file.chunk(1, "word")[Chunk.CODEC] = LZ4_OF_OLD
    patient.refuses(file.build(), *PLACE)


def test_lz4_frames_of_old_writers(patient: Patient):
    """Their codec is the one that has been given up since, and Hadoop's name for another framing."""
    file = sample("lz4")
    for row_group in (0, 1):
        file.chunk(row_group, "word")[Chunk.CODEC] = LZ4_OF_OLD
    # As it is now: blocks without a frame.
    patient.serves(file.build(), TABLE)
    for row_group in (0, 1):
        for page in file.pages[row_group, "word"]:
            size = page.header[Header.UNCOMPRESSED]
            page.store(framed(pa.decompress(page.body, size, "lz4_raw", asbytes=True)), size)
    patient.serves(file.build(), TABLE)


def test_decompression_bomb_of_equal_delta_lengths(patient: Patient):
    """A delta block of 2^28 equal lengths takes ten bytes, and a gibibyte decoded."""
    count = 1 << 28
    file = dissect(TABLE, column_encoding={"unique": "DELTA_LENGTH_BYTE_ARRAY"}, use_dictionary=False, **V2)
    page = file.page(0, "unique", 0)
    levels = page.body[: page.own[DataHeaderV2.DEFINITION_BYTES]]
    block = varint(count) + varint(1) + varint(count) + varint(0) + varint(0) + b"\0"
    page.store(levels + block)
    patient.put(file.build())
    with patient.aftermath() as client:
        # The first thousand lengths are valid: a reader that stops there has read the page.
        for way, (found, text) in patient.ends(client, "unique", ways=("raw",)).items():
            assert found in ("OK", "DATA_LOSS", "RESOURCE_EXHAUSTED"), f"{way}: {found}: {text[:300]}"
