"""Markdown report and raw numbers of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

from rounds import Ratio, Times, Workload, ratio, wall_by_cpu


@dataclasses.dataclass
class Outcome:
    """Results of a workload."""

    workload: Workload
    times: list[Times]

    @property
    def forebay(self) -> Times:
        """Times of Forebay with the batch size of a stream."""
        return self.times[0]

    def as_json(self) -> dict[str, Any]:
        """Return the raw numbers, the ratios and the checks."""
        contenders = [
            {
                "name": times.name,
                "ns_best": times.best,
                "ns_rounds": times.rounds,
                "time_by_forebays": dataclasses.asdict(ratio(times, self.forebay)),
                "visits": [dataclasses.asdict(visit) for visit in times.visits],
            }
            for times in self.times
        ]
        return {
            "workload": self.workload.key,
            "title": self.workload.title,
            "rows": self.workload.rows,
            "goals": [dataclasses.asdict(goal) for goal in self.workload.goals],
            "wall_by_cpu": wall_by_cpu(self.times),
            "contenders": contenders,
            "checks": list(self.workload.checks),
        }


def goals(outcomes: list[Outcome]) -> str:
    """Return the table of goals and results."""
    lines = ["| workload | peer | target | median | lowest and highest | reached |", "|---|---|---:|---:|---:|---|"]
    for outcome in outcomes:
        by_name = {times.name: times for times in outcome.times}
        for goal in outcome.workload.goals:
            found = ratio(by_name[goal.peer], outcome.forebay)
            reached = "yes" if found.median >= goal.ratio else "no"
            target = f"{goal.ratio:g} x"
            cells = [outcome.workload.key, goal.peer, target, f"{_number(found.median)} x", _range(found), reached]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table(outcome: Outcome) -> str:
    """Return the times of a workload."""
    lines = [
        f"### {outcome.workload.key}: {outcome.workload.title}",
        "",
        "| contender | best ms | median ms | ns per row | time / first's | lowest and highest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for times in outcome.times:
        found = ratio(times, outcome.forebay)
        cells = [
            times.name,
            f"{times.best / 1e6:,.2f}",
            f"{times.median / 1e6:,.2f}",
            f"{times.median / outcome.workload.rows:,.2f}",
            f"{_number(found.median)} x",
            _range(found),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    waited = f"- wall time by CPU time over all passes: {wall_by_cpu(outcome.times):.2f}"
    return "\n".join([*lines, "", waited, *(f"- {check}" for check in outcome.workload.checks)])


def page(outcomes: list[Outcome], made_on: dict[str, Any], settings: dict[str, Any], curve: str | None) -> str:
    """Return the whole report."""
    facts = {key: value for key, value in made_on.items() if key != "load_average"} | settings
    parts = [
        "# Forebay's kernels compared with other programs, one core",
        "All figures are from one run on one core. A round runs the contenders of a workload in turn: one warm-up "
        "pass, then several passes, of which the fastest is the round's figure. Times are CPU times of one thread, "
        "including the operating system; they equal wall times if nothing else uses the core. Ratios are computed "
        "within a round: the contender's time divided by that of Forebay with the batch size of a stream (the first "
        "line); median, lowest and highest. More than 1 is slower than Forebay. Method: "
        "[benches/kernels](../../kernels/README.md); all times, including wall times: [kernels.json](kernels.json).",
        "## Goals",
        goals(outcomes),
        "## Times",
        *(table(outcome) for outcome in outcomes),
    ]
    if curve is not None:
        parts += ["## Rows per batch", curve, "![curve](kernels-curve.svg)"]
    parts += ["## Machine", "\n".join(f"- {key}: {value}" for key, value in facts.items())]
    return "\n\n".join(parts) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _range(found: Ratio) -> str:
    return f"{_number(found.low)}-{_number(found.high)}"
