"""Rules for numbers: arithmetic, rounding, bits, casts, and functions of strings and timestamps."""

from __future__ import annotations

from harness.filters.grammar import FAMILIES, FLOATS, INTEGERS, Expr, Grammar, register, register_each
from harness.filters.rules_bool import NEAREST

# A rule over integers gives int64. The kind of narrow columns is also int64, the type that both are compared as.
SMALL = [0, 1, 2, 3, -1, -2, 7, 10, 100]


def operand(grammar: Grammar, kind: str, depth: int) -> Expr:
    """A value of the kind, or a small integer."""
    if grammar.random.random() < 0.35:
        text = f"({number})" if (number := grammar.random.choice(SMALL)) < 0 else str(number)
        return Expr(text, kind, f"{text}::DOUBLE" if kind == "f64" else text)
    return grammar.value(kind, depth)


def widened(kind: str, form: str) -> str | None:
    """The DuckDB text of an arithmetic operation. Forebay computes narrow integers in int64."""
    if kind in ("narrow", "i64"):
        return form.replace("$0", "$0::BIGINT").replace("$1", "$1::BIGINT")
    if kind == "u64":
        # Exact in both; Forebay fails where its result, a uint64 or an int64, does not hold the value.
        return form.replace("$0", "$0::HUGEINT").replace("$1", "$1::HUGEINT")
    # DuckDB computes a FLOAT and an integer in DOUBLE.
    return form if kind in ("f64", "decimal") else None


@register_each(*INTEGERS, *FLOATS, "decimal", "wide")
def sum_or_product(grammar: Grammar, depth: int, kind: str) -> Expr:
    form = f"($0 {grammar.random.choice('+-*')} $1)"
    return Expr(form, kind, widened(kind, form), (grammar.value(kind, depth), operand(grammar, kind, depth)))


@register_each(*INTEGERS, *FLOATS, "decimal", "wide")
def quotient(grammar: Grammar, depth: int, kind: str) -> Expr:
    """DuckDB divides integers with `//`. The quotient of decimals is a float64: see `quotient_of_decimals`."""
    operator = "%" if kind in ("decimal", "wide") else grammar.random.choice("/%")
    duck = f"($0 {'//' if operator == '/' and kind in INTEGERS else operator} $1)"
    known = None if kind == "decimal" else widened(kind, duck)
    return Expr(f"($0 {operator} $1)", kind, known, (grammar.value(kind, depth), operand(grammar, kind, depth)))


@register("f64")
def mixed(grammar: Grammar, depth: int) -> Expr:
    """Integers and narrower floats with a float64."""
    other = grammar.some_kind("number")
    form = f"($0 {grammar.random.choice('+-*/')} $1)"
    duck = "$0::DOUBLE" if other in ("narrow", "i64", "f32", "f16") else None
    duck = form.replace("$1", "$1::DOUBLE") if duck else None
    return Expr(form, "f64", duck, (grammar.value("f64", depth), grammar.value(other, depth)))


@register_each(*INTEGERS, *FLOATS, "decimal", "wide")
def minus(grammar: Grammar, depth: int, kind: str) -> Expr:
    return Expr("(- $0)", kind, widened(kind, "(- $0)"), (grammar.value(kind, depth),))


@register_each(*INTEGERS, *FLOATS, "decimal", "wide")
def magnitude(grammar: Grammar, depth: int, kind: str) -> Expr:
    return Expr("abs($0)", kind, widened(kind, "abs($0)"), (grammar.value(kind, depth),))


@register_each(*FLOATS, "decimal", "narrow")
def rounded(grammar: Grammar, depth: int, kind: str) -> Expr:
    """DuckDB returns other types for decimals and integers, so it is not an oracle for them."""
    name = grammar.random.choice(["round", "floor", "ceil", "trunc"])
    duck = f"{name}($0)" if kind in ("f64", "f32") else None
    return Expr(f"{name}($0)", kind, duck, (grammar.value(kind, depth),))


@register_each("f64", "decimal")
def rounded_to(grammar: Grammar, depth: int, kind: str) -> Expr:
    """DuckDB scales float64 values differently before rounding, so it is not an oracle here."""
    digits = grammar.random.choice(["1", "2", "(-1)", "0"])
    name = grammar.random.choice(["round", "trunc"])
    return Expr(f"{name}($0, {digits})", kind, None, (grammar.value(kind, depth),))


@register("narrow", "i64")
def bits(grammar: Grammar, depth: int) -> Expr:
    """DuckDB refuses to shift negative numbers, or by more than the width."""
    operator = grammar.random.choice(["&", "|", "^", "<<", ">>"])
    kind = grammar.random.choice(["narrow", "i64"])
    left, right = grammar.column(kind) or operand(grammar, kind, depth), operand(grammar, kind, depth)
    duck = f"($0::BIGINT {operator} $1::BIGINT)" if operator in "&|" else None
    return Expr(f"($0 {operator} $1)", "i64", duck, (left, right))


