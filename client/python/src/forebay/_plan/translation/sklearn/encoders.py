"""OneHotEncoder and OrdinalEncoder: `vocab`, `map_id` and `one_hot`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.translation.derivations import Derivations
from forebay._plan.translation.symbols import Index, OneHotGroup, Scalar

from .categories import Categories, infrequent, read_categories
from .matrix import Element, Matrix, named
from .stage import SklearnStage

# An index whose row has a 1 in no column.
ZEROS = -1


def one_hot_encoder(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return a column per category."""
    handling = stage.choice("handle_unknown", "error", "ignore", "infrequent_if_exist", "warn")
    dropped = _dropped(stage, given.width)
    made: list[Element] = []
    for index, scalar in enumerate(given.scalars()):
        categories = read_categories(state, stage, scalar, index)
        grouped = infrequent(stage, index, categories)
        columns, width = _columns(categories, grouped, dropped[index])
        codes = {one: columns[position] for one, position in categories.positions.items()}
        if handling != "error":
            rare = columns[min(grouped)] if grouped and handling != "ignore" else ZEROS
            codes[categories.unknown] = rare
        if not width:
            continue
        group = _group(categories, codes, width)
        if group.whole is None and width > 1:
            state.note(f"{stage.path}: each of the {width} columns of {named(scalar)} costs a lookup per row")
        made.append(group)
    if stage.flag("sparse_output"):
        state.note(f"{stage.path}: dense columns here, sparse ones in scikit-learn")
    return Matrix(tuple(made))


def _dropped(stage: SklearnStage, count: int) -> list[int | None]:
    """Return the position of each column's dropped category."""
    if stage.param("drop") is None:
        return [None] * count
    if not stage.is_fitted:
        raise stage.refusal("is not fitted, so its dropped categories are not known; fit it first")
    found = getattr(stage.estimator, "drop_idx_", None)
    if found is None:
        return [None] * count
    return [None if one is None else int(one) for one in cast("Sequence[Any]", found)]


def _columns(categories: Categories, grouped: set[int], dropped: int | None) -> tuple[dict[int, int], int]:
    """Return the column of each category's position, and the number of columns; infrequent ones share the last."""
    everything = sorted(categories.positions.values())
    frequent = [position for position in sorted(set(everything)) if position not in grouped]
    column = {position: place for place, position in enumerate(frequent)}
    column |= dict.fromkeys(grouped, len(frequent))
    width = len(frequent) + bool(grouped)
    if dropped is None:
        return column, width
    without = column[dropped]

    def moved(place: int) -> int:
        return ZEROS if place == without else place - (place > without)

    return {position: moved(place) for position, place in column.items()}, width - 1


def _group(categories: Categories, codes: dict[int, int], width: int) -> OneHotGroup:
    count = categories.base_count
    whole: Columns | None = None
    if ZEROS not in codes.values():
        is_same = len(codes) == count and all(index == code for index, code in codes.items())
        whole = categories.base.one_hot() if is_same else categories.base.map_id(codes).one_hot(width)
    # A value without a code must be an error: the first column is strict, for all of them.
    is_strict = len(codes) < count
    slots = [_slot(categories, codes, column, strict=is_strict and column == 0) for column in range(width)]
    return OneHotGroup(tuple(slots), whole)


def _slot(categories: Categories, codes: dict[int, int], column: int, *, strict: bool) -> Columns:
    """Return the chain that yields 1 for the values of a column."""
    if strict:
        return categories.base.map_id({index: int(code == column) for index, code in codes.items()})
    ones = [index for index, code in codes.items() if code == column]
    position = categories.positions.get(ones[0]) if len(ones) == 1 else None
    if position is not None and position in categories.values:
        return categories.source.vocab(values=[categories.values[position]])  # type: ignore[arg-type]
    return categories.base.map_id(dict.fromkeys(ones, 1), default=0)


def ordinal_encoder(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return the number of each category."""
    handling = stage.choice("handle_unknown", "error", "use_encoded_value")
    absent = _code(stage, "encoded_missing_value")
    made: list[Element] = []
    for index, scalar in enumerate(given.scalars()):
        categories = read_categories(state, stage, scalar, index)
        grouped = infrequent(stage, index, categories)
        # None has a number like any other category; NaN has `encoded_missing_value`.
        present = sorted([*categories.values, *([] if categories.none is None else [categories.none])])
        frequent = [position for position in present if position not in grouped]
        numbers = {position: place for place, position in enumerate(frequent)}
        numbers |= dict.fromkeys(grouped, len(frequent))
        codes: dict[int, int | None] = {}
        for one, position in categories.positions.items():
            is_absent = position == categories.missing and position != categories.none
            codes[one] = absent if is_absent else numbers[position]
        if handling == "use_encoded_value":
            codes[categories.unknown] = _code(stage, "unknown_value")
        elif None in codes.values():
            state.note(
                f"{stage.path}: an unknown value of {named(scalar)} is NaN here, and is an error in scikit-learn"
            )
        known = {one: code for one, code in codes.items() if code is not None}
        if not known:
            raise stage.refusal(f"has no categories of column {named(scalar)}; leave the column out")
        made_index = Index(categories.base, categories.base_count, known)
        made.append(
            Scalar(made_index.columns(), None, pa.float64(), made_index, null=None in codes.values(), nan=False)
        )
    return Matrix(tuple(made), given.names)


def _code(stage: SklearnStage, name: str) -> int | None:
    """Return a parameter of a whole number; None for NaN."""
    value = cast(object, stage.param(name))
    if isinstance(value, np.generic):
        value = cast(object, value.item())
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        raise stage.refusal(f"parameter {name} must be a whole number or NaN, not {value!r}")
    return int(value)
