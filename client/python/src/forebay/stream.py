"""A rank's batches, one after another, checked as they come.

`Stream` owns one DoGet and its connection; it keeps the header's promises or raises `StreamError`. The body's
checksum (`BatchHeader.checksum`) is not verified here: XXH3 in Python would cost more than the copy it guards, and
TCP and HTTP/2 check their own; the Rust client verifies it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight

from .arrays import Array, column_of, field_of, is_numbers, to_numpy
from .errors import ForebayError, StreamError, translated

Json = dict[str, Any]


@dataclass(frozen=True)
class BatchHeader:
    """What the server says of a batch."""

    epoch: int
    step: int
    """Step of the rank, counted from the start of the epoch."""
    position: int
    """Global position at which the step begins."""
    rows: int
    padding_rows: int
    """Rows at the batch's end that repeat others (remainder PAD)."""
    last: bool
    """The rank's epoch ends with this batch."""
    checksum: int
    """XXH3-64 of the Arrow body as sent; not verified by this package."""


@dataclass(frozen=True)
class StreamInfo:
    """What the server says of an epoch, and of one rank's share of it."""

    snapshot: str
    """Digest of the dataset's files as they are read."""
    plan_id: str
    rows: int
    """Rows of all ranks, repeats of PAD included."""
    steps: int
    """Steps of the longest rank."""
    rank: int
    rank_rows: int
    rank_steps: int


class Batch(Mapping[str, Any]):
    """One step's columns by name: NumPy arrays [n] or [n, width] over the received memory, read-only, no copy.

    A BFLOAT16 output comes as its uint16 bits, for NumPy has no such type. An AS_STORED column is a `pyarrow.Array`
    unless it is a column of numbers that the schema declares free of nulls.
    """

    def __init__(self, data: pa.RecordBatch, header: BatchHeader) -> None:
        self.data = data
        """The Arrow record batch itself."""
        self.header = header

    def __getitem__(self, name: str) -> Array | pa.Array[Any]:
        if name not in self.data.schema.names:
            raise KeyError(f"{name} (the batch has {', '.join(self.data.schema.names)})")
        column = column_of(self.data, name)
        return to_numpy(column) if is_numbers(field_of(self.data, name)) else column

    def __iter__(self) -> Iterator[str]:
        return iter(self.data.schema.names)

    def __len__(self) -> int:
        return self.data.num_columns

    def __repr__(self) -> str:
        return f"Batch({self.header}, {{{', '.join(self.data.schema.names)}}})"


class Stream(Iterator[Batch]):
    """Iterator over one rank's batches; a context manager that ends the stream when it is left.

    `len` is the exact number of steps from its start position to the end, those already read included. The reading
    begins with the first `next`. Made by `Client.stream`.
    """

    def __init__(
        self,
        connect: Callable[[], flight.FlightClient],
        ticket: flight.Ticket,
        schema: pa.Schema,
        info: StreamInfo,
        *,
        step_rows: int,
        start_position: int,
    ) -> None:
        self.schema = schema
        self.info = info
        self.step_rows = step_rows
        """Rows of a step of all ranks together: world_size x batch_size."""
        self._connect = connect
        self._ticket = ticket
        self._start_position = start_position
        self._previous: BatchHeader | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._client: flight.FlightClient | None = None
        self._reader: flight.FlightStreamReader | None = None

    def __len__(self) -> int:
        return max(0, self.info.rank_steps - self._start_position // self.step_rows)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        """Return the next step's batch; waits for it without holding the interpreter's lock."""
        try:
            reader = self._open()
            batch = None if reader is None else self._read(reader)
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            raise StopIteration
        return batch

    def close(self) -> None:
        """End the stream; may be called from another thread to end a read that waits."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._reader is not None:
            self._reader.cancel()
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _open(self) -> flight.FlightStreamReader | None:
        """Return the reader, opened at the first call; None once the stream is closed."""
        with self._lock:
            if self._closed:
                return None
            if self._reader is None:
                self._client = self._connect()
                with translated():
                    self._reader = self._client.do_get(self._ticket)
            return self._reader

    def _read(self, reader: flight.FlightStreamReader) -> Batch | None:
        """Return the next batch, or None where the stream rightly ends or was closed."""
        while True:
            try:
                with translated():
                    chunk = reader.read_chunk()
            except StopIteration:
                self._check_end()
                return None
            except ForebayError:
                if self._closed:
                    return None
                raise
            if chunk.data is None:
                continue
            header = read_header(chunk.app_metadata)
            self._check(header, chunk.data)
            self._previous = header
            # A rank without rows gets a last batch without rows: an end, and no step.
            if header.rows or not header.last:
                return Batch(chunk.data, header)

    def _check(self, header: BatchHeader, data: pa.RecordBatch) -> None:
        where = f"step {header.step} of rank {self.info.rank}"
        if header.rows != data.num_rows:
            raise StreamError(f"{where}: the header says {header.rows} rows, the batch has {data.num_rows}")
        before = self._previous
        if before is None:
            if header.position != self._start_position:
                raise StreamError(f"{where}: begins at position {header.position}, not at {self._start_position}")
            return
        if before.last:
            raise StreamError(f"{where}: follows step {before.step}, which said it was the last")
        if header.step != before.step + 1:
            raise StreamError(f"{where}: step {before.step + 1} was to follow step {before.step}")
        if header.position != before.position + self.step_rows:
            raise StreamError(f"{where}: position {header.position} does not follow {before.position}")

    def _check_end(self) -> None:
        before = self._previous
        if self._closed or (before is None and len(self) == 0):
            return
        if before is None or not before.last:
            read = "before its first batch" if before is None else f"after step {before.step}"
            raise StreamError(f"the stream of rank {self.info.rank} ended {read}, without its last batch")


def read_header(metadata: pa.Buffer | None) -> BatchHeader:
    """Read the JSON header that travels as a batch's app_metadata."""
    try:
        fields = cast(Json, json.loads(b"" if metadata is None else metadata.to_pybytes()))
        return BatchHeader(
            epoch=int(fields.get("epoch") or 0),
            step=int(fields.get("step") or 0),
            position=int(fields.get("position") or 0),
            rows=int(fields.get("rows") or 0),
            padding_rows=int(fields.get("padding_rows") or 0),
            last=bool(fields.get("last")),
            checksum=int(fields.get("checksum") or 0),
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise StreamError(f"a batch came without a header that can be read: {error}") from error
