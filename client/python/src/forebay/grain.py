"""Grain: `FlightIterDataset`, a `grain.IterDataset` whose iterators save and restore their position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._dataset.array_dataset import RankDataset
from ._dataset.framework import framework

__all__ = ["FlightIterDataset"]

grain = framework("grain", extra="grain")
IterDataset: Any = grain.IterDataset
DatasetIterator: Any = grain.DatasetIterator


class FlightIterDataset(IterDataset):
    """The epochs of a stream, one after another: ``FlightIterDataset(lambda: fb.ArrayDataset(…), epochs=3)``.

    Elements are whole batches, as dicts. Every iterator opens a separate dataset with `open_data`, which may return a
    `forebay.ArrayDataset` or a `forebay.jax.JaxDataset`. ``get_state()`` is the position after its last batch, as in
    Grain's checkpoints; ``set_state`` continues there. ``epochs=None`` repeats indefinitely. The rows are shuffled and
    sharded by the server.
    """

    def __init__(self, open_data: Callable[[], RankDataset[Any]], *, epochs: int | None = 1) -> None:
        IterDataset.__init__(self)
        self._open_data = open_data
        self._epochs = epochs

    def __iter__(self) -> GrainIterator:
        """Return an iterator at the first epoch."""
        return GrainIterator(self._open_data(), self._epochs)


class GrainIterator(DatasetIterator):
    """An iterator over the batches of several epochs."""

    def __init__(self, data: RankDataset[Any], epochs: int | None) -> None:
        DatasetIterator.__init__(self)
        self._data = data
        self._end = None if epochs is None else data.epoch + epochs
        self._batches: Any = None

    def __next__(self) -> dict[str, Any]:
        """Return the next batch, also that of the next epoch."""
        while self._end is None or self._data.next_epoch < self._end or self._batches is not None:
            if self._batches is None:
                self._batches = iter(self._data)
            batch = next(self._batches, None)
            if batch is not None:
                return dict(batch)
            self._batches = None
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        """Return the position after the last batch."""
        return self._data.state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue after the last batch of the saved iterator."""
        self._batches = None
        self._data.load_state_dict(state)
