"""Takes Parquet files apart into footer and pages, and rebuilds them with the damage that a test needs.

A file rebuilt without changes is valid: offsets and sizes are computed again, so a test's damage is the only one.
Damage to offsets and sizes is applied afterwards, by `build(damage)`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.parquet.thrift_compact import BINARY, I32, Items, Reader, Struct, encode

MAGIC = b"PAR1"


class FileMeta:
    """Fields of FileMetaData."""

    SCHEMA, ROWS, GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = 2, 3, 4, 5, 6, 7


class SchemaElement:
    """Fields of SchemaElement."""

    TYPE, TYPE_LENGTH, REPETITION, NAME, CHILDREN, CONVERTED, SCALE, PRECISION, LOGICAL = 1, 2, 3, 4, 5, 6, 7, 8, 10


class RowGroup:
    """Fields of RowGroup."""

    COLUMNS, BYTES, ROWS, OFFSET, COMPRESSED, ORDINAL = 1, 2, 3, 5, 6, 7


class Chunk:
    """Fields of ColumnChunk and, from CODEC on, of ColumnMetaData."""

    FILE_PATH, META = 1, 3
    TYPE, PATH, CODEC, VALUES, UNCOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE = 1, 3, 4, 5, 6, 7, 9, 11
    STATISTICS, ENCODING_STATS = 12, 13


class Statistics:
    """Fields of Statistics; the first two are deprecated."""

    MAX, MIN, NULLS, DISTINCT, MAX_VALUE, MIN_VALUE = 1, 2, 3, 4, 5, 6


class Header:
    """Fields of PageHeader."""

    KIND, UNCOMPRESSED, COMPRESSED, CRC, DATA, DICTIONARY, DATA_V2 = 1, 2, 3, 4, 5, 7, 8


class DataHeader:
    """Fields of DataPageHeader; of DictionaryPageHeader the first two."""

    VALUES, ENCODING = 1, 2


class DataHeaderV2:
    """Fields of DataPageHeaderV2."""

    VALUES, NULLS, ROWS, ENCODING, DEFINITION_BYTES, REPETITION_BYTES, IS_COMPRESSED = 1, 2, 3, 4, 5, 6, 7


PLAIN, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY = 0, 3, 5, 8


@dataclass
class Page:
    """A page: header and stored body."""

    header: Struct
    body: bytes

    @property
    def own(self) -> Struct:
        """The header of the page's kind."""
        number = next(n for n in (Header.DATA, Header.DICTIONARY, Header.DATA_V2) if n in self.header)
        return self.header[number]

    def store(self, body: bytes, uncompressed_bytes: int | None = None) -> None:
        """Replace the body, and set its stored size in the header."""
        self.body = body
        self.header[Header.COMPRESSED] = len(body)
        self.header[Header.UNCOMPRESSED] = len(body) if uncompressed_bytes is None else uncompressed_bytes

    def flip(self, place: int, bits: int = 0xFF) -> None:
        changed = bytearray(self.body)
        changed[place] ^= bits
        self.body = bytes(changed)


class Parquet:
    """A file in its parts."""

    def __init__(self, data: bytes) -> None:
        footer_bytes = struct.unpack("<I", data[-8:-4])[0]
        self.footer = Reader(data, len(data) - 8 - footer_bytes).struct()
        self.pages: dict[tuple[int, str], list[Page]] = {}
        for index, group in enumerate(self.groups):
            for chunk in group[RowGroup.COLUMNS].values:
                self.pages[index, name_of(chunk)] = _pages(data, chunk[Chunk.META])

    @property
    def groups(self) -> list[Struct]:
        return self.footer[FileMeta.GROUPS].values

    @property
    def schema(self) -> list[Struct]:
        """The elements of the schema, its root first."""
        return self.footer[FileMeta.SCHEMA].values

    def element(self, name: str) -> Struct:
        return next(e for e in self.schema if e[SchemaElement.NAME] == name.encode())

    def chunk(self, group: int, column: str) -> Struct:
        """A column chunk's ColumnMetaData."""
        chunks = self.groups[group][RowGroup.COLUMNS].values
        return next(chunk for chunk in chunks if name_of(chunk) == column)[Chunk.META]

    def dictionary(self, group: int, column: str) -> Page:
        return next(page for page in self.pages[group, column] if Header.DICTIONARY in page.header)

    def page(self, group: int, column: str, index: int) -> Page:
        """A data page."""
        return [page for page in self.pages[group, column] if Header.DICTIONARY not in page.header][index]

    def key_value(self, key: str) -> Struct:
        pairs = self.footer[FileMeta.KEY_VALUES].values
        return next(pair for pair in pairs if pair[1] == key.encode())

    def add_key_value(self, key: bytes, value: bytes) -> None:
        self.footer[FileMeta.KEY_VALUES].values.append(Struct({1: (BINARY, key), 2: (BINARY, value)}))

    def build(self, damage: Callable[[Parquet], None] = lambda _: None) -> bytes:
        """The file's bytes. `damage` is applied last, after offsets and sizes are correct."""
        body = bytearray(MAGIC)
        for index, group in enumerate(self.groups):
            group_bytes = 0
            for column in group[RowGroup.COLUMNS].values:
                start = len(body)
                meta: Struct = column[Chunk.META]
                has_data = False
                for page in self.pages[index, name_of(column)]:
                    if Header.DICTIONARY in page.header:
                        meta[Chunk.DICTIONARY_PAGE] = len(body)
                    elif not has_data:
                        meta[Chunk.DATA_PAGE] = len(body)
                        has_data = True
                    body += encode(page.header) + page.body
                meta[Chunk.COMPRESSED] = len(body) - start
                group_bytes += len(body) - start
            if RowGroup.COMPRESSED in group:
                group[RowGroup.COMPRESSED] = group_bytes
        damage(self)
        return with_footer(bytes(body), encode(self.footer))


def with_footer(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + MAGIC


def name_of(chunk: Struct) -> str:
    return b".".join(chunk[Chunk.META][Chunk.PATH].values).decode(errors="replace")


def _pages(data: bytes, meta: Struct) -> list[Page]:
    start: int = meta[Chunk.DATA_PAGE]
    if Chunk.DICTIONARY_PAGE in meta:
        start = min(start, meta[Chunk.DICTIONARY_PAGE])
    end = start + meta[Chunk.COMPRESSED]
    pages: list[Page] = []
    while start < end:
        reader = Reader(data, start)
        header = reader.struct()
        start = reader.place + header[Header.COMPRESSED]
        pages.append(Page(header, data[reader.place : start]))
    return pages


def dissect(table: pa.Table, options: Mapping[str, Any] | None = None, **more: Any) -> Parquet:
    """A table as pyarrow writes it, in its parts."""
    return Parquet(written(table, options, **more))


def written(table: pa.Table, options: Mapping[str, Any] | None = None, **more: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"compression": "none", **(options or {}), **more})
    return sink.getvalue()


def set_count(element: Struct, children: int) -> None:
    element.add(SchemaElement.CHILDREN, I32, children)


def strings(*values: bytes) -> Items:
    return Items(BINARY, list(values))
