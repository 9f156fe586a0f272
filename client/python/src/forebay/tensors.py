"""A batch's columns as torch tensors over the received memory (through DLPack): nothing is copied."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import torch

from .arrays import column_of, field_of, is_bfloat16, is_numbers, numbers
from .stream import Batch

ROW_ID = "__row_id"

TensorBatch = dict[str, Any]
"""Column name → tensor ([n] or [n, width]), or `pyarrow.Array` where a column is no plain run of numbers."""


def to_tensors(batch: Batch) -> TensorBatch:
    """Return a batch's columns as tensors over the same memory."""
    tensors: TensorBatch = {}
    for name in batch:
        column, array = field_of(batch.data, name), column_of(batch.data, name)
        tensors[name] = to_tensor(array, column) if is_numbers(column) else array
    return tensors


def to_tensor(array: pa.Array[Any], column: pa.Field[Any]) -> torch.Tensor:
    """Return a column of numbers as a tensor over the same memory."""
    flat, shape = numbers(array)
    tensor = torch.from_dlpack(flat)
    if is_bfloat16(column):
        tensor = tensor.view(torch.bfloat16)
    elif column.name == ROW_ID:
        # Indices of rows are far below 2^63, and torch can do little with uint64.
        tensor = tensor.view(torch.int64)
    return tensor.view(shape)
