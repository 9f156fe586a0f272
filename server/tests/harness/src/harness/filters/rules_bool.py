"""Rules for booleans: comparisons of all kinds of values, lists, patterns and boolean operators."""

from __future__ import annotations

from harness.filters.grammar import FAMILIES, FLOATS, INTEGERS, Expr, Grammar, register

COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


def comparable(left: Expr, right: Expr) -> tuple[str, str] | None:
    """The two sides of a comparison in DuckDB, each as `$0`, or None if DuckDB would convert them differently."""
    kinds = {left.kind, right.kind}
    if kinds & {"date"} and kinds - {"date"}:
        return moment(left), moment(right)
    if not all(FAMILIES[kind] == "number" for kind in kinds):
        return "$0", "$0"
    if kinds <= {*FLOATS}:
        # DuckDB parses 0.1 as a decimal, and casts it to FLOAT when compared with one.
        exact = all(abs(float(part.written.strip("()"))) <= 2**53 for part in (left, right) if part.written)
        return ("$0::DOUBLE", "$0::DOUBLE") if exact else None
    if any(is_double(part) for part in (left, right)):
        # NaN, infinities and numbers far from any integer: float64 is exact enough.
        return ("$0::DOUBLE", "$0::DOUBLE") if all(not part.parts for part in (left, right)) else None
    if kinds & {*FLOATS}:
        # Both round to float64.
        exact = not any(part.written for part in (left, right)) and "wide" not in kinds
        return (nearest(left), nearest(right)) if exact else None
    # A number that is written is compared as written: a decimal of at most 38 digits.
    places = max(scale(left), scale(right))
    return of_integer(left, places), of_integer(right, places)


# DuckDB converts decimals of more than 15 digits with two roundings, and texts with one.
NEAREST = "$0::VARCHAR"


def nearest(part: Expr) -> str:
    return f"{NEAREST}::DOUBLE" if part.kind == "decimal" else "$0::DOUBLE"


def is_double(part: Expr) -> bool:
    return not part.column and "::DOUBLE" in (part.duck_form or "") and not part.written


def of_integer(part: Expr, places: int) -> str:
    if part.written:
        return part.written
    return f"CAST($0 AS DECIMAL(38, {places}))" if places and part.kind in INTEGERS else "$0"


def scale(part: Expr) -> int:
    return len(part.written.strip("()").partition(".")[2])


def moment(part: Expr) -> str:
    return "date_ns($0)" if part.kind == "date" else "$0"


def comparison(left: Expr, right: Expr, operator: str) -> Expr:
    texts = comparable(left, right)
    duck = f"({texts[0]} {operator} {texts[1].replace('$0', '$1')})" if texts else None
    return Expr(f"($0 {operator} $1)", "bool", duck, (left, right))


def pair(grammar: Grammar, depth: int) -> tuple[Expr, Expr]:
    """Two values of one family, the second mostly a stored value of the first."""
    kind = grammar.some_kind()
    left = grammar.value(kind, depth)
    chance = grammar.random.random()
    if chance < 0.6:
        right = grammar.literal(kind, left)
    elif chance < 0.8:
        right = grammar.value(kind, depth)
    else:
        right = grammar.value(grammar.some_kind(FAMILIES[kind]), depth)
    return left, right


@register("bool", weight=8)
def compared(grammar: Grammar, depth: int) -> Expr:
    left, right = pair(grammar, depth)
    if grammar.random.random() < 0.2:
        left, right = right, left
    return comparison(left, right, grammar.random.choice(COMPARISONS))


@register("bool")
def compared_with_null(grammar: Grammar, depth: int) -> Expr:
    kind = grammar.some_kind()
    operator = grammar.random.choice(COMPARISONS)
    return Expr(f"($0 {operator} $1)", "bool", f"($0 {operator} $1)", (grammar.value(kind, depth), grammar.null(kind)))


@register("bool", weight=2)
def between(grammar: Grammar, depth: int) -> Expr:
    """DuckDB evaluates the two comparisons that define BETWEEN."""
    value, low = pair(grammar, depth)
    high = grammar.literal(value.kind, value)
    negated = grammar.random.choice(["", "NOT "])
    above, below = comparison(value, low, ">="), comparison(value, high, "<=")
    duck = None
    if above.duck_form and below.duck_form:
        duck = f"({negated}({above.duck_form} AND {below.duck_form.replace('$1', '$2')}))"
    return Expr(f"($0 {negated}BETWEEN $1 AND $2)", "bool", duck, (value, low, high))


@register("bool", weight=3)
def in_list(grammar: Grammar, depth: int) -> Expr:
    """DuckDB evaluates the comparisons that define IN."""
    kind = grammar.some_kind()
    value = grammar.value(kind, depth)
    items = [grammar.literal(kind, value) for _ in range(grammar.random.choice([1, 2, 3, 4, 6, 24]))]
    if grammar.random.random() < 0.3:
        items[-1] = grammar.null(kind)
    negated = grammar.random.choice(["", "NOT "])
    equal = [comparison(value, item, "=").duck_form if item.form != "NULL" else "($0 = $1)" for item in items]
    duck = None
    if all(equal):
        joined = " OR ".join((text or "").replace("$1", f"${index + 1}") for index, text in enumerate(equal))
        duck = f"({negated}({joined}))"
    named = ", ".join(f"${index + 1}" for index in range(len(items)))
    return Expr(f"($0 {negated}IN ({named}))", "bool", duck, (value, *items))


