"""A batch's columns as torch tensors over the received memory, without a copy (through DLPack)."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, cast

import pyarrow as pa
import torch
from torch.utils.data._utils.collate import default_collate_fn_map  # pyright: ignore[reportUnknownVariableType]

from forebay._client.arrays import is_bfloat16, is_lists, is_numbers, lists, numbers
from forebay._client.ragged import Ragged
from forebay._client.stream import Batch

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
    return TensorColumns(batch.data.schema).tensors(batch.data)


class TensorColumns:
    """The tensors of batches of one schema, which is examined once: that takes longer than the tensors themselves."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = [_TensorColumn.of(column) for column in cast("list[pa.Field[Any]]", list(schema))]

    def has(self, schema: pa.Schema) -> bool:
        """Whether this is the schema; immediate for the batches of one stream, which share it."""
        return self._schema.equals(schema, check_metadata=True)

    def tensors(self, data: pa.RecordBatch) -> TensorBatch:
        """Return the columns as tensors over the same memory."""
        arrays = cast("list[pa.Array[Any]]", data.columns)
        columns = zip(self._columns, arrays, strict=True)
        return WholeBatch({column.name: column.tensor(array) for column, array in columns})


class _TensorColumn(NamedTuple):
    """How a column becomes a tensor."""

    name: str
    is_numbers: bool
    is_lists: bool
    dtype: torch.dtype | None
    """The type that its bits are read as, if that is not the Arrow type's."""

    @classmethod
    def of(cls, column: pa.Field[Any]) -> _TensorColumn:
        name, numeric, ragged = column.name, is_numbers(column), is_lists(column)
        dtype = torch.bfloat16 if is_bfloat16(column) else None
        if dtype is None and numeric and name == ROW_ID:
            # Row indices are far below 2^63, and torch has few operations for uint64.
            dtype = torch.int64
        return cls(name, numeric, ragged, dtype)

    def tensor(self, array: pa.Array[Any]) -> torch.Tensor | Ragged | pa.Array[Any]:
        if self.is_numbers:
            flat, shape = numbers(array)
            tensor = self._viewed(torch.from_dlpack(flat))
            return tensor if len(shape) == 1 else tensor.view(shape)
        if self.is_lists:
            flat, starts = lists(array)
            return Ragged(self._viewed(torch.from_dlpack(flat)), torch.from_dlpack(starts))
        return array

    def _viewed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.dtype is None else tensor.view(self.dtype)
