"""The order of an epoch, versions 1 to 3, in NumPy: the oracle for the server's streams.

Written from the order's description alone and shares nothing with the server. Nothing here talks to a server.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash

Array = np.ndarray[Any, np.dtype[Any]]

ORDER_VERSION = 3
# The first windows of version 2 have at least 2 to this power rows, unless windows are smaller.
FIRST_ROWS_LOG2 = 9
MASK = (1 << 64) - 1
ROUNDS = 8
# Values of few bits go through more rounds: a round function of a bit or two mixes little.
SMALL_BITS, SMALL_ROUNDS = 8, 24
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
LANES_DEFAULT = 16
RANK_LANES_DEFAULT = 8
# Row groups for each lane below which lanes are turned, and from which on they meet.
TURNED_BELOW, MEETING_FROM = 2, 8


def key(purpose: str, seed: int, epoch: int, a: int, b: int, version: int = ORDER_VERSION) -> int:
    """The key of one permutation or number.

    'g' is that of the row groups, 'l' that of the lanes, and 'w' that of window b of lane a; 'r' chooses the first row
    of T, and 'b' that of the lane at place a.
    """
    prefix = f"forebay order {version}{purpose}".encode()
    return xxhash.xxh3_64_intdigest(prefix + struct.pack("<4Q", seed, epoch, a, b))


def window_ends(version: int, window_rows: int, lanes: int, lane: int, length: int) -> list[int]:
    """Where the windows of a lane end."""
    ends: list[int] = []
    end = 0
    if version >= 2:
        end = window_rows + window_rows * lane // lanes
        log2 = window_rows.bit_length() - 1
        halvings = min(log2, max(1, log2 - FIRST_ROWS_LOG2))
        ends = [end >> count for count in range(halvings, -1, -1)]
    ends = [one for one in ends if one < length]
    ends += range(end + window_rows, length, window_rows)
    return [*ends, length] if length else []


def lanes_of(version: int, seed: int, epoch: int, lengths: Sequence[int], groups: Array) -> list[Array]:
    """The rows of T of each lane, in the order in which it reads them; `groups` has the row group of each row of T."""
    count = len(lengths)
    places = permutation(count, key("l", seed, epoch, 0, 0, version)) if version >= 3 else np.arange(count)
    by_place = np.zeros(count, np.int64)
    by_place[places] = lengths
    ends = np.cumsum(by_place)
    # Runs of rows of one row group in T.
    runs = np.cumsum(np.diff(groups, prepend=-1) != 0)
    groups_a_lane = len(np.unique(groups)) // count
    found: list[Array] = []
    for lane, length in enumerate(lengths):
        place = int(places[lane])
        rows = np.arange(ends[place] - length, ends[place])
        if length and version >= 3 and groups_a_lane < TURNED_BELOW:
            rows = np.roll(rows, -(key("b", seed, epoch, place, 0, version) % length))
        elif version >= 3 and groups_a_lane >= MEETING_FROM and place % 2 == 1:
            rows = rows[np.argsort(-runs[rows], kind="stable")]
        found.append(rows)
    return found


def split_mix(state: Array, count: int) -> list[Array]:
    """The next `count` numbers of splitmix64, for each of the states."""
    numbers: list[Array] = []
    for _ in range(count):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        numbers.append(z ^ (z >> np.uint64(31)))
    return numbers


def permuted(values: Array, sizes: Array, keys: Array) -> Array:
    """Where the i-th permutation, of 0 to sizes[i] - 1 under keys[i], sends values[i]."""
    given = np.broadcast_arrays(*(np.asarray(one, np.uint64) for one in (values, sizes, keys)))
    result, sizes, keys = (one.flatten() for one in given)
    if result.size:
        distinct, which = np.unique(sizes, return_inverse=True)
        bits = np.array([max(2, (int(size) - 1).bit_length()) for size in distinct], np.uint64)[which]
        for rounds, chosen in ((SMALL_ROUNDS, bits <= SMALL_BITS), (ROUNDS, bits > SMALL_BITS)):
            round_keys = np.stack(split_mix(keys, rounds))
            # Cycle walking: a value outside the range is permuted again until it is inside.
            walking = np.flatnonzero(chosen & (sizes > 1))
            while walking.size:
                result[walking] = feistel(result[walking], bits[walking], round_keys[:, walking])
                walking = walking[result[walking] >= sizes[walking]]
    return result.reshape(given[0].shape)


def feistel(values: Array, bits: Array, round_keys: Array) -> Array:
    left_bits = bits // np.uint64(2)
    right_bits = bits - left_bits
    left_mask, right_mask = ((np.uint64(1) << count) - np.uint64(1) for count in (left_bits, right_bits))
    left, right = values >> right_bits, values & right_mask
    for index, key_of_round in enumerate(round_keys):
        if index % 2 == 0:
            left = left ^ (mixed(right, key_of_round) & left_mask)
        else:
            right = right ^ (mixed(left, key_of_round) & right_mask)
    return (left << right_bits) | right


def mixed(values: Array, keys: Array) -> Array:
    z = (values ^ keys) * MULTIPLIER
    z = (z ^ (z >> np.uint64(32))) * MULTIPLIER
    return z >> np.uint64(32)


def permutation(size: int, under: int) -> Array:
    """The whole permutation of 0 to size - 1."""
    return permuted(np.arange(size), np.uint64(size), np.uint64(under)).astype(np.int64)


@dataclass(frozen=True)
class Batch:
    """One step of one rank."""

    step: int
    position: int
    rows: Array
    """Row ids: indices within the snapshot in file order."""
    groups: Array
    """The row group of each row."""
    places: Array
    """Index of each row among its row group's passing rows."""
    padding_rows: int
    last: bool


