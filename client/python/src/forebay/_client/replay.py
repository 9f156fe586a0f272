"""Replay of one batch: the source of each row, and the batch itself, byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight

from forebay.errors import StreamError

from .connection import Connection
from .header import BatchHeader, read_header
from .source import Source
from .stream import Batch

Json = dict[str, Any]

_FIELDS = [
    pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("row_group", pa.uint64(), nullable=False),
    pa.field("row", pa.uint64(), nullable=False),
    pa.field("row_id", pa.uint64(), nullable=False),
    pa.field("padding", pa.bool_(), nullable=False),
]
_MIXTURE_FIELDS = [
    pa.field("dataset", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("source", pa.int64(), nullable=False),
]
ROWS_SCHEMA = pa.schema(_FIELDS)
MIXTURE_SCHEMA = pa.schema([*_FIELDS, *_MIXTURE_FIELDS])


class Replay:
    """One batch of one rank; made by `Client.replay`."""

    def __init__(
        self,
        header: BatchHeader,
        rows: pa.Table,
        ticket: bytes,
        snapshot: str,
        plan_id: str,
        connect: Callable[[], Connection],
    ) -> None:
        self.header = header
        """The batch's header, except for its checksum, which is 0."""
        self.rows = rows
        """The source of each row, in the batch's order: file, row_group (index in the file), row (index in the row
        group, before filtering), row_id (index in the snapshot in file order, as added by with_row_ids), padding
        (whether it repeats another row); for a mixture also dataset and source (index of the source)."""
        self.ticket = ticket
        """Ticket of a DoGet that returns the batch."""
        self.snapshot = snapshot
        self.plan_id = plan_id
        self._connect = connect

    @cached_property
    def batch(self) -> Batch:
        """The batch, fetched on first access."""
        source = Source(self._connect(), flight.Ticket(self.ticket))
        try:
            while True:
                chunk = source.read()
                if chunk.data is not None:
                    return Batch(chunk.data, read_header(chunk.app_metadata))
        except StopIteration:
            raise StreamError("the replayed stream ended without its batch") from None
        finally:
            source.close()

    def __repr__(self) -> str:
        return f"Replay({self.header}, {self.rows.num_rows} rows, snapshot {self.snapshot}, plan {self.plan_id})"


def read_replay(answers: Iterable[Json], connect: Callable[[], Connection]) -> Replay:
    """Read the action's results: the first describes the batch, and each has rows of it."""
    first: Json | None = None
    parts: list[pa.Table] = []
    for answer in answers:
        first = answer if first is None else first
        rows = cast("list[Json]", answer.get("rows") or [])
        is_mixture = any(row.get("dataset") for row in rows)
        schema = MIXTURE_SCHEMA if is_mixture else ROWS_SCHEMA
        parts.append(pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in schema.names}, schema))
    if first is None:
        raise StreamError("the replay ended without a result")
    return Replay(
        BatchHeader.of(cast(Json, first.get("header") or {})),
        pa.concat_tables(parts).unify_dictionaries(),
        base64.b64decode(first.get("ticket") or ""),
        str(first.get("snapshot") or ""),
        str(first.get("plan_id") or ""),
        connect,
    )
