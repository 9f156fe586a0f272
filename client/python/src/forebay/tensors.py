"""A batch's columns as torch tensors over the received memory, without a copy (through DLPack)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import torch

from .arrays import column_of, field_of, is_bfloat16, is_lists, is_numbers, lists, numbers
from .ragged import Ragged
from .stream import Batch

ROW_ID = "__row_id"

TensorBatch = dict[str, Any]
"""Column name → tensor ([n] or [n, width]); `Ragged` of tensors for lists; `pyarrow.Array` for anything else."""


def to_tensors(batch: Batch) -> TensorBatch:
    """Return a batch's columns as tensors over the same memory."""
    tensors: TensorBatch = {}
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
