"""Rows per second on 1, 2, 4, 8, … cores, of Forebay's client and server together, and of Polars if it is installed.

All processes of a contender are limited to the same cores. Without a GPU, one short visit on two cores is a rehearsal:
`make bench-peers` compares contenders.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

import forebay as fb
from device import driver_problem
from harness.benches import criteo
from lineup import FILE_ORDER, LINEUP, POLARS, SHUFFLED
from rates import cpu_seconds_per_row, rate
from served import server_program, statistics_of
from step import Failed, Skipped, emit, run
from visit import Failed as VisitFailed
from visit import visit

CONTENDERS = (FILE_ORDER, SHUFFLED, POLARS)
BATCH_SIZE = 8192
SECONDS_MAX = 1.5


class Visits:
    """Visits of contenders on some of the cores."""

    def __init__(self, folder: Path, shape: criteo.Shape) -> None:
        self._folder = folder
        small = dataclasses.replace(shape, files=1, rows_per_file=20_000)
        self._data: dict[str, dict[str, Any]] = {}
        for name, each in (("whole", shape), ("small", small)):
            criteo.generate(folder / name, each, workers=each.files)
            self._data[name] = {"folder": str(folder / name), "rows": each.rows}

    def measure(self, name: str, cores: list[int]) -> str:
        """Report the rate of a contender; return why there is none."""
        entry = next(entry for entry in LINEUP if entry.name == name)
        scratch = self._folder / name
        scratch.mkdir(exist_ok=True)
        if name == POLARS:
            # The first visit of Forebay fitted the plan.
            statistics_of(fb.FittedPlan.from_json(self._folder / "forebay-plan.json"), self._folder)
        job = {
            **self._data,
            "fitted": str(self._folder),
            "scratch": str(scratch),
            "server": str(server_program()),
            "mode": "time",
            "batch_size": BATCH_SIZE,
            "cores": len(cores),
            "seed": 7,
            "seconds_max": SECONDS_MAX,
        }
        every = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            result = visit(dataclasses.replace(entry, environment=""), job)
        except VisitFailed as problem:
            emit(contender=name, cores=len(cores), problem=str(problem))
            return f"{name}: {problem}"
        finally:
            os.sched_setaffinity(0, every)
        figures = {"rows_per_second": rate(result), "cpu_seconds_per_million_rows": 1e6 * cpu_seconds_per_row(result)}
        emit(contender=name, cores=len(cores), **figures, **result)
        return ""


def main() -> None:
    """Visit every contender with every number of cores."""
    problem = driver_problem()
    available = sorted(os.sched_getaffinity(0))
    powers = [2**power for power in range(len(available).bit_length())]
    counts = [min(2, len(available))] if problem else [count for count in powers if count <= len(available)]
    shape = criteo.Shape(files=1, rows_per_file=20_000) if problem else criteo.Shape(files=16, rows_per_file=500_000)
    contenders = CONTENDERS[:1] if problem else CONTENDERS
    if POLARS in contenders and importlib.util.find_spec("polars") is None:
        emit(contender=POLARS, problem="polars is not installed")
        contenders = tuple(name for name in contenders if name != POLARS)
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        visits = Visits(Path(scratch), shape)
        # Forebay's first visit fits the plan, with every core.
        for count in reversed(counts):
            for name in contenders:
                failures.append(visits.measure(name, available[:count]))
    if failures := [each for each in failures if each]:
        raise Failed("; ".join(failures))
    if problem:
        raise Skipped(f"rehearsed on two cores only: {problem}")


if __name__ == "__main__":
    run(main)
