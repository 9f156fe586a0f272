"""Online serving: computes a plan's features for raw rows, over one open DoExchange.

The server runs the same kernels as for a training stream. Each call is one round trip. If the server becomes
unreachable, the next replica repeats the call: a response depends only on the plan and the batch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as flight

from forebay.errors import BrokenStream, Cancelled, ForebayError

from . import fork
from .arrays import Array, ArrowArray, column_of, is_numbers, to_numpy
from .connection import Connection
from .failover import RECOVERABLE
from .retry import Failure, try_everywhere
from .signal_safe import Latch

Rows = pa.RecordBatch | pa.Table | Mapping[str, "npt.ArrayLike | ArrowArray"]
Features = dict[str, "Array | ArrowArray"]

# Size of the sequence number, little-endian, that matches responses to batches.
NUMBER_BYTES = 8


class Exchange:
    """Computes a plan's outputs for batches of rows: ``features = exchange(batch)``; made by `Client.exchange`.

    A batch is a `pyarrow.RecordBatch`, a `pyarrow.Table`, or a mapping of names to NumPy arrays (or to other arguments
    of `pyarrow.array`). The result is a dict of NumPy arrays over the received memory, like a stream's batches, without
    the rows that do not pass the plan's filter. The first batch determines the columns' types, unless `schema` does; a
    batch of other columns or types reopens the exchange.

    Calls from several threads are serialized: for concurrent calls, open one exchange per thread. Close the exchange,
    or use it in a ``with`` block.
    """

    def __init__(
        self,
        open_at: Callable[[str, pa.Schema], Call],
        urls: Sequence[str],
        *,
        seconds: float,
        schema: pa.Schema | None,
    ) -> None:
        self._open_at = open_at
        self._urls = list(urls)
        self._seconds = seconds
        self._given = schema
        self._call: Call | None = None
        self._lock = threading.Lock()
        self._stopped = Latch()

    def __call__(self, rows: Rows) -> Features:
        """Return the outputs of the rows that pass the filter; waits without holding the GIL."""
        batch = self.batch(rows)
        return {
            name: to_numpy(column_of(batch, name)) if is_numbers(field) else column_of(batch, name)
            for name, field in zip(batch.schema.names, cast("list[pa.Field[Any]]", list(batch.schema)), strict=True)
        }

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """Return the same as one Arrow record batch."""
        fork.refuse_if_broken()
        batch = _one_batch(rows, self._given)
        if self._stopped.is_set():
            raise ForebayError("the exchange is closed")
        with self._lock:
            if self._stopped.is_set():
                raise ForebayError("the exchange is closed")
            call = self._call
            try:
                if call is None or not call.schema.equals(batch.schema):
                    call = self._open(self._urls[0], batch.schema)
                return call.send(batch)
            except RECOVERABLE as error:
                return self._fail_over(batch, error)
            except BaseException:
                self._close_call()
                raise

    def close(self) -> None:
        """End the exchange; may be called from another thread to end a pending call."""
        self._stopped.set()
        call = self._call
        if call is not None:
            call.cancel()
        # A call in another thread holds the lock, and closes its connection when it fails.
        if self._lock.acquire(blocking=False):
            try:
                self._close_call()
            finally:
                self._lock.release()

    def __repr__(self) -> str:
        return f"Exchange({self._urls[0]!r})"

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _fail_over(self, batch: pa.RecordBatch, error: ForebayError) -> pa.RecordBatch:
        """Try the replicas in turn, the failed one last."""
        failed = self._urls[0]
        self._close_call()
        if self._stopped.is_set():
            raise error
        self._urls = [*self._urls[1:], failed]

        def attempt(url: str) -> pa.RecordBatch:
            response = self._open(url, batch.schema).send(batch)
            at = self._urls.index(url)
            self._urls = [*self._urls[at:], *self._urls[:at]]
            return response

        cause = Failure(failed, error)
        urls = tuple(self._urls)
        response = try_everywhere(attempt, lambda: urls, seconds=self._seconds, stopped=self._stopped, cause=cause)
        if response is None:
            raise ForebayError("the exchange is closed")
        return response

    def _open(self, url: str, schema: pa.Schema) -> Call:
        self._close_call()
        self._call = self._open_at(url, schema)
        if self._stopped.is_set():
            self._call.close()
        return self._call

    def _close_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.close()


class Call:
    """One DoExchange over a separate connection."""

    def __init__(self, connection: Connection, command: bytes, schema: pa.Schema) -> None:
        self.schema = schema
        self._connection = connection
        self._number = 0
        # None once closed: they keep gRPC running, and a fork requires it to have ended.
        self._streams: tuple[flight.FlightStreamWriter, flight.FlightStreamReader] | None = None
        try:
            self._streams = connection.exchange(command)
        except BaseException:
            connection.close()
            raise
        try:
            with connection.translated():
                self._write(lambda writer: writer.begin(schema))
                # Waits for the server's schema, or its error.
                _ = self._open()[1].schema
        except BaseException:
            self.close()
            raise

    def send(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Send a batch and wait for its response."""
        self._number += 1
        number = self._number.to_bytes(NUMBER_BYTES, "little")
        with self._connection.translated():
            self._write(lambda writer: writer.write_with_metadata(batch, pa.py_buffer(number)))
            try:
                chunk = self._open()[1].read_chunk()
            except StopIteration as end:
                raise BrokenStream("the exchange ended before the response") from end
        metadata = chunk.app_metadata
        if chunk.data is None or metadata is None or metadata.to_pybytes() != number:
            raise BrokenStream("the response does not match the batch")
        return chunk.data

    def cancel(self) -> None:
        """Cancel the call, which ends a pending write or read in another thread."""
        streams = self._streams
        if streams is not None and not fork.keeps(streams):
            streams[1].cancel()

    def close(self) -> None:
        """End the call and close the connection; not while another thread uses it."""
        self.cancel()
        if self._streams is not None and not fork.keeps(self._streams):
            # Closed here because pyarrow prints an error to stderr when an open writer is deleted.
            with contextlib.suppress(Exception):
                self._streams[0].close()
        self._streams = None
        self._connection.close()

    def _open(self) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        if self._streams is None:
            raise Cancelled("the exchange is closed")
        return self._streams

    def _write(self, write: Callable[[flight.FlightStreamWriter], None]) -> None:
        """Write; if the server has ended the call, raise the server's error instead of the write's."""
        try:
            write(self._open()[0])
        except (pa.ArrowException, flight.FlightError, OSError):
            self._open()[1].read_chunk()
            raise


