"""The iterator that a `FlightDataset` gives a loop, and what it leaves behind: its place and its figures.

A signal handler may raise anywhere in `next`. What an iteration has taken is therefore one value, replaced as the last
thing before a batch is returned: up to then the batch stays where it is, and the following `next` returns it.
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
from .worker_state import ResumeAck


@dataclass(frozen=True)
class Resume:
    """A loaded state, to be continued from until the loop has a batch behind it."""

    place: Cursor
    generation: int
    """Number of the note for the workers that says it; 0 where there is none."""


@dataclass(frozen=True)
class Totals:
    """What loops took, and their times."""

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
class Taken:
    """All that an iteration has taken."""

    number: int = 0
    """Batches."""
    place: Cursor | None = None
    """The place behind them; None before the first."""
    is_over: bool = False
    """There are no more."""
    totals: Totals = Totals()
    at: float | None = None
    """When the last of them was handed over, by `time.perf_counter`."""


class Track:
    """Where an iteration began, and what it has taken; outlives its iterator."""

    def __init__(self, start: Cursor, resume: Resume | None) -> None:
        self.start = start
        self.resume = resume
        """The loaded state that it began at."""
        self.taken = Taken()

    @property
    def place(self) -> Cursor:
        """The place behind the last batch that was taken."""
        return self.taken.place or self.start

    @property
    def has_begun(self) -> bool:
        """Whether a batch was taken, or the end was reached without any."""
        return self.taken.place is not None


@dataclass(frozen=True)
class _Reading:
    """A stream that is read ahead."""

    places: EpochCursors
    batches: Prefetch[CopiedBatch]


class FlightBatches(Iterator[TensorBatch]):
    """Iterator over a `FlightDataset`'s batches; dropping it ends its stream and its thread.

    An exception that a signal handler raises in `next` loses no batch: the following `next` returns it. (Once
    ``next(batches)`` has returned, what is raised before the caller's assignment is the caller's; ``for batch in
    batches`` has no such gap in CPython.) An error of the stream is raised by every `next` from then on. After `close`
    `next` raises StopIteration, and the dataset's place stays.
    """

    def __init__(
        self,
        open_stream: Callable[[], Stream],
        track: Track,
        depth: int,
        device_copy: DeviceCopy,
        resume_ack: ResumeAck | None,
    ) -> None:
        self._open_stream = open_stream
        self._track = track
        self._depth = depth
        self._device_copy = device_copy
        self._resume_ack = resume_ack
        self._reading: _Reading | None = None
        self._is_closed = False

    def open(self) -> None:
        """Open the stream and begin to read; otherwise the first `next` does it."""
        self._opened()

    def __next__(self) -> TensorBatch:
        """Return the next step's tensors."""
        while True:
            taken = self._track.taken
            if taken.is_over:
                self.close()
            if self._is_closed:
                raise StopIteration
            reading = self._opened()
            ahead = reading.batches.behind(taken.number)
            if ahead is None:
                self._end(reading, taken)
                continue
            copied = ahead.value
            if copied is None:
                continue
            batch = self._on_its_way(copied.take(), taken)
            behind = self._behind(reading, taken, copied)
            # Unless another thread, or a signal handler, took it meanwhile. No call follows, so that no handler can run
            # between this store and the return.
            if self._track.taken is taken:
                self._track.taken = behind
                ahead.value = None
                return batch

    def close(self) -> None:
        """End the stream and the thread now; the place stays where the loop is."""
        self._is_closed = True
        reading = self._reading
        if reading is not None:
            reading.batches.close()

    def _opened(self) -> _Reading:
        reading = self._reading
        if reading is None:
            stream = self._open_stream()
            places = stream.places()
            reading = self._reading = _Reading(places, Prefetch(stream, self._device_copy.copy, depth=self._depth))
        return reading

    def _on_its_way(self, batch: TensorBatch, taken: Taken) -> TensorBatch:
        """Return the batch in the form in which it goes to the loop."""
        if self._resume_ack is None:
            return batch
        if taken.number == 0:
            return self._resume_ack.first(batch)
        self._resume_ack.look()
        return batch

    def _behind(self, reading: _Reading, taken: Taken, copied: CopiedBatch) -> Taken:
        """Return what has been taken once this batch is."""
        header = copied.batch.header
        one = Totals(batches=1, rows=header.rows, bytes=copied.batch.data.nbytes, stages=header.stage_seconds)
        return self._timed(reading, taken, reading.places(header), one)

    def _end(self, reading: _Reading, taken: Taken) -> None:
        """Note that all was taken, unless the stream ended because it was closed."""
        if reading.batches.is_closed:
            self._is_closed = True
            return
        if self._resume_ack is not None and taken.number == 0:
            self._resume_ack.end()
        over = replace(self._timed(reading, taken, reading.places(None), Totals()), is_over=True)
        if self._track.taken is taken:
            self._track.taken = over

    def _timed(self, reading: _Reading, taken: Taken, place: Cursor, more: Totals) -> Taken:
        now, waited = time.perf_counter(), reading.batches.wait_seconds - taken.totals.wait_seconds
        since = now - waited if taken.at is None else taken.at
        first_waited = waited if taken.at is None else 0.0
        times = Totals(loop_seconds=now - since, wait_seconds=waited, first_wait_seconds=first_waited)
        return Taken(taken.number + more.batches, place, totals=taken.totals + more + times, at=now)
