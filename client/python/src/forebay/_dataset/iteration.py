"""The progress of an iteration over a dataset: what the loop has consumed, and how long it waited."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, field
from typing import Any

from forebay._client.cursor import Cursor
from forebay._client.stages import StageSeconds


@dataclass(frozen=True)
class LoadedState:
    """A loaded state, to resume from until the loop has consumed a batch."""

    cursor: Cursor
    generation: int
    """Number of the message that publishes it to workers; 0 if there is none."""


@dataclass(frozen=True)
class Totals:
    """Totals of the batches consumed by loops, and their times."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    loop_seconds: float = 0.0
    wait_seconds: float = 0.0
    first_wait_seconds: float = 0.0
    longest_wait_seconds: float = 0.0
    """The longest wait for a batch that is not the first of an epoch."""
    boundary_wait_seconds: float = 0.0
    """The longest wait, opening included, for the first batch of an epoch that follows another."""
    stages: StageSeconds = field(default_factory=StageSeconds)
    padded: int = 0
    """Elements of the lists of ragged outputs, each padded to the longest of its batch."""
    padding: int = 0
    """Those of them that are padding."""
    transport: str = ""
    """How the latest batch arrived."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.batches + other.batches,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.loop_seconds + other.loop_seconds,
            self.wait_seconds + other.wait_seconds,
            self.first_wait_seconds + other.first_wait_seconds,
            max(self.longest_wait_seconds, other.longest_wait_seconds),
            max(self.boundary_wait_seconds, other.boundary_wait_seconds),
            self.stages + other.stages,
            self.padded + other.padded,
            self.padding + other.padding,
            other.transport or self.transport,
        )


@dataclass(frozen=True)
class Consumed:
    """What an iteration has consumed."""

    number: int = 0
    """Number of batches."""
    cursor: Cursor | None = None
    """The position after them; None before the first."""
    finished: int = 0
    """Epochs of which a rank has no more batches, so that the next iteration is that of a later one."""
    over: int = 0
    """Epochs of which this rank has no more."""
    totals: Totals = Totals()
    waited: float = 0.0
    """Seconds that the loop had waited for the current epoch's batches when the last one was returned."""
    at: float | None = None
    """When the last one was returned, by `time.perf_counter`."""


class Iteration:
    """Start and progress of an iteration; outlives its iterator."""

    def __init__(
        self,
        start: Cursor,
        loaded: LoadedState | None,
        *,
        epochs: int = 1,
        follows: bool = False,
        in_worker: bool = False,
    ) -> None:
        self.start = start
        self.loaded = loaded
        """The loaded state that it resumed from."""
        self.epochs = epochs
        """Number of epochs that it yields."""
        self.follows = follows
        """Whether its first epoch follows one that this process has finished."""
        self.in_worker = in_worker
        """Whether it is ahead of the loop."""
        self.consumed = Consumed()
        self._began = time.perf_counter()
        self._iterator: weakref.ref[object] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the iterator, which stays in this process."""
        return {**self.__dict__, "_iterator": None}

    def belongs_to(self, iterator: object) -> None:
        """Set its iterator."""
        self._iterator = weakref.ref(iterator)

    @property
    def is_dropped(self) -> bool:
        """Whether its iterator was deleted."""
        return self._iterator is None or self._iterator() is None

    @property
    def active_at(self) -> float:
        """When its loop last received a batch or reached an end, or else when it began."""
        return self._began if self.consumed.at is None else self.consumed.at

    @property
    def taken(self) -> int:
        """Number of batches that its loop received."""
        return self.consumed.number

    @property
    def is_done(self) -> bool:
        """Whether the next loop reads a later epoch."""
        return self.finished > 0

    @property
    def next_epoch(self) -> int:
        """The epoch of the next loop."""
        return self.start.epoch + self.finished

    @property
    def cursor(self) -> Cursor:
        """The position after the last batch consumed."""
        return self.consumed.cursor or self.start

    @property
    def has_begun(self) -> bool:
        """Whether a batch was consumed, or the end reached without one."""
        return self.consumed.cursor is not None

    @property
    def finished(self) -> int:
        """Epochs that the loop has finished."""
        return 0 if self.in_worker else self.consumed.finished

    @property
    def is_over(self) -> bool:
        """Whether there are no more batches."""
        return self.consumed.over >= self.epochs
