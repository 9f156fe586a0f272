"""Columns of lists.

Annotations are evaluated here, unlike elsewhere, so that tools which read those of a named tuple find types, not text.
"""

from typing import Any, NamedTuple


class Ragged(NamedTuple):
    """A batch's lists as two flat arrays: row i is ``values[offsets[i]:offsets[i + 1]]``.

    NumPy arrays in a `Batch`, torch tensors from `forebay.torch`, over the received memory. The offsets are int32, one
    more than there are rows, as ``torch.nn.EmbeddingBag(..., include_last_offset=True)`` takes them. Being a named
    tuple, it goes through a DataLoader's workers, pinning and a framework's moves to a device as a tensor does.
    """

    values: Any
    """The elements of all lists, one list after another."""
    offsets: Any
    """Where each list begins in the values; last, where the last one ends."""
