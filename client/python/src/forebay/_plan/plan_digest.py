"""The id of a fitted plan: a digest of its protobuf bytes, computed from its JSON.

The server's id is the SHA-256 of a line that names the format and of the plan's canonical protobuf bytes: fields in the
order of their numbers, without defaults, numbers in lists packed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import cast

from .generated.messages import ENUMS, MESSAGES

Fields = Mapping[str, object]

FORM = b"forebay plan 1\n"

VARINT, FIXED64, LENGTH = 0, 1, 2


def plan_digest(plan: Fields) -> str:
    """Return the id of a fitted plan from its JSON; unknown fields are errors."""
    return hashlib.sha256(FORM + encode("Plan", plan)).hexdigest()[:32]


def encode(message: str, fields: Fields) -> bytes:
    """Return a message's protobuf bytes."""
    known = MESSAGES[message]
    given = {_snake(name): value for name, value in fields.items()}
    for name in given:
        if name not in known:
            raise ValueError(f"{message} has no field {name!r}")
    return b"".join(_field(*known[name], given[name]) for name in known if given.get(name) is not None)


def _field(number: int, kind: str, value: object) -> bytes:
    if kind.startswith("*"):
        values = cast("Sequence[object]", value)
        if kind[1:] == "string" or kind[1:] in MESSAGES:
            return b"".join(_tagged(number, kind[1:], each) for each in values)
        packed = b"".join(_scalar(kind[1:], each)[1] for each in values)
        return _key(number, LENGTH) + _varint(len(packed)) + packed if packed else b""
    if kind.startswith("?"):
        return _tagged(number, kind[1:], value)
    wire, written = _scalar(kind, value)
    is_default = not any(written) or (kind == "double" and float(cast("float | str", value)) == 0)
    return b"" if is_default else _key(number, wire) + (_prefixed(written) if wire == LENGTH else written)


def _tagged(number: int, kind: str, value: object) -> bytes:
    if kind in MESSAGES:
        return _key(number, LENGTH) + _prefixed(encode(kind, cast(Fields, value)))
    wire, written = _scalar(kind, value)
    return _key(number, wire) + (_prefixed(written) if wire == LENGTH else written)


def _scalar(kind: str, value: object) -> tuple[int, bytes]:
    if kind == "string":
        return LENGTH, str(value).encode()
    if kind == "double":
        # Non-finite numbers are strings in proto3 JSON, which float() parses.
        return FIXED64, struct.pack("<d", float(cast("float | str", value)))
    if kind in ENUMS and isinstance(value, str):
        return VARINT, _varint(ENUMS[kind].index(value))
    return VARINT, _varint(int(cast("int | str", value)) % 2**64)


def _prefixed(written: bytes) -> bytes:
    return _varint(len(written)) + written


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
