"""The memory of a batch's tensors as few contiguous spans, so that a batch moves to a device in one copy.

The arrays of a message are in its body one after the other, with padding between them. Tensors over a span's copy have
the same places in it, and therefore the same alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

# Devices align memory to at least this; an address keeps its remainder.
ALIGNMENT = 256
# The most bytes between two tensors of one span, which are copied with them. Less than a page: each of these bytes is
# in a page that one of the two tensors is in, so it can be read.
GAP_MAX = 4095


class Span(NamedTuple):
    """Memory from `start` to `end`, with the tensors in it and their places in the batch."""

    start: int
    end: int
    tensors: list[tuple[int, torch.Tensor]]

    @property
    def lead(self) -> int:
        """Bytes before the span's copy, for the alignment of the tensors in it."""
        return self.start % ALIGNMENT

    def here(self) -> torch.Tensor:
        """Return the bytes as a tensor over the same memory, which the caller keeps."""
        return torch.from_numpy(np.asarray(_Memory(self.start, self.end - self.start)))

    def space(self, device: torch.device) -> torch.Tensor:
        """Return memory on a device for the lead and the copy."""
        return torch.empty(self.lead + self.end - self.start, dtype=torch.uint8, device=device)

    def over(self, space: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        """Return the tensors over such memory. They are not views of one tensor: autograd tracks each by itself."""
        storage, before = space.untyped_storage(), self.start - self.lead
        found: list[tuple[int, torch.Tensor]] = []
        for place, tensor in self.tensors:
            offset = (tensor.data_ptr() - before) // tensor.itemsize
            moved = torch.empty(0, dtype=tensor.dtype, device=space.device)
            found.append((place, moved.set_(storage, offset, tensor.shape, tensor.stride())))
        return found


class _Memory:
    """Memory in NumPy's array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def spans_of(tensors: Sequence[torch.Tensor]) -> list[Span]:
    """Return the spans of contiguous tensors; those without elements, or at odd addresses, are in none."""
    extents = sorted((tensor.data_ptr(), place) for place, tensor in enumerate(tensors) if _is_placed(tensor))
    spans: list[Span] = []
    for start, place in extents:
        tensor = tensors[place]
        end = start + tensor.nbytes
        last = spans[-1] if spans else None
        if last is None or start - last.end > GAP_MAX:
            spans.append(Span(start, end, [(place, tensor)]))
        else:
            last.tensors.append((place, tensor))
            spans[-1] = last._replace(end=max(last.end, end))
    return spans


def _is_placed(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and tensor.data_ptr() % tensor.itemsize == 0
