"""A DataLoader that Accelerate and Lightning use unchanged.

A `FlightDataset` reads each rank's own rows, and Accelerate must not shard it again: see `sharding`. Lightning shards
no IterableDataset, but it sets the epoch only of a loader's sampler, and saves the state of a loader that has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch.utils.data

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
        super().__init__(data, batch_size=None, **options)  # pyright: ignore[reportUnknownMemberType]
        self.flight = data
        # DataLoader gives an IterableDataset a sampler that yields None indefinitely; this one does too, and passes on
        # epochs. DataLoader forbids to set the attribute, so this bypasses its `__setattr__`.
        vars(self)["sampler"] = EpochSampler(data)

    def __repr__(self) -> str:
        return f"FlightLoader({self.flight!r})"

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self.flight.set_epoch(epoch)

    def epochs(self, count: int) -> Epochs[TensorBatch]:
        """Iterate over the epochs that are left of `count` in all; see `FlightDataset.epochs`."""
        return self.flight.epochs(count, self)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch of the loop."""
        return self.flight.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state at the next iteration."""
        self.flight.load_state_dict(state)


class EpochSampler(torch.utils.data.Sampler[None]):
    """Yields None indefinitely, and passes epochs on to the dataset."""

    def __init__(self, data: FlightDataset) -> None:
        self._data = data

    def __iter__(self) -> Iterator[None]:
        return iter(lambda: None, 0)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self._data.set_epoch(epoch)
