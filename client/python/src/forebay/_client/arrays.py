"""Arrow columns of a batch as NumPy arrays, without a copy.

The schema alone determines the type, so a column has one type in every batch: numbers without nulls, and matrices of
them, become arrays; lists of such numbers become a `Ragged`; all else (AS_STORED text, dates, nullable numbers) stays
an Arrow array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .ragged import Ragged

if TYPE_CHECKING:
    ArrowArray = pa.Array[Any]
else:
    ArrowArray = pa.Array  # generic only in its stubs

Array = npt.NDArray[Any]

DTYPE_KEY = b"forebay.dtype"
BFLOAT16 = b"BFLOAT16"


def field_of(batch: pa.RecordBatch, name: str) -> pa.Field[Any]:
    """Return a column's field."""
    return cast("pa.Field[Any]", batch.schema.field(name))  # pyright: ignore[reportUnknownMemberType]


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    """Return a column's array."""
    return cast("pa.Array[Any]", batch.column(name))


def is_bfloat16(column: pa.Field[Any]) -> bool:
    """Whether the column's uint16 values are the bits of bfloat16 numbers."""
    metadata = column.metadata
    return metadata is not None and metadata.get(DTYPE_KEY) == BFLOAT16


def is_numbers(column: pa.Field[Any]) -> bool:
    """Whether the column becomes an array of numbers."""
    if column.nullable:
        return False
    kind = cast(pa.DataType, column.type)
    if isinstance(kind, pa.FixedShapeTensorType):
        kind = cast(pa.DataType, cast(Any, kind).value_type)
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def numbers(array: pa.Array[Any]) -> tuple[pa.Array[Any], tuple[int, ...]]:
    """Return a column's flat numbers and their shape: [n] or [n, width…]."""
    kind = cast(pa.DataType, array.type)
    if isinstance(kind, pa.FixedShapeTensorType):
        storage = cast(Any, array).storage
        # The values of all rows, also of those outside a slice; `flatten` computes the same, in 16 microseconds.
        first, width = storage.offset, storage.type.list_size
        flat = storage.values.slice(first * width, len(array) * width)
        return cast("pa.Array[Any]", flat), (len(array), *kind.shape)
    return array, (len(array),)


def to_numpy(array: pa.Array[Any]) -> Array:
    """Return a read-only view of a column of numbers."""
    flat, shape = numbers(array)
    return cast(Any, flat).to_numpy(zero_copy_only=True).reshape(shape)


def is_lists(column: pa.Field[Any]) -> bool:
    """Whether the column becomes a `Ragged`: lists of numbers, without nulls by the schema."""
    kind = cast(pa.DataType, column.type)
    return not column.nullable and isinstance(kind, pa.ListType) and is_numbers(cast(Any, kind).value_field)


def lists(array: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the flat elements of a column of lists, and the offsets into them; copies offsets of a sliced batch."""
    column = cast(Any, array)
    offsets = cast("pa.Array[Any]", column.offsets)
    first = int(offsets[0].as_py())
    values = cast("pa.Array[Any]", column.values.slice(first, int(offsets[-1].as_py()) - first))
    return values, offsets if first == 0 else pc.subtract(offsets, offsets[0])


def padded_elements(batch: pa.RecordBatch) -> tuple[int, int]:
    """Return the elements of a batch's lists if each is padded to the longest, and those of them that are padding."""
    padded = padding = 0
    for column, array in zip(batch.schema, batch.columns, strict=True):
        if is_lists(column) and len(array):
            lengths = cast(Any, pc.list_value_length(array)).to_numpy()
            elements = len(array) * int(lengths.max())
            padded, padding = padded + elements, padding + elements - int(lengths.sum())
    return padded, padding


def view(array: pa.Array[Any], column: pa.Field[Any]) -> Array | Ragged | pa.Array[Any]:
    """Return a column as a value of `Batch`."""
    if is_numbers(column):
        return to_numpy(array)
    if is_lists(column):
        return Ragged(*map(to_numpy, lists(array)))
    return array


def shape(array: pa.Array[Any], column: pa.Field[Any]) -> str:
    """Return a column's type and shape as text."""
    kind = cast(pa.DataType, column.type)
    if is_numbers(column):
        flat, lengths = numbers(array)
        name = "bfloat16" if is_bfloat16(column) else str(flat.type)
        return f"{name}[{', '.join(map(str, lengths))}]"
    return f"{kind}[{len(array)}]"
