"""How hard the soak works: rests are made longer or shorter until it takes a given number of cores.

Then they are left alone, unless it comes to take too much: where others used the machine meanwhile, little was taken
however short the rests, and they get longer when the others have gone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable

from replica import cpu_seconds

PACE_MIN, PACE_MAX = 0.4, 20.0
# More than so many times what it should take is too much, where the mean of some looks says so.
TOO_MUCH, LOOKS = 1.2, 5
# What a look changes at most: loads answer late, and what is built meanwhile on the machine comes and goes.
CHANGE_MAX = 1.25


class Governor:
    """Measures the CPU seconds of this process and of those it started, and sets the pace."""

    def __init__(self, cores: float, pids: Callable[[], Iterable[int]]) -> None:
        self._cores = cores
        self._pids = pids
        self.pace = 2.0
        self._last: deque[float] = deque(maxlen=LOOKS)
        self._before = self.cpu_seconds()

    def cpu_seconds(self) -> float:
        """Return the seconds so far: ours, our ended children's, and those of the children that run."""
        times = os.times()
        ended = times.user + times.system + times.children_user + times.children_system
        return ended + sum(cpu_seconds(pid) for pid in self._pids())

    def look(self, seconds: float, *, steer: bool) -> float:
        """Return the cores that were busy with us since the last look; with `steer` set a new pace."""
        now = self.cpu_seconds()
        # A child that ended between two looks may be missed by one of them.
        busy = max(0.0, now - self._before) / seconds
        self._before = now
        self._last.append(busy)
        mean = sum(self._last) / len(self._last)
        if steer or (len(self._last) == LOOKS and mean > TOO_MUCH * self._cores):
            change = (busy if steer else mean) / self._cores
            self._last.clear()
            # Half of the way, for a rest is only a part of a visit.
            change = min(max(change**0.5, 1 / CHANGE_MAX), CHANGE_MAX)
            self.pace = min(max(self.pace * change, PACE_MIN), PACE_MAX)
        return busy
