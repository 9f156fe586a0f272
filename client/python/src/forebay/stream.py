"""A rank's batches, one after another, checked as they come.

`Stream` keeps the headers' promises or raises `StreamError`. Where its batches break off it asks for a new source at
the next position, and the same checks see that there is no seam; where and how often is `failover`'s to say.

A signal handler may raise anywhere in `next`, also between a batch's arrival and its return. The stream's place is
therefore one value, which is replaced as the last thing before a batch is returned: until then the place is behind the
batch before, and the source counts as lost, so that the next `next` reads the same batch from a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa

from . import checksum
from .arrays import Array, column_of, field_of, seen
from .cursor import Cursor, EpochCursors, Order
from .errors import BrokenStream, ForebayError, StreamError
from .failover import LEFT_BEHIND, Failover
from .header import BatchHeader, StreamInfo, read_header
from .ragged import Ragged
from .retry import Trouble
from .signal_safe import Latch
from .source import Source


class Batch(Mapping[str, Any]):
    """One step's columns by name: NumPy arrays [n] or [n, width] over the received memory, read-only, no copy.

    A BFLOAT16 output comes as its uint16 bits, for NumPy has no such type. An output of lists is a `Ragged`. An
    AS_STORED column is a `pyarrow.Array` unless it holds numbers, or lists of numbers, that the schema declares free of
    nulls.
    """

    def __init__(self, data: pa.RecordBatch, header: BatchHeader) -> None:
        self.data = data
        """The Arrow record batch itself."""
        self.header = header

    def __getitem__(self, name: str) -> Array | Ragged | pa.Array[Any]:
        if name not in self.data.schema.names:
            raise KeyError(f"{name} (the batch has {', '.join(self.data.schema.names)})")
        return seen(column_of(self.data, name), field_of(self.data, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.data.schema.names)

    def __len__(self) -> int:
        return self.data.num_columns

    def __repr__(self) -> str:
        return f"Batch({self.header}, {{{', '.join(self.data.schema.names)}}})"


class _At(NamedTuple):
    """How far a stream is."""

    previous: BatchHeader | None = None
    """Header of the last batch that was returned."""
    source: Source | None = None
    """Where the batch behind it comes from; None: from a source that is opened for it."""
    is_over: bool = False
    """All batches were returned."""


class Stream(Iterator[Batch]):
    """Iterator over one rank's batches; a context manager that ends the stream when it is left.

    `len` is the number of steps from its start position to the end, those already read included: exact, but for a
    shuffled stream with remainder drop or pad that starts off its batch size's grid, which may have one more or less.
    The reading begins with the first `next`. A server that is gone is replaced by the next replica, or waited for;
    see `forebay.connect`. Made by `Client.stream`.

    After an exception in `next`, an interrupt or an error, the stream continues: the following `next` asks for the same
    batch again, and `cursor` has not moved. (What a signal handler raises once ``next(stream)`` has returned, but
    before the caller's assignment, is the caller's; ``for batch in stream`` has no such gap in CPython.) Only `close`
    and the epoch's end are final, and of the two only the end moves `cursor`.
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
        """Rows of a step of all ranks together: world_size x batch_size."""
        self._batch_size = batch_size
        self._order = order
        self._start = start
        self._places = EpochCursors(start, info, order, self.step_rows)
        self._open_first = open_first
        self._failover = failover
        self._at = _At()
        self._lock = threading.Lock()
        self._stopped = Latch()
        # What `close` ends; the place says whether a batch is still read from it.
        self._source: Source | None = None

    def __len__(self) -> int:
        left = max(0, self.info.rank_rows - self._start.position // self._start.world_size)
        return left // self._batch_size if self._order.remainder == "drop" else -(-left // self._batch_size)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        """Return the next step's batch; waits for it without holding the interpreter's lock."""
        at = self._at
        if at.is_over or self._stopped.is_set():
            raise StopIteration
        self._at = _At(at.previous)
        try:
            batch, behind = self._next(at)
        except BaseException:
            self._leave()
            raise
        if batch is None:
            self._at = behind
            self.close()
            raise StopIteration
        self._at = behind
        return batch

    def cursor(self) -> Cursor:
        """Return the place behind the last batch that `next` returned, to be kept and given to `Client.stream`."""
        previous = self._at.previous
        return self._start if previous is None else self._places(previous)

    def places(self) -> EpochCursors:
        """Return what tells the place behind a batch's header, without holding this stream."""
        return self._places

    def close(self) -> None:
        """End the stream; may be called from another thread to end a read or a pause that waits."""
        self._stopped.set()
        self._leave()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _next(self, at: _At) -> tuple[Batch | None, _At]:
        """Return the next batch and the place behind it, over as many sources as it takes.

        No batch, and a place that is over, where the stream rightly ends; the place as it was where it was closed.
        """
        previous = at.previous
        if previous is not None and previous.last and at.source is None:
            return None, _At(previous, is_over=True)
        trouble: Trouble | None = None
        try:
            if at.source is not None:
                return self._read(at.source, previous)
            if previous is None:
                return self._read(self._adopt(self._open_first()), previous)
        except ForebayError as error:
            if self._stopped.is_set():
                return None, _At(previous)
            if not isinstance(error, LEFT_BEHIND):
                raise
            trouble = Trouble(self._failover.url if at.source is None else at.source.url, error)
        position = self._start.position if previous is None else previous.position + self.step_rows
        found = self._failover.go_on(
            lambda opened: self._read(self._adopt(opened), previous), position, trouble, self._stopped
        )
        return (None, _At(previous)) if found is None else found

    def _adopt(self, source: Source) -> Source:
        """Make it the source that `close` ends; one that comes after `close` is ended at once."""
        with self._lock:
            before, self._source = self._source, source
        if before is not None:
            before.close()
        if self._stopped.is_set():
            source.close()
        return source

    def _leave(self) -> None:
        """End the source that there is."""
        with self._lock:
            source = self._source
        if source is not None:
            source.close()

    def _read(self, source: Source, previous: BatchHeader | None) -> tuple[Batch | None, _At]:
        """Return the source's next batch and the place behind it; see `_next` for where there is none."""
        while True:
            try:
                chunk = source.read()
            except StopIteration:
                if not self._stopped.is_set():
                    self._check_end(previous)
                return None, _At(previous, is_over=not self._stopped.is_set())
            except ForebayError as error:
                if self._stopped.is_set():
                    return None, _At(previous)
                if previous is not None and previous.last and isinstance(error, LEFT_BEHIND):
                    # All has come: how the connection then ends does not matter.
                    return None, _At(previous, is_over=True)
                raise
            if chunk.data is None:
                continue
            header = read_header(chunk.app_metadata)
            self._check(header, chunk.data, previous)
            previous = header
            # A rank without rows gets a last batch without rows: an end, and no step.
            if header.rows or not header.last:
                return Batch(chunk.data, header), _At(header, source)

    def _check(self, header: BatchHeader, data: pa.RecordBatch, before: BatchHeader | None) -> None:
        where = f"step {header.step} of rank {self.info.rank}"
        if checksum.matches(data, header.checksum) is False:
            raise BrokenStream(f"{where}: the batch's bytes are not those that the server sent (checksum)")
        if header.rows != data.num_rows:
            raise StreamError(f"{where}: the header says {header.rows} rows, the batch has {data.num_rows}")
        if before is None:
            if header.position != self._start.position:
                raise StreamError(f"{where}: begins at position {header.position}, not at {self._start.position}")
            return
        if before.last:
            raise StreamError(f"{where}: follows step {before.step}, which said it was the last")
        if header.step != before.step + 1:
            raise StreamError(f"{where}: step {before.step + 1} was to follow step {before.step}")
        if header.position != before.position + self.step_rows:
            raise StreamError(f"{where}: position {header.position} does not follow {before.position}")

    def _check_end(self, before: BatchHeader | None) -> None:
        if before is None and len(self) == 0:
            return
        if before is None or not before.last:
            read = "before its first batch" if before is None else f"after step {before.step}"
            raise BrokenStream(f"the stream of rank {self.info.rank} ended {read}, without its last batch")
