"""The page of a run, in Markdown: goals, then each measurement."""

from __future__ import annotations

from typing import Any

from harness.benches.reporting import table
from setting import Found, Goal, Measurement


def goals(found: list[Goal]) -> str:
    """Return what was to be reached, and what was."""
    rows = [
        [goal.what, f"at most {goal.spell(goal.limit)}", goal.spell(goal.found), "yes" if goal.reached else "no"]
        for goal in found
    ]
    return table(["goal", "reach", "found", "reached"], rows)


def body(results: list[tuple[Measurement, Found, dict[str, float]]]) -> str:
    """Return the goals and every measurement's table."""
    parts = []
    if whole := [goal for _, found, _ in results for goal in found.goals]:
        parts += ["## Goals", goals(whole)]
    for measurement, found, noise in results:
        parts += [f"## {measurement.title} (`{measurement.name}`)", found.text, _noise(noise)]
    return "\n\n".join(parts)


def page(results: list[tuple[Measurement, Found, dict[str, float]]], made_on: dict[str, Any]) -> str:
    """Return the whole page."""
    facts = "\n".join(f"- {key}: {value}" for key, value in made_on.items())
    introduction = (
        "Server and clients on the same cores. What is measured and how: [benches/service](../../service/README.md); "
        "every number: [service.json](service.json)."
    )
    return "\n\n".join(["# Forebay as a service", introduction, body(results), "## Made on", facts]) + "\n"


def _noise(noise: dict[str, float]) -> str:
    return (
        f"Meanwhile other processes took {noise['others_share']:.0%} of the CPU seconds that the machine gave; load "
        f"average {noise['load_average_before']:.1f} before, {noise['load_average_after']:.1f} after."
    )
