"""Thrift's compact protocol as a tree that can be changed: the headers and footers of Parquet, field by field.

It has no schema: fields are identified by number, as in parquet.thrift. What is read and written without a change keeps
its bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12


@dataclass
class Items:
    """A list. `claimed` is the length that is written in place of the true one."""

    kind: int
    values: list[Any]
    claimed: int | None = None


@dataclass
class Struct:
    """Fields by number, each with its type."""

    fields: dict[int, tuple[int, Any]] = field(default_factory=dict[int, tuple[int, Any]])

    def __getitem__(self, number: int) -> Any:
        return self.fields[number][1]

    def __setitem__(self, number: int, value: Any) -> None:
        """Change a field that is there; its type stays."""
        self.fields[number] = (self.fields[number][0], value)

    def __contains__(self, number: int) -> bool:
        return number in self.fields

    def add(self, number: int, kind: int, value: Any) -> None:
        self.fields[number] = (kind, value)

    def remove(self, number: int) -> None:
        del self.fields[number]


class Reader:
    """Reads one struct after the other from a place on."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data = data
        self.place = place

    def struct(self) -> Struct:
        found, last = Struct(), 0
        while head := self._byte():
            last = last + (head >> 4) if head >> 4 else self._zigzag()
            found.add(last, head & 0xF, self._value(head & 0xF))
        return found

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            head = self._byte()
            size = self._varint() if head >> 4 == 15 else head >> 4
            kind = head & 0xF
            # In a list a boolean is a byte.
            return Items(kind, [self._value(BYTE if kind in (TRUE, FALSE) else kind) for _ in range(size)])
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"no type {kind} in Parquet")

    def _byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]

    def _bytes(self, size: int) -> bytes:
        self.place += size
        return self.data[self.place - size : self.place]

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def encode(tree: Struct) -> bytes:
    out, last = bytearray(), 0
    for number, (kind, value) in sorted(tree.fields.items()):
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        out += bytes([number - last << 4 | kind]) if 0 < number - last < 16 else bytes([kind]) + zigzag(number)
        if kind not in (TRUE, FALSE):
            out += _encode(kind, value)
        last = number
    return bytes(out) + b"\0"


def _encode(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE, BYTE):
        return bytes([value])
    if kind in (I16, I32, I64):
        return zigzag(value)
    if kind == DOUBLE:
        return struct.pack("<d", value)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind in (LIST, SET):
        size = len(value.values) if value.claimed is None else value.claimed
        head = bytes([size << 4 | value.kind]) if size < 15 else bytes([0xF0 | value.kind]) + varint(size)
        return head + b"".join(_encode(value.kind, item) for item in value.values)
    # Structs nested deeper than the recursion limit stay bytes.
    return value if isinstance(value, bytes) else encode(value)
