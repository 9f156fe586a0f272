"""Markdown report of a soak."""

from __future__ import annotations

from typing import Any

from harness.benches.reporting import table
from verdicts import Verdict
from watch import MIB

ANSWERS = {True: "yes", False: "NO", None: "not judged"}
SHOWN = (
    ("rss_bytes", "RSS, MiB", MIB), ("descriptors", "descriptors", 1), ("threads", "threads", 1), ("tasks", "tasks", 1),
    ("memory_reserved_bytes", "reserved, MiB", MIB), ("streams_active", "streams", 1),
    ("connections_active", "connections", 1),
)  # fmt: skip


def verdicts(found: list[Verdict]) -> str:
    """Return the table of verdicts."""
    return table(["", "holds", "found"], [[one.what, ANSWERS[one.holds], one.found] for one in found])


def page(run: dict[str, Any], found: list[Verdict]) -> str:
    """Return the whole report."""
    facts = "\n".join(f"- {key}: {value}" for key, value in run["machine"].items())
    introduction = (
        f"{run['minutes']:g} minutes, two replicas over the same data and state, clients and faults on the same cores. "
        "Method: [benches/soak](../../soak/README.md); every sample: [soak.json](soak.json)."
    )
    return "\n\n".join(["# A soak with faults", introduction, body(run, found), "## Machine", facts]) + "\n"


def body(run: dict[str, Any], found: list[Verdict]) -> str:
    """Return the verdicts and all tables."""
    parts = [verdicts(found)]
    if words := run["tally"]["wrong"] + run["tally"]["unexpected"]:
        parts += ["Failures:", "\n".join(f"- `{line}`" for line in words)]
    parts += ["## Resources held", _held(run), "## Load", _load(run["tally"]), "## Faults", _faults(run), _cores(run)]
    return "\n\n".join(parts)


def _held(run: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for name, replica in run["replicas"].items():
        for moment in ("idle_before", "second_quarter", "last_quarter", "idle_after"):
            sample = replica[moment]
            if sample is None:
                continue
            label = f"{name}, {moment.replace('_', ' ')}" + (" (median)" if "quarter" in moment else "")
            rows.append([label, *(f"{sample[key] / unit:,.0f}" for key, _, unit in SHOWN)])
    return table(["replica", *(title for _, title, _ in SHOWN)], rows)


def _load(tally: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for load in sorted(set(tally["counts"]) | set(tally["ends"])):
        if load in ("faults", "outages"):
            continue
        counts, ends = tally["counts"].get(load, {}), tally["ends"].get(load, {})
        received = ", ".join(f"{count:,} {what}" for what, count in counts.items() if what != "bytes")
        rows.append([load, ", ".join(f"{count:,} {code}" for code, count in ends.items()), received])
    return table(["load", "visits by result", "received"], rows)


def _faults(run: dict[str, Any]) -> str:
    rows = [[what, f"{count:,}"] for what, count in run["tally"]["counts"].get("faults", {}).items()]
    lives = "; ".join(
        f"replica {name}: {replica['starts']} start{'s' * (replica['starts'] != 1)}, calls by code: "
        + ", ".join(f"{count:,} {code}" for code, count in replica["answered"].items())
        for name, replica in run["replicas"].items()
    )
    return f"{table(['fault', 'times'], rows)}\n\n{lives}."


def _cores(run: dict[str, Any]) -> str:
    return (
        f"The soak itself (servers, clients and faults) used {run['cores_mean']:.2f} cores on average; other "
        f"processes used {run['noise']['others_share']:.0%} of the machine's CPU seconds during the run."
    )
