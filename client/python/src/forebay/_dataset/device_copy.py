"""Placement of a batch's tensors: in the received memory, or copied to a GPU ahead of the loop.

Batches reach a GPU from pinned memory, for asynchronous copies, and on a separate CUDA stream, so that the copy
overlaps the previous step. A batch is one copy, as its columns are in one message: they become tensors over the copy.
The loop's stream waits for the copy's event; no CPU thread does. The memory that a batch arrived in, of a ring or of
the native module, is pinned where it is; the batch is kept until its copy is done. Over Flight, which hides its memory,
batches are copied to pinned memory of torch first.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

from forebay._client.ragged import Ragged

from .capture import beside_captures
from .pinned import PinnedMemory
from .spans import Span, spans_of
from .tensors import TensorBatch, TensorColumns, WholeBatch

if TYPE_CHECKING:
    from forebay._client.stream import Batch


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

    def __init__(self, batch: Batch, tensors: TensorBatch, arrival: Arrival | None) -> None:
        self.batch = batch
        self._tensors = tensors
        self._arrival = arrival

    def take(self) -> TensorBatch:
        """Return the tensors; work queued on the current stream from now on waits for the copy."""
        if self._arrival is not None:
            self._arrival.wait()
        return self._tensors


class Arrival:
    """The end of a copy to a GPU."""

    def __init__(self, device: torch.device, spaces: list[torch.Tensor], event: torch.cuda.Event) -> None:
        self.event = event
        self._device = device
        self._spaces = spaces

    def wait(self) -> None:
        """Make the current stream wait for the copy."""
        loop = torch.cuda.current_stream(self._device)
        loop.wait_event(self.event)
        for space in self._spaces:
            # The memory was allocated on the copy's stream; this keeps it from being reused before the loop is done.
            space.record_stream(loop)


class DeviceCopy:
    """Copies the batches of one stream to a device; `copy` is called from the background thread."""

    def __init__(self, device: torch.device | None) -> None:
        # Batches that are being copied from where they arrived: torch does not keep memory that it did not allocate.
        self._copying: deque[tuple[torch.cuda.Event, Batch]] = deque()
        self._columns: TensorColumns | None = None
        self._device = device
        self._pinned = None if device is None else PinnedMemory(device)

    def copy(self, batch: Batch) -> CopiedBatch:
        """Return the batch's tensors, or start copying them to the GPU."""
        columns = self._columns
        if columns is None or not columns.has(batch.data.schema):
            columns = self._columns = TensorColumns(batch.data.schema)
        tensors = columns.tensors(batch.data)
        if self._device is None:
            return CopiedBatch(batch, tensors, None)
        with beside_captures():
            return self._start(batch, tensors, self._device)

    def __del__(self) -> None:
        # Memory must not be used for another batch, or freed, while the GPU reads it.
        with beside_captures():
            for event, _ in self._copying:
                # A device that is lost reads nothing any more.
                with suppress(RuntimeError):
                    event.synchronize()
            if self._pinned is not None:
                self._pinned.release()

    def _start(self, batch: Batch, tensors: TensorBatch, device: torch.device) -> CopiedBatch:
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
        leaves = leaves_of(tensors)
        moved: dict[int, torch.Tensor] = {}
        spaces: list[torch.Tensor] = []
        stream = copy_stream(device)
        with _waited_for_on_error(stream), torch.cuda.stream(stream):
            for span in spans_of(leaves):
                space = span.space(device)
                space[span.lead :].copy_(self._pinned_bytes(span, batch), non_blocking=True)
                spaces.append(space)
                moved.update(span.over(space))
            for place, leaf in enumerate(leaves):
                if place not in moved:
                    moved[place] = leaf.to(device)
                    spaces.append(moved[place])
            arrival = Arrival(device, spaces, torch.cuda.Event())
            arrival.event.record(stream)
        if batch.memory is not None:
            self._copying.append((arrival.event, batch))
        return CopiedBatch(batch, with_leaves(tensors, [moved[place] for place in range(len(leaves))]), arrival)

    def _pinned_bytes(self, span: Span, batch: Batch) -> torch.Tensor:
        """Return a span's bytes in page-locked memory: where they are, or copied."""
        assert self._pinned is not None
        here = span.here()
        # torch keeps its pinned memory until the copy is done.
        return here if self._pinned.has(batch.memory, here) else here.pin_memory()


@contextmanager
def _waited_for_on_error(stream: torch.cuda.Stream) -> Generator[None, None, None]:
    """Wait for copies of which no event was recorded: their batch is about to be dropped."""
    try:
        yield
    except BaseException:
        # A device that is lost reads nothing any more.
        with suppress(RuntimeError):
            stream.synchronize()
        raise


@functools.cache
def copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all copies to a device: torch reuses memory only for the stream that it was allocated on."""
    return torch.cuda.Stream(device)


def leaves_of(tensors: TensorBatch) -> list[torch.Tensor]:
    """Return the tensors of a batch, including those of lists."""
    leaves: list[torch.Tensor] = []
    for value in tensors.values():
        if isinstance(value, Ragged):
            leaves += (value.values, value.offsets)
        elif isinstance(value, torch.Tensor):
            leaves.append(value)
    return leaves


def with_leaves(tensors: TensorBatch, leaves: Iterable[torch.Tensor]) -> TensorBatch:
    """Return the batch with other tensors, in the order of `leaves_of`."""
    following = iter(leaves)

    def changed(value: Any) -> Any:
        if isinstance(value, Ragged):
            return Ragged(next(following), next(following))
        return next(following) if isinstance(value, torch.Tensor) else value

    return WholeBatch({name: changed(value) for name, value in tensors.items()})
