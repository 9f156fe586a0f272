"""A batch's columns as torch tensors over the received memory, without a copy (through DLPack)."""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
import torch
from torch.utils.data._utils.collate import default_collate_fn_map  # pyright: ignore[reportUnknownVariableType]

from .arrays import column_of, field_of, is_bfloat16, is_lists, is_numbers, lists, numbers
from .ragged import Ragged
from .stream import Batch

ROW_ID = "__row_id"

TensorBatch = dict[str, Any]
"""Column name → tensor ([n] or [n, width]); `Ragged` of tensors for lists; `pyarrow.Array` for anything else."""


class WholeBatch(dict[str, Any]):
    """A `TensorBatch` that `default_collate` rejects: a DataLoader with a batch_size would stack whole batches."""


def _reject_collation(batches: list[WholeBatch], *, collate_fn_map: object = None) -> NoReturn:
    raise ValueError(
        "FlightDataset yields whole batches, which DataLoader would stack into another dimension: use "
        "DataLoader(data, batch_size=None), and set the rows per batch with FlightDataset(..., batch_size=...)"
    )


default_collate_fn_map[WholeBatch] = _reject_collation


def to_tensors(batch: Batch) -> TensorBatch:
    """Return a batch's columns as tensors over the same memory."""
    tensors = WholeBatch()
    for name in batch:
        column, array = field_of(batch.data, name), column_of(batch.data, name)
        if is_numbers(column):
            tensors[name] = to_tensor(array, column)
        elif is_lists(column):
            tensors[name] = to_ragged(array, column)
        else:
            tensors[name] = array
    return tensors


def to_tensor(array: pa.Array[Any], column: pa.Field[Any]) -> torch.Tensor:
    """Return a column of numbers as a tensor over the same memory."""
    flat, shape = numbers(array)
    tensor = torch.from_dlpack(flat)
    if is_bfloat16(column):
        tensor = tensor.view(torch.bfloat16)
    elif column.name == ROW_ID:
        # Row indices are far below 2^63, and torch has few operations for uint64.
        tensor = tensor.view(torch.int64)
    return tensor.view(shape)


def to_ragged(array: pa.Array[Any], column: pa.Field[Any]) -> Ragged:
    """Return a column of lists as its values and offsets, tensors over the same memory."""
    flat, starts = lists(array)
    values, offsets = torch.from_dlpack(flat), torch.from_dlpack(starts)
    return Ragged(values.view(torch.bfloat16) if is_bfloat16(column) else values, offsets)
