"""Arrow IPC files and streams of one column in big-endian byte order, which the installed writers do not write."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

END = b"ARROW1"
CONTINUATION = b"\xff" * 4

# Slots of tables in Arrow's flatbuffers.
FOOTER_SCHEMA, MESSAGE_HEADER, SCHEMA_ORDER, SCHEMA_FIELDS = 1, 2, 0, 1


def big_endian_file(name: str, values: list[int]) -> bytes:
    """A file of a column of int64."""
    written = bytearray(_swapped(name, values, pa.ipc.new_file))
    footer_bytes = struct.unpack("<i", written[-10:-6])[0]
    footer = len(written) - 10 - footer_bytes
    _mark(written, _table_in(written, _root(written, footer), FOOTER_SCHEMA))
    _mark_message(written, 8)
    return bytes(written)


def big_endian_stream(name: str, values: list[int]) -> bytes:
    """A stream of a column of int64."""
    written = bytearray(_swapped(name, values, pa.ipc.new_stream))
    _mark_message(written, 0)
    return bytes(written)


def _swapped(name: str, values: list[int], new: object) -> bytes:
    sink = pa.BufferOutputStream()
    swapped = np.array(values, ">i8").view("<i8")
    table = pa.table({name: pa.array(swapped)})
    with new(sink, table.schema) as writer:  # type: ignore[operator]
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _mark_message(buffer: bytearray, start: int) -> None:
    assert buffer[start : start + 4] == CONTINUATION
    _mark(buffer, _table_in(buffer, _root(buffer, start + 8), MESSAGE_HEADER))


def _mark(buffer: bytearray, schema: int) -> None:
    """Set the byte order of a schema of one column. The number of columns serves as the value, Big = 1."""
    fields = _table_in(buffer, schema, SCHEMA_FIELDS)
    assert struct.unpack_from("<I", buffer, fields)[0] == 1
    struct.pack_into("<H", buffer, _slot(buffer, schema, SCHEMA_ORDER), fields - schema)


def _root(buffer: bytearray, start: int) -> int:
    return start + struct.unpack_from("<I", buffer, start)[0]


def _slot(buffer: bytearray, table: int, slot: int) -> int:
    return table - struct.unpack_from("<i", buffer, table)[0] + 4 + 2 * slot


def _table_in(buffer: bytearray, table: int, slot: int) -> int:
    place = table + struct.unpack_from("<H", buffer, _slot(buffer, table, slot))[0]
    return place + struct.unpack_from("<I", buffer, place)[0]
