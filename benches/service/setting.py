"""What a measurement is given (program, data, how long), and what it hands back: raw numbers, tables and goals."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import criteo

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Setting:
    """The program, the data and how long to look."""

    program: Path
    scratch: Path
    """A folder for states and plans, gone after the run."""
    data: Path
    """A folder for the data that only these measurements have."""
    criteo_data: Path
    criteo_shape: criteo.Shape
    rounds: int
    minutes: float
    quick: bool
    """Whether this is a rehearsal, whose numbers say nothing."""


@dataclass(frozen=True)
class Goal:
    """A number that should be at most so much."""

    what: str
    limit: float
    found: float
    unit: str
    digits: int = 0

    @property
    def reached(self) -> bool:
        """Whether it is."""
        return self.found <= self.limit

    def spell(self, value: float) -> str:
        """Return one of its numbers with the unit."""
        return f"{value:,.{self.digits}f}{self.unit and f' {self.unit}'}"

    def as_json(self) -> dict[str, Any]:
        """Return everything."""
        # JSON has no infinity.
        return {**asdict(self), "found": self.found if math.isfinite(self.found) else None, "reached": self.reached}


@dataclass(frozen=True)
class Found:
    """What a measurement says."""

    raw: dict[str, Any]
    goals: list[Goal]
    text: str
    """Markdown: what was measured, and tables."""


@dataclass(frozen=True)
class Measurement:
    """One of them, by name."""

    name: str
    title: str
    measure: Callable[[Setting], Found]


def say(line: str) -> None:
    """Tell how far the run is."""
    print(line, file=sys.stderr, flush=True)


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, numbers to the right: all but the first column."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


class Noise:
    """How much of the machine's CPU time others took; ours are this process and its children that have ended."""

    def __init__(self) -> None:
        self._busy, self._own = _busy_seconds(), _own_seconds()
        self._load = os.getloadavg()[0]

    def look(self) -> dict[str, float]:
        """Return the CPU seconds of others and of us since the beginning."""
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
