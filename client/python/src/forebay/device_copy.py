"""Where a batch's tensors come to lie: in the memory that they were received in, or on a GPU, ahead of the loop.

To a GPU a batch goes by way of pinned memory, from which the GPU copies by itself, and on a stream of its own, so that
the copy overlaps the step before. The loop's stream waits for the copy's event, and no thread of the CPU does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .ragged import Ragged
from .tensors import TensorBatch, to_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stream import Batch


def resolve_device(device: str | torch.device | None) -> torch.device | None:
    """Return the GPU that is meant; None stands for this process's memory. Raise ValueError where there is none."""
    if device is None:
        return None
    found = torch.device(device)
    if found.type == "cpu":
        return None
    if found.type != "cuda":
        raise ValueError(f'device must be "cpu" or "cuda", with or without an index, not {str(device)!r}')
    if not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r}: this torch sees no GPU (torch.cuda.is_available() is False)")
    index = torch.cuda.current_device() if ":" not in str(found) else found.index
    if index >= torch.cuda.device_count():
        raise ValueError(f"device={str(device)!r}: torch sees {torch.cuda.device_count()} GPUs, counted from 0")
    return torch.device("cuda", index)


class CopiedBatch:
    """A batch whose tensors are on their way, or there."""

    def __init__(self, batch: Batch, tensors: TensorBatch, arrival: torch.cuda.Event | None) -> None:
        self.batch = batch
        self._tensors = tensors
        self._arrival = arrival

    def take(self) -> TensorBatch:
        """Return the tensors; work that is queued from now on runs when they have arrived."""
        if self._arrival is not None:
            _each(self._tensors, self._await)
        return self._tensors

    def _await(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self._arrival is not None
        loop = torch.cuda.current_stream(tensor.device)
        loop.wait_event(self._arrival)
        # The memory was given out on the copy's stream: it may not be given out again before the loop is done with it.
        tensor.record_stream(loop)
        return tensor


class DeviceCopy:
    """Lands the batches of one stream; `copy` is called from its background thread."""

    def __init__(self, device: torch.device | None) -> None:
        self._device = device
        self._copies = None if device is None else torch.cuda.Stream(device)

    def copy(self, batch: Batch) -> CopiedBatch:
        """Return the batch's tensors, or start their way to the GPU."""
        tensors = to_tensors(batch)
        if self._copies is None:
            return CopiedBatch(batch, tensors, None)
        with torch.cuda.stream(self._copies):
            moved = _each(tensors, self._send)
            arrival = torch.cuda.Event()
            arrival.record(self._copies)
        return CopiedBatch(batch, moved, arrival)

    def _send(self, tensor: torch.Tensor) -> torch.Tensor:
        # torch keeps pinned memory until the copy from it is done.
        return tensor.pin_memory().to(self._device, non_blocking=True)


def _each(tensors: TensorBatch, change: Callable[[torch.Tensor], torch.Tensor]) -> TensorBatch:
    """Return the batch with every tensor changed, those of lists too; what is no tensor stays."""

    def changed(value: Any) -> Any:
        if isinstance(value, Ragged):
            return Ragged(change(value.values), change(value.offsets))
        return change(value) if isinstance(value, torch.Tensor) else value

    return {name: changed(value) for name, value in tensors.items()}