INTEGER_TYPES = ["TINYINT", "SMALLINT", "INT", "BIGINT"]
UNSIGNED_TYPES = ["TINYINT UNSIGNED", "SMALLINT UNSIGNED", "INT UNSIGNED", "BIGINT UNSIGNED"]


@register("narrow", "i64")
def to_integer(grammar: Grammar, depth: int) -> Expr:
    """Forebay truncates a fraction, DuckDB rounds it: there, trunc() is applied first."""
    kind = grammar.some_kind("number")
    name = grammar.random.choice(["CAST", "TRY_CAST"])
    target = grammar.random.choice(INTEGER_TYPES)
    inner = "trunc($0)" if kind in (*FLOATS, "decimal") else "$0"
    known = kind != "wide"
    return Expr(
        f"{name}($0 AS {target})",
        "narrow",
        f"{name}({inner} AS {target})" if known else None,
        (grammar.value(kind, depth),),
    )


@register("u64", "narrow")
def to_unsigned(grammar: Grammar, depth: int) -> Expr:
    kind = grammar.some_kind("number")
    name = grammar.random.choice(["CAST", "TRY_CAST"])
    target = grammar.random.choice(UNSIGNED_TYPES)
    return Expr(f"{name}($0 AS {target})", "u64", None, (grammar.value(kind, depth),))


@register("f64")
def to_double(grammar: Grammar, depth: int) -> Expr:
    kind = grammar.some_kind("number")
    duck = None if kind == "wide" else f"CAST({NEAREST if kind == 'decimal' else '$0'} AS DOUBLE)"
    return Expr("CAST($0 AS DOUBLE)", "f64", duck, (grammar.value(kind, depth),))


@register("f32")
def to_real(grammar: Grammar, depth: int) -> Expr:
    """A float64 out of range for float32 becomes infinity in Forebay and an error in DuckDB."""
    kind = grammar.some_kind("number")
    return Expr("CAST($0 AS REAL)", "f32", None, (grammar.value(kind, depth),))


@register("decimal")
def to_decimal(grammar: Grammar, depth: int) -> Expr:
    kind = grammar.some_kind("number")
    name = grammar.random.choice(["CAST", "TRY_CAST"])
    target = grammar.random.choice(["DECIMAL(9, 2)", "DECIMAL(20, 0)", "DECIMAL(38, 6)", "DECIMAL(5, 1)"])
    duck = f"{name}($0 AS {target})" if kind in INTEGERS else None
    return Expr(f"{name}($0 AS {target})", "decimal", duck, (grammar.value(kind, depth),))


@register("narrow", "i64")
def of_text(grammar: Grammar, depth: int) -> Expr | None:
    """DuckDB parses numbers more leniently (' 7 ', '2.5'), so it is not an oracle for casts from strings."""
    if "text" not in grammar.kinds:
        return None
    form, known = grammar.random.choice(
        [
            ("length($0)", True),
            ("octet_length($0)", False),
            ("strpos($0, 'a')", True),
            ("ascii($0)", False),
            ("TRY_CAST($0 AS BIGINT)", False),
            ("TRY_CAST($0 AS TINYINT)", False),
            ("CAST($0 AS INT)", False),
        ]
    )
    return Expr(form, "narrow", form if known else None, (grammar.value("text", depth),))


@register("f64")
def of_text_float(grammar: Grammar, depth: int) -> Expr | None:
    if "text" not in grammar.kinds:
        return None
    return Expr("TRY_CAST($0 AS DOUBLE)", "f64", None, (grammar.value("text", depth),))


@register("narrow")
def of_bool(grammar: Grammar, depth: int) -> Expr:
    return Expr("CAST($0 AS INT)", "narrow", "CAST($0 AS INT)", (grammar.draw("bool", depth),))


DATE_PARTS = ["year", "quarter", "month", "week", "day", "dow", "doy"]
TIME_PARTS = [*DATE_PARTS, "hour", "minute"]


@register("narrow", "i64")
def date_part(grammar: Grammar, depth: int) -> Expr | None:
    kind = grammar.some_kind("moment")
    if FAMILIES.get(kind) != "moment" or kind not in grammar.kinds:
        return None
    part = grammar.random.choice(DATE_PARTS if kind == "date" else TIME_PARTS)
    inner = "$0" if kind == "date" else "as_stamp($0)"
    form = f"date_part('{part}', $0)" if grammar.random.random() < 0.7 else f"extract({part} FROM $0)"
    return Expr(form, "narrow", f"date_part('{part}', {inner})", (grammar.value(kind, depth),))
