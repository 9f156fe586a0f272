"""The categories of an encoder as a vocabulary: the category of each of its indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.translation.derivations import Derivations
from forebay._plan.translation.symbols import Scalar

from .matrix import is_text, named
from .stage import SklearnStage


@dataclass(frozen=True)
class Categories:
    """A vocabulary of a column's categories."""

    source: Columns
    """The chain before the vocabulary."""
    base: Columns
    """The chain that ends in the vocabulary."""
    positions: dict[int, int]
    """The position in the encoder's list for each index that has one."""
    unknown: int
    """The index of values that the encoder does not know."""
    missing: int | None
    """The position of null and NaN in the encoder's list."""
    values: dict[int, object]
    """The value at each position, apart from null and NaN."""
    none: int | None = None
    """The position of null if the list has it as None, which scikit-learn treats as a value, not as missing."""

    @property
    def base_count(self) -> int:
        """The number of indices."""
        return len(self.positions) + 1


def read_categories(state: Derivations, stage: SklearnStage, scalar: Scalar, index: int) -> Categories:
    """Return the categories of a stage's column."""
    if stage.is_fitted:
        lists = cast("Sequence[Any]", stage.learned("categories_"))
    elif isinstance(stage.param("categories"), (list, tuple)):
        lists = cast("Sequence[Any]", stage.param("categories"))
    else:
        raise stage.refusal(
            "is not fitted, and a fit here orders categories by count, not by value; fit it first, or set categories="
        )
    listed = _plain(lists[index])
    absent = [position for position, value in enumerate(listed) if _is_missing(value)]
    if len(absent) > 1:
        raise stage.refusal(f"distinguishes None and NaN in column {named(scalar)}; replace one by the other and refit")
    values = {position: value for position, value in enumerate(listed) if position not in absent}
    typed = _typed(state, stage, scalar, list(values.values()))
    missing = absent[0] if absent else None
    none = missing if missing is not None and listed[missing] is None else None
    if none is not None and not scalar.null:
        state.note(
            f"{stage.path}: None in column {named(scalar)} is a value for scikit-learn, whose imputer keeps it unless "
            "missing_values=None; here it is null, and was filled before"
        )
    places = list(values)
    if missing is None:
        base = scalar.part.vocab(values=typed)  # type: ignore[arg-type]
        positions = {place + 1: position for place, position in enumerate(places)}
        return Categories(scalar.part, base, positions, 0, None, dict(zip(places, typed, strict=True)))
    known = [*typed, math.nan] if _may_be_nan(scalar, typed) else typed
    # With a bucket for unknown values, index 0 is null alone.
    base = scalar.part.vocab(values=known, oov_buckets=1)  # type: ignore[arg-type]
    positions = {0: missing, **{place + 1: position for place, position in enumerate(places)}}
    if len(known) > len(typed):
        positions[len(known)] = missing
    known_values = dict(zip(places, typed, strict=True))
    return Categories(scalar.part, base, positions, len(known) + 1, missing, known_values, none)


def infrequent(stage: SklearnStage, index: int, categories: Categories) -> set[int]:
    """Return the positions of the categories that the encoder treats as one."""
    grouped = None
    if stage.param("min_frequency") is not None or stage.param("max_categories") is not None:
        if not stage.is_fitted:
            raise stage.refusal("is not fitted, so its infrequent categories are not known; fit it first")
        grouped = cast("Sequence[Any]", stage.learned("infrequent_categories_"))[index]
    if grouped is None:
        return set()
    members = set(_plain(grouped))
    listed = _plain(cast("Sequence[Any]", stage.learned("categories_"))[index])
    found = {position for position, value in enumerate(listed) if value in members}
    if categories.missing is not None and any(_is_missing(one) for one in members):
        found.add(categories.missing)
    return found


def _plain(values: Any) -> list[object]:
    """Return an array's values as those of Python."""
    return [cast(Any, one).item() if isinstance(one, np.generic) else one for one in cast("Sequence[object]", values)]


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"


def _may_be_nan(scalar: Scalar, values: Sequence[object]) -> bool:
    """Whether the vocabulary is one of floats, which may be NaN."""
    if scalar.kind is not None:
        return pa.types.is_floating(scalar.kind)
    return bool(values) and all(isinstance(value, float) for value in values)


def _typed(state: Derivations, stage: SklearnStage, scalar: Scalar, values: list[object]) -> list[object]:
    """Return categories as values of the column's type."""
    kind = scalar.kind
    if all(isinstance(value, str) for value in values):
        if kind is not None and values and not is_text(kind):
            raise stage.refusal(f"has categories of text for column {named(scalar)} of type {kind}")
        return values
    if not all(isinstance(value, (bool, int, float)) for value in values):
        raise stage.refusal(f"categories of column {named(scalar)} must be all text or all numbers")
    numbers = cast("list[float]", values)
    if kind is None:
        if any(isinstance(value, float) for value in numbers):
            state.note(
                f"{stage.path}: categories of {named(scalar)} are floating-point numbers, as pandas reads integers "
                "with nulls; pass schema= if the column has integers"
            )
            return [float(value) for value in numbers]
        return [int(value) for value in numbers]
    if pa.types.is_floating(kind):
        return [float(value) for value in numbers]
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise stage.refusal(f"has categories of numbers for column {named(scalar)} of type {kind}")
    if any(not float(value).is_integer() for value in numbers):
        raise stage.refusal(f"has categories with a fraction for column {named(scalar)} of type {kind}")
    return [int(value) for value in numbers]
