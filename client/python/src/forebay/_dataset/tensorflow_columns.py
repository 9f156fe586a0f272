"""A batch's columns as the arrays and the tensors of `tf.data`: dtypes, static shapes, ragged columns, text.

The schema alone determines dtypes and ranks, so each column has one `tf.TypeSpec` for all batches. Numbers are arrays
over the received memory. TensorFlow has no null and no date: such values are errors that name the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forebay._client.arrays import Array, column_of, is_bfloat16
from forebay._client.stream import Batch
from forebay.errors import InvalidRequest

from .framework import framework

tf = framework("tensorflow", extra="tensorflow")

ROW_ID = "__row_id"
TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


@dataclass(frozen=True)
class TensorColumn:
    """A column of a stream as the components of an element: its values, and the row splits of lists."""

    name: str
    dtype: Any
    """The `tf.DType` of its values."""
    width: tuple[int, ...]
    """The dimensions of a row's values."""
    is_ragged: bool

    def spec(self, rows: int | None) -> Any:
        """Return the type of the column in a batch of `rows`; None: any number."""
        if self.is_ragged:
            return tf.RaggedTensorSpec([rows, None], self.dtype, ragged_rank=1)
        return tf.TensorSpec([rows, *self.width], self.dtype)

    def component_specs(self, rows: int | None) -> list[Any]:
        """Return the types of `components`."""
        if self.is_ragged:
            splits = None if rows is None else rows + 1
            return [tf.TensorSpec([None], self.dtype), tf.TensorSpec([splits], tf.int64)]
        return [self.spec(rows)]

    def components(self, array: Any) -> list[Array]:
        """Return an array of the column as NumPy arrays; raise `InvalidRequest` for a null."""
        if isinstance(array, pa.ExtensionArray):
            array = cast(Any, array).storage
        self._reject_nulls(array)
        if not self.is_ragged and not self.width:
            return [self._flat(array)]
        values = array.flatten()
        self._reject_nulls(values)
        if not self.is_ragged:
            return [cast(Any, self._flat(values)).reshape(len(array), *self.width)]
        splits = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return [self._flat(values), splits - splits[0]]

    def assembled(self, components: Sequence[Any]) -> Any:
        """Return the components' tensors as one tensor."""
        if self.is_ragged:
            return tf.RaggedTensor.from_row_splits(*components, validate=False)
        return components[0]

    def _flat(self, values: Any) -> Array:
        if self.dtype == tf.string:
            if isinstance(values, pa.DictionaryArray):
                values = cast(Any, values).dictionary_decode()
            return values.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
        # A view: bfloat16 arrives as uint16, and row ids as uint64.
        return values.to_numpy(zero_copy_only=False).view(self.dtype.as_numpy_dtype)

    def _reject_nulls(self, array: Any) -> None:
        if array.null_count:
            raise InvalidRequest(
                f"column {self.name} has {array.null_count} nulls in this batch, and TensorFlow has no null: use "
                f"fill_null, derive coalesce({self.name}, …), or exclude such rows with a filter"
            )


@dataclass(frozen=True)
class TensorFlowColumns:
    """All columns of a stream."""

    columns: tuple[TensorColumn, ...]
    rows: int | None
    """Rows of every batch; None if the last batch may have fewer."""

    @classmethod
    def of(cls, schema: pa.Schema, rows: int | None) -> TensorFlowColumns:
        """Return the columns of a schema; raise `InvalidRequest` for a type that TensorFlow does not have."""
        return cls(tuple(_column(field) for field in cast("list[pa.Field[Any]]", schema)), rows)

    @property
    def element_spec(self) -> dict[str, Any]:
        """The type of an element: a dict by column name."""
        return {column.name: column.spec(self.rows) for column in self.columns}

    @property
    def component_specs(self) -> tuple[Any, ...]:
        """The types of `components`."""
        return tuple(spec for column in self.columns for spec in column.component_specs(self.rows))

    def components(self, batch: Batch) -> tuple[Array, ...]:
        """Return a batch as NumPy arrays, in the order of the columns."""
        return tuple(
            array for column in self.columns for array in column.components(column_of(batch.data, column.name))
        )

    def element(self, *components: Any) -> dict[str, Any]:
        """Return the tensors of `components` as an element."""
        found: dict[str, Any] = {}
        at = 0
        for column in self.columns:
            count = len(column.component_specs(None))
            found[column.name] = column.assembled(components[at : at + count])
            at += count
        return found


def _column(field: pa.Field[Any]) -> TensorColumn:
    """Return the column of a field."""
    kind: Any = field.type
    if isinstance(field.type, pa.FixedShapeTensorType):
        return TensorColumn(field.name, _dtype(field, kind.value_type), tuple(kind.shape), False)
    if pa.types.is_fixed_size_list(kind):
        return TensorColumn(field.name, _dtype(field, kind.value_type), (kind.list_size,), False)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return TensorColumn(field.name, _dtype(field, kind.value_type), (), True)
    return TensorColumn(field.name, _dtype(field, kind), (), False)


def _dtype(field: pa.Field[Any], kind: Any) -> Any:
    """Return the `tf.DType` of a field's values."""
    if is_bfloat16(field):
        return tf.bfloat16
    if field.name == ROW_ID:
        # As in torch: row indices are far below 2^63, and few operations accept uint64.
        return tf.int64
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return tf.as_dtype(kind.to_pandas_dtype())
    value = kind.value_type if types.is_dictionary(kind) else kind
    if any(is_text(value) for is_text in TEXTS):
        return tf.string
    raise InvalidRequest(
        f"column {field.name} is {field.type}, a type that TensorFlow does not have: output it as a number (dates and "
        "times as INT64, a count of their unit), derive a text or a number from it, or leave it out"
    )
