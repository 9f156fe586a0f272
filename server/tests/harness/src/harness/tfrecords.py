"""TFRecord files of tf.train.Example, written without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

Values = list[bytes] | list[str] | list[float] | list[int] | None


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        table.append(byte)
    return table


TABLE = _table()


def masked_crc(data: bytes) -> bytes:
    """The rotated CRC-32C of the format."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    """A record with its length and checksums."""
    length = struct.pack("<Q", len(record))
    return length + masked_crc(length) + record + masked_crc(record)


def varint(value: int) -> bytes:
    """A number of variable length; negative ones as of 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(number: int, data: bytes) -> bytes:
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(values: Values, packed: bool = True) -> bytes:
    """A feature with a list of the type of its first value; `None` has no list."""
    if values is None:
        return b""
    first = values[0] if values else b""
    if isinstance(first, bytes | str):
        encoded = [value.encode() if isinstance(value, str) else value for value in values]  # type: ignore[union-attr]
        return message(1, b"".join(message(1, value) for value in encoded))  # type: ignore[arg-type]
    if isinstance(first, float):
        floats = [struct.pack("<f", value) for value in values]
        return message(2, message(1, b"".join(floats)) if packed else b"".join(b"\x0d" + value for value in floats))
    numbers = [varint(int(value)) for value in values]
    return message(3, message(1, b"".join(numbers)) if packed else b"".join(b"\x08" + value for value in numbers))


def example(features: Mapping[str, Values], packed: bool = True) -> bytes:
    """A message of the type tf.train.Example."""
    entries = [
        message(1, message(1, name.encode()) + message(2, feature(values, packed))) for name, values in features.items()
    ]
    return message(1, b"".join(entries))


def tfrecord_bytes(rows: Iterable[Mapping[str, Values]], packed: bool = True) -> bytes:
    """A file of examples."""
    return b"".join(framed(example(row, packed)) for row in rows)