@dataclass(frozen=True)
class Epoch:
    """One epoch over the rows that pass, shared out among ranks."""

    passing: tuple[tuple[int, ...], ...]
    """Row ids of the passing rows of each row group, those without any included."""
    batch_size: int = 1024
    world_size: int = 1
    shuffle: bool = False
    lanes: int = 0
    window_rows: int = 16384
    seed: int = 0
    epoch: int = 0
    remainder: str = "KEEP"
    version: int = ORDER_VERSION

    def with_(self, **changes: Any) -> Epoch:
        return replace(self, **changes)

    @property
    def rows(self) -> int:
        """N: the rows that pass."""
        return sum(len(group) for group in self.passing)

    @property
    def lane_count(self) -> int:
        if self.lanes:
            return self.lanes
        of_rank = RANK_LANES_DEFAULT if self.version >= 3 else 1
        return max(-(-LANES_DEFAULT // self.world_size), of_rank) * self.world_size

    @property
    def step_rows(self) -> int:
        return self.world_size * self.batch_size

    @functools.cached_property
    def laid_down(self) -> tuple[Array, Array, Array]:
        """T: row id, row group and place of every passing row, row group after row group."""
        count = len(self.passing)
        groups = (
            permutation(count, key("g", self.seed, self.epoch, 0, 0, self.version))
            if self.shuffle
            else np.arange(count)
        )
        sizes = np.array([len(self.passing[group]) for group in groups], np.int64)
        ids = [np.asarray(self.passing[group], np.int64) for group in groups]
        places = [np.arange(size, dtype=np.int64) for size in sizes]
        nothing = [np.zeros(0, np.int64)]
        rows = (np.concatenate(ids + nothing), np.repeat(groups, sizes), np.concatenate(places + nothing))
        first = 0
        if self.shuffle and self.version >= 3 and self.rows:
            first = key("r", self.seed, self.epoch, 0, 0, self.version) % self.rows
        ids_of, groups_of, places_of = (np.roll(one, -first) for one in rows)
        return ids_of, groups_of, places_of

    @functools.cached_property
    def positions(self) -> Array:
        """The index in T of every global position of a shuffled epoch."""
        lanes = self.lane_count
        each, extra = divmod(self.rows, lanes)
        at = np.arange(self.rows, dtype=np.int64)
        places = at.copy()
        lengths = [each + (lane < extra) for lane in range(lanes)]
        rows_of = lanes_of(self.version, self.seed, self.epoch, lengths, self.laid_down[1])
        for lane in range(min(lanes, self.rows)):
            length = lengths[lane]
            ends = np.array(window_ends(self.version, self.window_rows, lanes, lane, length), np.int64)
            starts = np.concatenate([[0], ends[:-1]])
            keys = [key("w", self.seed, self.epoch, lane, index, self.version) for index in range(len(ends))]
            rows = ends - starts
            within = permuted(
                at[:length] - np.repeat(starts, rows), np.repeat(rows, rows), np.repeat(np.array(keys, np.uint64), rows)
            )
            places[lane::lanes] = rows_of[lane][np.repeat(starts, rows) + within.astype(np.int64)]
        return places

    def length(self, rank: int) -> int:
        """The rows of a rank, each counted once."""
        rows, world = self.rows, self.world_size
        if self.shuffle:
            return rows // world + (rank < rows % world)
        return (rank + 1) * rows // world - rank * rows // world

    def step_count(self, rank: int, start_position: int = 0) -> int:
        """Steps that the rank takes from there to the end."""
        first = start_position // self.world_size
        shortest, longest = self.rows // self.world_size, -(-self.rows // self.world_size)
        if self.remainder == "DROP":
            return max(0, shortest - first) // self.batch_size
        length = self.length(rank) if self.remainder == "KEEP" else longest
        return -(-max(0, length - first) // self.batch_size)

    def sent_rows(self, rank: int) -> int:
        """The rows that a rank is sent in the whole epoch, repeats included."""
        return self.length(rank) if self.remainder == "KEEP" else self.step_count(rank) * self.batch_size

    @property
    def total_rows(self) -> int:
        return sum(self.sent_rows(rank) for rank in range(self.world_size))

    @property
    def steps(self) -> int:
        """Steps of the longest rank in the whole epoch."""
        return max(self.step_count(rank) for rank in range(self.world_size))

    def batches(self, rank: int, start_position: int = 0) -> list[Batch]:
        """The batches of a rank from there on."""
        ids, groups, places = self.laid_down
        length, count = self.length(rank), self.step_count(rank, start_position)
        made: list[Batch] = []
        for index in range(count):
            first = start_position // self.world_size + index * self.batch_size
            numbers = np.arange(first, first + self.batch_size)
            if self.remainder == "KEEP":
                numbers = numbers[numbers < length]
            at = self._at(rank, numbers % length if length else np.zeros_like(numbers), empty=length == 0)
            position = start_position + index * self.step_rows
            made.append(
                Batch(
                    step=position // self.step_rows,
                    position=position,
                    rows=ids[at],
                    groups=groups[at],
                    places=places[at],
                    padding_rows=int((numbers >= length).sum()),
                    last=index == count - 1,
                )
            )
        return made

    def _at(self, rank: int, numbers: Array, *, empty: bool) -> Array:
        """The indices in T of a rank's rows of these numbers."""
        if not self.shuffle:
            return rank * self.rows // self.world_size + numbers
        at = numbers * 0 + rank % self.rows if empty else rank + self.world_size * numbers
        return self.positions[at]

    def ids(self, rank: int, start_position: int = 0) -> list[list[int]]:
        """The row ids of every batch of a rank."""
        return [batch.rows.tolist() for batch in self.batches(rank, start_position)]

    def prefix(self, end: int) -> list[int]:
        """The row ids at the global positions 0 to end - 1 of a shuffled epoch."""
        return self.laid_down[0][self.positions[:end]].tolist()


def passing_rows(group_sizes: Sequence[int], passes: Array | None = None) -> tuple[tuple[int, ...], ...]:
    """Row ids by row group, of the rows for which `passes` (all where it is None)."""
    ends = np.cumsum([0, *group_sizes])
    kept = np.ones(int(ends[-1]), bool) if passes is None else np.asarray(passes, bool)
    spans = itertools.pairwise(ends)
    return tuple(tuple((start + np.flatnonzero(kept[start:end])).tolist()) for start, end in spans)
