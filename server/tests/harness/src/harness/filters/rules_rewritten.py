"""Rules for expressions that optimizers like to rewrite, and for arithmetic whose type is easily chosen wrongly.

Each has a value that a rewrite by an identity changes for some row: a null, a zero, a base of 1, a quotient cut off.
"""

from __future__ import annotations

from harness.filters.grammar import INTEGERS, Expr, Grammar, register
from harness.filters.rules_bool import COMPARISONS, comparison, pattern_expr

# Decimals that DuckDB converts to the nearest float64: those of at most 15 digits.
SHORT_DECIMALS = ("dec7_2", "dec9_2", "dec15_3", "dec18_0")


@register("bool", weight=2)
def uint64_arithmetic(grammar: Grammar, depth: int) -> Expr | None:
    """Operations of a uint64 with a literal or an integer column, compared exactly. DuckDB computes them in HUGEINT."""
    left = grammar.column("u64")
    if left is None:
        return None
    parts, form, duck = [left], "$0", "$0::HUGEINT"
    for index in range(1, grammar.random.choice([2, 2, 3])):
        operator = grammar.random.choice("+-*///%")
        column = grammar.column(grammar.random.choice(INTEGERS))
        text = str(grammar.random.choice([1, 2, 3, 7, 10, 1000, 2**53 + 1, 2**63]))
        literal = Expr(text, "i64", text)
        part = column if column is not None and grammar.random.random() < 0.4 else literal
        parts.append(part)
        form = f"({form} {operator} ${index})"
        duck = f"({duck} {'//' if operator == '/' else operator} ${index}::HUGEINT)"
    bound = grammar.random.choice(["0", "0", "1", "2", "(-1)", "1000", "18446744073709551614"])
    operator = grammar.random.choice(["=", "<>", *COMPARISONS])
    return Expr(f"({form} {operator} {bound})", "bool", f"({duck} {operator} {bound})", tuple(parts))


@register("bool", weight=2)
def identity_of_logarithms(grammar: Grammar, depth: int) -> Expr:
    """Far from the values of the logarithms, so that their last digits do not count."""
    value = grammar.leaf("f64")
    form = grammar.random.choice(
        [
            "log($0, 1.0)",
            "log($0, $0)",
            "log(2.0, power(2.0, $0))",
            "log(1.0, power(1.0, $0))",
            "power(10.0, log(10.0, $0))",
            "power($0, log($0, 2.0))",
            "power($0, 0.0)",
            "power($0, 1.0)",
        ]
    )
    duck = form.replace("$0", "$0::DOUBLE")
    for number in ("0.0", "1.0", "2.0", "10.0"):
        duck = duck.replace(f"({number},", f"({number}::DOUBLE,").replace(f" {number})", f" {number}::DOUBLE)")
    bound = grammar.random.choice(["-0.125", "0.125", "0.625", "1.625", "1e300"])
    operator = grammar.random.choice(["<", ">="])
    return Expr(f"({form} {operator} {bound})", "bool", f"({duck} {operator} {bound}::DOUBLE)", (value,))


@register("bool", weight=3)
def lists_of_one_value(grammar: Grammar, depth: int) -> Expr:
    """Several lists for one column, often without a common item, and sometimes the test of the result."""
    kind = grammar.some_kind()
    value = grammar.column(kind) or grammar.leaf(kind)
    lists = [listed(grammar, value) for _ in range(grammar.random.choice([2, 2, 3]))]
    joined = lists[0]
    for other in lists[1:]:
        form = f"({grammar.random.choice(['', 'NOT '])}($0 {grammar.random.choice(['AND', 'OR'])} $1))"
        joined = Expr(form, "bool", form, (joined, other))
    tested = grammar.random.choice(["$0", "$0", "(NOT $0)", "($0 IS NULL)", "($0 IS NOT NULL)", "($0 IS NOT TRUE)"])
    return joined if tested == "$0" else Expr(tested, "bool", tested, (joined,))


def listed(grammar: Grammar, value: Expr) -> Expr:
    """`value [NOT] IN (…)`, of one to three items, as DuckDB's comparisons."""
    items = [grammar.literal(value.kind, value) for _ in range(grammar.random.choice([1, 1, 2, 3]))]
    negated = grammar.random.choice(["", "NOT "])
    equal = [comparison(value, item, "=").duck_form for item in items]
    duck = None
    if all(equal):
        joined = " OR ".join((text or "").replace("$1", f"${index + 1}") for index, text in enumerate(equal))
        duck = f"({negated}({joined}))"
    named = ", ".join(f"${index + 1}" for index in range(len(items)))
    return Expr(f"($0 {negated}IN ({named}))", "bool", duck, (value, *items))


