"""The page of a run, in Markdown: the table, the goals, the checks, and who did not run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from lineup import FILE_ORDER, GOALS, POLARS, SHUFFLED, Entry

MB = 1e6


@dataclass
class Outcome:
    """A contender's visits."""

    entry: Entry
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By number, those that it ran through."""
    checks: list[str] = field(default_factory=list)
    checked_on: str = ""
    failure: str = ""
    """Why it did not run, or ran no further."""

    @property
    def rates(self) -> dict[int, float]:
        """Rows per second, by round."""
        return {number: rate(result) for number, result in self.rounds.items()}

    def as_json(self) -> dict[str, Any]:
        """Return everything."""
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
    """Of two contenders' rates, round by round."""

    median: float
    low: float
    high: float


def rate(result: dict[str, Any]) -> float:
    """Return rows per second."""
    rows, seconds, _ = _counted(result)
    return rows / seconds


def cpu_seconds_per_row(result: dict[str, Any]) -> float:
    """Return the CPU seconds of all processes for a row."""
    rows, _, cpu_seconds = _counted(result)
    return cpu_seconds / rows


def others_share(result: dict[str, Any]) -> float:
    """Return the share of all CPU seconds of the epoch's time that other processes of the machine used."""
    return result["others_cpu_seconds"] / (result["others_cpu_seconds"] + result["cpu_seconds"])


def _counted(result: dict[str, Any]) -> tuple[int, float, float]:
    """Return rows, seconds and CPU seconds; of an epoch that was broken off, those behind the first batch.

    What comes before that batch (workers that start, a buffer that fills) is paid once an epoch, and would count too
    much in a part of one.
    """
    if result["stopped"]:
        names = ("rows", "seconds", "cpu_seconds")
        rows, seconds, cpu_seconds = (result[name] - result[f"first_{name}"] for name in names)
        return rows, seconds, cpu_seconds
    return result["rows"], result["seconds"], result["cpu_seconds"]


def ratio(one: Outcome, other: Outcome) -> Ratio | None:
    """Return how many times the other's rate the one's is, over the rounds of both."""
    found = [one.rates[number] / other.rates[number] for number in one.rates if number in other.rates]
    return Ratio(statistics.median(found), min(found), max(found)) if found else None


def table(outcomes: list[Outcome], whole_rows: int) -> str:
    """Return what was measured, the quickest first."""
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
    """Return what was to be reached, and what was."""
    lines = ["| Forebay | against | reach | median | lowest and highest | reached |", "|---|---|---:|---:|---:|---|"]
    by_name = {each.entry.name: each for each in outcomes}
    for name in (FILE_ORDER, SHUFFLED):
        for goal in GOALS:
            if name not in by_name or goal.peer not in by_name:
                continue
            found = ratio(by_name[name], by_name[goal.peer])
            median = f"{_number(found.median)} x" if found else "not run"
            spread = f"{_number(found.low)}-{_number(found.high)}" if found else ""
            reached = ("yes" if found.median >= goal.ratio else "no") if found else ""
            order = "shuffled" if name == SHUFFLED else "file order"
            cells = [order, by_name[goal.peer].entry.title, f"{goal.ratio:g} x", median, spread, reached]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def checks(outcomes: list[Outcome]) -> str:
    """Return what was seen to agree."""
    return "\n".join(
        f"- {each.entry.title} ({each.checked_on}): {'; '.join(each.checks)}" for each in outcomes if each.checks
    )


def missing(outcomes: list[Outcome]) -> str:
    """Return who did not run, or not to the end, and why."""
    return "\n".join(f"- {each.entry.title}: {each.failure}" for each in outcomes if each.failure)


def page(outcomes: list[Outcome], made_on: dict[str, Any], settings: dict[str, Any], whole_rows: int) -> str:
    """Return the whole page."""
    facts = {key: value for key, value in made_on.items() if key != "load_average"} | settings
    versions = {
        package: number
        for each in outcomes
        for result in each.rounds.values()
        for package, number in result["versions"].items()
        if package not in ("pyarrow", "numpy", "pandas", "forebay")
    }
    parts = [
        "# Forebay beside its peers",
        "From compressed Parquet to the tensors of a training loop, in one run on the same cores. A round visits each "
        "contender once: a fresh process, an epoch over few rows that does not count, then one over all rows. Peers "
        "hand tensors to a loop in the process that made them; Forebay's cross a socket to another, and its server is "
        "counted in. CPU seconds and memory are of all processes of a contender; memory is the highest sum of their "
        "proportional set sizes. Where a number of rows is named the epoch was broken off, and rate and CPU are those "
        "behind the first batch. Others' CPU is the share of the CPU seconds used meanwhile that went to the rest of "
        "the machine: what is more than a few per cent was disturbed. Ratios are taken round by round. How: "
        "[benches/peers](../../peers/README.md); every round: [peers.json](peers.json).",
        table(outcomes, whole_rows),
        "## Goals",
        goals(outcomes),
    ]
    if failures := missing(outcomes):
        parts += ["## Not run", failures]
    parts += ["## Checks", checks(outcomes)]
    parts += ["## Made on", "\n".join(f"- {key}: {value}" for key, value in (facts | versions).items())]
    return "\n\n".join(parts) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
