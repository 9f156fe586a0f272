"""Loops over the epochs of a dataset, up to a total."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from forebay._client.options import integer

T = TypeVar("T")


class EpochSource(Protocol):
    """A dataset whose iterations advance through the epochs."""

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        ...


class Epochs(Iterator[tuple[int, Iterator[T]]], Generic[T]):
    """Pairs of an epoch's number and its batches; made by the `epochs` of a dataset.

    Setting the epoch or loading a state within the loop takes effect: the following pair is that epoch. `generation`
    returns a number that this changes.
    """

    def __init__(self, data: EpochSource, count: int, batches: Iterable[T], generation: Callable[[], int]) -> None:
        self._data = data
        self._count = integer("epochs: count", count)
        self._batches = batches
        self._generation = generation
        # The epoch of the latest pair, and the generation at that time.
        self._latest: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"Epochs(epoch {self._data.next_epoch} next, {self._count} in all)"

    def __next__(self) -> tuple[int, Iterator[T]]:
        """Return the next epoch, or the rest of an interrupted one; raise StopIteration after the last one."""
        data = self._data
        epoch = data.next_epoch
        if self._latest is not None and self._latest == (epoch, self._generation()):
            # The inner loop was left early.
            data.set_epoch(epoch + 1)
            epoch += 1
        if epoch >= self._count:
            self._warn_if_empty(epoch)
            raise StopIteration
        batches = iter(self._batches)
        self._latest = epoch, self._generation()
        return epoch, batches

    def _warn_if_empty(self, epoch: int) -> None:
        if self._latest is None and self._count:
            self._latest = epoch, self._generation()
            warnings.warn(
                f"epochs({self._count}) yields nothing: {self._count} is the total, and the dataset is at epoch "
                f"{epoch}; call set_epoch(0) to start over, or pass a larger number",
                stacklevel=3,
            )
