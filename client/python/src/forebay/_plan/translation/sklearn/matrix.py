"""The columns that an estimator reads or makes, side by side, and what a plan needs for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.translation.derivations import Derivations
from forebay._plan.translation.symbols import OneHotGroup, Scalar, Vector

from .stage import SklearnStage

Element = Scalar | OneHotGroup


@dataclass(frozen=True)
class Matrix:
    """Columns side by side. `names` are those by which a ColumnTransformer may select them, if they have names."""

    elements: tuple[Element, ...]
    names: tuple[str, ...] | None = None

    def scalars(self) -> list[Scalar]:
        """Return the columns, one element each."""
        found: list[Scalar] = []
        for element in self.elements:
            if isinstance(element, Scalar):
                found.append(element)
            else:
                found += [Scalar(slot, None, pa.float64(), null=False, nan=False) for slot in element.slots]
        return found

    @property
    def width(self) -> int:
        """The number of columns."""
        return sum(1 if isinstance(element, Scalar) else len(element.slots) for element in self.elements)

    def mapped(self, stage: SklearnStage, change: Callable[[Scalar, int], Scalar]) -> Matrix:
        """Return the matrix with every column of numbers changed by the function, which gets its position as well."""
        changed: list[Element] = []
        for index, scalar in enumerate(self.scalars()):
            check_number(stage, scalar)
            changed.append(change(scalar, index))
        return Matrix(tuple(changed), self.names)

    def selected(self, stage: SklearnStage, positions: Sequence[int]) -> Matrix:
        """Return some of the columns."""
        if list(positions) == list(range(self.width)):
            return self
        if any(not isinstance(element, Scalar) for element in self.elements):
            raise stage.refusal("selects among the columns of an encoder; select before it encodes")
        names = None if self.names is None else tuple(self.names[position] for position in positions)
        return Matrix(tuple(self.elements[position] for position in positions), names)

    def vector(self, dtype: str) -> Vector:
        """Return the chains of an output; a null is NaN, as in pandas, where the dtype has one."""
        is_float = not dtype.startswith("INT")
        return Vector(tuple(self._chain(element, is_float=is_float) for element in self.elements))

    @staticmethod
    def _chain(element: Element, *, is_float: bool) -> Columns | OneHotGroup:
        if isinstance(element, OneHotGroup):
            return element
        return element.part.fill_null(math.nan) if element.null and is_float else element.part


def side_by_side(parts: Sequence[Matrix]) -> Matrix:
    """Return matrices as one."""
    return Matrix(tuple(element for part in parts for element in part.elements))


def computed(scalar: Scalar, part: Columns) -> Scalar:
    """Return a column after an arithmetic op."""
    kind = scalar.kind if scalar.kind == pa.float32() else pa.float64()
    return replace(scalar, part=part, sql=None, kind=kind, index=None)


def constant(scalar: Scalar, value: float) -> Columns:
    """Return a chain that yields the value for every number."""
    return scalar.part.clip(value, value)


def named(scalar: Scalar) -> str:
    """Return the column that a chain starts from, for messages."""
    return repr(scalar.part.names[0])


def is_text(kind: pa.DataType | None) -> bool:
    """Whether it is known to be a type of text."""
    return kind is not None and (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def check_number(stage: SklearnStage, scalar: Scalar) -> None:
    """Refuse a column that is known not to be numeric."""
    kind = scalar.kind
    if kind is None or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return
    if pa.types.is_decimal(kind):
        return
    raise stage.refusal(f"reads column {named(scalar)} of type {kind} as numbers")


def note_singles(state: Derivations, scalar: Scalar) -> None:
    """Report that a float32 column is computed in other steps."""
    if scalar.kind == pa.float32():
        state.note(
            f"{named(scalar)} is float32: computed in double precision and rounded once here, in float32 or float64 "
            "in scikit-learn, by the types of the other columns"
        )
