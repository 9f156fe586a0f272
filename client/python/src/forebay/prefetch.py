"""Reads a stream ahead of the loop, in a thread, onto a bounded shelf.

The thread waits on the wire without the interpreter's lock. It is owned by the `Prefetch` object: closing that, or
dropping it, ends the stream and the thread, wherever either of them waits.

The loop does not take what it waits for off the shelf: it asks for what is behind the last one that it took, and gets
the same one until it asks with a higher number. So an exception that a signal handler raises while the loop waits, or
before it has made the batch its own, loses nothing.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .signal_safe import Wakeup
from .stream import Batch, Stream

JOIN_SECONDS = 10.0

T = TypeVar("T")


class Ahead(Generic[T]):
    """What was made of one batch, numbered from 1."""

    def __init__(self, number: int, value: T) -> None:
        self.number = number
        self.value: T | None = value
        """None once it was taken, for the shelf is to keep no batch that the loop has."""


class Prefetch(Generic[T]):
    """What `prepare` makes of a stream's batches, up to `depth` of them made ahead."""

    def __init__(self, stream: Stream, prepare: Callable[[Batch], T], *, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"prefetch must be at least 1, not {depth}")
        self._shelf: _Shelf[T] = _Shelf(depth)
        self._stream = stream
        self.wait_seconds = 0.0
        """Time that the loop waited in `behind`."""
        # The thread must not hold this object, or dropping it would never end the thread.
        self._thread = threading.Thread(
            target=_read_ahead, args=(stream, prepare, self._shelf), name="forebay-prefetch", daemon=True
        )
        weakref.finalize(self, _end, stream, self._shelf, self._thread)
        self._thread.start()

    def behind(self, number: int) -> Ahead[T] | None:
        """Return the one behind this number; None where all were taken or this is closed (see `is_closed`).

        Raises what the stream raised, every time that it is asked.
        """
        began = time.perf_counter()
        try:
            return self._shelf.behind(number)
        except BaseException as error:
            if error is self._shelf.failure:
                self.close()
            raise
        finally:
            self.wait_seconds += time.perf_counter() - began

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._shelf.is_closed

    def close(self) -> None:
        """End the stream and the thread; may be called from another thread, and again after an interrupt."""
        _end(self._stream, self._shelf, self._thread)


class _Shelf(Generic[T]):
    """Up to `depth` batches beside the one that the loop has asked for. No lock: see `signal_safe`."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._made: deque[Ahead[T]] = deque()
        self._asked = 0
        self._is_over = False
        self.failure: BaseException | None = None
        self.is_closed = False
        self._came = Wakeup()
        self._room = Wakeup()

    def put(self, ahead: Ahead[T]) -> bool:
        """Add one once there is room; False if the shelf is closed."""
        while ahead.number - self._asked > self._depth and not self.is_closed:
            self._room.wait()
        if self.is_closed:
            return False
        self._made.append(ahead)
        self._came.ring()
        return True

    def behind(self, number: int) -> Ahead[T] | None:
        """Wait for the one behind this number; None at the rightful end, or once closed. Raises the stream's error."""
        while True:
            is_over, failure = self._is_over, self.failure
            if (ahead := self._oldest(number)) is not None:
                self._asked = ahead.number
                self._room.ring()
                # One ring wakes one thread, and another may wait for the one behind it.
                self._came.ring()
                return ahead
            if failure is not None:
                self._came.ring()
                raise failure
            if is_over or self.is_closed:
                self._came.ring()
                return None
            self._came.wait()

    def end(self, failure: BaseException | None) -> None:
        """Let the loop know, once it has taken what was made, that no more comes, or why."""
        if failure is None:
            self._is_over = True
        else:
            self.failure = failure
        self._came.ring()

    def close(self) -> None:
        """Let nothing more in and drop what was not taken."""
        self.is_closed = True
        self._made.clear()
        self._room.ring()
        self._came.ring()

    def _oldest(self, number: int) -> Ahead[T] | None:
        try:
            while self._made[0].number <= number:
                self._made.popleft()
            return self._made[0]
        except IndexError:
            return None


def _read_ahead(stream: Stream, prepare: Callable[[Batch], T], shelf: _Shelf[T]) -> None:
    number = 1
    try:
        while shelf.put(Ahead(number, prepare(next(stream)))):
            number += 1
    except StopIteration:
        # The rightful end, or that of a stream that was closed: the shelf was closed before.
        shelf.end(None)
    except BaseException as error:
        # The loop's thread raises it.
        shelf.end(error)


def _end(stream: Stream, shelf: _Shelf[T], thread: threading.Thread) -> None:
    # In this order, so that the end of a stream that was closed is never taken for a rightful one.
    shelf.close()
    stream.close()
    if thread is not threading.current_thread() and thread.ident is not None:
        thread.join(JOIN_SECONDS)
