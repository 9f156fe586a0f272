"""The state of a translation: the DataFrame's columns after the stages so far, and what the plan needs for them."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from forebay._plan.chains import cols
from forebay._plan.columns import Columns
from forebay._plan.names import quoted, suggestion
from forebay._plan.translation.derivations import Derivations
from forebay._plan.translation.symbols import Scalar, Vector

from .predicted import Predicted, Symbol
from .stage import MllibStage

# The server's limit of an expression.
FILTER_BYTES_MAX = 65_536


class Frame(Derivations):
    """Columns by name, derived columns, filters, and the differences from Spark."""

    def __init__(self, schema: pa.Schema | None) -> None:
        super().__init__(schema)
        self.symbols: dict[str, Symbol] = {}
        self.filters: list[str] = []
        self.made: list[str] = []
        """Columns that stages made, in order; without those that a later stage replaced."""
        self.consumed: set[str] = set()
        self.wanted: dict[str, Symbol] = {}
        """Columns that predictors read, which are outputs though a stage reads them."""
        self._is_closed = False

    def symbol(self, stage: MllibStage, name: str) -> Symbol:
        """Return a column that the stage reads: one that an earlier stage made, or a stored one."""
        known = self._spelled(name, list(self.symbols))
        if known is not None:
            self.consumed.add(known)
            found = self.symbols[known]
            if isinstance(found, Predicted):
                raise stage.refusal(f"reads column {name!r}, which the predictor {found.uid} adds; remove the stage")
            return found
        if self._is_closed:
            raise stage.refusal(f"reads column {name!r}, which an earlier SQLTransformer does not select")
        return self.stored(stage, name)

    def stored(self, stage: MllibStage, name: str) -> Scalar:
        """Return a column of the dataset."""
        if self._schema is None:
            return Scalar(cols(name), quoted(name))
        spelled = self._spelled(name, self._schema.names)
        if spelled is None:
            near = suggestion(name, self._schema.names)
            raise stage.refusal(f"reads column {name!r}, which the schema does not have: {near}")
        column = cast(Any, self._schema).field(self._schema.get_field_index(spelled))
        kind = cast(pa.DataType, column.type)
        return Scalar(cols(spelled), quoted(spelled), kind, null=bool(column.nullable), nan=pa.types.is_floating(kind))

    def has(self, name: str) -> bool:
        """Whether there is such a column, as far as it is known."""
        if self._spelled(name, list(self.symbols)) is not None:
            return True
        return not self._is_closed and (self._schema is None or self._spelled(name, self._schema.names) is not None)

    def scalar(self, stage: MllibStage, name: str) -> Scalar:
        """Return a column of single values that the stage reads."""
        found = self.symbol(stage, name)
        if not isinstance(found, Scalar):
            raise stage.refusal(f"reads column {name!r} as single values, but it has vectors")
        return found

    def vector(self, stage: MllibStage, name: str) -> Vector:
        """Return a column of vectors that the stage reads."""
        found = self.symbol(stage, name)
        if not isinstance(found, Vector):
            raise stage.refusal(
                f"reads column {name!r} as vectors, which no VectorAssembler or OneHotEncoder of this pipeline makes; "
                "vectors stored in the dataset are not supported: store their elements as columns"
            )
        return found

    def put(self, name: str, symbol: Symbol) -> None:
        """Add a column, or replace the one of this name."""
        self.symbols[name] = symbol
        self.consumed.discard(name)
        if name in self.made:
            self.made.remove(name)
        self.made.append(name)

    def select_only(self) -> None:
        """Drop all columns, those of the dataset too; `put` adds the selected ones."""
        self._is_closed = True
        self.symbols, self.made = {}, []

    def add_filter(self, stage: MllibStage, condition: str) -> None:
        """Drop the rows for which the condition is not true."""
        if condition not in self.filters:
            self.filters.append(condition)
        size = len(self.filter.encode())
        if size > FILTER_BYTES_MAX:
            raise stage.refusal(
                f"the filter that drops its rows has {size} bytes, the limit is {FILTER_BYTES_MAX}: "
                "set handleInvalid to keep or error"
            )

    @property
    def filter(self) -> str:
        """The filter of the plan."""
        if len(self.filters) == 1:
            return self.filters[0]
        return " AND ".join(f"({one})" for one in self.filters)

    def element(self, name: str, scalar: Scalar) -> Columns:
        """Return the chain of an element of a vector, which is a double in Spark."""
        if scalar.kind is None and scalar.index is None:
            self.note("numbers of float32 columns are computed in float32 here; pass schema= to compute in doubles")
        elif scalar.kind in (pa.float32(), pa.float16()) and scalar.reference is not None:
            return cols(self.derived(f"{name}_double", f"CAST({scalar.reference} AS DOUBLE)"))
        return scalar.part

    @staticmethod
    def _spelled(name: str, names: list[str]) -> str | None:
        """Return the column that Spark finds for a name, ignoring case if there is one such column."""
        if name in names:
            return name
        near = [one for one in names if one.lower() == name.lower()]
        return near[0] if len(near) == 1 else None
