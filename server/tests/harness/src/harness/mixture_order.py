"""The order of a mixture, row by row: the oracle for the server's streams of several datasets.

Written from the order's description alone and shares nothing with the server. Scans where the server computes. Nothing
here talks to a server.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import xxhash

from harness.epoch_order import MASK, ORDER_VERSION, Epoch, key, lanes_of, permutation, permuted, window_ends

PERIOD_MIN = 1 << 14
RANDOM_SWEEPS, LEVELING_SWEEPS = 8, 8
RESIDUES_MAX, RESIDUES = 1024, 240


def split_mix(state: int) -> int:
    """The first number of splitmix64 from a state."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@functools.cache
def pattern(counts: tuple[int, ...], *, spread: bool) -> tuple[int, ...]:
    """The source of each position of a period, for weights in lowest terms."""
    whole = sum(counts)
    shares = [Fraction(count, whole) for count in counts]
    taken = [0] * len(counts)
    period: list[int] = []
    for position in range(whole):
        waiting = [i for i in range(len(counts)) if taken[i] / shares[i] < position + 1]
        source = min(waiting, key=lambda i: (-(-(taken[i] + 1) // shares[i]), i))
        taken[source] += 1
        period.append(source)
    if not spread:
        return tuple(period)
    period *= -(-PERIOD_MIN // whole) | 1
    for sweep in range(RANDOM_SWEEPS):
        _sweep(period, shares, sweep, None)
    for sweep in range(LEVELING_SWEEPS):
        _sweep(period, shares, sweep, whole if whole <= RESIDUES_MAX else RESIDUES)
    return tuple(period)


def _sweep(period: list[int], shares: list[Fraction], sweep: int, residues: int | None) -> None:
    """Swap neighbors from one end to the other: at random, or where it levels the sources of each residue."""
    numbers: list[int] = []
    seen = [0] * len(shares)
    for source in period:
        numbers.append(seen[source])
        seen[source] += 1
    firsts = [[k * share.denominator // share.numerator for k in range(seen[i])] for i, share in enumerate(shares)]
    lasts = [
        [-(-(k + 1) * share.denominator // share.numerator) - 1 for k in range(seen[i])]
        for i, share in enumerate(shares)
    ]
    level = [[0] * (residues or 1) for _ in shares]
    pairs = range(len(period) - 1)
    for position in pairs if sweep % 2 == 0 else reversed(pairs):
        left, right = period[position], period[position + 1]
        left_number, right_number = numbers[position], numbers[position + 1]
        a, b = position % (residues or 1), (position + 1) % (residues or 1)
        if residues:
            wanted = level[left][a] - level[left][b] + level[right][b] - level[right][a] > 2
        else:
            wanted = split_mix((sweep << 32) + position) & 3 != 0
        if (
            wanted
            and left != right
            and position + 1 <= lasts[left][left_number]
            and firsts[right][right_number] <= position
        ):
            period[position], period[position + 1] = right, left
            numbers[position], numbers[position + 1] = right_number, left_number
        behind = position if sweep % 2 == 0 else position + 1
        level[period[behind]][behind % (residues or 1)] += 1


@dataclass(frozen=True)
class MixedSource:
    """A source: its part of the rows, and its passing rows."""

    count: int
    """Its weight, in lowest terms with the others."""
    passing: tuple[tuple[int, ...], ...]
    """Row ids of the passing rows of each row group."""
    repeat: bool = False

    @property
    def rows(self) -> int:
        return sum(map(len, self.passing))


@dataclass(frozen=True)
class MixtureEpoch:
    """One epoch of a mixture; `at` are the rows of its positions."""

    sources: tuple[MixedSource, ...]
    batch_size: int = 1024
    world_size: int = 1
    shuffle: bool = False
    lanes: int = 0
    window_rows: int = 16384
    seed: int = 0
    epoch: int = 0
    remainder: str = "KEEP"
    version: int = ORDER_VERSION

    def with_(self, **changes: Any) -> MixtureEpoch:
        return replace(self, **changes)

    @functools.cached_property
    def period(self) -> tuple[int, ...]:
        return pattern(tuple(source.count for source in self.sources), spread=self.shuffle)

    @functools.cached_property
    def sequence(self) -> list[int]:
        """The source of each position of the epoch."""
        left = [None if source.repeat else source.rows for source in self.sources]
        found: list[int] = []
        while True:
            source = self.period[len(found) % len(self.period)]
            rest = left[source]
            if rest == 0:
                return found
            if rest is not None:
                left[source] = rest - 1
            found.append(source)

    @functools.cached_property
    def at(self) -> list[tuple[int, int]]:
        """The source and the row id of each position of the epoch."""
        rows = [iter(self._rows(source)) for source in range(len(self.sources))]
        return [(source, next(rows[source])) for source in self.sequence]

    @property
    def world(self) -> Epoch:
        """The same epoch with its positions in place of rows."""
        return Epoch(
            (tuple(range(len(self.sequence))),),
            self.batch_size,
            self.world_size,
            shuffle=self.shuffle,
            lanes=self.lanes,
            remainder=self.remainder,
            version=self.version,
        )

    def batches(self, rank: int, start_position: int = 0) -> list[list[tuple[int, int]]]:
        """The source and the row id of each row of a rank's batches from there on."""
        world, found = self.world, []
        length = world.length(rank)
        for index in range(world.step_count(rank, start_position)):
            first = start_position // self.world_size + index * self.batch_size
            numbers = range(first, first + self.batch_size)
            if self.remainder == "KEEP":
                numbers = [number for number in numbers if number < length]
            found.append([self.at[self._position(world, rank, number, length)] for number in numbers])
        return found

    def _position(self, world: Epoch, rank: int, number: int, length: int) -> int:
        if not length:
            return rank % world.rows
        if number >= length:
            # Repeats count from the first of the batch that is one.
            number = (number - max(length, number - number % self.batch_size)) % length
        return rank + self.world_size * number if self.shuffle else rank * world.rows // self.world_size + number

    def _rows(self, source: int) -> list[int]:
        """The row ids of a source in the order of its positions, as many as the epoch needs."""
        needed = sum(one == source for one in self.sequence)
        rows: list[int] = []
        while len(rows) < needed:
            rows += self._repetition(source, len(rows) // self.sources[source].rows)
        return rows[:needed]

    def _repetition(self, source: int, number: int) -> list[int]:
        """The row ids of one whole repetition, also beyond the epoch's end."""
        passing, count = self.sources[source].passing, self.sources[source].rows
        if not self.shuffle:
            return [row for group in passing for row in group]
        seed = xxhash.xxh3_64_intdigest(b"forebay mixture\0" + struct.pack("<3Q", self.seed, source, number))
        groups = permutation(len(passing), key("g", seed, self.epoch, 0, 0, self.version))
        laid_down = np.array([row for group in groups for row in passing[group]])
        group_of = np.repeat(groups, [len(passing[group]) for group in groups])
        rotation = key("r", seed, self.epoch, 0, 0, self.version) % count
        laid_down, group_of = np.roll(laid_down, -rotation), np.roll(group_of, -rotation)
        lane_count = self.world.lane_count
        lane_of = [position % lane_count for position in self._positions(source, number * count, count)]
        window_rows = -(-self.window_rows * self.sources[source].count // sum(one.count for one in self.sources))
        rows: list[list[int]] = []
        lengths = [lane_of.count(lane) for lane in range(lane_count)]
        read = lanes_of(self.version, seed, self.epoch, lengths, group_of)
        for lane, length in enumerate(lengths):
            ends = window_ends(self.version, window_rows, lane_count, lane, length)
            order: list[int] = []
            for index, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
                under = key("w", seed, self.epoch, lane, index, self.version)
                places = permuted(np.arange(end - first), np.uint64(end - first), np.uint64(under)).astype(int)
                order += laid_down[read[lane][first + places]].tolist()
            rows.append(order)
        lanes = [iter(order) for order in rows]
        return [next(lanes[lane]) for lane in lane_of]

    def _positions(self, source: int, first: int, count: int) -> list[int]:
        """The positions of a source's rows of these indices."""
        of_period = [position for position, one in enumerate(self.period) if one == source]
        places = (divmod(index, len(of_period)) for index in range(first, first + count))
        return [periods * len(self.period) + of_period[slot] for periods, slot in places]


def prefix_lag(sequence: Sequence[int], shares: Sequence[Fraction]) -> Fraction:
    """The largest difference, over all prefixes and sources, between the rows of a source and its share."""
    seen = [0] * len(shares)
    worst = Fraction(0)
    for position, source in enumerate(sequence, 1):
        seen[source] += 1
        worst = max(worst, *(abs(count - position * share) for count, share in zip(seen, shares, strict=True)))
    return worst
