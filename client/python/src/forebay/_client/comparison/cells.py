"""A column's values in one form for every layout: rows of zero or more elements.

Numbers, matrices, lists of numbers and Spark's vectors become flat NumPy arrays with offsets. All other types stay
Arrow arrays, with one element per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forebay._client.arrays import is_bfloat16

from .ulps import Mask, Numbers

ROW_ELEMENTS_MAX = 1 << 24
VECTOR_FIELDS = ("type", "size", "indices", "values")

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """Rows of numbers: `flat[offsets[row]:offsets[row + 1]]`."""

    flat: Numbers
    offsets: Offsets
    valid: Mask
    """Whether each row is not null."""
    flat_valid: Mask
    """Whether each element is not null."""
    form: str
    """The format of the numbers: the dtype, or bfloat16."""
    is_list: bool

    def rows(self, chosen: Mask) -> tuple[Numbers, Mask]:
        """Return the elements of some rows, and whether each is not null."""
        if chosen.all():
            return self.flat, self.flat_valid
        elements = np.repeat(chosen, np.diff(self.offsets))
        return self.flat[elements], self.flat_valid[elements]


def is_vector(kind: pa.DataType) -> bool:
    """Whether this is the type that Spark's vectors have in Parquet."""
    fields: list[Any] = list(cast(Any, kind)) if pa.types.is_struct(kind) else []
    return tuple(field.name for field in fields) == VECTOR_FIELDS


def is_matrix(kind: pa.DataType) -> bool:
    """Whether this is the type of an output with several columns."""
    return isinstance(kind, pa.FixedShapeTensorType)


def has_numbers(kind: pa.DataType) -> bool:
    """Whether a column of the type becomes `Cells`."""
    return is_vector(kind) or _is_number(_element(kind))


def type_text(field: pa.Field[Any]) -> str:
    """Return a column's type for a report."""
    kind = cast(pa.DataType, field.type)
    if is_matrix(kind):
        name = "bfloat16" if is_bfloat16(field) else str(_element(kind))
        return f"{name}[{', '.join(map(str, _shape(kind)))}]"
    return "bfloat16" if is_bfloat16(field) else "vector" if is_vector(kind) else str(kind)


def element_counts(array: pa.Array[Any]) -> Offsets:
    """Return the number of elements of each row, 1 for columns of other types."""
    kind = cast(pa.DataType, array.type)
    if is_vector(kind):
        return _vector_lengths(cast(Any, array))
    if is_matrix(kind):
        return np.full(len(array), math.prod(_shape(kind)), np.int64)
    if _is_list(kind):
        return _lengths(array)
    return np.ones(len(array), np.int64)


def cells_of(array: pa.Array[Any], field: pa.Field[Any]) -> Cells:
    """Return the numbers of a column."""
    kind = cast(pa.DataType, array.type)
    valid = np.asarray(cast(Any, array).is_valid())
    if is_vector(kind):
        flat, offsets = _vectors(cast(Any, array))
        return Cells(flat, offsets, valid, np.ones(len(flat), np.bool_), "float64", is_list=True)
    counts = element_counts(array)
    if is_matrix(kind):
        array = cast(Any, array).storage
    elements: Any = cast(Any, array).flatten() if _is_list(cast(pa.DataType, array.type)) else array
    flat_valid = np.asarray(elements.is_valid())
    flat, form = _flat(elements, field)
    is_list = elements is not array
    # A scalar has one element, also if it is null.
    return Cells(flat, _offsets(counts), valid, flat_valid, form, is_list=is_list)


def _flat(elements: Any, field: pa.Field[Any]) -> tuple[Numbers, str]:
    if pa.types.is_boolean(elements.type):
        return np.asarray(elements.fill_null(False)), "bool"
    flat = elements.fill_null(0).to_numpy(zero_copy_only=False) if elements.null_count else elements.to_numpy()
    if is_bfloat16(field):
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32), "bfloat16"
    return flat, flat.dtype.name


def _shape(kind: pa.DataType) -> list[int]:
    return list(cast(Any, kind).shape)


def _element(kind: pa.DataType) -> pa.DataType:
    """Return the type of the elements of a list or a matrix; other types unchanged."""
    if is_matrix(kind) or _is_list(kind):
        return cast(pa.DataType, cast(Any, kind).value_type)
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _lengths(array: pa.Array[Any]) -> Offsets:
    length: Callable[[Any], Any] = cast(Any, pc).list_value_length
    return np.asarray(length(array).fill_null(0), np.int64)


def _offsets(counts: Offsets) -> Offsets:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _vector_lengths(array: Any) -> Offsets:
    """Return the size of each vector, 0 for null; raise ValueError for a size that no job writes."""
    kinds, sizes, _, values = (array.field(name) for name in VECTOR_FIELDS)
    dense = np.asarray(kinds.fill_null(1)) == 1
    lengths = np.where(dense, _lengths(values), np.asarray(sizes.fill_null(0), np.int64))
    lengths = np.where(np.asarray(array.is_valid()), lengths, 0)
    if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= ROW_ELEMENTS_MAX:
        raise ValueError(f"a vector has {lengths.max()} elements, the limit is {ROW_ELEMENTS_MAX}")
    return lengths


def _vectors(array: Any) -> tuple[Numbers, Offsets]:
    """Return Spark's vectors as flat numbers, with the zeros that sparse ones omit."""
    lengths = _vector_lengths(array)
    offsets = _offsets(lengths)
    flat = np.zeros(int(offsets[-1]))
    valid = np.asarray(array.is_valid())
    dense = np.asarray(array.field("type").fill_null(1)) == 1
    for chosen, places in ((valid & dense, None), (valid & ~dense, array.field("indices"))):
        if not chosen.any():
            continue
        mask: Any = cast(Any, pa).array(chosen)
        values = array.field("values").filter(mask)
        counts = _lengths(values)
        rows = np.repeat(offsets[:-1][chosen], counts)
        if places is None:
            starts = np.repeat(_offsets(counts)[:-1], counts)
            within = np.arange(len(rows)) - starts
        else:
            listed = places.filter(mask)
            within = np.asarray(listed.flatten(), np.int64)
            ends = np.repeat(lengths[chosen], counts)
            if not np.array_equal(_lengths(listed), counts) or ((within < 0) | (within >= ends)).any():
                raise ValueError("a sparse vector has other indices than its size and values")
        flat[rows + within] = np.asarray(values.flatten(), np.float64)
    return flat, offsets
