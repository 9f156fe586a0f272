"""Workloads and contenders, measured in rounds (A B C A B C), so that other load on the machine affects all of them."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol


@dataclasses.dataclass
class Visit:
    """Nanoseconds of each pass over all rows: wall time, and CPU time of the process.

    With one thread on a dedicated core both agree. If the core is shared, CPU time excludes the other processes.
    """

    wall_ns: list[int]
    cpu_ns: list[int]

    def without_first(self) -> Visit:
        """Return all passes except the first, which ran with the previous contender's caches."""
        return Visit(self.wall_ns[1:], self.cpu_ns[1:])


class Contender(Protocol):
    """A program that runs a workload."""

    name: str
    passes: int
    rounds_max: int | None

    def visit(self) -> Visit:
        """Run and time several passes."""
        ...


class Peer:
    """A contender in this process: a function that runs the workload once and returns the result."""

    def __init__(self, name: str, do: Callable[[], Any], *, passes: int = 3, rounds_max: int | None = None) -> None:
        self.name, self.do, self.passes, self.rounds_max = name, do, passes, rounds_max

    def visit(self) -> Visit:
        """Time each pass, after a warm-up pass if there are several."""
        if self.passes > 1:
            self.do()
        visit = Visit([], [])
        for _ in range(self.passes):
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            result = self.do()
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
            visit.wall_ns.append(wall)
            visit.cpu_ns.append(cpu)
            # Freeing is part of Forebay's passes but not of the peer's, which favours the peer.
            del result
        return visit


@dataclasses.dataclass(frozen=True)
class Goal:
    """Target ratio of the peer's time to Forebay's."""

    peer: str
    ratio: float


@dataclasses.dataclass
class Workload:
    """A section of the report. The goals are for the first contender: Forebay with the batch size of a stream."""

    key: str
    title: str
    rows: int
    contenders: Sequence[Contender]
    goals: Sequence[Goal]
    checks: Sequence[str]


@dataclasses.dataclass
class Times:
    """A contender's visits, one per round. A round's figure is the CPU time of its fastest pass."""

    name: str
    visits: list[Visit]

    @property
    def rounds(self) -> list[int]:
        """Nanoseconds of each round: the fastest pass, because other load can only slow a pass."""
        return [min(visit.cpu_ns) for visit in self.visits]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def best(self) -> int:
        """Nanoseconds of the fastest pass."""
        return min(self.rounds)


@dataclasses.dataclass
class Ratio:
    """Ratio of a contender's time to Forebay's: median, lowest and highest over the rounds that both ran."""

    median: float
    low: float
    high: float


def measure(workload: Workload, rounds: int) -> list[Times]:
    """Run the rounds."""
    all_times = [Times(contender.name, []) for contender in workload.contenders]
    for number in range(rounds):
        for contender, times in zip(workload.contenders, all_times, strict=True):
            if contender.rounds_max is None or number < contender.rounds_max:
                gc.collect()
                gc.disable()
                times.visits.append(contender.visit())
                gc.enable()
    return all_times


def ratio(peer: Times, forebay: Times) -> Ratio:
    """Return the ratios within each round."""
    each = [theirs / ours for theirs, ours in zip(peer.rounds, forebay.rounds, strict=False)]
    return Ratio(statistics.median(each), min(each), max(each))


def wall_by_cpu(all_times: Sequence[Times]) -> float:
    """Return wall time divided by CPU time over all passes: above 1 if other processes used the core."""
    visits = [visit for times in all_times for visit in times.visits]
    return sum(sum(visit.wall_ns) for visit in visits) / sum(sum(visit.cpu_ns) for visit in visits)
