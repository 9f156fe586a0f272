"""Online serving: raw rows in, the plan's features out, over one DoExchange that stays open.

The server runs the same kernels as for a training stream. One call is one round trip; a server that is gone is replaced
by the next replica, which is asked again: an answer depends on nothing but the plan and the batch.
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

from .arrays import Array, ArrowArray, column_of, is_numbers, to_numpy
from .connection import Connection
from .errors import BrokenStream, ForebayError
from .failover import LEFT_BEHIND
from .retry import Trouble, try_everywhere
from .signal_safe import Latch

Rows = pa.RecordBatch | pa.Table | Mapping[str, "npt.ArrayLike | ArrowArray"]
Features = dict[str, "Array | ArrowArray"]

# What a batch is told by, when its answer comes: a number that counts up, as so many little-endian bytes.
NUMBER_BYTES = 8


class Exchange:
    """Computes a plan's outputs for batches of rows: ``features = exchange(batch)``; made by `Client.exchange`.

    A batch is a `pyarrow.RecordBatch`, a `pyarrow.Table`, or a mapping of names to NumPy arrays (or what
    `pyarrow.array` takes); the answer is a dict of NumPy arrays over the received memory, as a stream's batches are.
    Rows that do not pass the plan's filter are left out. The first batch says what types the columns have, unless
    `schema` does; a batch of other columns or types opens the exchange anew.

    May be called from several threads, one after the other: for calls at the same time open one exchange a thread.
    Close it, or use it in a ``with`` block.
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
        """Return the outputs of the rows that pass; waits for them without holding the interpreter's lock."""
        batch = self.batch(rows)
        return {
            name: to_numpy(column_of(batch, name)) if is_numbers(field) else column_of(batch, name)
            for name, field in zip(batch.schema.names, cast("list[pa.Field[Any]]", list(batch.schema)), strict=True)
        }

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """Return the same as one Arrow record batch."""
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
                return call.turn(batch)
            except LEFT_BEHIND as error:
                return self._elsewhere(batch, error)
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """End the exchange; may be called from another thread to end a call that waits."""
        self._stopped.set()
        call = self._call
        if call is not None:
            call.cancel()
        # A call that waits, or is about to, sees to the rest by itself.
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _elsewhere(self, batch: pa.RecordBatch, error: ForebayError) -> pa.RecordBatch:
        """Ask the replicas in turn, the one that failed last."""
        failed = self._urls[0]
        self._drop()
        if self._stopped.is_set():
            raise error
        self._urls = [*self._urls[1:], failed]

        def attempt(url: str) -> pa.RecordBatch:
            answer = self._open(url, batch.schema).turn(batch)
            at = self._urls.index(url)
            self._urls = [*self._urls[at:], *self._urls[:at]]
            return answer

        trouble = Trouble(failed, error)
        urls = tuple(self._urls)
        answer = try_everywhere(attempt, lambda: urls, seconds=self._seconds, stopped=self._stopped, before=trouble)
        if answer is None:
            raise ForebayError("the exchange is closed")
        return answer

    def _open(self, url: str, schema: pa.Schema) -> Call:
        self._drop()
        self._call = self._open_at(url, schema)
        if self._stopped.is_set():
            self._call.close()
        return self._call

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.close()


class Call:
    """One DoExchange on a connection of its own."""

    def __init__(self, connection: Connection, command: bytes, schema: pa.Schema) -> None:
        self.schema = schema
        self._connection = connection
        self._number = 0
        try:
            self._writer, self._reader = connection.exchange(command)
        except BaseException:
            connection.close()
            raise
        try:
            with connection.translated():
                self._told(lambda: self._writer.begin(schema))
                # The server's schema, or what is wrong with the plan or with ours.
                _ = self._reader.schema
        except BaseException:
            self.close()
            raise

    def turn(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Send a batch and wait for its answer."""
        self._number += 1
        number = self._number.to_bytes(NUMBER_BYTES, "little")
        with self._connection.translated():
            self._told(lambda: self._writer.write_with_metadata(batch, pa.py_buffer(number)))
            try:
                chunk = self._reader.read_chunk()
            except StopIteration as end:
                raise BrokenStream("the exchange ended before its answer") from end
        metadata = chunk.app_metadata
        if chunk.data is None or metadata is None or metadata.to_pybytes() != number:
            raise BrokenStream("an answer came that is not that of the batch")
        return chunk.data

    def cancel(self) -> None:
        """End the call, and with it a write or a read that waits in another thread."""
        self._reader.cancel()

    def close(self) -> None:
        """End the call and the connection; not while another thread uses it."""
        self._reader.cancel()
        # Closed here, for pyarrow would complain on stderr when it is thrown away; what it says of the end is no news.
        with contextlib.suppress(Exception):
            self._writer.close()
        self._connection.close()

    def _told(self, write: Callable[[], None]) -> None:
        """Write; where the server has ended the call, raise what it said and not that it has."""
        try:
            write()
        except (pa.ArrowException, flight.FlightError, OSError):
            self._reader.read_chunk()
            raise


def _one_batch(rows: Rows, schema: pa.Schema | None) -> pa.RecordBatch:
    if isinstance(rows, pa.Table):
        rows = rows.combine_chunks()
        batches = rows.to_batches()
        if len(batches) > 1:
            raise ValueError(f"a table of {rows.num_rows} rows does not fit into one batch: send it in parts")
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
        raise ValueError(f"the batch lacks {', '.join(missing)}, which the exchange's schema names")
    arrays = [_array(columns[name], cast(Any, schema).field(name).type) for name in schema.names]
    return cast(Any, pa.RecordBatch).from_arrays(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType | None) -> pa.Array[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = cast(Any, values).combine_chunks()
    if isinstance(values, pa.Array):
        known = cast(Any, values)
        return known if kind is None or known.type.equals(kind) else known.cast(kind)
    return cast(Any, pa).array(values, type=kind)
