"""Load control: pauses get longer or shorter until the soak uses a given number of cores.

After the steered phase the pace changes only if usage is too high. Other processes can starve the soak during steering,
which shortens the pauses too much; they get longer once those processes end.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable

from replica import cpu_seconds

PACE_MIN, PACE_MAX = 0.4, 20.0
# Usage is too high if its mean over SAMPLES samples exceeds the target by this factor.
TOO_MUCH, SAMPLES = 1.2, 5
# Largest change per sample: loads react with a delay, and other processes on the machine start and stop.
CHANGE_MAX = 1.25


class Governor:
    """Measures the CPU seconds of this process and its children, and sets the pace."""

    def __init__(self, cores: float, pids: Callable[[], Iterable[int]]) -> None:
        self._cores = cores
        self._pids = pids
        self.pace = 2.0
        self._last: deque[float] = deque(maxlen=SAMPLES)
        self._before = self.cpu_seconds()

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used by this process and its ended and running children."""
        times = os.times()
        ended = times.user + times.system + times.children_user + times.children_system
        return ended + sum(cpu_seconds(pid) for pid in self._pids())

    def measure(self, seconds: float, *, steer: bool) -> float:
        """Return the cores used since the last call; with `steer`, set a new pace."""
        now = self.cpu_seconds()
        # A child that ended between two calls may be missed by one of them.
        busy = max(0.0, now - self._before) / seconds
        self._before = now
        self._last.append(busy)
        mean = sum(self._last) / len(self._last)
        if steer or (len(self._last) == SAMPLES and mean > TOO_MUCH * self._cores):
            change = (busy if steer else mean) / self._cores
            self._last.clear()
            # Half of the change, because a pause is only a part of a visit.
            change = min(max(change**0.5, 1 / CHANGE_MAX), CHANGE_MAX)
            self.pace = min(max(self.pace * change, PACE_MIN), PACE_MAX)
        return busy
