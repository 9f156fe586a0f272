"""The columns of another library as chains of ops: what a stage makes of the columns before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.names import quoted


@dataclass(frozen=True)
class Index:
    """The other library's indices: a chain that ends in indices of Forebay, and the library's index for each of those.

    An index of the chain without a code is an error there, and null (an error of the output) here.
    """

    base: Columns
    base_count: int
    codes: Mapping[int, int]
    source: Columns | None = None
    """The chain before `base`, if that is a vocabulary of `labels`."""
    labels: tuple[object, ...] = ()

    @property
    def is_total(self) -> bool:
        """Whether no value is an error."""
        return len(self.codes) == self.base_count

    def columns(self) -> Columns:
        """Return the chain that yields the other library's indices."""
        if self.is_total and all(index == code for index, code in self.codes.items()):
            return self.base
        return self.base.map_id(self.codes)

    def slot(self, category: int, *, strict: bool) -> Columns:
        """Return the chain that yields 1 for one category, and 0 for the others.

        A strict one repeats the whole vocabulary, so that a value without a code is an error.
        """
        if not strict and self.source is not None and category < len(self.labels):
            label = [self.labels[category]]
            return self.source.vocab(values=label)  # type: ignore[arg-type]
        if self.is_total:
            ones = {index: 1 for index, code in self.codes.items() if code == category}
            return self.base.map_id(ones or {0: 0}, default=0)
        return self.base.map_id({index: int(code == category) for index, code in self.codes.items()})


@dataclass(frozen=True)
class Scalar:
    """A column of single values."""

    part: Columns
    sql: str | None = None
    """The same value as an expression over stored columns; None if there is none."""
    kind: pa.DataType | None = None
    """The type, if it is known."""
    index: Index | None = None
    null: bool = True
    """Whether it may be null."""
    nan: bool = True
    """Whether it may be NaN."""

    @property
    def reference(self) -> str | None:
        """The value in the expression of a derived column."""
        return quoted(self.part.names[0]) if not self.part.ops and self.index is None else self.sql


@dataclass(frozen=True)
class OneHotGroup:
    """The columns that an index expands to."""

    slots: tuple[Columns, ...]
    """A chain per column."""
    whole: Columns | None
    """One chain that yields all columns, if there is one."""


@dataclass(frozen=True)
class Vector:
    """A column of vectors: its elements side by side."""

    elements: tuple[Columns | OneHotGroup, ...]

    def slots(self) -> list[Columns]:
        """Return a chain per element."""
        found: list[Columns] = []
        for element in self.elements:
            found += element.slots if isinstance(element, OneHotGroup) else (element,)
        return found

    def parts(self) -> list[Columns]:
        """Return the parts of an output, as few as possible."""
        found: list[Columns] = []
        for element in self.elements:
            if not isinstance(element, OneHotGroup):
                chains = (element,)
            else:
                chains = element.slots if element.whole is None else (element.whole,)
            for chain in chains:
                if found and found[-1].ops == chain.ops and chain.names[0] not in found[-1].names:
                    found[-1] = Columns((*found[-1].names, *chain.names), chain.ops)
                else:
                    found.append(chain)
        return found


def literal(value: object) -> str:
    """Return a value in an expression."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        text = repr(value)
        return text if text.lstrip("-")[0].isdigit() else f"CAST('{text}' AS DOUBLE)"
    return str(value)
