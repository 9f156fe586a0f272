"""An epoch's stream that is read ahead, and the next epoch's, opened while the loop consumes the last batches.

The thread that opens the next epoch holds its stream until a loop takes it. Without a loop it closes the stream after a
time, or when the `NextEpoch` is closed or dropped.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from forebay._client import fork
from forebay._client.cursor import Cursor, EpochCursors
from forebay._client.header import BatchHeader, StreamInfo
from forebay._client.signal_safe import Latch
from forebay._client.stream import Stream

from .device_copy import CopiedBatch, DeviceCopy
from .prefetch import Prefetch

# The next epoch is opened this long, and this many times the seconds to this epoch's first batch, before the end.
LEAD_SECONDS, LEAD_FACTOR = 0.2, 2.0
# Seconds that an opened epoch waits for its loop: it holds memory of the server.
UNUSED_SECONDS = 30.0
JOIN_SECONDS = 2.0

OpenStream = Callable[[Cursor], Stream]


class Reading:
    """A stream of one epoch, and the batches that are read ahead from it."""

    def __init__(self, open_stream: OpenStream, start: Cursor, depth: int, device_copy: DeviceCopy) -> None:
        self._began = time.perf_counter()
        stream = open_stream(start)
        self.info: StreamInfo = stream.info
        self.cursors: EpochCursors = stream.cursors()
        self.depth = depth
        self.opening_seconds = time.perf_counter() - self._began
        """Seconds to open it, and, once there is one, to its first batch."""
        self.batches: Prefetch[CopiedBatch] = Prefetch(stream, device_copy.copy, depth=depth)

    def note_first(self) -> None:
        """Note that the first batch has arrived."""
        self.opening_seconds = time.perf_counter() - self._began

    def is_ending(self, header: BatchHeader, step_seconds: float) -> bool:
        """Whether the time until the epoch's end, at this rate, just suffices to open the next epoch."""
        lead_seconds = max(LEAD_SECONDS, LEAD_FACTOR * self.opening_seconds)
        lead = math.ceil(lead_seconds / step_seconds) if step_seconds > 0 else self.info.rank_steps
        return self.cursors.steps_left(header) <= max(self.depth, min(lead, self.info.rank_steps // 2))

    def close(self) -> None:
        """End the stream and its thread."""
        self.batches.close()


class NextEpoch:
    """The next epoch, being opened in a thread. Closing or dropping it ends the stream and the thread."""

    def __init__(self, start: Cursor, open_reading: Callable[[], Reading]) -> None:
        self.start = start
        self._slot = _Slot()
        # The thread must not reference this object, or dropping it would not end the thread.
        self._thread = threading.Thread(
            target=_open, args=(open_reading, self._slot), name="forebay-next-epoch", daemon=True
        )
        weakref.finalize(self, _close, self._slot, self._thread)
        # gRPC cannot be forked while a stream is open, and no loop uses this one yet.
        fork.register_unused(self)
        self._thread.start()

    def take(self) -> Reading | None:
        """Wait until it is open and return it; None if it failed, or was closed."""
        while not self._slot.is_closed and not self._slot.opened.wait(UNUSED_SECONDS):
            pass
        reading = self._slot.pop()
        self._slot.done.set()
        return reading

    def close(self) -> None:
        """End the stream and the thread."""
        _close(self._slot, self._thread)


class _Slot:
    """Where the thread leaves the reading. Lock-free: see `signal_safe`."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=1)
        self.is_closed = False
        self.opened = Latch()
        """Set once it is open, or has failed."""
        self.done = Latch()
        """Set once it is used or closed."""

    def put(self, reading: Reading) -> None:
        """Leave the reading, unless the slot is closed."""
        self._readings.append(reading)
        if self.is_closed:
            self.drop()

    def pop(self) -> Reading | None:
        try:
            return self._readings.pop()
        except IndexError:
            return None

    def drop(self) -> None:
        reading = self.pop()
        if reading is not None:
            reading.close()


def _open(open_reading: Callable[[], Reading], slot: _Slot) -> None:
    try:
        if not slot.is_closed:
            slot.put(open_reading())
    except Exception:
        # The loop opens the epoch again, and raises what that raises.
        slot.is_closed = True
    slot.opened.set()
    if not slot.done.wait(UNUSED_SECONDS):
        slot.is_closed = True
        slot.drop()


def _close(slot: _Slot, thread: threading.Thread) -> None:
    slot.is_closed = True
    slot.done.set()
    slot.opened.set()
    slot.drop()
    if thread is not threading.current_thread() and thread.ident is not None:
        thread.join(JOIN_SECONDS)
