"""Markdown report of a run: table, goals, checks, and contenders that did not run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from lineup import GOALS, POLARS, Entry
from rates import cpu_seconds_per_row, rate

MB = 1e6


@dataclass
class Outcome:
    """Results of a contender."""

    entry: Entry
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Completed rounds by number."""
    checks: list[str] = field(default_factory=list)
    checked_on: str = ""
    failure: str = ""
    """Why the contender did not run or complete."""

    @property
    def rates(self) -> dict[int, float]:
        """Rows per second by round."""
        return {number: rate(result) for number, result in self.rounds.items()}

    def as_json(self) -> dict[str, Any]:
        """Return all results."""
        return {
            "name": self.entry.name,
            "title": self.entry.title,
            "differs": self.entry.differs,
            "checks": self.checks,
            "checked_on": self.checked_on,
            "failure": self.failure,
            "rounds": [
                {"round": number, "rows_per_second": rate(result), **result} for number, result in self.rounds.items()
            ],
        }


@dataclass(frozen=True)
class Ratio:
    """Ratio of two contenders' rates within a round."""

    median: float
    low: float
    high: float


def others_share(result: dict[str, Any]) -> float:
    """Return the share of the CPU seconds during the epoch that other processes used."""
    return result["others_cpu_seconds"] / (result["others_cpu_seconds"] + result["cpu_seconds"])


def ratio(one: Outcome, other: Outcome) -> Ratio | None:
    """Return the ratio of the first one's rate to the other's over the rounds that both completed."""
    return _ratio(one.rates, other.rates)


def cpu_ratio(one: Outcome, other: Outcome) -> Ratio | None:
    """Return the ratio of the other one's CPU seconds per row to the first one's."""
    ours, others = ({number: cpu_seconds_per_row(each) for number, each in of.rounds.items()} for of in (one, other))
    return _ratio(others, ours)


def _ratio(over: dict[int, float], under: dict[int, float]) -> Ratio | None:
    found = [over[number] / under[number] for number in over if number in under]
    return Ratio(statistics.median(found), min(found), max(found)) if found else None


def table(outcomes: list[Outcome], whole_rows: int) -> str:
    """Return the table of results, fastest first."""
    lines = [
        "| contender | rows/s, median (low-high) | best | x of Polars | CPU s per M rows | peak MB | others' CPU "
        "| differs |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    polars = next((each for each in outcomes if each.entry.name == POLARS), None)
    ran = [each for each in outcomes if each.rounds]
    for each in sorted(ran, key=lambda outcome: -statistics.median(outcome.rates.values())):
        rates, results = list(each.rates.values()), list(each.rounds.values())
        by_polars = ratio(each, polars) if polars else None
        rows = statistics.median(result["rows"] for result in results)
        part = f"{rows:,.0f} rows" if rows < whole_rows else ""
        cells = [
            each.entry.title,
            f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})",
            f"{max(rates):,.0f}",
            _number(by_polars.median) if by_polars else "",
            f"{statistics.median(cpu_seconds_per_row(result) * 1e6 for result in results):.2f}",
            f"{max(result['peak_bytes'] for result in results) / MB:,.0f}",
            f"{statistics.median(others_share(result) for result in results):.0%}",
            "; ".join(filter(None, [each.entry.differs, part])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def goals(outcomes: list[Outcome]) -> str:
    """Return the table of goals and results."""
    lines = [
        "| Forebay | peer | target | median | lowest and highest | reached | by CPU seconds |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    by_name = {each.entry.name: each for each in outcomes}
    for goal in GOALS:
        if goal.ours not in by_name or goal.peer not in by_name:
            continue
        ours, peer = by_name[goal.ours], by_name[goal.peer]
        found, cpu = ratio(ours, peer), cpu_ratio(ours, peer)
        median = f"{_number(found.median)} x" if found else "not run"
        spread = f"{_number(found.low)}-{_number(found.high)}" if found else ""
        reached = ("yes" if found.median >= goal.ratio else "no") if found else ""
        by_cpu = f"{_number(cpu.median)} x" if cpu else ""
        cells = [ours.entry.title, peer.entry.title, f"{goal.ratio:g} x", median, spread, reached, by_cpu]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def checks(outcomes: list[Outcome]) -> str:
    """Return the checks that passed."""
    return "\n".join(
        f"- {each.entry.title} ({each.checked_on}): {'; '.join(each.checks)}" for each in outcomes if each.checks
    )


def missing(outcomes: list[Outcome]) -> str:
    """Return the contenders that did not run or complete, and why."""
    return "\n".join(f"- {each.entry.title}: {each.failure}" for each in outcomes if each.failure)


def page(outcomes: list[Outcome], made_on: dict[str, Any], settings: dict[str, Any], whole_rows: int) -> str:
    """Return the whole report."""
    facts = {key: value for key, value in made_on.items() if key != "load_average"} | settings
    versions = {
        package: number
        for each in outcomes
        for result in each.rounds.values()
        for package, number in result["versions"].items()
        if package not in ("pyarrow", "numpy", "pandas", "forebay")
    }
    parts = [
        "# Forebay compared with its peers",
        "From compressed Parquet to the tensors of a training loop, in one run on the same cores. Each round runs "
        "every contender once in a new process: a warm-up epoch over few rows, then an epoch over all rows. Peers "
        "compute tensors in the process of the loop; Forebay's cross a socket, and its server's CPU time and memory "
        "are included. CPU seconds and memory cover all processes of a contender; memory is the highest sum of their "
        "proportional set sizes. If a number of rows is given, the epoch was stopped, and rate and CPU are those after "
        "the first batch. Others' CPU is the share of CPU seconds used by the rest of the machine; more than a few per "
        "cent disturbs the result. Ratios are computed within a round. Method: "
        "[benches/peers](../../peers/README.md); all rounds: [peers.json](peers.json).",
        table(outcomes, whole_rows),
        "## Goals",
        goals(outcomes),
    ]
    if failures := missing(outcomes):
        parts += ["## Not run", failures]
    parts += ["## Checks", checks(outcomes)]
    parts += ["## Machine", "\n".join(f"- {key}: {value}" for key, value in (facts | versions).items())]
    return "\n\n".join(parts) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
