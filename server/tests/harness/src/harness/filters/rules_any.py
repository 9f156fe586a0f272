"""Rules that apply to every kind: coalesce, nullif, greatest, least, CASE."""

from __future__ import annotations

import re

from harness.filters.grammar import FAMILIES, FLOATS, INTEGERS, Expr, Grammar, register_each
from harness.filters.rules_bool import comparison

ALL = tuple(FAMILIES)


def same(grammar: Grammar, depth: int, kind: str, count: int) -> tuple[Expr, ...]:
    """Values of the kind, literals among them."""
    return tuple(
        grammar.value(kind, depth) if index == 0 or grammar.random.random() < 0.5 else grammar.literal(kind)
        for index in range(count)
    )


def known(kind: str, parts: tuple[Expr, ...], form: str, first: int = 0) -> str | None:
    """The DuckDB text of values of a common type, the parts from `first` on; None if DuckDB finds another type."""
    literals = [part for part in parts if not part.parts and not part.column]
    if kind in FLOATS:
        # DuckDB reads 0.1 as a decimal, so all are cast. A narrow float and an integer are a narrow float in Forebay.
        if kind != "f64" and any(part.form.strip("(-)").isdigit() for part in literals):
            return None
        return re.sub(r"\$(\d+)", lambda found: found[0] + ("::DOUBLE" if int(found[1]) >= first else ""), form)
    if kind == "decimal" and len({part.sql for part in parts}) > 1 and any("38" in part.sql for part in parts):
        # DuckDB drops digits of the fraction to keep a common type of two decimals within 38.
        return None
    if kind in INTEGERS and (kind == "u64" or any("." in part.form or "'" in part.form for part in literals)):
        # DuckDB makes a decimal of integers and 2.5, and HUGEINT of uint64 and a negative integer.
        return None
    return form


@register_each(*ALL)
def coalesced(grammar: Grammar, depth: int, kind: str) -> Expr:
    parts = same(grammar, depth, kind, grammar.random.choice([2, 2, 3]))
    form = "coalesce(" + ", ".join(f"${index}" for index in range(len(parts))) + ")"
    return Expr(form, kind, known(kind, parts, form), parts, lazy=True)


@register_each(*ALL)
def null_if(grammar: Grammar, depth: int, kind: str) -> Expr:
    left, right = same(grammar, depth, kind, 2)
    equal = comparison(left, right, "=").duck_form
    duck = known(kind, (left, right), f"CASE WHEN {equal} THEN NULL ELSE $0 END") if equal else None
    return Expr("nullif($0, $1)", kind, duck, (left, right), lazy=True)


@register_each(*(kind for kind in ALL if kind != "bool"))
def extreme(grammar: Grammar, depth: int, kind: str) -> Expr:
    name = grammar.random.choice(["greatest", "least"])
    parts = same(grammar, depth, kind, grammar.random.choice([2, 3]))
    form = f"{name}(" + ", ".join(f"${index}" for index in range(len(parts))) + ")"
    return Expr(form, kind, known(kind, parts, form), parts)


@register_each(*ALL)
def searched_case(grammar: Grammar, depth: int, kind: str) -> Expr:
    condition = grammar.draw("bool", depth)
    values = same(grammar, depth, kind, 2)
    form = f"CASE WHEN $0 THEN $1{grammar.random.choice([' ELSE $2', ''])} END"
    return Expr(form, kind, known(kind, values, form, first=1), (condition, *values), lazy=True)


@register_each(*ALL)
def simple_case(grammar: Grammar, depth: int, kind: str) -> Expr:
    other = grammar.some_kind()
    value = grammar.value(other, depth)
    when = grammar.literal(other, value)
    values = same(grammar, depth, kind, 2)
    equal = comparison(value, when, "=").duck_form
    duck = known(kind, values, f"CASE WHEN {equal} THEN $2 ELSE $3 END", first=2) if equal else None
    return Expr("CASE $0 WHEN $1 THEN $2 ELSE $3 END", kind, duck, (value, when, *values), lazy=True)
