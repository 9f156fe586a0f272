"""A rank's batches, verified as they arrive.

`Stream` raises `StreamError` if batches contradict their headers. If its source breaks, it opens a new one at the next
position, under the same checks; `failover` chooses the replica and the number of attempts.

A signal handler may raise anywhere in `next`, also between the arrival of a batch and its return. The stream's position
is therefore a single value, replaced immediately before a batch is returned. Until then the position is after the
previous batch and the source is considered lost, so the following `next` reads the same batch from a new source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from forebay.errors import BrokenStream, ForebayError, StreamError

from . import checksum
from .arrays import Array, column_of, field_of, shape, view
from .cursor import Cursor, EpochCursors, Order
from .failover import RECOVERABLE, Failover
from .header import BatchHeader, StreamInfo, read_header
from .ragged import Ragged
from .retry import Failure
from .signal_safe import Latch
from .source import Source, memory_of

if TYPE_CHECKING:
    from .message_input import Pinnable


class Batch(Mapping[str, Any]):
    """One step's columns by name: read-only NumPy arrays [n] or [n, width] over the received memory, without a copy.

    A BFLOAT16 output is its uint16 bits because NumPy has no such type. An output of lists is a `Ragged`. An AS_STORED
    column is a `pyarrow.Array`, unless it has numbers or lists of numbers without nulls by the schema.
    """

    def __init__(
        self, data: pa.RecordBatch, header: BatchHeader, transport: str = "", memory: Pinnable | None = None
    ) -> None:
        self.data = data
        """The Arrow record batch itself."""
        self.header = header
        self.transport = transport
        """How it arrived: "ring", "native" or "flight"; empty if it did not."""
        self.memory = memory
        """The memory that it may be in, unless it is pyarrow's."""

    def __getitem__(self, name: str) -> Array | Ragged | pa.Array[Any]:
        if name not in self.data.schema.names:
            raise KeyError(f"{name} (the batch has {', '.join(self.data.schema.names)})")
        return view(column_of(self.data, name), field_of(self.data, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.data.schema.names)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy: the memory that is shared with the server stays in this process.
        return Batch, (self.data, self.header, self.transport)

    def __len__(self) -> int:
        return self.data.num_columns

    def __repr__(self) -> str:
        columns = (f"{name} {shape(column_of(self.data, name), field_of(self.data, name))}" for name in self)
        return f"Batch({self.header}, {', '.join(columns)})"


class _Position(NamedTuple):
    """The position of a stream."""

    previous: BatchHeader | None = None
    """Header of the last batch returned."""
    source: Source | None = None
    """Source of the next batch; None if one must be opened."""
    is_over: bool = False
    """Whether all batches were returned."""


class Stream(Iterator[Batch]):
    """Iterator over one rank's batches, and a context manager that closes the stream; made by `Client.stream`.

    `len` is the number of steps from the start position to the end, including those already read. It is exact, except
    that a shuffled stream with remainder drop or pad that starts between steps may have one step more or less. Reading
    begins with the first `next`. If a server becomes unreachable, the stream waits for it or continues on another
    replica; see `forebay.connect`.

    After an exception in `next`, be it an interrupt or an error, the stream continues: `cursor` has not moved, and the
    following `next` requests the same batch again. (If a signal handler raises after ``next(stream)`` has returned but
    before the caller's assignment, the batch is lost; ``for batch in stream`` has no such gap in CPython.) Only `close`
    and the end of the epoch are final, and only the latter moves `cursor`.
    """

    def __init__(
        self,
        open_first: Callable[[], Source],
        failover: Failover,
        schema: pa.Schema,
        info: StreamInfo,
        start: Cursor,
        *,
        batch_size: int,
        order: Order,
    ) -> None:
        self.schema = schema
        self.info = info
        self.step_rows = batch_size * start.world_size
        """Rows of a step, all ranks together: world_size x batch_size."""
        self._batch_size = batch_size
        self._order = order
        self._start = start
        self._cursors = EpochCursors(start, info, order, self.step_rows)
        self._open_first = open_first
        self._failover = failover
        self._position = _Position()
        self._lock = threading.Lock()
        self._stopped = Latch()
        # Closed by `close`. `_position` decides whether batches are still read from it.
        self._source: Source | None = None

    def __len__(self) -> int:
        if self._order.bucket_by_length:
            return max(0, self.info.rank_steps - self._start.position // self.step_rows)
        world_size, rank_rows = self._start.world_size, self.info.rank_rows
        if self._order.remainder != "keep" and self.info.passing_rows:
            # The rank's rows in whole batches from the start of the epoch, but the stream may begin between these.
            rows = self.info.passing_rows
            rank_rows = rows // world_size if self._order.remainder == "drop" else -(-rows // world_size)
        left = max(0, rank_rows - self._start.position // world_size)
        return left // self._batch_size if self._order.remainder == "drop" else -(-left // self._batch_size)

    def __iter__(self) -> Stream:
        return self

    def __repr__(self) -> str:
        info, cursor = self.info, self.cursor()
        return (
            f"Stream(rank {info.rank} of {self._start.world_size}, {len(self)} steps of {self._batch_size} rows, "
            f"at epoch {cursor.epoch}, position {cursor.position}, {', '.join(self.schema.names)})"
        )

    def __next__(self) -> Batch:
        """Wait for the next batch without holding the GIL, and return it."""
        at = self._position
        if at.is_over or self._stopped.is_set():
            raise StopIteration
        self._position = _Position(at.previous)
        try:
            batch, after = self._next(at)
        except BaseException:
            self._close_source()
            raise
        if batch is None:
            self._position = after
            self.close()
            raise StopIteration
        self._position = after
        return batch

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a PyCapsule of an Arrow stream over the batches that are left; reading it moves this stream."""
        reader = pa.RecordBatchReader.from_batches(self.schema, (batch.data for batch in self))
        return cast(Any, reader).__arrow_c_stream__(requested_schema)

    def cursor(self) -> Cursor:
        """Return the position after the last batch returned by `next`, from which `Client.stream` resumes."""
        previous = self._position.previous
        return self._start if previous is None else self._cursors(previous)

    def cursors(self) -> EpochCursors:
        """Return the cursors of this stream's batches, without a reference to the stream."""
        return self._cursors

    def close(self) -> None:
        """End the stream; may be called from another thread to end a pending read or pause."""
        self._stopped.set()
        self._close_source()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _next(self, at: _Position) -> tuple[Batch | None, _Position]:
        """Return the next batch and the position after it, from as many sources as necessary.

        Without a batch: the final position at the end of the stream, or the unchanged position if it was closed.
        """
        previous = at.previous
        if previous is not None and previous.last and at.source is None:
            return None, _Position(previous, is_over=True)
        failure: Failure | None = None
        try:
            if at.source is not None:
                return self._read(at.source, previous)
            if previous is None:
                return self._read(self._adopt(self._open_first()), previous)
        except ForebayError as error:
            if self._stopped.is_set():
                return None, _Position(previous)
            if not isinstance(error, RECOVERABLE):
                raise
            failure = Failure(self._failover.url if at.source is None else at.source.url, error)
        position = self._start.position if previous is None else previous.position + self.step_rows
        found = self._failover.resume(
            lambda opened: self._read(self._adopt(opened), previous), position, failure, self._stopped
        )
        return (None, _Position(previous)) if found is None else found

    def _adopt(self, source: Source) -> Source:
        """Make this the source that `close` closes; close it now if the stream is closed."""
        with self._lock:
            before, self._source = self._source, source
        if before is not None:
            before.close()
        if self._stopped.is_set():
            source.close()
        return source

    def _close_source(self) -> None:
        """Close the current source."""
        with self._lock:
            source = self._source
        if source is not None:
            source.close()

    def _read(self, source: Source, previous: BatchHeader | None) -> tuple[Batch | None, _Position]:
        """Return the source's next batch and the position after it; see `_next` for the cases without a batch."""
        while True:
            try:
                chunk = source.read()
            except StopIteration:
                if not self._stopped.is_set():
                    self._check_end(previous)
                return None, _Position(previous, is_over=not self._stopped.is_set())
            except ForebayError as error:
                if self._stopped.is_set():
                    return None, _Position(previous)
                if previous is not None and previous.last and isinstance(error, RECOVERABLE):
                    # All batches arrived: an error at the end of the connection does not matter.
                    return None, _Position(previous, is_over=True)
                raise
            if chunk.data is None:
                continue
            header = read_header(chunk.app_metadata)
            self._check(header, chunk.data, previous)
            previous = header
            # A rank without rows receives an empty last batch, which is not a step.
            if header.rows or not header.last:
                return Batch(chunk.data, header, source.transport, memory_of(chunk)), _Position(header, source)

    def _check(self, header: BatchHeader, data: pa.RecordBatch, before: BatchHeader | None) -> None:
        where = f"step {header.step} of rank {self.info.rank}"
        if checksum.matches(data, header.checksum) is False:
            raise BrokenStream(f"{where}: checksum mismatch, the batch was corrupted in transit")
        if header.rows != data.num_rows:
            raise StreamError(f"{where}: the header counts {header.rows} rows, the batch has {data.num_rows}")
        if before is None:
            if header.position != self._start.position:
                raise StreamError(f"{where}: expected position {self._start.position}, found {header.position}")
            return
        if before.last:
            raise StreamError(f"{where}: follows step {before.step}, the last one")
        if header.step != before.step + 1:
            raise StreamError(f"{where}: expected step {before.step + 1}")
        if header.position != before.position + self.step_rows:
            raise StreamError(f"{where}: expected position {before.position + self.step_rows}, found {header.position}")

    def _check_end(self, before: BatchHeader | None) -> None:
        if before is None and len(self) == 0:
            return
        if before is None or not before.last:
            read = "before its first batch" if before is None else f"after step {before.step}"
            raise BrokenStream(f"the stream of rank {self.info.rank} ended {read}, without the last batch")
