"""Selection of a dataset's columns by type or by name, once its schema is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from .names import suggestion

COLUMNS_SHOWN = 20


@dataclass(frozen=True)
class Selector:
    """A condition on the stored columns of a dataset; derived columns are not selected."""

    kind: str
    """all, numeric, strings, matching or of_type."""
    arguments: tuple[str, ...] = ()
    """A regular expression, or names of types."""
    excluded: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"cols.{self.kind}({', '.join(map(repr, self.arguments))})"
        return f"{text}.exclude({', '.join(map(repr, self.excluded))})" if self.excluded else text

    def select(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns in the schema's order; raise ValueError if there are none, or for an unknown exclusion."""
        for name in self.excluded:
            if name not in schema.names:
                raise ValueError(f"{self}: the dataset has no column {name!r}: {suggestion(name, schema.names)}")
        fields = cast("list[pa.Field[Any]]", list(schema))
        found = tuple(field.name for field in fields if field.name not in self.excluded and self._accepts(field))
        if not found:
            shown = [f"{field.name} {cast(object, field.type)}" for field in fields[:COLUMNS_SHOWN]]
            more = [f"… {len(fields) - COLUMNS_SHOWN} more"] if len(fields) > COLUMNS_SHOWN else []
            raise ValueError(f"{self} selects none of the dataset's columns: {', '.join([*shown, *more])}")
        return found

    def _accepts(self, field: pa.Field[Any]) -> bool:
        kind = cast(pa.DataType, field.type)
        if self.kind == "matching":
            return re.search(self.arguments[0], field.name) is not None
        if self.kind == "of_type":
            return str(kind) in self.arguments or re.split(r"[\[(<]", str(kind))[0] in self.arguments
        if self.kind == "numeric":
            return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if self.kind == "strings":
            plain = cast(pa.DataType, cast(Any, kind).value_type) if pa.types.is_dictionary(kind) else kind
            return pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain)
        return True


def type_name(value: object) -> str:
    """Return the name of an Arrow type, given as such or as text."""
    if isinstance(value, pa.DataType):
        return str(cast(object, value))
    if isinstance(value, str) and value:
        return value
    raise TypeError(f'of_type expects Arrow types or their names, such as pa.int64() or "timestamp"; not {value!r}')
