"""Pass criteria of a soak."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from replica import Sample
from watch import COLUMNS, MIB

# Resident memory of the last quarter may exceed that of the second by this much, because allocators fluctuate.
# Shorter runs are not judged.
RSS_MINUTES_MIN = 10.0
RSS_TOLERANCE_SHARE, RSS_TOLERANCE_BYTES = 0.10, 32 * MIB
# Codes that no client and no fault of a store or a file may cause.
NEVER = ("INTERNAL", "UNKNOWN")


@dataclass(frozen=True)
class Verdict:
    """One criterion and its result."""

    what: str
    holds: bool | None
    """None if not judged."""
    found: str

    def as_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


def of_data(tally: dict[str, Any]) -> list[Verdict]:
    """Judge the data received."""
    counts: dict[str, dict[str, int]] = tally["counts"]

    def total(what: str) -> int:
        return sum(found.get(what, 0) for found in counts.values())

    received = (
        f"{total('batches'):,} batches, {total('rows'):,} rows, {total('bytes') / 1e9:,.1f} GB; "
        f"{total('epochs checked row by row'):,} epochs row by row"
    )
    wrong, odd = total("wrong"), total("unexpected")
    return [
        Verdict(
            "every byte matches the expected stream, no row is lost or repeated",
            wrong == 0,
            f"{wrong} wrong of {received}",
        ),
        Verdict("every call has an allowed result", odd == 0, f"{odd} did not"),
    ]


def of_answers(name: str, answered: dict[str, int], alarms: list[str], levels: dict[str, int]) -> list[Verdict]:
    """Judge a server's responses and log."""
    never = {call: count for call, count in answered.items() if call.endswith(NEVER)}
    found = f"{never or 'none'} of {sum(answered.values()):,}"
    panics, errors = sum("panic" in line for line in alarms), levels.get("ERROR", 0)
    return [
        Verdict(f"{name} never answers {' or '.join(NEVER)}", not never, found),
        Verdict(f"{name} does not panic and logs no ERROR", panics + errors == 0, f"{panics} panics, {errors} errors"),
    ]


def of_rest(name: str, idle: Sample, left: Sample | None, seconds: float) -> list[Verdict]:
    """Judge what a server holds after all load has stopped."""
    if left is None:
        return [Verdict(f"{name} responds at the end", False, "no response")]
    return [
        Verdict(
            f"{name} holds no stream, exchange, fit, connection or memory at the end",
            left.is_idle,
            f"{left.streams_active} streams, {left.exchanges_active} exchanges, {left.fits_active} fits, "
            f"{left.connections_active} connections, {left.memory_reserved_bytes} bytes reserved",
        ),
        Verdict(
            f"{name}'s descriptors and tasks are back at the level before the load",
            left.descriptors <= idle.descriptors and left.tasks <= idle.tasks,
            f"descriptors {idle.descriptors} before, {left.descriptors} after; tasks {idle.tasks} before, {left.tasks} "
            f"after; {seconds:.0f} s after the last client",
        ),
    ]


def of_memory(name: str, samples: list[list[float]], seconds: float) -> tuple[list[Verdict], dict[str, Any]]:
    """Compare resident memory in the second and the last quarter of the run."""
    second = _medians(samples, seconds / 4, seconds / 2)
    last = _medians(samples, 3 * seconds / 4, seconds)
    quarters = {"second_quarter": second, "last_quarter": last}
    if seconds < 60 * RSS_MINUTES_MIN:
        found = f"not judged: {seconds / 60:.1f} minutes is too short"
        return [Verdict(f"{name}'s resident memory is flat", None, found)], quarters
    if second is None or last is None:
        return [Verdict(f"{name}'s memory is flat", False, "too few samples")], quarters
    limit = second["rss_bytes"] * (1 + RSS_TOLERANCE_SHARE) + RSS_TOLERANCE_BYTES
    found = (
        f"median {second['rss_bytes'] / MIB:,.0f} MiB in the second quarter, {last['rss_bytes'] / MIB:,.0f} MiB in the "
        f"last; at most {limit / MIB:,.0f} MiB ({RSS_TOLERANCE_SHARE:.0%} and {RSS_TOLERANCE_BYTES // MIB} MiB more)"
    )
    return [Verdict(f"{name}'s resident memory is flat", last["rss_bytes"] <= limit, found)], quarters


def _medians(samples: list[list[float]], begin: float, end: float) -> dict[str, float] | None:
    rows = [row for row in samples if begin <= row[0] < end]
    if len(rows) < 3:
        return None
    return {name: statistics.median(row[at] for row in rows) for at, name in enumerate(COLUMNS) if at > 1}
