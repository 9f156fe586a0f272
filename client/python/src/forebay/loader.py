"""A DataLoader that Accelerate and Lightning take as it is, and the guard against sharding twice.

A `FlightDataset` gives each rank its own rows. Accelerate would shard an IterableDataset once more: by default it
reads on rank 0 alone and deals that out, so that the other ranks' rows would never be seen. Lightning shards no
IterableDataset, but tells a new epoch to a loader's sampler only, and saves the state of a loader that has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch.utils.data

from .dataset import FlightDataset
from .tensors import TensorBatch


class FlightLoader(torch.utils.data.DataLoader[TensorBatch]):
    """A DataLoader over a `FlightDataset`, right under Accelerate and Lightning; `options` are DataLoader's.

    ``accelerator.prepare(FlightLoader(data))`` returns it unchanged: each rank reads its own stream. Batches stay
    where they are received, in this process's memory: move them with ``batch["dense"].to(accelerator.device)``.
    Lightning's Trainer sets its epochs, and keeps its place in checkpoints. `set_epoch`, `state_dict` and
    `load_state_dict` are the dataset's.
    """

    # Accelerate's own mark of a loader that needs no more preparing (Accelerator.prepare_data_loader).
    _is_accelerate_prepared = True

    def __init__(self, data: FlightDataset, **options: Any) -> None:
        if options.pop("batch_size", None) is not None:
            raise ValueError("FlightLoader: batches come made; give batch_size to the FlightDataset")
        super().__init__(data, batch_size=None, **options)  # pyright: ignore[reportUnknownMemberType]
        self.flight = data
        # DataLoader gives an IterableDataset a sampler that says nothing, for ever; this one does too, and hears of
        # epochs. It is not to be set by others, hence by this way.
        vars(self)["sampler"] = EpochSampler(data)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self.flight.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the last batch that the loop took."""
        return self.flight.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, at the next iteration, where a state was taken."""
        self.flight.load_state_dict(state)


class EpochSampler(torch.utils.data.Sampler[None]):
    """Says nothing, for ever, and passes on the epochs that it is told."""

    def __init__(self, data: FlightDataset) -> None:
        self._data = data

    def __iter__(self) -> Iterator[None]:
        return iter(lambda: None, 0)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self._data.set_epoch(epoch)
