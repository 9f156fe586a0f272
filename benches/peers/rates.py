"""Rates of a visit's result."""

from __future__ import annotations

from typing import Any


def rate(result: dict[str, Any]) -> float:
    """Return rows per second."""
    rows, seconds, _ = counted(result)
    return rows / seconds


def cpu_seconds_per_row(result: dict[str, Any]) -> float:
    """Return the CPU seconds of all processes per row."""
    rows, _, cpu_seconds = counted(result)
    return cpu_seconds / rows


def counted(result: dict[str, Any]) -> tuple[int, float, float]:
    """Return rows, seconds and CPU seconds; for a stopped epoch, those after the first batch.

    The cost before that batch (starting workers, filling a buffer) is paid once per epoch and would weigh too much in a
    part of one.
    """
    if result["stopped"]:
        names = ("rows", "seconds", "cpu_seconds")
        rows, seconds, cpu_seconds = (result[name] - result[f"first_{name}"] for name in names)
        return rows, seconds, cpu_seconds
    return result["rows"], result["seconds"], result["cpu_seconds"]
