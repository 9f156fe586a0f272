"""Which of the loops over one dataset determines its position.

That is the latest loop, unless it only took a sample within another one, ``next(iter(data))``. The other loop then has
the position again: at the latest with its next batch, and at once if the iterator of the sample is dropped and took no
more batches than the loop.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Loop(Protocol):
    """The progress of a loop; outlives its iterator."""

    @property
    def active_at(self) -> float:
        """When it last received a batch or reached an end, or else when it began, by `time.perf_counter`."""
        ...

    @property
    def taken(self) -> int:
        """Number of batches that it received."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the next loop reads a later epoch."""
        ...

    @property
    def is_dropped(self) -> bool:
        """Whether its iterator was deleted."""
        ...


L = TypeVar("L", bound=Loop)


class Loops(Generic[L]):
    """The loops since an epoch or a state was set."""

    def __init__(self) -> None:
        self._latest: L | None = None
        # The loop that was running when the latest one began.
        self._outer: L | None = None

    def begin(self, loop: L) -> None:
        """Add a loop that begins now."""
        before = self.current
        self._latest, self._outer = loop, before if before is not None and _is_running(before) else None

    def clear(self) -> None:
        """Forget all loops: none of them moves the position from now on."""
        self._latest, self._outer = None, None

    @property
    def current(self) -> L | None:
        """The loop whose position is that of the dataset."""
        latest, outer = self._latest, self._outer
        if latest is None or outer is None:
            return latest
        if outer.active_at > latest.active_at:
            return outer
        was_sample = latest.is_dropped and not latest.is_done and outer.taken >= latest.taken
        return outer if was_sample and _is_running(outer) else latest


def _is_running(loop: Loop) -> bool:
    return loop.taken > 0 and not loop.is_dropped and not loop.is_done
