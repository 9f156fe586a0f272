"""Counts of data received, results of calls, and failures: kept per process, summed in one."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import Any

Json = dict[str, Any]

# Messages kept of each kind of failure; all are counted.
KEPT_MAX = 20
MESSAGE_CHARS_MAX = 400


class Tally:
    """Counts by load; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._wrong: list[str] = []
        self._unexpected: list[str] = []

    def add(self, load: str, what: str, count: int = 1) -> None:
        """Count data or events."""
        with self._lock:
            self._counts[load][what] += count

    def end(self, load: str, code: str) -> None:
        """Count a visit by its result."""
        with self._lock:
            self._ends[load][code] += 1

    def wrong(self, load: str, message: str) -> None:
        """Record bytes or rows that differ from the expected stream."""
        with self._lock:
            self._counts[load]["wrong"] += 1
            if len(self._wrong) < KEPT_MAX:
                self._wrong.append(f"{load}: {message[:MESSAGE_CHARS_MAX]}")

    def unexpected(self, load: str, message: str) -> None:
        """Record a result that the load does not allow."""
        with self._lock:
            self._counts[load]["unexpected"] += 1
            if len(self._unexpected) < KEPT_MAX:
                self._unexpected.append(f"{load}: {message[:MESSAGE_CHARS_MAX]}")

    def as_json(self) -> Json:
        """Return all counts so far."""
        with self._lock:
            return {
                "counts": {load: dict(counts) for load, counts in self._counts.items()},
                "ends": {load: dict(ends) for load, ends in self._ends.items()},
                "wrong": list(self._wrong),
                "unexpected": list(self._unexpected),
            }


def total(parts: list[Json]) -> Json:
    """Add up the tallies of several processes."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
    wrong, unexpected = list[str](), list[str]()
    for part in parts:
        for load, found in part["counts"].items():
            counts[load].update(found)
        for load, found in part["ends"].items():
            ends[load].update(found)
        wrong += part["wrong"]
        unexpected += part["unexpected"]
    return {
        "counts": {load: dict(sorted(found.items())) for load, found in sorted(counts.items())},
        "ends": {load: dict(sorted(found.items())) for load, found in sorted(ends.items())},
        "wrong": wrong[:KEPT_MAX],
        "unexpected": unexpected[:KEPT_MAX],
    }