REGEXES = [".*", "", "^", "a", "^a", "b$", "^.*$", "^ab$", "^(a|b)$", "^(a|ab)", ".+", "a.*", "[ab]"]


@register("bool", weight=2)
def matched(grammar: Grammar, depth: int) -> Expr | None:
    if "text" not in grammar.kinds:
        return None
    regex = grammar.random.choice(REGEXES)
    negated, flags = grammar.random.choice(["", "!"]), grammar.random.choice(["", "*"])
    found = f"regexp_matches($0, $1, '{'i' if flags else 'c'}s')"
    duck = f"(NOT {found})" if negated else found
    form = f"($0 {negated}~{flags} $1)"
    if not negated and grammar.random.random() < 0.4:
        form = "regexp_like($0, $1, 'i')" if flags else "regexp_like($0, $1)"
    return Expr(form, "bool", duck, (grammar.value("text", depth), pattern_expr(regex)))


# Patterns of SIMILAR TO, and the regular expressions of the whole text.
SIMILAR = {
    "%": ".*",
    "_": ".",
    "a%": "a.*",
    "%a_": ".*a.",
    "(a|b)%": "(a|b).*",
    "a|b": "a|b",
    "[ab]+": "[ab]+",
    "[^ab]*": "[^ab]*",
    "a.": "a\\.",
    "^a$": "\\^a\\$",
    "\\%%": "%.*",
    "": "",
}


@register("bool", weight=2)
def similar(grammar: Grammar, depth: int) -> Expr | None:
    if "text" not in grammar.kinds:
        return None
    pattern, regex = grammar.random.choice(list(SIMILAR.items()))
    negated = grammar.random.choice(["", "NOT "])
    duck = f"({negated}regexp_full_match($0, '{regex}', 's'))"
    return Expr(f"($0 {negated}SIMILAR TO $1)", "bool", duck, (grammar.value("text", depth), pattern_expr(pattern)))


@register("f64")
def quotient_of_decimals(grammar: Grammar, depth: int) -> Expr | None:
    """A float64, in both."""
    left = grammar.column("decimal")
    if left is None or left.column not in SHORT_DECIMALS:
        return None
    other = grammar.column(grammar.random.choice(["decimal", "narrow"]))
    if (
        other is None
        or (other.kind == "decimal" and other.column not in SHORT_DECIMALS)
        or grammar.random.random() < 0.4
    ):
        text = str(grammar.random.choice([1, 3, 7, 1000, 1_000_000]))
        other = Expr(text, "narrow", text)
    parts = (left, other) if grammar.random.random() < 0.6 else (other, left)
    return Expr("($0 / $1)", "f64", "($0::DOUBLE / $1::DOUBLE)", parts)


@register("bool", weight=2)
def quotient_compared(grammar: Grammar, depth: int) -> Expr | None:
    quotient = quotient_of_decimals(grammar, depth)
    if quotient is None:
        return None
    bound = grammar.random.choice(["0", "0.0001", "0.66", "1", "0.000001"])
    operator = grammar.random.choice(["<", "<=", ">", ">="])
    form = f"($0 {operator} {bound})"
    return Expr(form, "bool", f"($0 {operator} {bound}::DOUBLE)", (quotient,))


@register("bool", weight=2)
def identity_with_null(grammar: Grammar, depth: int) -> Expr:
    """What is the same for every value but null."""
    kind = grammar.some_kind()
    value = grammar.column(kind) or grammar.leaf(kind)
    forms = ["($0 = $0)", "($0 <> $0)", "($0 >= $0)", "($0 IS DISTINCT FROM $0)"]
    if kind in ("narrow", "i64"):
        forms += ["($0 * 0 = 0)", "($0 % 1 = 0)", "($0 & 0 = 0)", "($0 / 1 = $0)"]
    if kind == "bool":
        forms += ["($0 AND NOT $0)", "($0 OR NOT $0)", "($0 = true)", "($0 <> true)", "($0 IS NOT FALSE)"]
    form = grammar.random.choice(forms)
    duck = form.replace("/", "//").replace("&", "::BIGINT &") if kind != "wide" else None
    return Expr(form, "bool", duck if value.duck else None, (value,))
