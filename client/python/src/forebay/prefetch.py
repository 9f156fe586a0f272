"""Reads a stream ahead of the loop, in a thread of its own, into a bounded queue.

The thread waits on the wire without the interpreter's lock. It is owned by the `Prefetch` object: closing that, or
dropping it, ends the stream and the thread, wherever either of them waits.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .stream import Batch, Stream

JOIN_SECONDS = 10.0

T = TypeVar("T")


class Prefetch(Iterator[T]):
    """Iterator over what `prepare` makes of a stream's batches, up to `depth` of them made ahead."""

    def __init__(self, stream: Stream, prepare: Callable[[Batch], T], *, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"prefetch must be at least 1, not {depth}")
        self._queue: _Queue[T] = _Queue(depth)
        self.wait_seconds = 0.0
        """Time that the loop waited in `next`."""
        # The thread must not hold this object, or dropping it would never end the thread.
        thread = threading.Thread(
            target=_read_ahead, args=(stream, prepare, self._queue), name="forebay-prefetch", daemon=True
        )
        self._close = weakref.finalize(self, _end, stream, self._queue, thread)
        thread.start()

    def __next__(self) -> T:
        """Return the next one; raise what the stream raised."""
        began = time.perf_counter()
        try:
            return self._queue.get()
        except BaseException:
            self.close()
            raise
        finally:
            self.wait_seconds += time.perf_counter() - began

    def close(self) -> None:
        """End the stream and the thread."""
        self._close()


class _Queue(Generic[T]):
    """A bounded queue whose both ends can be woken for good."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._end: BaseException | None = None
        self._changed = threading.Condition()

    def put(self, item: T) -> bool:
        """Add one once there is room; False if the queue has ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._depth or self._end is not None)
            if self._end is not None:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self) -> T:
        """Take the oldest; raise what the queue ended with once it is empty."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._items) or self._end is not None)
            if not self._items:
                assert self._end is not None
                raise self._end
            self._changed.notify_all()
            return self._items.popleft()

    def end(self, reason: BaseException, *, drop: bool = False) -> None:
        """Let no further batch in; `drop` those not taken yet."""
        with self._changed:
            if self._end is None:
                self._end = reason
            if drop:
                self._items.clear()
            self._changed.notify_all()


def _read_ahead(stream: Stream, prepare: Callable[[Batch], T], queue: _Queue[T]) -> None:
    try:
        while queue.put(prepare(next(stream))):
            pass
    except BaseException as error:
        # The loop's thread raises it, StopIteration included.
        queue.end(error)


def _end(stream: Stream, queue: _Queue[T], thread: threading.Thread) -> None:
    queue.end(StopIteration(), drop=True)
    stream.close()
    if thread is not threading.current_thread():
        thread.join(JOIN_SECONDS)
