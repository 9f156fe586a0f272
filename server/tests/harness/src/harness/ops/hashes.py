"""The hashes of the ops: XXH3-64 by xxhash, and TorchArrow's hash of ids."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_intdigest

MASK = 2**64 - 1
NAN = struct.pack("<Q", 0x7FF8_0000_0000_0000)


def components(array: pa.Array[Any]) -> list[bytes | None]:
    """The bytes of each value, as its type has them; None for null."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
        kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [None if value is None else bytes_of(value) for value in array.to_pylist()]


def bytes_of(value: Any) -> bytes:
    """Integers as 8 little-endian bytes, floats as their float64's, with one zero and one NaN; text as UTF-8."""
    if isinstance(value, (bytes, str)):
        return value if isinstance(value, bytes) else value.encode()
    if isinstance(value, int):
        return struct.pack("<Q", int(value) & MASK)
    number = float(value)
    return NAN if math.isnan(number) else struct.pack("<d", number + 0.0)


def bucket(data: bytes, buckets: int, seed: int = 0) -> int:
    return xxh3_64_intdigest(data, seed) % buckets


def tuple_bucket(pieces: Sequence[bytes | None], buckets: int, seed: int = 0) -> int:
    """The hash of a tuple: of the hashes of its components, 8 zero bytes for null."""
    hashes = [bytes(8) if piece is None else struct.pack("<Q", xxh3_64_intdigest(piece)) for piece in pieces]
    return bucket(b"".join(hashes), buckets, seed)


def sigrid_hash(value: int, salt: int, max_value: int) -> int:
    """Velox's sigrid_hash: folly's hash_128_to_64 of the salt and of twang_mix64 of the id, modulo max_value."""
    hashed = hash_128_to_64(salt & MASK, twang_mix64(value & MASK))
    return (hashed - 2**64 if hashed >= 2**63 else hashed) % max_value


def hash_128_to_64(upper: int, lower: int) -> int:
    factor = 0x9DDF_EA08_EB38_2D69
    a = (lower ^ upper) * factor & MASK
    a ^= a >> 47
    b = (upper ^ a) * factor & MASK
    b ^= b >> 47
    return b * factor & MASK


def twang_mix64(key: int) -> int:
    key = (~key + (key << 21)) & MASK
    key ^= key >> 24
    key = key + (key << 3) + (key << 8) & MASK
    key ^= key >> 14
    key = key + (key << 2) + (key << 4) & MASK
    key ^= key >> 28
    return key + (key << 31) & MASK
