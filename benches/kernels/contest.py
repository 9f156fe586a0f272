"""A work and who does it: measured in rounds, A B C A B C, so that what the machine does meanwhile meets all alike."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Contender(Protocol):
    """Someone who does a work. A visit gives the nanoseconds of each of its passes over all rows."""

    name: str
    passes: int
    rounds_max: int | None

    def visit(self) -> list[int]:
        """Do the work some times."""
        ...


class Peer:
    """A contender in this process: a function that does the work once and returns what came out."""

    def __init__(self, name: str, do: Callable[[], Any], *, passes: int = 3, rounds_max: int | None = None) -> None:
        self.name, self.do, self.passes, self.rounds_max = name, do, passes, rounds_max

    def visit(self) -> list[int]:
        """Return the nanoseconds of each pass, after one that does not count (where there are several)."""
        if self.passes > 1:
            self.do()
        times: list[int] = []
        for _ in range(self.passes):
            started = time.perf_counter_ns()
            made = self.do()
            times.append(time.perf_counter_ns() - started)
            # Freeing is part of Forebay's passes; here it is left out, which favours the peer.
            del made
        return times


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio to reach: the peer's time by Forebay's."""

    peer: str
    ratio: float


@dataclasses.dataclass
class Work:
    """A row of the table. The goals are for the first contender, which is Forebay as a stream runs it."""

    key: str
    title: str
    rows: int
    contenders: Sequence[Contender]
    goals: Sequence[Goal]
    checks: Sequence[str]


@dataclasses.dataclass
class Times:
    """One contender's times: those of each round's passes, and a round's figure, the quickest of them."""

    name: str
    passes: list[list[int]]

    @property
    def rounds(self) -> list[int]:
        """The nanoseconds of each round: what else ran on the machine can only have slowed the other passes."""
        return [min(times) for times in self.passes]

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


def measure(work: Work, rounds: int) -> list[Times]:
    """Run the rounds."""
    all_times = [Times(contender.name, []) for contender in work.contenders]
    for number in range(rounds):
        for contender, times in zip(work.contenders, all_times, strict=True):
            if contender.rounds_max is None or number < contender.rounds_max:
                gc.collect()
                gc.disable()
                times.passes.append(contender.visit())
                gc.enable()
    return all_times


def ratio(peer: Times, forebay: Times) -> Ratio:
    """Compare round by round."""
    each = [theirs / ours for theirs, ours in zip(peer.rounds, forebay.rounds, strict=False)]
    return Ratio(statistics.median(each), min(each), max(each))
