"""Weakens the statistics of a Parquet file in ways that other writers do, by rewriting its footer.

Bounds of strings and binaries are truncated, and null counts or all statistics of some row groups are left out.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from harness.filters.columns import TYPES
from harness.parquet.surgery import Chunk, FileMeta, RowGroup, name_of, with_footer
from harness.parquet.thrift_compact import FALSE, Reader, Struct, encode

# Fields of Statistics; the first two are what old readers read.
OLD_LARGEST, OLD_SMALLEST, NULLS, LARGEST, SMALLEST, LARGEST_IS_EXACT, SMALLEST_IS_EXACT = 1, 2, 3, 5, 6, 7, 8

TEXTS = {column.name for column in TYPES if column.kind == "text"}
BLOBS = {column.name for column in TYPES if column.kind == "bytes"}


@dataclass(frozen=True)
class Weaker:
    """What becomes of the statistics of a file."""

    # Bytes that bounds of strings and binaries are truncated to; None keeps them.
    bound_bytes: int | None
    null_counts: bool
    # Every such row group has no statistics; 0 for no row group.
    missing_every: int


def weaken(path: Path, weaker: Weaker) -> None:
    """Rewrites the footer of the file."""
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    footer = Reader(data, start).struct()
    for number, group in enumerate(footer[FileMeta.GROUPS].values):
        for chunk in group[RowGroup.COLUMNS].values:
            meta: Struct = chunk[Chunk.META]
            if Chunk.STATISTICS not in meta:
                continue
            if weaker.missing_every and number % weaker.missing_every == 0:
                meta.remove(Chunk.STATISTICS)
                continue
            if not weaker.null_counts and NULLS in meta[Chunk.STATISTICS]:
                meta[Chunk.STATISTICS].remove(NULLS)
            if weaker.bound_bytes and name_of(chunk) in TEXTS | BLOBS:
                truncate(meta[Chunk.STATISTICS], weaker.bound_bytes, is_text=name_of(chunk) in TEXTS)
    path.write_bytes(with_footer(data[:start], encode(footer)))


def truncate(statistics: Struct, length: int, *, is_text: bool) -> None:
    for field in {OLD_LARGEST, OLD_SMALLEST} & statistics.fields.keys():
        statistics.remove(field)
    if SMALLEST in statistics and len(statistics[SMALLEST]) > length:
        statistics[SMALLEST] = cut(statistics[SMALLEST], length, is_text=is_text)
        statistics.add(SMALLEST_IS_EXACT, FALSE, False)
    if LARGEST in statistics and len(statistics[LARGEST]) > length:
        above = next_after(cut(statistics[LARGEST], length, is_text=is_text), range(0x7F if is_text else 0xFF))
        if above is None:
            statistics.remove(LARGEST)
        else:
            statistics[LARGEST] = above
            statistics.add(LARGEST_IS_EXACT, FALSE, False)


def cut(value: bytes, length: int, *, is_text: bool) -> bytes:
    """At most `length` bytes, ending at a character boundary for text."""
    return value[:length].decode(errors="ignore").encode() if is_text else value[:length]


def next_after(prefix: bytes, raised: Collection[int]) -> bytes | None:
    """An upper bound of everything with this prefix: increments the last byte that allows it and drops the rest."""
    for index in range(len(prefix) - 1, -1, -1):
        if prefix[index] in raised:
            return prefix[:index] + bytes([prefix[index] + 1])
    return None
