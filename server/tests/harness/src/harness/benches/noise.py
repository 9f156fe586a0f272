"""CPU use of other processes while a bench runs (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Noise:
    """CPU time used by other processes; our own are this process and its ended children."""

    def __init__(self) -> None:
        self._busy, self._own = _busy_seconds(), _own_seconds()
        self._load = os.getloadavg()[0]

    def look(self) -> dict[str, float]:
        """Return CPU seconds of our own and of other processes since construction."""
        own = _own_seconds() - self._own
        others = max(_busy_seconds() - self._busy - own, 0.0)
        return {
            "own_cpu_seconds": own,
            "others_cpu_seconds": others,
            "others_share": others / (others + own) if others + own else 0.0,
            "load_average_before": self._load,
            "load_average_after": os.getloadavg()[0],
        }


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float:
    # user, nice, system, idle, iowait, irq, softirq, steal: see proc(5).
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND
