"""A work and who does it: measured in rounds, A B C A B C, so that what the machine does meanwhile meets all alike."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol


@dataclasses.dataclass
class Visit:
    """The nanoseconds of each pass over all rows: by the wall, and of the CPU time of the process that did it.

    With one thread on a core of its own the two agree. Where others want the core too, the second leaves them out.
    """

    wall_ns: list[int]
    cpu_ns: list[int]

    def but_the_first(self) -> Visit:
        """Return all passes but the one that found the caches of the contender before."""
        return Visit(self.wall_ns[1:], self.cpu_ns[1:])


class Contender(Protocol):
    """Someone who does a work."""

    name: str
    passes: int
    rounds_max: int | None

    def visit(self) -> Visit:
        """Do the work some times."""
        ...


class Peer:
    """A contender in this process: a function that does the work once and returns what came out."""

    def __init__(self, name: str, do: Callable[[], Any], *, passes: int = 3, rounds_max: int | None = None) -> None:
        self.name, self.do, self.passes, self.rounds_max = name, do, passes, rounds_max

    def visit(self) -> Visit:
        """Time each pass, after one that does not count (where there are several)."""
        if self.passes > 1:
            self.do()
        visit = Visit([], [])
        for _ in range(self.passes):
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            made = self.do()
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
            visit.wall_ns.append(wall)
            visit.cpu_ns.append(cpu)
            # Freeing is part of Forebay's passes; here it is left out, which favours the peer.
            del made
        return visit


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio to reach: the peer's time by Forebay's."""

    peer: str
    ratio: float


@dataclasses.dataclass
class Workload:
    """A row of the table. The goals are for the first contender, which is Forebay as a stream runs it."""

    key: str
    title: str
    rows: int
    contenders: Sequence[Contender]
    goals: Sequence[Goal]
    checks: Sequence[str]


@dataclasses.dataclass
class Times:
    """One contender's visits, a round each. A round's figure is the CPU time of the quickest of its passes."""

    name: str
    visits: list[Visit]

    @property
    def rounds(self) -> list[int]:
        """The nanoseconds of each round: what else ran on the machine can only have slowed the other passes."""
        return [min(visit.cpu_ns) for visit in self.visits]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def best(self) -> int:
        """The fewest nanoseconds of any pass."""
        return min(self.rounds)


@dataclasses.dataclass
class Ratio:
    """A contender's time by Forebay's: the median over the rounds that both were in, and the lowest and the highest."""

    median: float
    low: float
    high: float


def measure(work: Workload, rounds: int) -> list[Times]:
    """Run the rounds."""
    all_times = [Times(contender.name, []) for contender in work.contenders]
    for number in range(rounds):
        for contender, times in zip(work.contenders, all_times, strict=True):
            if contender.rounds_max is None or number < contender.rounds_max:
                gc.collect()
                gc.disable()
                times.visits.append(contender.visit())
                gc.enable()
    return all_times


def ratio(peer: Times, forebay: Times) -> Ratio:
    """Compare round by round."""
    each = [theirs / ours for theirs, ours in zip(peer.rounds, forebay.rounds, strict=False)]
    return Ratio(statistics.median(each), min(each), max(each))


def waiting(all_times: Sequence[Times]) -> float:
    """Return the wall's time by the CPU's over all passes: more than 1 where others had the core."""
    visits = [visit for times in all_times for visit in times.visits]
    return sum(sum(visit.wall_ns) for visit in visits) / sum(sum(visit.cpu_ns) for visit in visits)
