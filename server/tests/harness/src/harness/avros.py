"""Avro files as bytes, part by part, so that tests can write wrong ones."""

from __future__ import annotations

import json
from typing import Any

SYNC = bytes(range(16))


def record(fields: dict[str, Any]) -> dict[str, Any]:
    """A schema with these fields."""
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "row", "namespace": "a.b", "fields": listed}


def long(value: int) -> bytes:
    """An integer as it is stored."""
    bits, data = (value << 1) ^ (value >> 63), bytearray()
    while bits > 0x7F:
        data.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*data, bits])


def text(value: bytes) -> bytes:
    """Bytes after their length."""
    return long(len(value)) + value


def header(schema: Any, codec: str = "null") -> bytes:
    """The beginning of a file, with a schema as an object or as bytes."""
    stored = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    pairs = text(b"avro.schema") + text(stored) + text(b"avro.codec") + text(codec.encode())
    return b"Obj\1" + long(2) + pairs + long(0) + SYNC


def block(count: int, data: bytes, sync: bytes = SYNC) -> bytes:
    """A block that declares some records."""
    return long(count) + text(data) + sync
