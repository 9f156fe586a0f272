"""Markdown report of a run: goals, then each measurement."""

from __future__ import annotations

from typing import Any

from harness.benches.reporting import table
from setting import Found, Goal, Measurement


def goals(found: list[Goal]) -> str:
    """Return the table of goals and results."""
    rows = [
        [goal.what, f"at most {goal.spell(goal.limit)}", goal.spell(goal.found), "yes" if goal.reached else "no"]
        for goal in found
    ]
    return table(["goal", "target", "result", "reached"], rows)


def body(results: list[tuple[Measurement, Found, dict[str, float]]]) -> str:
    """Return the goals and every measurement's table."""
    parts = []
    if whole := [goal for _, found, _ in results for goal in found.goals]:
        parts += ["## Goals", goals(whole)]
    for measurement, found, noise in results:
        parts += [f"## {measurement.title} (`{measurement.name}`)", found.text, _noise(noise)]
    return "\n\n".join(parts)


def page(results: list[tuple[Measurement, Found, dict[str, float]]], made_on: dict[str, Any]) -> str:
    """Return the whole report."""
    facts = "\n".join(f"- {key}: {value}" for key, value in made_on.items())
    introduction = (
        "Server and clients share the cores. Method: [benches/service](../../service/README.md); all numbers: "
        "[service.json](service.json)."
    )
    return "\n\n".join(["# Forebay as a service", introduction, body(results), "## Machine", facts]) + "\n"


def _noise(noise: dict[str, float]) -> str:
    return (
        f"Other processes used {noise['others_share']:.0%} of the machine's CPU seconds during the measurement; load "
        f"average {noise['load_average_before']:.1f} before, {noise['load_average_after']:.1f} after."
    )
