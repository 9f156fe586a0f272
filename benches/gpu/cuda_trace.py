"""How much of the copies to the GPU in a trace of torch's profiler runs while kernels run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A step's copy is overlapped if at least this part of it runs under kernels.
OVERLAPPED_MIN = 0.5

Interval = tuple[float, float]


@dataclass(frozen=True)
class Overlap:
    """Copies and kernels of a trace; times are in microseconds."""

    copies: int
    kernels: int
    pinned_copies: int
    """Copies from pinned memory, asynchronous ones."""
    copy_us: float
    kernel_us: float
    overlapped_us: float
    """Copying that happened under a kernel."""
    steps: int
    overlapped_steps: int
    """Steps whose copy ran under kernels for at least half of its time."""

    @property
    def ratio(self) -> float:
        """The part of copying that was overlapped."""
        return self.overlapped_us / self.copy_us if self.copy_us else 0.0


def events_of(path: Path) -> list[dict[str, Any]]:
    """Return the events of a Chrome trace, compressed or not."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return json.loads(text)["traceEvents"]


def overlap_of(events: Iterable[dict[str, Any]], *, copies_per_step: int) -> Overlap:
    """Measure the overlap; each run of `copies_per_step` copies to the device belongs to one step."""
    timed = [event for event in events if event.get("ph") == "X"]
    kernels = [_interval(event) for event in timed if event.get("cat") == "kernel"]
    moves = [event for event in timed if event.get("cat") == "gpu_memcpy" and "HtoD" in event["name"]]
    moves.sort(key=lambda event: event["ts"])
    copies, busy = [_interval(event) for event in moves], union(kernels)
    covered = [_covered(copy, busy) for copy in copies]
    steps = [slice(start, start + copies_per_step) for start in range(0, len(copies), copies_per_step)]
    lengths = [end - start for start, end in copies]
    return Overlap(
        copies=len(copies),
        kernels=len(kernels),
        pinned_copies=sum("Pinned" in event["name"] for event in moves),
        copy_us=sum(lengths),
        kernel_us=sum(end - start for start, end in busy),
        overlapped_us=sum(covered),
        steps=len(steps),
        overlapped_steps=sum(sum(covered[step]) >= OVERLAPPED_MIN * sum(lengths[step]) for step in steps),
    )


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same time, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _interval(event: dict[str, Any]) -> Interval:
    return float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0))


def _covered(interval: Interval, busy: list[Interval]) -> float:
    start, end = interval
    return sum(max(0.0, min(end, stop) - max(start, began)) for began, stop in busy)
