"""What a plan needs besides its outputs: derived columns, and the list of differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from forebay._plan.chains import cols
from forebay._plan.names import quoted, suggestion
from forebay._plan.outputs import Output

from .symbols import Scalar

# Ops that make no NaN of numbers, so that a NaN after them was one before.
WITHOUT_NEW_NAN = frozenset({"standardize", "min_max", "max_abs", "robust", "clip", "abs", "fill_null"})


class Derivations:
    """Derived columns by name, and the differences from the other library."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self.derive: dict[str, str] = {}
        self.differences: list[str] = []
        self._schema = schema

    def note(self, line: str) -> None:
        """Add a difference, once."""
        if line not in self.differences:
            self.differences.append(line)

    def column(self, name: str, where: str) -> Scalar:
        """Return a column of the dataset; `where` begins the error if the schema does not have it."""
        if self._schema is None:
            return Scalar(cols(name), quoted(name))
        if name not in self._schema.names:
            near = suggestion(name, self._schema.names)
            raise ValueError(f"{where} {name!r}, which the schema does not have: {near}")
        column = cast(Any, self._schema).field(self._schema.get_field_index(name))
        kind = cast(pa.DataType, column.type)
        if isinstance(kind, pa.DictionaryType):
            kind = cast(pa.DataType, cast(Any, kind).value_type)
        return Scalar(cols(name), quoted(name), kind, null=bool(column.nullable), nan=pa.types.is_floating(kind))

    def derived(self, name: str, expr: str) -> str:
        """Derive a column, and return its name: this one, or one with a number if the name exists."""
        taken = {*self.derive, *([] if self._schema is None else self._schema.names)}
        names = [name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))]
        for one in names:
            if self.derive.get(one) == expr:
                return one
            if one not in taken:
                self.derive[one] = expr
                return one
        raise AssertionError(name)

    def without_nan(self, scalar: Scalar, name: str) -> Scalar:
        """Return a column whose NaN became null."""
        if not scalar.nan:
            return scalar
        assert scalar.reference is not None, name
        column = scalar.reference
        expr = f"CASE WHEN isnan(CAST({column} AS DOUBLE)) THEN NULL ELSE {column} END"
        return Scalar(cols(self.derived(f"{name}_without_nan", expr)), None, scalar.kind, nan=False)

    def missing_as_null(self, scalar: Scalar) -> Scalar:
        """Return a column after ops in which only null is missing; see `makes_nan`."""
        if not scalar.nan:
            return scalar
        assert makes_nan(scalar) is None, scalar
        # The ops before keep null and NaN, so NaN may become null before them.
        name = scalar.part.names[0]
        stored = self.without_nan(Scalar(cols(name), None, scalar.kind), name)
        return replace(scalar, part=replace(stored.part, ops=scalar.part.ops), sql=None, nan=False)


def makes_nan(scalar: Scalar) -> str | None:
    """Return the op of a chain that may make NaN, so that a NaN after it is not one before; None if there is none."""
    return next((op.name for op in scalar.part.ops if op.name not in WITHOUT_NEW_NAN), None)


def needed(derive: Mapping[str, str], outputs: Mapping[str, Output]) -> dict[str, str]:
    """Return the derived columns that outputs read, and those that these read, in order."""
    wanted = {name for made in outputs.values() for part in made.parts for name in part.names}
    for name in reversed(list(derive)):
        if name in wanted:
            wanted |= {one for one in derive if one != name and f'"{one}"' in derive[name]}
    return {name: expr for name, expr in derive.items() if name in wanted}
