"""Reading a stream ahead of the loop, in a thread, into a bounded buffer.

The thread waits for the network without holding the GIL. The `Prefetch` object owns it: closing or dropping the object
ends the stream and the thread, even while they wait.

The loop does not remove items from the buffer. It requests the item after the last one that it consumed, and receives
the same item until it requests a higher number. No item is lost if a signal handler raises while the loop waits or
before it has stored the batch.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from forebay._client.signal_safe import Wakeup
from forebay._client.stream import Batch, Stream

JOIN_SECONDS = 10.0

T = TypeVar("T")


class Prefetched(Generic[T]):
    """The prepared form of one batch, numbered from 1."""

    def __init__(self, number: int, value: T) -> None:
        self.number = number
        self.value: T | None = value
        """None once consumed, so that the buffer holds no batch of the loop."""


class Prefetch(Generic[T]):
    """A stream's batches, prepared by `prepare` up to `depth` batches ahead."""

    def __init__(self, stream: Stream, prepare: Callable[[Batch], T], *, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"prefetch must be at least 1, not {depth}")
        self._buffer: _Buffer[T] = _Buffer(depth)
        self._stream = stream
        self.wait_seconds = 0.0
        """Time that the loop waited in `after`."""
        # The thread must not reference this object, or dropping it would not end the thread.
        self._thread = threading.Thread(
            target=_read_ahead, args=(stream, prepare, self._buffer), name="forebay-prefetch", daemon=True
        )
        weakref.finalize(self, _end, stream, self._buffer, self._thread)
        self._thread.start()

    def after(self, number: int) -> Prefetched[T] | None:
        """Return the item after this number; None at the end of the stream or once closed (see `is_closed`).

        Raises the stream's error, on every call.
        """
        began = time.perf_counter()
        try:
            return self._buffer.after(number)
        except BaseException as error:
            if error is self._buffer.failure:
                self.close()
            raise
        finally:
            self.wait_seconds += time.perf_counter() - began

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._buffer.is_closed

    def close(self) -> None:
        """End the stream and the thread; may be called from another thread, and again if interrupted."""
        _end(self._stream, self._buffer, self._thread)


class _Buffer(Generic[T]):
    """Up to `depth` batches after the one that the loop has requested. Lock-free: see `signal_safe`."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[Prefetched[T]] = deque()
        self._requested = 0
        self._is_over = False
        self.failure: BaseException | None = None
        self.is_closed = False
        self._filled = Wakeup()
        self._freed = Wakeup()

    def put(self, item: Prefetched[T]) -> bool:
        """Add an item once there is space; return False if the buffer is closed."""
        while item.number - self._requested > self._depth and not self.is_closed:
            self._freed.wait()
        if self.is_closed:
            return False
        self._items.append(item)
        self._filled.set()
        return True

    def after(self, number: int) -> Prefetched[T] | None:
        """Wait for the item after this number; None at the end or once closed. Raises the stream's error."""
        while True:
            is_over, failure = self._is_over, self.failure
            if (item := self._oldest(number)) is not None:
                self._requested = item.number
                self._freed.set()
                # `set` wakes one thread, and another may wait for the next item.
                self._filled.set()
                return item
            if failure is not None:
                self._filled.set()
                raise failure
            if is_over or self.is_closed:
                self._filled.set()
                return None
            self._filled.wait()

    def end(self, failure: BaseException | None) -> None:
        """Mark the end of the items, or the error that the loop raises after them."""
        if failure is None:
            self._is_over = True
        else:
            self.failure = failure
        self._filled.set()

    def close(self) -> None:
        """Reject further items and drop those not consumed."""
        self.is_closed = True
        self._items.clear()
        self._freed.set()
        self._filled.set()

    def _oldest(self, number: int) -> Prefetched[T] | None:
        try:
            while self._items[0].number <= number:
                self._items.popleft()
            return self._items[0]
        except IndexError:
            return None


def _read_ahead(stream: Stream, prepare: Callable[[Batch], T], buffer: _Buffer[T]) -> None:
    number = 1
    try:
        while buffer.put(Prefetched(number, prepare(next(stream)))):
            number += 1
    except StopIteration:
        # The end of the epoch, or of a closed stream, whose buffer was closed first.
        buffer.end(None)
    except BaseException as error:
        # The loop's thread raises it.
        buffer.end(error)


def _end(stream: Stream, buffer: _Buffer[T], thread: threading.Thread) -> None:
    # In this order, so that the end of a closed stream is not mistaken for the end of the epoch.
    buffer.close()
    stream.close()
    if thread is not threading.current_thread() and thread.ident is not None:
        thread.join(JOIN_SECONDS)