@register("bool", weight=2)
def is_null(grammar: Grammar, depth: int) -> Expr:
    form = f"($0 IS {grammar.random.choice(['', 'NOT '])}NULL)"
    return Expr(form, "bool", form, (grammar.value(grammar.some_kind(), depth),))


@register("bool", weight=3)
def joined(grammar: Grammar, depth: int) -> Expr:
    form = f"($0 {grammar.random.choice(['AND', 'OR'])} $1)"
    return Expr(form, "bool", form, (grammar.draw("bool", depth), grammar.draw("bool", depth)), lazy=True)


@register("bool", weight=2)
def negated(grammar: Grammar, depth: int) -> Expr:
    return Expr("(NOT $0)", "bool", "(NOT $0)", (grammar.draw("bool", depth),))


@register("bool")
def truth(grammar: Grammar, depth: int) -> Expr:
    truth_value = grammar.random.choice(["TRUE", "FALSE", "UNKNOWN"])
    negated = grammar.random.choice(["", "NOT "])
    duck = f"($0 IS {negated}{'NULL' if truth_value == 'UNKNOWN' else truth_value})"
    return Expr(f"($0 IS {negated}{truth_value})", "bool", duck, (grammar.draw("bool", depth),))


PATTERNS = [
    "%",
    "_",
    "a%",
    "%b",
    "%a%",
    "ab",
    "",
    "a_",
    "A%",
    "%é%",
    "_日%",
    "\\%%",
    "%\\_",
    "the same%",
    "% or nearly%",
]


@register("bool", weight=2)
def like(grammar: Grammar, depth: int) -> Expr | None:
    if "text" not in grammar.kinds:
        return None
    pattern = grammar.random.choice(PATTERNS)
    operator = grammar.random.choice(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
    # The backslash escapes here as in PostgreSQL; DuckDB has no escape unless one is named.
    duck = f"($0 {operator} $1 ESCAPE '\\')"
    return Expr(f"($0 {operator} $1)", "bool", duck, (grammar.value("text", depth), pattern_expr(pattern)))


@register("bool", weight=2)
def begins(grammar: Grammar, depth: int) -> Expr | None:
    if "text" not in grammar.kinds:
        return None
    name = grammar.random.choice(["starts_with", "ends_with", "contains"])
    value = grammar.value("text", depth)
    piece = (
        grammar.literal("text", value)
        if grammar.random.random() < 0.5
        else pattern_expr(grammar.random.choice(["a", "", "the"]))
    )
    return Expr(f"{name}($0, $1)", "bool", f"{name}($0, $1)", (value, piece))


def pattern_expr(text: str) -> Expr:
    return Expr(f"'{text}'", "pattern", f"'{text}'")


@register("bool")
def is_nan(grammar: Grammar, depth: int) -> Expr | None:
    kind = grammar.some_kind("number")
    if kind not in FLOATS:
        return None
    return Expr("isnan($0)", "bool", "isnan($0::DOUBLE)", (grammar.value(kind, depth),))


@register("bool")
def number_as_text(grammar: Grammar, depth: int) -> Expr:
    """A value against a string. DuckDB always casts the string to the column's type, so it is not an oracle here."""
    kind = grammar.some_kind()
    value = grammar.value(kind, depth)
    return Expr(f"($0 {grammar.random.choice(COMPARISONS)} $1)", "bool", None, (value, pattern_expr("7")))


NUMBERS = [
    "Int8",
    "Int32",
    "Int64",
    "UInt8",
    "UInt64",
    "Float32",
    "Float64",
    "Decimal128(9, 1)",
    "Decimal256(60, 0)",
    "Boolean",
]
STAMPS = ["Timestamp(Second, None)", "Timestamp(Millisecond, None)"]

# What each family is cast to; all are cast to Utf8, too.
TYPES = {
    "number": NUMBERS,
    "moment": ["Date32", "Date64", *STAMPS, "Int64", "Time64(Microsecond)"],
    "time": ["Time32(Second)", "Time64(Nanosecond)", "Int64"],
    "text": ["LargeUtf8", "Binary", "Int32", "Date32"],
    "bytes": ["LargeBinary", "Utf8"],
    "bool": ["Int8", "Float64"],
}


@register("bool", weight=3)
def cast_and_compared(grammar: Grammar, depth: int) -> Expr:
    """Both sides cast to one type: not every cast preserves order. DuckDB's casts differ, so it is not an oracle."""
    kind = grammar.some_kind()
    target = grammar.random.choice([*TYPES[FAMILIES[kind]], "Utf8"])
    value = grammar.leaf(kind)
    operator = grammar.random.choice(COMPARISONS)
    left = grammar.random.choice(["arrow_cast($0, '{0}')", "arrow_try_cast($0, '{0}')"]).format(target)
    form = f"({left} {operator} arrow_cast($1, '{target}'))"
    return Expr(form, "bool", None, (value, grammar.literal(kind, value)))
