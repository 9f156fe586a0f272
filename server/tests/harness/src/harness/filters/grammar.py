"""Random SQL expressions over a table: trees of typed parts, each with its equivalent in DuckDB's dialect.

This module has the tree, the leaves and the choice between rules; the rules are in `filter_rules_*.py`. A part that
DuckDB reads differently has no DuckDB text, and no enclosing expression has one: only Forebay's results are compared.

Timestamps are nanoseconds since 1970 as HUGEINT in DuckDB's texts: its own types do not hold all instants of all units.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pyarrow as pa

from harness.filters import literals
from harness.filters.columns import DAY_SECONDS, UNIT_NS, Column
from harness.filters.tables import Drawn

DEPTH_MAX = 3
MILLISECONDS_PER_DAY = DAY_SECONDS * 1000

# Kinds that one arithmetic, one comparison or one CASE may mix.
FAMILIES = {
    "narrow": "number",
    "i64": "number",
    "u64": "number",
    "f16": "number",
    "f32": "number",
    "f64": "number",
    "decimal": "number",
    "wide": "number",
    "date": "moment",
    "stamp": "moment",
    "zoned": "moment",
    "local": "moment",
    "time": "time",
    "fine_time": "time",
    "text": "text",
    "bytes": "bytes",
    "bool": "bool",
}
INTEGERS = ("narrow", "i64", "u64")
FLOATS = ("f16", "f32", "f64")


@dataclass(frozen=True)
class Expr:
    """A part of an expression. `$0`, `$1` ... in its texts are placeholders for its parts; a leaf has none."""

    form: str
    kind: str
    duck_form: str | None = None
    parts: tuple[Expr, ...] = ()
    # Whether a row decides which parts are evaluated: an error there may depend on the other rows of the batch.
    lazy: bool = False
    # The column of a leaf; the number of a literal as it is written, where DuckDB reads that as a decimal.
    column: str = ""
    written: str = ""

    @property
    def sql(self) -> str:
        return fill(self.form, [part.sql for part in self.parts])

    @property
    def duck(self) -> str | None:
        texts = [part.duck for part in self.parts]
        if self.duck_form is None or any(text is None for text in texts):
            return None
        return fill(self.duck_form, [text or "" for text in texts])

    @property
    def is_lazy(self) -> bool:
        return self.lazy or any(part.is_lazy for part in self.parts)

    @property
    def reads_columns(self) -> bool:
        return any(part.column for part in self.walk())

    def walk(self) -> Iterator[Expr]:
        yield self
        for part in self.parts:
            yield from part.walk()

    def with_part(self, index: int, part: Expr) -> Expr:
        return replace(self, parts=(*self.parts[:index], part, *self.parts[index + 1 :]))


def fill(form: str, texts: list[str]) -> str:
    return re.sub(r"\$(\d+)", lambda found: texts[int(found[1])], form) if texts else form


Rule = Callable[["Grammar", int], "Expr | None"]
KindRule = Callable[["Grammar", int, str], "Expr | None"]

# The rules that make an expression of a kind; `register` fills them.
RULES: dict[str, list[Rule]] = {}


def register(*kinds: str, weight: int = 1) -> Callable[[Rule], Rule]:
    """Offers a rule for expressions of these kinds. A rule that cannot be used on a table returns None."""

    def add(rule: Rule) -> Rule:
        for kind in kinds:
            RULES.setdefault(kind, []).extend([rule] * weight)
        return rule

    return add


def register_each(*kinds: str) -> Callable[[KindRule], KindRule]:
    """Like `register`, for a rule with the kind as an argument."""

    def add(rule: KindRule) -> KindRule:
        for kind in kinds:
            RULES.setdefault(kind, []).append(partial(rule, kind=kind))
        return rule

    return add


class Grammar:
    """Draws expressions over one table."""

    def __init__(self, table: Drawn, random: Random) -> None:
        self.table = table
        self.random = random
        self.kinds = sorted({column.kind for column in table.columns})

    def draw(self, kind: str, depth: int = 0) -> Expr:
        """An expression of the kind."""
        while True:
            if depth >= DEPTH_MAX or self.random.random() < 0.15 * depth:
                return self.leaf(kind)
            made = self.random.choice(RULES[kind])(self, depth + 1)
            if made is not None:
                return made

    def leaf(self, kind: str) -> Expr:
        return self.column(kind) or self.literal(kind)

    def value(self, kind: str, depth: int) -> Expr:
        """Mostly a column, because only columns have statistics."""
        return self.leaf(kind) if self.random.random() < 0.6 else self.draw(kind, depth)

    def column(self, kind: str) -> Expr | None:
        offered = [column for column in self.table.columns if column.kind == kind]
        return column_expr(self.random.choice(offered)) if offered else None

    def some_kind(self, family: str | None = None) -> str:
        """A kind, of the family if one is given, preferably one of which the table has a column."""
        kinds = [kind for kind in self.kinds if family in (None, FAMILIES[kind])]
        return self.random.choice(kinds or [kind for kind, name in FAMILIES.items() if name == family])

    def literal(self, kind: str, near: Expr | None = None) -> Expr:
        """A literal, mostly a stored value of the column that it is compared with."""
        columns = [column for column in self.table.columns if column.kind == kind]
        named = next((column for column in columns if near is not None and column.name == near.column), None)
        chosen = named or (self.random.choice(columns) if columns else None)
        stored = [value for value in self.table.values[chosen.name] if value is not None] if chosen else []
        if not stored or self.random.random() < 0.25:
            value, unit = literals.any_value(kind, self.random), None
        else:
            value, unit = self.random.choice(stored), unit_ns(chosen)
            if chosen and pa.types.is_date64(chosen.type):
                value //= MILLISECONDS_PER_DAY
        sql, duck, written = literals.texts(kind, value, unit, self.random, untyped=near is not None)
        return Expr(sql, kind, duck, written=written)

    def null(self, kind: str) -> Expr:
        return Expr("NULL", kind, "NULL")


def unit_ns(column: Column | None) -> int | None:
    unit = getattr(column.type, "unit", None) if column else None
    return UNIT_NS.get(unit) if unit else None


def column_expr(column: Column) -> Expr:
    name = column.name
    match column.kind:
        case "stamp" | "zoned":
            duck = f"epoch_ns({name})::HUGEINT" if column.type.unit == "ns" else f"us_ns({name})"
        case "wide" | "local" | "fine_time":
            # DuckDB has no decimals of more than 38 digits; it forgets zones; its TIME has microseconds.
            duck = None
        case _:
            duck = name
    return Expr(name, column.kind, duck, column=name)
