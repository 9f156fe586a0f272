"""Small bodies that decompress to a gibibyte of zeros, made without ever holding it."""

from __future__ import annotations

import struct

import pyarrow as pa

BOMB_BYTES = 1 << 30
PIECE_BYTES = 1 << 20


def bomb(codec: str) -> bytes:
    return lz4_bomb() if codec == "lz4" else streamed_bomb(codec)


def streamed_bomb(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        for _ in range(BOMB_BYTES // PIECE_BYTES):
            stream.write(bytes(PIECE_BYTES))
    return sink.getvalue().to_pybytes()


def framed(data: bytes) -> bytes:
    """The bytes as a frame of LZ4, which says what it is."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def framed_as_before_lz4_had_a_standard() -> bytes:
    """A bomb in the frame of the first versions: blocks of 8 MiB, each preceded by its stored length."""
    block = lz4_bomb(8 << 20)
    return b"\x02\x21\x4c\x18" + (struct.pack("<I", len(block)) + block) * (BOMB_BYTES >> 23)


def lz4_bomb(size: int = BOMB_BYTES) -> bytes:
    """A block: one literal zero, one match that repeats it, the five literals that a block must end with."""
    literals, match_min, nibble = 5, 4, 15
    repeated = size - 1 - literals
    rest = repeated - match_min - nibble
    return b"\x1f\0\x01\0" + b"\xff" * (rest // 255) + bytes([rest % 255, literals << 4]) + bytes(literals)
