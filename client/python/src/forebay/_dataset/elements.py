"""The batches of one iteration, and the position that its loop has reached.

`tf.data` takes them too: it calls an iterator from its own threads and drops it with its own. Imports no framework.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from forebay._client.cursor import Cursor, EpochCursors
from forebay._client.header import BatchHeader

from .prefetch import Prefetch

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """What has been taken of an iteration."""

    taken: int = 0
    """Number of batches."""
    header: BatchHeader | None = None
    """Header of the last one."""
    is_finished: bool = False
    """Whether the next iteration is that of the next epoch: a rank has no more batches."""
    is_over: bool = False
    """Whether this rank has no more."""
    at: float | None = None
    """When the last one was taken or the end reached, by `time.perf_counter`."""


class Position:
    """The position of one iteration; outlives it."""

    def __init__(self, start: Cursor, cursors: EpochCursors, *, is_direct: bool) -> None:
        self.is_direct = is_direct
        """Whether the loop has every batch that was taken. It has not if `tf.data` reads ahead of it."""
        self.progress = Progress()
        self._start = start
        self._cursors = cursors
        self._began = time.perf_counter()
        self._iterator: weakref.ref[object] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the iterator, which stays in this process."""
        return {**self.__dict__, "_iterator": None}

    def belongs_to(self, iterator: object) -> None:
        """Set its iterator."""
        self._iterator = weakref.ref(iterator)

    @property
    def is_dropped(self) -> bool:
        """Whether its iterator was deleted."""
        return self._iterator is None or self._iterator() is None

    @property
    def active_at(self) -> float:
        """When a batch was last taken or the end reached, or else when it began."""
        at = self.progress.at
        return self._began if at is None else at

    @property
    def taken(self) -> int:
        """Number of batches taken."""
        return self.progress.taken

    @property
    def is_done(self) -> bool:
        """Whether the next iteration is that of the next epoch."""
        return self.progress.is_finished

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._start.epoch + self.is_done

    @property
    def epoch(self) -> int:
        """The epoch of the iteration; the next one at its end."""
        return self._start.epoch + self.progress.is_over

    def take(self, header: BatchHeader) -> None:
        """Move after the batch of this header."""
        before = self.progress
        is_finished = before.is_finished or self._cursors.some_rank_ends(header)
        self.progress = Progress(before.taken + 1, header, is_finished, at=time.perf_counter())

    def end(self) -> None:
        """Move to the end of the epoch."""
        self.progress = replace(self.progress, is_finished=True, is_over=True, at=time.perf_counter())

    def cursor(self, steps: int | None) -> Cursor:
        """Return the position after `steps` of the batches taken; None: after all of them."""
        progress = self.progress
        header, behind = progress.header, 0 if steps is None else progress.taken - steps
        if steps is None and progress.is_over:
            return self._cursors(None)
        if header is None or steps == 0:
            return self._start
        if behind == 0:
            return self._cursors(header)
        return self._cursors(replace(header, position=header.position - behind * self._cursors.step_rows, last=False))


class Elements(Iterator[T], Generic[T]):
    """The batches of one iteration: opens the stream with the first one.

    Each `next` returns the batch after those that the position counts. Dropping it ends the stream and its thread;
    `tf.data` does so with its iterator. `fail` is called with an error before `next` raises it.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[Position, Prefetch[tuple[BatchHeader, T]]]],
        fail: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._begin = begin
        self._fail = fail
        self._begun: tuple[Position, Prefetch[tuple[BatchHeader, T]]] | None = None
        self._is_closed = False

    def __next__(self) -> T:
        """Return the next batch."""
        if self._is_closed:
            raise StopIteration
        try:
            if self._begun is None:
                self._begun = self._begin()
                self._begun[0].belongs_to(self)
            if self._is_closed:
                # Since this call began.
                self.close()
            position, batches = self._begun
            item = batches.after(position.progress.taken)
        except BaseException as error:
            if self._fail is not None:
                self._fail(error)
            raise
        if item is None or item.value is None:
            if not self._is_closed:
                position.end()
            raise StopIteration
        # The buffer keeps the batch until the following one is requested, as an interrupted loop requests it again.
        header, value = item.value
        position.take(header)
        return value

    def close(self) -> None:
        """End the stream and its thread; the position does not move, and a `next` in another thread ends."""
        self._is_closed = True
        if self._begun is not None:
            self._begun[1].close()
