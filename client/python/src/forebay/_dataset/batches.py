"""The iterator of a `FlightDataset`, with its position and statistics.

A signal handler may raise anywhere in `next`. What an iteration has consumed is therefore a single value, replaced
immediately before a batch is returned: until then the batch stays buffered, and the following `next` returns it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from forebay._client.arrays import padded_elements
from forebay._client.cursor import Cursor
from forebay.errors import ForebayError

from .device_copy import CopiedBatch, DeviceCopy
from .iteration import Consumed, Iteration, Totals
from .reading import NextEpoch, OpenStream, Reading
from .tensors import TensorBatch
from .worker_state import Ack

if TYPE_CHECKING:
    import torch

    from forebay._client.header import StreamInfo


class EpochOwner(Protocol):
    """The epochs of a dataset, as its iterators need them. Called from the loop's thread."""

    def opener(self) -> OpenStream:
        """Return what opens streams, from any thread."""
        ...

    def note(self, start: Cursor, info: StreamInfo) -> None:
        """Note the description of an epoch whose batches follow."""
        ...

    def end_ack(self, epoch: int) -> Ack:
        """Return what acknowledges that the epoch is finished."""
        ...

    def keep(self, following: NextEpoch) -> None:
        """Keep the next epoch for the next iterator."""
        ...


