"""The tables of a run, in Markdown, and its raw numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

from rounds import Ratio, Times, Workload, ratio, waiting


@dataclasses.dataclass
class Outcome:
    """A work that has been measured."""

    work: Workload
    times: list[Times]

    @property
    def forebay(self) -> Times:
        """The times of Forebay as a stream runs it."""
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
            "work": self.work.key,
            "title": self.work.title,
            "rows": self.work.rows,
            "goals": [dataclasses.asdict(goal) for goal in self.work.goals],
            "wall_by_cpu": waiting(self.times),
            "contenders": contenders,
            "checks": list(self.work.checks),
        }


def goals(outcomes: list[Outcome]) -> str:
    """Return what was to be reached, and what was."""
    lines = ["| work | against | reach | median | lowest and highest | reached |", "|---|---|---:|---:|---:|---|"]
    for outcome in outcomes:
        by_name = {times.name: times for times in outcome.times}
        for goal in outcome.work.goals:
            found = ratio(by_name[goal.peer], outcome.forebay)
            said = "yes" if found.median >= goal.ratio else "no"
            reach = f"{goal.ratio:g} x"
            cells = [outcome.work.key, goal.peer, reach, f"{_number(found.median)} x", _range(found), said]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table(outcome: Outcome) -> str:
    """Return a work's times."""
    lines = [
        f"### {outcome.work.key}: {outcome.work.title}",
        "",
        "| who | best ms | median ms | ns per row | time by the first's | lowest and highest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for times in outcome.times:
        found = ratio(times, outcome.forebay)
        cells = [
            times.name,
            f"{times.best / 1e6:,.2f}",
            f"{times.median / 1e6:,.2f}",
            f"{times.median / outcome.work.rows:,.2f}",
            f"{_number(found.median)} x",
            _range(found),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    waited = f"- wall time by CPU time over all passes: {waiting(outcome.times):.2f}"
    return "\n".join([*lines, "", waited, *(f"- {check}" for check in outcome.work.checks)])


def page(outcomes: list[Outcome], made_on: dict[str, Any], settings: dict[str, Any], curve: str | None) -> str:
    """Return the whole page."""
    facts = {key: value for key, value in made_on.items() if key != "load_average"} | settings
    parts = [
        "# Forebay's kernels beside other programs, one core",
        "Each figure is of one run on one core. A round goes through a work's contenders in turn; a contender runs "
        "once unmeasured, then several times, of which the quickest is the round's figure. Times are CPU times of one "
        "thread, kernel included: the wall's where nothing else wants the core. A ratio is taken round by round: the "
        "contender's time by that of Forebay as a stream runs it (the first line), its median, its lowest and its "
        "highest. More than 1 is slower than Forebay. How: [benches/kernels](../../kernels/README.md); every time, the "
        "wall's too: [kernels.json](kernels.json).",
        "## Goals",
        goals(outcomes),
        "## Times",
        *(table(outcome) for outcome in outcomes),
    ]
    if curve is not None:
        parts += ["## Rows of a batch", curve, "![curve](kernels-curve.svg)"]
    parts += ["## Made on", "\n".join(f"- {key}: {value}" for key, value in facts.items())]
    return "\n\n".join(parts) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _range(found: Ratio) -> str:
    return f"{_number(found.low)}-{_number(found.high)}"
