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
