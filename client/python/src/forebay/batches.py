"""The iterator of a `FlightDataset`, with its position and statistics.

A signal handler may raise anywhere in `next`. What an iteration has consumed is therefore a single value, replaced
immediately before a batch is returned: until then the batch stays buffered, and the following `next` returns it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .cursor import Cursor, EpochCursors
from .device_copy import CopiedBatch, DeviceCopy
from .prefetch import Prefetch
from .stages import StageSeconds
from .stream import Stream
from .tensors import TensorBatch
from .worker_state import Ack


@dataclass(frozen=True)
class LoadedState:
    """A loaded state, to resume from until the loop has consumed a batch."""

    cursor: Cursor
    generation: int
    """Number of the message that publishes it to workers; 0 if there is none."""


@dataclass(frozen=True)
class Totals:
    """Totals of the batches consumed by loops, and their times."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    loop_seconds: float = 0.0
    wait_seconds: float = 0.0
    first_wait_seconds: float = 0.0
    stages: StageSeconds = field(default_factory=StageSeconds)

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.batches + other.batches,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.loop_seconds + other.loop_seconds,
            self.wait_seconds + other.wait_seconds,
            self.first_wait_seconds + other.first_wait_seconds,
            self.stages + other.stages,
        )


@dataclass(frozen=True)
class Consumed:
    """What an iteration has consumed."""

    number: int = 0
    """Number of batches."""
    cursor: Cursor | None = None
    """The position after them; None before the first."""
    is_finished: bool = False
    """Whether the next iteration is that of the next epoch: a rank has no more batches."""
    is_over: bool = False
    """Whether this rank has no more."""
    totals: Totals = Totals()
    at: float | None = None
    """When the last one was returned, by `time.perf_counter`."""


class Iteration:
    """Start and progress of an iteration; outlives its iterator."""

    def __init__(self, start: Cursor, loaded: LoadedState | None, *, in_worker: bool = False) -> None:
        self.start = start
        self.loaded = loaded
        """The loaded state that it resumed from."""
        self.in_worker = in_worker
        """Whether it is ahead of the loop."""
        self.consumed = Consumed()

    @property
    def cursor(self) -> Cursor:
        """The position after the last batch consumed."""
        return self.consumed.cursor or self.start

    @property
    def has_begun(self) -> bool:
        """Whether a batch was consumed, or the end reached without one."""
        return self.consumed.cursor is not None

    @property
    def is_finished(self) -> bool:
        """Whether the loop has finished the epoch, so that the next iteration is that of the next epoch."""
        return self.consumed.is_finished and not self.in_worker


@dataclass(frozen=True)
class _Reading:
    """A stream that is read ahead."""

    cursors: EpochCursors
    batches: Prefetch[CopiedBatch]


class FlightBatches(Iterator[TensorBatch]):
    """Iterator over a `FlightDataset`'s batches; dropping it ends its stream and its thread.

    An exception that a signal handler raises in `next` loses no batch: the following `next` returns it. (If a handler
    raises after ``next(batches)`` has returned but before the caller's assignment, the batch is lost; ``for batch in
    batches`` has no such gap in CPython.) After an error of the stream, every `next` raises it again. After `close`,
    `next` raises StopIteration, and the dataset's position does not move.
    """

    def __init__(
        self,
        open_stream: Callable[[], Stream],
        iteration: Iteration,
        depth: int,
        device_copy: DeviceCopy,
        resume_ack: Ack | None,
        end_ack: Ack,
    ) -> None:
        self._open_stream = open_stream
        self._iteration = iteration
        self._depth = depth
        self._device_copy = device_copy
        self._resume_ack = resume_ack
        self._end_ack = end_ack
        self._reading: _Reading | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        cursor, number = self._iteration.cursor, self._iteration.consumed.number
        closed = ", closed" if self._is_closed else ""
        return f"FlightBatches(epoch {cursor.epoch}, position {cursor.position}, {number} batches returned{closed})"

    def open(self) -> None:
        """Open the stream and start reading; otherwise the first `next` does."""
        self._opened()

    def __next__(self) -> TensorBatch:
        """Return the next step's tensors."""
        while True:
            consumed = self._iteration.consumed
            if consumed.is_over:
                self._end_ack.note_later()
                self.close()
            if self._is_closed:
                raise StopIteration
            reading = self._opened()
            item = reading.batches.after(consumed.number)
            if item is None:
                self._end(reading, consumed)
                continue
            copied = item.value
            if copied is None:
                continue
            after = self._after(reading, consumed, copied)
            batch = self._with_acks(copied.take(), consumed, after)
            # Unless another thread or a signal handler consumed it meanwhile. No call follows, so no handler can run
            # between this store and the return.
            if self._iteration.consumed is consumed:
                self._iteration.consumed = after
                item.value = None
                return batch

    def close(self) -> None:
        """End the stream and the thread; the position does not move."""
        self._is_closed = True
        reading = self._reading
        if reading is not None:
            reading.batches.close()

    def _opened(self) -> _Reading:
        reading = self._reading
        if reading is None:
            stream = self._open_stream()
            cursors = stream.cursors()
            reading = self._reading = _Reading(cursors, Prefetch(stream, self._device_copy.copy, depth=self._depth))
        return reading

    def _with_acks(self, batch: TensorBatch, consumed: Consumed, after: Consumed) -> TensorBatch:
        """Return the batch in the form that acknowledges a loaded state, or the end of the epoch."""
        if self._resume_ack is not None:
            if consumed.number == 0:
                batch = self._resume_ack.wrap(batch)
            else:
                self._resume_ack.note_later()
        return self._end_ack.wrap(batch) if after.is_finished and not consumed.is_finished else batch

    def _after(self, reading: _Reading, consumed: Consumed, copied: CopiedBatch) -> Consumed:
        """Return what has been consumed including this batch."""
        header = copied.batch.header
        one = Totals(batches=1, rows=header.rows, bytes=copied.batch.data.nbytes, stages=header.stage_seconds)
        is_finished = consumed.is_finished or reading.cursors.some_rank_ends(header)
        return replace(self._timed(reading, consumed, reading.cursors(header), one), is_finished=is_finished)

    def _end(self, reading: _Reading, consumed: Consumed) -> None:
        """Record the end of the epoch, unless the stream ended because it was closed."""
        if reading.batches.is_closed:
            self._is_closed = True
            return
        if self._resume_ack is not None and consumed.number == 0:
            self._resume_ack.acknowledge()
        end = self._timed(reading, consumed, reading.cursors(None), Totals())
        over = replace(end, is_finished=True, is_over=True)
        if self._iteration.consumed is consumed:
            self._iteration.consumed = over

    def _timed(self, reading: _Reading, consumed: Consumed, cursor: Cursor, more: Totals) -> Consumed:
        now, waited = time.perf_counter(), reading.batches.wait_seconds - consumed.totals.wait_seconds
        since = now - waited if consumed.at is None else consumed.at
        first_waited = waited if consumed.at is None else 0.0
        times = Totals(loop_seconds=now - since, wait_seconds=waited, first_wait_seconds=first_waited)
        return Consumed(consumed.number + more.batches, cursor, totals=consumed.totals + more + times, at=now)
