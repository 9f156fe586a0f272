"""Accumulates the comparison of one column over chunks of paired rows."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .cells import Cells, cells_of, has_numbers, type_text
from .report import ColumnComparison, ValueDifference
from .ulps import UNMEASURABLE, Mask, distances

UNITS = ("s", "ms", "us", "ns")
# Every integer, and every decimal of whole numbers.
WHOLE: Any = pa.decimal256(76, 0)

Rows = npt.NDArray[np.int64]


class Limits(NamedTuple):
    """Distances of floats that are accepted: either suffices."""

    ulps: int
    atol: float


class ColumnTally:
    """Counts and first differences of a column; `add` compares one chunk."""

    def __init__(self, name: str, plan: pa.Field[Any], shards: pa.Field[Any], limits: Limits, examples: int) -> None:
        self._name = name
        self._types = (type_text(plan), type_text(shards))
        kinds = [cast(pa.DataType, field.type) for field in (plan, shards)]
        # A decimal of whole numbers is compared with integers as such: float64 does not hold ids beyond 2^53.
        self._are_whole = {_is_whole_decimal(kind) for kind in kinds} == {False, True} and all(
            pa.types.is_integer(kind) or _is_whole_decimal(kind) for kind in kinds
        )
        # Another decimal is compared with a number as float64, and with a decimal by its digits.
        are_decimals = [pa.types.is_decimal(cast(pa.DataType, field.type)) for field in (plan, shards)]
        self._as_doubles = [one and not other for one, other in zip(are_decimals, reversed(are_decimals), strict=True)]
        doubles = [pa.field(name, pa.float64()) if one else None for one in self._as_doubles]
        self._fields = (doubles[0] or plan, doubles[1] or shards)
        self._limits = limits
        self._examples = examples
        self._are_numbers = not self._are_whole and all(
            has_numbers(cast(pa.DataType, field.type)) for field in self._fields
        )
        self._equal = self._within = self._differ = 0
        self._ulps_max, self._difference_max = 0, 0.0
        self._differences: list[ValueDifference] = []

    def add(self, plan: pa.Array[Any], shards: pa.Array[Any], rows: Rows, keys: list[pa.Array[Any]]) -> None:
        """Compare the values of paired rows, which have these numbers and keys."""
        plan, shards = (
            cast(Any, array).cast(pa.float64()) if is_decimal and self._are_numbers else array
            for array, is_decimal in zip((plan, shards), self._as_doubles, strict=True)
        )
        if self._are_numbers:
            self._add_numbers(cells_of(plan, self._fields[0]), cells_of(shards, self._fields[1]), rows, keys)
            return
        if self._are_whole:
            plan, shards = (cast(Any, array).cast(WHOLE) for array in (plan, shards))
        differ = ~_equal_values(plan, shards)
        for at in self._first(differ):
            one, other = _value(plan, at), _value(shards, at)
            self._note(ValueDifference(int(rows[at]), _key(keys, at), None, one, other, None))
        self._count(np.zeros(len(rows), np.bool_), differ)

    def result(self) -> ColumnComparison:
        """Return the comparison so far."""
        counts = (self._equal, self._within, self._differ)
        largest = (self._ulps_max, self._difference_max)
        return ColumnComparison(self._name, *self._types, *counts, *largest, tuple(self._differences))

    def _add_numbers(self, plan: Cells, shards: Cells, rows: Rows, keys: list[pa.Array[Any]]) -> None:
        counts = np.diff(plan.offsets)
        both = plan.valid & shards.valid
        comparable = both & (counts == np.diff(shards.offsets)) & (plan.is_list == shards.is_list or counts == 1)
        (left, left_valid), (right, right_valid) = plan.rows(comparable), shards.rows(comparable)
        equal, ulps, apart = distances(left, right, (plan.form, shards.form))
        equal = np.where(left_valid & right_valid, equal, left_valid == right_valid)
        ulps = np.where(equal, np.uint64(0), np.where(left_valid & right_valid, ulps, UNMEASURABLE))
        measured = ulps != UNMEASURABLE
        most: Any = cast(Any, ulps).max(where=measured, initial=0)
        self._ulps_max = max(self._ulps_max, int(most))
        self._difference_max = max(self._difference_max, _largest(apart[measured]))
        element_rows = np.repeat(np.flatnonzero(comparable), counts[comparable])
        within = ~equal & measured & ((ulps <= np.uint64(self._limits.ulps)) | (apart <= self._limits.atol))
        wrong = ~equal & ~within
        differ = ~comparable & (plan.valid | shards.valid)
        differ[element_rows[wrong]] = True
        close = np.zeros(len(rows), np.bool_)
        close[element_rows[within]] = True
        for at in self._first(differ):
            elements = np.flatnonzero((element_rows == at) & wrong)
            first = None
            if len(elements):
                place = int(elements[0]) - int((element_rows < at).sum())
                first = (place, None if ulps[elements[0]] == UNMEASURABLE else int(ulps[elements[0]]))
            self._note(_difference(plan, shards, int(at), first, int(rows[at]), _key(keys, at)))
        self._count(close & ~differ, differ)

    def _first(self, differ: Mask) -> npt.NDArray[np.intp]:
        return np.flatnonzero(differ)[: self._examples]

    def _note(self, one: ValueDifference) -> None:
        self._differences.append(one)
        # Partitions of keys are in order, but not their concatenation.
        self._differences.sort(key=lambda difference: difference.row)
        del self._differences[self._examples :]

    def _count(self, within: Mask, differ: Mask) -> None:
        self._within += int(within.sum())
        self._differ += int(differ.sum())
        self._equal += len(differ) - int(within.sum()) - int(differ.sum())


def _difference(
    plan: Cells, shards: Cells, at: int, first: tuple[int, int | None] | None, row: int, key: tuple[object, ...]
) -> ValueDifference:
    """Return the value of a row that differs: its first element and the ulps, or the whole row."""
    if first is None:
        return ValueDifference(row, key, None, _whole(plan, at), _whole(shards, at), None)
    element, ulps = first
    one, other = _element(plan, at, element), _element(shards, at, element)
    return ValueDifference(row, key, element if plan.is_list else None, one, other, ulps)


def _largest(values: npt.NDArray[np.float64]) -> float:
    return float(values.max()) if len(values) else 0.0


def _equal_values(plan: pa.Array[Any], shards: pa.Array[Any]) -> Mask:
    """Whether values that are not numbers are equal; nulls equal each other."""
    left, right = _instants(_plain(plan), _plain(shards))
    kind, other = cast(Any, left).type, cast(Any, right).type
    if kind != other:
        if not pa.types.is_temporal(kind) or not pa.types.is_temporal(other):
            return _equal_objects(left, right)
        try:
            right = cast(Any, right).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return _equal_objects(left, right)
    try:
        equal: Any = cast(Any, pc).equal(left, right)
    except pa.ArrowNotImplementedError:
        return _equal_objects(left, right)
    valid = np.asarray(cast(Any, left).is_valid()), np.asarray(cast(Any, right).is_valid())
    return np.where(valid[0] & valid[1], np.asarray(equal.fill_null(False)), valid[0] == valid[1])


def _equal_objects(left: pa.Array[Any], right: pa.Array[Any]) -> Mask:
    pairs = zip(cast("list[object]", left.to_pylist()), cast("list[object]", right.to_pylist()), strict=True)
    return np.array([_same(*pair) for pair in pairs], np.bool_)


def _same(left: object, right: object) -> bool:
    """Whether two Python values are equal, where NaN equals NaN."""
    kind = type(left)
    if isinstance(left, dict) and isinstance(right, dict):
        one, other = cast("dict[str, object]", left), cast("dict[str, object]", right)
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        first, second = cast("list[object]", left), cast("list[object]", right)
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(left, float) and isinstance(right, float) and left != left and right != right:
        return True
    return isinstance(right, kind) and left == right


def _plain(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return dictionary-encoded values as plain ones, and text in its large form."""
    column: Any = array
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_binary(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return column


def _instants(left: pa.Array[Any], right: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return two columns of timestamps in UTC and in the finer of their units; other columns unchanged."""
    one, other = cast(Any, left), cast(Any, right)
    if not pa.types.is_timestamp(one.type) or not pa.types.is_timestamp(other.type):
        return left, right
    finer = pa.timestamp(max(one.type.unit, other.type.unit, key=UNITS.index), tz="UTC")
    try:
        return one.cast(finer), other.cast(finer)
    except pa.ArrowInvalid:
        return left, right


def _key(keys: list[pa.Array[Any]], at: Any) -> tuple[object, ...]:
    return tuple(_value(key, at) for key in keys)


def _value(array: pa.Array[Any], at: Any) -> object:
    return cast(Any, array)[int(at)].as_py()


def _element(cells: Cells, row: int, element: int) -> object:
    at = int(cells.offsets[row]) + element
    return cells.flat[at].item() if cells.flat_valid[at] else None


def _whole(cells: Cells, row: int) -> object:
    """Return a row's value: a list, a number, or None."""
    if not cells.valid[row]:
        return None
    start, end = int(cells.offsets[row]), int(cells.offsets[row + 1])
    if not cells.is_list:
        return _element(cells, row, 0)
    return cells.flat[start:end].tolist()


def _is_whole_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and cast(Any, kind).scale == 0
