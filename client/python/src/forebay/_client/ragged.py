"""Columns of lists.

Annotations are evaluated here, unlike elsewhere, so that tools that read those of a named tuple find types, not text.
"""

from typing import Any, NamedTuple


class Ragged(NamedTuple):
    """A batch's lists as two flat arrays: row i is ``values[offsets[i]:offsets[i + 1]]``.

    NumPy arrays in a `Batch`, torch tensors from `forebay.torch`, over the received memory. The offsets are int32, one
    more than rows, as expected by ``torch.nn.EmbeddingBag(..., include_last_offset=True)``. As a named tuple it passes
    through a DataLoader's workers, pinning and moves to a device like a tensor.
    """

    values: Any
    """The concatenated elements of all lists."""
    offsets: Any
    """The start of each list in the values, and the end of the last one."""

    def to(self, *args: Any, **kwargs: Any) -> "Ragged":
        """Move or convert the values as `torch.Tensor.to` does, and move the offsets with them.

        ``ragged.to("cuda", non_blocking=True)`` moves both; a dtype applies to the values only.
        """
        values = self.values.to(*args, **kwargs)
        return Ragged(values, self.offsets.to(values.device, non_blocking=bool(kwargs.get("non_blocking", False))))

    def pin_memory(self) -> "Ragged":
        """Copy tensors to pinned memory, for asynchronous copies to a GPU."""
        return Ragged(self.values.pin_memory(), self.offsets.pin_memory())

    def __repr__(self) -> str:
        """Return the number of lists and of elements."""
        return f"Ragged({len(self.offsets) - 1} lists, {len(self.values)} values of {self.values.dtype})"
