"""Rows by their numbers: the request of a take, and its one batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from forebay.errors import BrokenStream, InvalidRequest, StreamError

from . import checksum
from .connection import Connection, Json
from .header import read_header
from .options import integer
from .source import Source, memory_of
from .stream import Batch

RowNumbers: TypeAlias = (
    "Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]] | pa.Array[Any] | pa.ChunkedArray[Any]"
)
"""Numbers of rows: a list, or a NumPy or Arrow array of integers."""


# Slots of a ring: a take has one batch, and no server has fewer slots.
SLOTS = 4


def numbers_of(row_ids: RowNumbers | None, positions: RowNumbers | None) -> Json:
    """Return the field of the numbers; raise unless exactly one of the arguments has them."""
    if (row_ids is None) == (positions is None):
        raise TypeError("take expects either row_ids or positions")
    if row_ids is not None:
        return {"row_ids": _integers("row_ids", row_ids)}
    return {"positions": _integers("positions", positions)}


def read_take(connection: Connection, ticket: flight.Ticket) -> Batch:
    """Read the batch of a ticket over a separate `connection`, and close it."""
    source = Source(connection, ticket, slots=SLOTS)
    try:
        while True:
            chunk = source.read()
            if chunk.data is None:
                continue
            header = read_header(chunk.app_metadata)
            if checksum.matches(chunk.data, header.checksum) is False:
                raise BrokenStream("take: checksum mismatch, the rows were corrupted in transit")
            if header.rows != chunk.data.num_rows or not header.last:
                raise StreamError(f"take: {chunk.data.num_rows} rows arrived with {header}")
            return Batch(chunk.data, header, source.transport, memory_of(chunk))
    except StopIteration:
        raise BrokenStream("take: the stream ended without its batch") from None
    finally:
        source.close()


def _integers(name: str, values: object) -> list[int]:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        column = cast("pa.Array[Any]", values)
        if len(column) and not pa.types.is_integer(column.type):
            raise TypeError(f"{name} must be integers, not {column.type}")
        if column.null_count:
            raise InvalidRequest(f"{name} must not have nulls")
        values = column.to_pylist()
    if isinstance(values, np.ndarray):
        array = cast("np.ndarray[Any, np.dtype[Any]]", values)
        if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
            raise TypeError(f"{name} must be a one-dimensional array of integers, not {array.dtype} {array.shape}")
        values = array.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list or an array of integers, not {values!r}")
    numbers = enumerate(cast("Iterable[object]", values))
    return [integer(f"{name}[{index}]", number) for index, number in numbers]
