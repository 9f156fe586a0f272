"""Inputs of a measurement (program, data, duration) and its results: raw numbers, tables and goals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.benches import criteo


@dataclass(frozen=True)
class Setting:
    """Program, data and duration."""

    program: Path
    scratch: Path
    """Temporary folder for state directories and plans."""
    data: Path
    """Folder for data that only these measurements use."""
    criteo_data: Path
    criteo_shape: criteo.Shape
    rounds: int
    minutes: float
    quick: bool
    """Whether this is a trial run with meaningless numbers."""


@dataclass(frozen=True)
class Goal:
    """An upper limit and the measured value."""

    what: str
    limit: float
    found: float
    unit: str
    digits: int = 0

    @property
    def reached(self) -> bool:
        """Whether the value is within the limit."""
        return self.found <= self.limit

    def spell(self, value: float) -> str:
        """Format a value with the unit."""
        return f"{value:,.{self.digits}f}{self.unit and f' {self.unit}'}"

    def as_json(self) -> dict[str, Any]:
        """Return all fields."""
        # JSON has no infinity.
        return {**asdict(self), "found": self.found if math.isfinite(self.found) else None, "reached": self.reached}


@dataclass(frozen=True)
class Found:
    """Result of a measurement."""

    raw: dict[str, Any]
    goals: list[Goal]
    text: str
    """Markdown: description and tables."""


@dataclass(frozen=True)
class Measurement:
    """A named measurement."""

    name: str
    title: str
    measure: Callable[[Setting], Found]
