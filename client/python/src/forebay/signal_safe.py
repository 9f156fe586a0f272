"""What threads wait for each other with, whole wherever an exception strikes.

A signal handler may raise between any two calls of the main thread. `threading.Event` and `threading.Condition` take
their lock in Python code, which such an exception can leave locked; a raw lock and a `SimpleQueue` cannot be left so.
"""

from __future__ import annotations

import contextlib
import queue
import threading


class Latch:
    """A flag that is set once and can be waited for."""

    def __init__(self) -> None:
        self._is_set = False
        # Held until the flag is set; a waiter takes it and passes it on.
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Set the flag and wake all that wait."""
        self._is_set = True
        self._open()

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait for the flag, at most so long; returns whether it is set."""
        if not self._is_set and self._gate.acquire(timeout=seconds):
            self._open()
        return self._is_set

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # It is open already.
            self._gate.release()


class Wakeup:
    """Wakes one waiter, or keeps the next one from waiting."""

    def __init__(self) -> None:
        # At most one entry for each thread that rings.
        self._rung: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake the waiter; call it after the change that the waiter looks for."""
        if self._rung.empty():
            self._rung.put(None)

    def wait(self) -> None:
        """Wait for a ring since the last wait; the caller then looks again whether its change has come."""
        self._rung.get()