def _one_batch(rows: Rows, schema: pa.Schema | None) -> pa.RecordBatch:
    if isinstance(rows, pa.Table):
        rows = rows.combine_chunks()
        batches = rows.to_batches()
        if len(batches) > 1:
            raise ValueError(f"a table of {rows.num_rows} rows does not fit into one batch: send it in several calls")
        rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
    if not isinstance(rows, pa.RecordBatch):
        return _of_arrays(rows, schema)
    if schema is None or rows.schema.equals(schema):
        return rows
    return _of_arrays({name: column_of(rows, name) for name in rows.schema.names}, schema)


def _of_arrays(columns: Mapping[str, Any], schema: pa.Schema | None) -> pa.RecordBatch:
    if schema is None:
        arrays = {name: _array(values, None) for name, values in columns.items()}
        return cast(Any, pa.RecordBatch).from_pydict(arrays)
    missing = [name for name in schema.names if name not in columns]
    if missing:
        raise ValueError(f"the batch lacks {', '.join(missing)} of the exchange's schema")
    arrays = [_array(columns[name], cast(Any, schema).field(name).type) for name in schema.names]
    return cast(Any, pa.RecordBatch).from_arrays(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType | None) -> pa.Array[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = cast(Any, values).combine_chunks()
    if isinstance(values, pa.Array):
        known = cast(Any, values)
        return known if kind is None or known.type.equals(kind) else known.cast(kind)
    return cast(Any, pa).array(values, type=kind)
