"""Bounds of column chunks as writers of the past computed them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa

from harness.parquet.surgery import Chunk, FileMeta, Parquet, Statistics
from harness.parquet.thrift_compact import BINARY, I64, STRUCT, Struct

# Fields that bounds are written to: the deprecated ones, the present ones without a declared order, and with it.
OLD, UNDECLARED, ORDERED = "min and max", "no column orders", "column orders"

Bounds = Callable[[list[bytes]], tuple[bytes, bytes]]


def signed_bytes(value: bytes) -> list[int]:
    return [byte - 256 if byte > 127 else byte for byte in value]


def by_signed_bytes(values: list[bytes]) -> tuple[bytes, bytes]:
    return min(values, key=signed_bytes), max(values, key=signed_bytes)


def by_unsigned_bytes(values: list[bytes]) -> tuple[bytes, bytes]:
    return min(values), max(values)


def as_signed_integers(values: list[bytes]) -> tuple[bytes, bytes]:
    def number(value: bytes) -> int:
        return int.from_bytes(value, "little", signed=True)

    return min(values, key=number), max(values, key=number)


def the_last_twice(values: list[bytes]) -> tuple[bytes, bytes]:
    """What a buffer holds that was reused for every value."""
    return values[-1], values[-1]


def with_lengths(values: list[bytes]) -> tuple[bytes, bytes]:
    low, high = by_unsigned_bytes(values)
    return struct.pack("<I", len(low)) + low, struct.pack("<I", len(high)) + high


def cut(values: list[bytes]) -> tuple[bytes, bytes]:
    low, high = by_unsigned_bytes(values)
    return low[:4], high[:4]


def the_wrong_way_round(values: list[bytes]) -> tuple[bytes, bytes]:
    low, high = by_unsigned_bytes(values)
    return high, low


def decimals_the_wrong_way_round(values: list[bytes]) -> tuple[bytes, bytes]:
    def number(value: bytes) -> int:
        return int.from_bytes(value, "big", signed=True)

    return max(values, key=number), min(values, key=number)


def of_the_first(values: list[bytes]) -> tuple[bytes, bytes]:
    """Bounds of the first batch only."""
    return values[0], values[0]


def stored_bytes(array: pa.Array) -> list[bytes]:
    """The values as Parquet stores them."""
    if pa.types.is_decimal(array.type):
        width = -(-(array.type.precision * 3.3219281 + 1) // 8)
        return [int(value.as_py().scaleb(array.type.scale)).to_bytes(int(width), "big", signed=True) for value in array]
    if pa.types.is_unsigned_integer(array.type):
        return [value.as_py().to_bytes(array.type.bit_width // 8, "little") for value in array]
    return [value.as_py() if isinstance(value.as_py(), bytes) else value.as_py().encode() for value in array]


def restate(file: Parquet, groups: list[pa.Array], writer: str, fields: str, bounds: Bounds) -> None:
    """Gives a file of the column `v` another writer, with the bounds that it computes of each row group."""
    file.footer.add(FileMeta.CREATED_BY, BINARY, writer.encode())
    if fields != ORDERED:
        file.footer.remove(FileMeta.COLUMN_ORDERS)
    low, high = (Statistics.MIN, Statistics.MAX) if fields == OLD else (Statistics.MIN_VALUE, Statistics.MAX_VALUE)
    for group, array in enumerate(groups):
        minimum, maximum = bounds(stored_bytes(array))
        own = Struct({high: (BINARY, maximum), low: (BINARY, minimum), Statistics.NULLS: (I64, 0)})
        own = Struct(dict(sorted(own.fields.items())))
        file.chunk(group, "v").add(Chunk.STATISTICS, STRUCT, own)
