"""The start of a chain of ops: `cols`."""

from __future__ import annotations

import re
from typing import cast

import pyarrow as pa

from .columns import Columns
from .selectors import Selector, type_name


class Cols:
    """Starts chains of ops: ``cols("a", "b")`` on these columns, ``cols.numeric()`` and others on a selection.

    A selection is of the dataset's stored columns, in the schema's order. It is resolved when the plan is fitted or
    streamed, or by `Plan.resolve`. Derived columns are not selected.
    """

    def __call__(self, *names: str) -> Columns:
        """Start a chain of ops on stored or derived columns."""
        return _named(names)

    def __repr__(self) -> str:
        return "cols"

    def all(self) -> Columns:
        """Select all columns; see `Columns.exclude`."""
        return Columns((), selector=Selector("all"))

    def numeric(self) -> Columns:
        """Select columns of integers, floats and decimals."""
        return Columns((), selector=Selector("numeric"))

    def strings(self) -> Columns:
        """Select columns of text, also dictionary-encoded ones."""
        return Columns((), selector=Selector("strings"))

    def of_type(self, *types: pa.DataType | str) -> Columns:
        """Select columns of these Arrow types; ``"timestamp"`` is one with any unit and time zone."""
        if not types:
            raise TypeError('of_type requires a type: cols.of_type(pa.int64(), "timestamp")')
        return Columns((), selector=Selector("of_type", tuple(map(type_name, types))))

    def matching(self, pattern: str) -> Columns:
        """Select columns whose names contain a match of the regular expression: ``cols.matching(r"^C[0-9]+$")``."""
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ValueError(f"matching: {pattern!r} is not a regular expression: {error}") from None
        return Columns((), selector=Selector("matching", (pattern,)))


cols = Cols()


def _named(names: tuple[str, ...]) -> Columns:
    if not names:
        raise TypeError('cols requires a column name: cols("dep_delay", "distance")')
    for name in names:
        if not isinstance(cast(object, name), str) or not name:
            raise TypeError(f'cols expects separate column names, cols("a", "b"); not {name!r}')
    return Columns(tuple(names))
