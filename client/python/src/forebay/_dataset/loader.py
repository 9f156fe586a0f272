"""A DataLoader that Accelerate and Lightning use unchanged.

A `FlightDataset` reads each rank's own rows, and Accelerate must not shard it again: see `sharding`. Lightning shards
no IterableDataset, but it sets the epoch only of a loader's sampler, and saves the state of a loader that has one.

A worker is ahead of the loop, and only the worker knows the position after a batch. It sends the position with the
batch, and the loader keeps it once the loop has the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch.utils.data
from torch.utils.data._utils.collate import default_convert  # pyright: ignore[reportUnknownVariableType]
from torch.utils.data._utils.pin_memory import pin_memory  # pyright: ignore[reportUnknownVariableType]

from .dataset import FlightDataset
from .epochs import Epochs
from .tensors import TensorBatch

# Options of a DataLoader that apply to datasets of single rows.
NOT_TAKEN = {
    "batch_size": "pass it to the FlightDataset, which yields whole batches",
    "shuffle": "pass it to the FlightDataset, whose rows the server shuffles",
    "sampler": "a FlightDataset reads each rank's own rows, in the order of its epoch",
    "batch_sampler": "a FlightDataset yields whole batches of each rank's own rows",
    "drop_last": 'pass remainder="drop" to the FlightDataset',
}


class FlightLoader(torch.utils.data.DataLoader[TensorBatch]):
    """A DataLoader over a `FlightDataset` for Accelerate and Lightning; `options` are DataLoader's.

    ``accelerator.prepare(FlightLoader(data))`` returns it unchanged, and each rank reads its own stream. Batches stay
    in this process's memory: move them with ``batch["dense"].to(accelerator.device)``. Lightning's Trainer sets the
    epoch and saves the position in checkpoints. `set_epoch`, `epochs`, `state_dict` and `load_state_dict` are the
    dataset's.
    """

    # Accelerate's mark of a prepared loader (Accelerator.prepare_data_loader).
    _is_accelerate_prepared = True

    def __init__(self, data: FlightDataset, **options: Any) -> None:
        for name, remedy in NOT_TAKEN.items():
            if options.pop(name, None):
                raise ValueError(f"FlightLoader takes no {name}: {remedy}")
        if options.get("num_workers"):
            options["collate_fn"] = Placed(data, cast(Any, options.get("collate_fn") or default_convert))
        super().__init__(data, batch_size=None, **options)  # pyright: ignore[reportUnknownMemberType]
        self.flight = data
        # The position after the last batch that the loop has of workers, and the dataset's generation at that time.
        self._place: tuple[dict[str, Any], int] | None = None
        # DataLoader gives an IterableDataset a sampler that yields None indefinitely; this one does too, and passes on
        # epochs. DataLoader forbids to set the attribute, so this bypasses its `__setattr__`.
        vars(self)["sampler"] = EpochSampler(data)

    def __repr__(self) -> str:
        return f"FlightLoader({self.flight!r})"

    def __iter__(self) -> Any:
        """Start an iteration, as DataLoader does."""
        batches = super().__iter__()
        if not self.num_workers:
            return batches
        self._place = None
        return LoaderBatches(cast("Iterator[PlacedBatch]", batches), self._note)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self.flight.set_epoch(epoch)

    def epochs(self, count: int) -> Epochs[TensorBatch]:
        """Iterate over the epochs that are left of `count` in all; see `FlightDataset.epochs`."""
        return self.flight.epochs(count, self)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch of the loop, also if workers read ahead of it."""
        if not self.num_workers:
            return self.flight.state_dict()
        if self._place is not None and self._place[1] == self.flight.generation:
            return dict(self._place[0])
        return self.flight.start().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state at the next iteration."""
        self.flight.load_state_dict(state)

    def _note(self, place: dict[str, Any]) -> None:
        self._place = place, self.flight.generation


class PlacedBatch:
    """A batch from a worker, and the position after it."""

    def __init__(self, batch: Any, place: dict[str, Any]) -> None:
        self.batch = batch
        self.place = place

    def pin_memory(self) -> PlacedBatch:
        """Return the batch in pinned memory; a DataLoader with pin_memory calls it."""
        return PlacedBatch(pin_memory(self.batch), self.place)


class Placed:
    """A collate_fn that adds the position after the batch, in the worker that has just read it."""

    def __init__(self, data: FlightDataset, collate: Callable[[Any], Any]) -> None:
        self._data = data
        self._collate = collate

    def __call__(self, batch: Any) -> PlacedBatch:
        """Return what the worker sends."""
        return PlacedBatch(self._collate(batch), self._data.state_dict())


class LoaderBatches(Iterator[Any]):
    """The batches of workers; `note` receives the position after each that the loop has."""

    def __init__(self, batches: Iterator[PlacedBatch], note: Callable[[dict[str, Any]], None]) -> None:
        self._batches = batches
        self._note = note

    def __next__(self) -> Any:
        """Return the next batch."""
        placed = next(self._batches)
        self._note(placed.place)
        return placed.batch


class EpochSampler(torch.utils.data.Sampler[None]):
    """Yields None indefinitely, and passes epochs on to the dataset."""

    def __init__(self, data: FlightDataset) -> None:
        self._data = data

    def __iter__(self) -> Iterator[None]:
        return iter(lambda: None, 0)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self._data.set_epoch(epoch)
