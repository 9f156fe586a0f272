"""The offset index of a written file: which pages a column chunk has, and files with another index."""

from __future__ import annotations

import struct
from collections.abc import Callable

from harness.parquet.surgery import FileMeta, RowGroup, name_of, with_footer
from harness.parquet.thrift_compact import I32, I64, Reader, Struct, encode

# Fields of ColumnChunk, of OffsetIndex and of PageLocation.
INDEX_OFFSET, INDEX_LENGTH = 4, 5
LOCATIONS = 1
OFFSET, SIZE, FIRST_ROW = 1, 2, 3


def footer_of(data: bytes) -> tuple[int, Struct]:
    """Where the footer begins, and the footer."""
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    return start, Reader(data, start).struct()


def chunk_of(footer: Struct, group: int, column: str) -> Struct:
    """A ColumnChunk."""
    chunks = footer[FileMeta.GROUPS].values[group][RowGroup.COLUMNS].values
    return next(chunk for chunk in chunks if name_of(chunk) == column)


def locations(data: bytes, group: int, column: str) -> list[Struct]:
    """The places of a chunk's pages, as its index has them."""
    chunk = chunk_of(footer_of(data)[1], group, column)
    return Reader(data, chunk[INDEX_OFFSET]).struct()[LOCATIONS].values


def with_index(data: bytes, group: int, column: str, change: Callable[[Struct], bytes | None]) -> bytes:
    """The file with another offset index of a chunk: the changed one, or the returned bytes."""
    start, footer = footer_of(data)
    chunk = chunk_of(footer, group, column)
    index = Reader(data, chunk[INDEX_OFFSET]).struct()
    changed = change(index)
    encoded = encode(index) if changed is None else changed
    return with_index_at(data, group, column, start, len(encoded), encoded)


def with_index_at(data: bytes, group: int, column: str, offset: int, length: int, added: bytes = b"") -> bytes:
    """The file with bytes before its footer, and an offset index declared at a place."""
    start, footer = footer_of(data)
    chunk = chunk_of(footer, group, column)
    chunk.add(INDEX_OFFSET, I64, offset)
    chunk.add(INDEX_LENGTH, I32, length)
    return with_footer(data[:start] + added, encode(footer))
