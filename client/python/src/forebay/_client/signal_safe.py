"""Synchronization that stays consistent if a signal handler raises.

A signal handler may raise between any two calls of the main thread. `threading.Event` and `threading.Condition` acquire
their lock in Python code, so such an exception can leave it locked. Raw locks and `SimpleQueue` do not have this
problem.
"""

from __future__ import annotations

import contextlib
import queue
import threading


class Latch:
    """A flag that is set once and can be waited for."""

    def __init__(self) -> None:
        self._is_set = False
        # Locked until the flag is set; each waiter then acquires and releases it.
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Set the flag and wake all waiters."""
        self._is_set = True
        self._open()

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait for the flag up to `seconds`; return whether it is set."""
        if not self._is_set and self._gate.acquire(timeout=seconds):
            self._open()
        return self._is_set

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # Already open.
            self._gate.release()


class Wakeup:
    """Wakes one waiter, or lets the next one pass without waiting."""

    def __init__(self) -> None:
        # At most one entry per setting thread.
        self._pending: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Wake the waiter; call this after the change that it waits for."""
        if self._pending.empty():
            self._pending.put(None)

    def wait(self) -> None:
        """Wait for a `set` since the last wait; the caller must then check its condition again."""
        self._pending.get()