class FlightBatches(Iterator[TensorBatch]):
    """Iterator over a `FlightDataset`'s batches; dropping it ends its streams and threads.

    An exception that a signal handler raises in `next` loses no batch: the following `next` returns it. (If a handler
    raises after ``next(batches)`` has returned but before the caller's assignment, the batch is lost; ``for batch in
    batches`` has no such gap in CPython.) After an error of the stream, every `next` raises it again. After `close`,
    `next` raises StopIteration, and the dataset's position does not move.

    It opens the next epoch before the end of the current one: its own next epoch or, if `opens_following`, that
    of the next iterator. `following` is the first epoch, if it is open.
    """

    def __init__(
        self,
        epochs: EpochOwner,
        iteration: Iteration,
        depth: int,
        device: torch.device | None,
        resume_ack: Ack | None,
        *,
        opens_following: bool = False,
        following: NextEpoch | None = None,
    ) -> None:
        self._epochs = epochs
        self._iteration = iteration
        self._depth = depth
        self._device = device
        self._resume_ack = resume_ack
        self._end_acks: dict[int, Ack] = {}
        self._opens_following = opens_following
        self._following = following
        self._current: _Current | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        cursor, number = self._iteration.cursor, self._iteration.consumed.number
        closed = ", closed" if self._is_closed else ""
        return f"FlightBatches(epoch {cursor.epoch}, position {cursor.position}, {number} batches returned{closed})"

    def open(self) -> None:
        """Open the stream and start reading; otherwise the first `next` does."""
        if not self._iteration.is_over:
            self._opened(self._iteration.consumed)

    def __next__(self) -> TensorBatch:
        """Return the next step's tensors."""
        while True:
            consumed = self._iteration.consumed
            if self._iteration.is_over:
                self._note_end(consumed)
                self._end_threads()
            if self._is_closed:
                raise StopIteration
            current = self._opened(consumed)
            try:
                item = current.reading.batches.after(consumed.number - current.base)
            except ForebayError:
                if not current.was_ahead or consumed.number > current.base:
                    raise
                # Opened too early: the files may have changed since.
                self._current = None
                continue
            if item is None:
                self._end(current, consumed)
                continue
            copied = item.value
            if copied is None:
                continue
            after = self._after(current, consumed, copied)
            batch = self._with_acks(copied.take(), consumed, after)
            self._look_ahead(current, copied, after)
            # Unless another thread or a signal handler consumed it meanwhile. No call follows, so no handler can run
            # between this store and the return.
            if self._iteration.consumed is consumed:
                self._iteration.consumed = after
                item.value = None
                return batch

    def close(self) -> None:
        """End the streams and the threads; the position does not move."""
        self._end_threads()
        following = self._following
        if following is not None:
            following.close()

    def _end_threads(self) -> None:
        self._is_closed = True
        current = self._current
        if current is not None:
            current.reading.close()

    def _opened(self, consumed: Consumed) -> _Current:
        """Return the reading of the epoch of the next batch; open it if necessary."""
        current = self._current
        if current is not None and current.index == consumed.over:
            return current
        began = time.perf_counter()
        # After an epoch, the cursor is the start of the next one.
        start = self._iteration.cursor if consumed.over else self._iteration.start
        if current is not None:
            self._note_end(consumed)
            current.reading.close()
        ahead = reading = self._taken(start, consumed)
        if reading is None:
            reading = Reading(self._epochs.opener(), start, self._depth, DeviceCopy(self._device))
        try:
            self._epochs.note(start, reading.info)
        except BaseException:
            reading.close()
            raise
        opening = time.perf_counter() - began
        current = self._current = _Current(reading, consumed, opening, was_ahead=ahead is not None)
        return current

    def _taken(self, start: Cursor, consumed: Consumed) -> Reading | None:
        """Return the epoch that was opened ahead, unless the files have changed between two iterators."""
        following, self._following = self._following, None
        reading = None if following is None else following.take()
        if reading is None or consumed.over:
            return reading
        with self._epochs.opener()(start) as current:
            if current.info.snapshot == reading.info.snapshot:
                return reading
        reading.close()
        return None

    def _look_ahead(self, current: _Current, copied: CopiedBatch, after: Consumed) -> None:
        """Open the next epoch if the current one is about to end; keep it for the next iterator if it has ended."""
        iteration, header = self._iteration, copied.batch.header
        is_last = current.index + 1 >= iteration.epochs
        if is_last and not self._opens_following:
            return
        if self._following is None and not current.has_following:
            seconds = time.perf_counter() - current.began
            if not current.reading.is_ending(header, seconds / (after.number - current.base)):
                return
            start = current.reading.cursors(None)
            device = self._device
            opener, depth = self._epochs.opener(), self._depth
            current.has_following = True
            self._following = NextEpoch(start, lambda: Reading(opener, start, depth, DeviceCopy(device)))
        following = self._following
        if is_last and following is not None and after.finished == iteration.epochs:
            self._epochs.keep(following)
            self._following = None

    def _note_end(self, consumed: Consumed) -> None:
        """Acknowledge the end of the epochs that are over, if their last batches did not."""
        if consumed.over:
            self._end_ack(consumed.over).note_later()

    def _end_ack(self, finished: int) -> Ack:
        ack = self._end_acks.get(finished)
        if ack is None:
            ack = self._end_acks[finished] = self._epochs.end_ack(self._iteration.start.epoch + finished - 1)
        return ack

    def _with_acks(self, batch: TensorBatch, consumed: Consumed, after: Consumed) -> TensorBatch:
        """Return the batch in the form that acknowledges a loaded state, or the end of the epoch."""
        if self._resume_ack is not None:
            if consumed.number == 0:
                batch = self._resume_ack.wrap(batch)
            else:
                self._resume_ack.note_later()
        return self._end_ack(after.finished).wrap(batch) if after.finished > consumed.finished else batch

    def _after(self, current: _Current, consumed: Consumed, copied: CopiedBatch) -> Consumed:
        """Return what has been consumed including this batch."""
        header, cursors = copied.batch.header, current.reading.cursors
        if consumed.number == current.base:
            current.reading.note_first()
        padded, padding = padded_elements(copied.batch.data)
        one = Totals(
            batches=1,
            rows=header.rows,
            bytes=copied.batch.data.nbytes,
            stages=header.stage_seconds,
            padded=padded,
            padding=padding,
            transport=copied.batch.transport,
        )
        finished = max(consumed.finished, current.index + cursors.some_rank_ends(header))
        return replace(self._timed(current, consumed, cursors(header), one), finished=finished)

    def _end(self, current: _Current, consumed: Consumed) -> None:
        """Record the end of the epoch, unless the stream ended because it was closed."""
        if current.reading.batches.is_closed:
            self._is_closed = True
            return
        if self._resume_ack is not None and consumed.number == 0:
            self._resume_ack.acknowledge()
        end = self._timed(current, consumed, current.reading.cursors(None), Totals())
        over = replace(end, finished=current.index + 1, over=current.index + 1, waited=0.0)
        if self._iteration.consumed is consumed:
            self._iteration.consumed = over

    def _timed(self, current: _Current, consumed: Consumed, cursor: Cursor, more: Totals) -> Consumed:
        """Return what has been consumed after `more`, with the time since the last batch."""
        now, in_epoch = time.perf_counter(), current.reading.batches.wait_seconds
        waited = in_epoch - consumed.waited
        since = now - waited if consumed.at is None else consumed.at
        is_first, longest, boundary = consumed.number == current.base, 0.0, 0.0
        if more.batches and not is_first:
            longest = waited
        elif more.batches and (current.index or self._iteration.follows):
            boundary = waited + current.opening_seconds
        times = Totals(
            loop_seconds=now - since,
            wait_seconds=waited,
            first_wait_seconds=waited if is_first else 0.0,
            longest_wait_seconds=longest,
            boundary_wait_seconds=boundary,
        )
        return replace(
            consumed,
            number=consumed.number + more.batches,
            cursor=cursor,
            totals=consumed.totals + more + times,
            waited=in_epoch,
            at=now,
        )


class _Current:
    """The epoch that is being read."""

    def __init__(self, reading: Reading, consumed: Consumed, opening_seconds: float, *, was_ahead: bool) -> None:
        self.reading = reading
        self.index = consumed.over
        """Its number within the iteration."""
        self.base = consumed.number
        """Number of batches of the iteration before it."""
        self.opening_seconds = opening_seconds
        """Seconds that the loop waited for it to be open."""
        self.was_ahead = was_ahead
        """Whether it was opened before the loop requested it."""
        self.began = time.perf_counter() if consumed.at is None else consumed.at
        self.has_following = False
        """Whether the epoch after it was opened before its end."""
