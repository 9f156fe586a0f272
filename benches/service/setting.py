"""What a measurement is given (program, data, how long), and what it hands back: raw numbers, tables and goals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.benches import criteo


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
