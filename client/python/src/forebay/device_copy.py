"""Placement of a batch's tensors: in the received memory, or copied to a GPU ahead of the loop.

Batches reach a GPU through pinned memory, for asynchronous copies, and on a separate CUDA stream, so that the copy
overlaps the previous step. The loop's stream waits for the copy's event; no CPU thread does. A batch in a ring is
copied from there: its slot is kept until the copy is done.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from .pinned import PinnedRings
from .ragged import Ragged
from .tensors import TensorBatch, TensorColumns, WholeBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stream import Batch


def resolve_device(device: str | torch.device | None) -> torch.device | None:
    """Return the GPU, or None for this process's memory. Raise ValueError if there is no such GPU."""
    if device is None:
        return None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f'device must be "cpu" or "cuda", with or without an index, not {device!r}') from None
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
    """A batch whose tensors were copied, or are being copied."""

    def __init__(self, batch: Batch, tensors: TensorBatch, arrival: torch.cuda.Event | None) -> None:
        self.batch = batch
        self._tensors = tensors
        self._arrival = arrival

    def take(self) -> TensorBatch:
        """Return the tensors; work queued on the current stream from now on waits for the copy."""
        if self._arrival is not None:
            _map_tensors(self._tensors, self._await)
        return self._tensors

    def _await(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self._arrival is not None
        loop = torch.cuda.current_stream(tensor.device)
        loop.wait_event(self._arrival)
        # The memory was allocated on the copy's stream; this keeps it from being reused before the loop is done.
        tensor.record_stream(loop)
        return tensor


class DeviceCopy:
    """Copies the batches of one stream to a device; `copy` is called from the background thread."""

    def __init__(self, device: torch.device | None) -> None:
        # Batches that are being copied from their ring: torch does not keep memory that it did not allocate.
        self._copying: deque[tuple[torch.cuda.Event, Batch]] = deque()
        self._columns: TensorColumns | None = None
        self._device = device
        self._copy_stream = None if device is None else torch.cuda.Stream(device)
        self._pinned = None if device is None else PinnedRings(device)

    def copy(self, batch: Batch) -> CopiedBatch:
        """Return the batch's tensors, or start copying them to the GPU."""
        columns = self._columns
        if columns is None or not columns.has(batch.data.schema):
            columns = self._columns = TensorColumns(batch.data.schema)
        tensors = columns.tensors(batch.data)
        if self._copy_stream is None:
            return CopiedBatch(batch, tensors, None)
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
        with torch.cuda.stream(self._copy_stream):
            moved = _map_tensors(tensors, lambda tensor: self._to_device(tensor, batch))
            arrival = torch.cuda.Event()
            arrival.record(self._copy_stream)
        if batch.memory is not None:
            self._copying.append((arrival, batch))
        return CopiedBatch(batch, moved, arrival)

    def __del__(self) -> None:
        # A slot must not return to the server, and its memory must not be unmapped, while the GPU reads it.
        for arrival, _ in self._copying:
            arrival.synchronize()

    def _to_device(self, tensor: torch.Tensor, batch: Batch) -> torch.Tensor:
        assert self._pinned is not None
        if self._pinned.has(batch.memory, tensor):
            return tensor.to(self._device, non_blocking=True)
        # torch keeps the pinned memory until the copy is done.
        return tensor.pin_memory().to(self._device, non_blocking=True)


def _map_tensors(tensors: TensorBatch, change: Callable[[torch.Tensor], torch.Tensor]) -> TensorBatch:
    """Return the batch with `change` applied to every tensor, including those of lists."""

    def changed(value: Any) -> Any:
        if isinstance(value, Ragged):
            return Ragged(change(value.values), change(value.offsets))
        return change(value) if isinstance(value, torch.Tensor) else value

    return WholeBatch({name: changed(value) for name, value in tensors.items()})
