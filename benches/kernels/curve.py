"""Time per row by batch size, for one plan: shows the fixed cost of a batch."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import Any

from matplotlib import pyplot

from runner import Runner
from workloads.dense import COLUMNS, ROWS, Dense

BATCH_ROWS = (1, 10, 100, 1_000, 10_000, 100_000)
# A pass has the rows of this many batches, within these bounds.
BATCHES = 10_000
ROWS_MIN = 100_000


@dataclasses.dataclass
class Point:
    """A batch size, and CPU nanoseconds per row of each pass."""

    batch_rows: int
    rows: int
    passes: list[list[float]]

    @property
    def ns_per_row(self) -> float:
        """Median over the rounds of the fastest pass."""
        return statistics.median(min(times) for times in self.passes)

    @property
    def ns_per_row_best(self) -> float:
        """The fastest pass."""
        return min(min(times) for times in self.passes)

    def as_json(self) -> dict[str, Any]:
        """Return the raw numbers and their median."""
        return {**dataclasses.asdict(self), "ns_per_row": self.ns_per_row, "ns_per_row_best": self.ns_per_row_best}


def trace(runner: Runner, seed: int, rounds: int) -> list[Point]:
    """Measure the plan of 13 columns with each batch size in turn."""
    plan = Dense(runner, seed).plan()
    workloads = [runner.prepare("", "dense", plan, batch_rows=rows) for rows in BATCH_ROWS]
    points = [Point(rows, min(ROWS, max(ROWS_MIN if rows > 1 else 0, BATCHES * rows)), []) for rows in BATCH_ROWS]
    for _ in range(rounds):
        for workload, point in zip(workloads, points, strict=True):
            point.passes.append([time / point.rows for time in workload.visit(point.rows).cpu_ns])
    return points


def draw(points: list[Point], path: Path) -> None:
    """Write the plot."""
    pyplot.rcParams["svg.hashsalt"] = "forebay"
    pyplot.rcParams["svg.fonttype"] = "none"
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.loglog([point.batch_rows for point in points], [point.ns_per_row for point in points], marker="o")
    for point in points:
        label = f"{point.ns_per_row:,.0f}" if point.ns_per_row >= 100 else f"{point.ns_per_row:.1f}"
        axes.annotate(label, (point.batch_rows, point.ns_per_row), (5, 6), textcoords="offset points")
    axes.set_xlabel("rows per batch")
    axes.set_ylabel("ns per row")
    axes.set_title(f"fill + log1p + standardize + clip of {COLUMNS} columns, one core")
    axes.grid(alpha=0.3)
    axes.margins(0.12, 0.15)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def table(points: list[Point]) -> str:
    """Return the curve as Markdown."""
    lines = ["| rows per batch | ns per row | best | us per batch |", "|---:|---:|---:|---:|"]
    for point in points:
        per_batch = point.ns_per_row * point.batch_rows / 1e3
        lines.append(
            f"| {point.batch_rows:,} | {point.ns_per_row:,.1f} | {point.ns_per_row_best:,.1f} | {per_batch:,.2f} |"
        )
    return "\n".join(lines)
