"""Rules for texts, dates, timestamps and times."""

from __future__ import annotations

from harness.filters.grammar import INTEGERS, UNIT_NS, Expr, Grammar, register, register_each

UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]


@register("text", weight=3)
def text_function(grammar: Grammar, depth: int) -> Expr:
    # Letters other than ASCII change case alike in both, as far as the texts of the tables go.
    form = grammar.random.choice(
        [
            "upper($0)",
            "lower($0)",
            "btrim($0)",
            "ltrim($0)",
            "rtrim($0)",
            "reverse($0)",
            "substr($0, 1, 2)",
            "substr($0, 2)",
            "replace($0, 'a', 'xy')",
            "left($0, 2)",
            "right($0, 2)",
        ]
    )
    return Expr(form, "text", form.replace("btrim", "trim"), (grammar.value("text", depth),))


@register("text")
def joined_texts(grammar: Grammar, depth: int) -> Expr:
    form = grammar.random.choice(["($0 || $1)", "concat($0, $1)"])
    return Expr(form, "text", form, (grammar.value("text", depth), grammar.leaf("text")))


@register("text")
def as_text(grammar: Grammar, depth: int) -> Expr:
    """DuckDB formats floats, decimals, timestamps and years after 9999 differently."""
    kind = grammar.some_kind()
    value = grammar.value(kind, depth)
    known = kind in (*INTEGERS, "bool", "text") or value.column == "day"
    return Expr("CAST($0 AS VARCHAR)", "text", "CAST($0 AS VARCHAR)" if known else None, (value,))


@register_each("stamp", "zoned")
def date_trunc(grammar: Grammar, depth: int, kind: str) -> Expr:
    unit = grammar.random.choice(UNITS)
    duck = f"us_ns(date_trunc('{unit}', as_stamp($0)))"
    return Expr(f"date_trunc('{unit}', $0)", kind, duck, (grammar.value(kind, depth),))


@register("stamp")
def date_trunc_of_a_day(grammar: Grammar, depth: int) -> Expr | None:
    if "date" not in grammar.kinds:
        return None
    unit = grammar.random.choice(UNITS[:5])
    duck = f"us_ns(date_trunc('{unit}', $0)::TIMESTAMP)"
    return Expr(f"date_trunc('{unit}', $0)", "stamp", duck, (grammar.value("date", depth),))


@register_each("stamp", "zoned")
def date_bin(grammar: Grammar, depth: int, kind: str) -> Expr:
    width, seconds = grammar.random.choice(
        [("15 minutes", 900), ("1 day", 86_400), ("7 days", 604_800), ("1 hour", 3600), ("10 seconds", 10)]
    )
    duck = f"bin_ns($0, {seconds})"
    return Expr(f"date_bin(INTERVAL '{width}', $0, TIMESTAMP '1970-01-01')", kind, duck, (grammar.value(kind, depth),))


@register("stamp")
def date_bin_of_months(grammar: Grammar, depth: int) -> Expr:
    """DuckDB bins months differently before the origin, so it is not an oracle here."""
    width = grammar.random.choice(["1 month", "3 months", "1 year"])
    form = f"date_bin(INTERVAL '{width}', $0, TIMESTAMP '1970-01-01')"
    return Expr(form, "stamp", None, (grammar.value("stamp", depth),))


@register("stamp")
def to_timestamp(grammar: Grammar, depth: int) -> Expr | None:
    kind = grammar.some_kind("number")
    if kind not in ("narrow", "i64"):
        return None
    name, scale = grammar.random.choice(
        [
            ("to_timestamp", UNIT_NS["s"]),
            ("to_timestamp_seconds", UNIT_NS["s"]),
            ("to_timestamp_millis", UNIT_NS["ms"]),
            ("to_timestamp_micros", UNIT_NS["us"]),
            ("to_timestamp_nanos", UNIT_NS["ns"]),
        ]
    )
    part = grammar.column(kind) or grammar.literal(kind)
    # `to_timestamp` counts microseconds, and is null where they do not fit.
    fits = "abs($0::HUGEINT) <= 9223372036854" if name == "to_timestamp" else "true"
    duck = f"CASE WHEN {fits} THEN $0::HUGEINT * {scale} END" if part.column else None
    return Expr(f"{name}($0)", "stamp", duck, (part,))


@register("stamp")
def to_timestamp_of_text(grammar: Grammar, depth: int) -> Expr | None:
    if "text" not in grammar.kinds:
        return None
    return Expr("to_timestamp(coalesce(nullif($0, $0), '2020-01-01T00:00:00'))", "stamp", None, (grammar.leaf("text"),))


@register_each("stamp", "zoned")
def shifted(grammar: Grammar, depth: int, kind: str) -> Expr:
    """DuckDB adds the seconds to HUGEINT nanoseconds: its TIMESTAMP overflows at other instants."""
    operator = grammar.random.choice("+-")
    width, seconds = grammar.random.choice([("1 day", 86_400), ("1 hour", 3600), ("90 seconds", 90)])
    duck = f"($0 {operator} {seconds}::HUGEINT * 1000000000)"
    return Expr(f"($0 {operator} INTERVAL '{width}')", kind, duck, (grammar.value(kind, depth),))


@register("stamp")
def date_as_stamp(grammar: Grammar, depth: int) -> Expr | None:
    if "date" not in grammar.kinds:
        return None
    return Expr("CAST($0 AS TIMESTAMP)", "stamp", "date_ns($0)", (grammar.value("date", depth),))


@register("stamp")
def cast_stamp(grammar: Grammar, depth: int) -> Expr:
    """A coarser unit truncates. DuckDB has no comparable cast between units, so it is not an oracle here."""
    name = grammar.random.choice(["CAST", "TRY_CAST"])
    digits = grammar.random.choice([0, 3, 6, 9])
    return Expr(f"{name}($0 AS TIMESTAMP({digits}))", "stamp", None, (grammar.value("stamp", depth),))


@register("date")
def stamp_as_date(grammar: Grammar, depth: int) -> Expr | None:
    kind = grammar.random.choice(["stamp", "zoned", "local"])
    if kind not in grammar.kinds:
        return None
    return Expr("CAST($0 AS DATE)", "date", "as_stamp($0)::DATE", (grammar.value(kind, depth),))


@register("date")
def integer_as_date(grammar: Grammar, depth: int) -> Expr | None:
    """DuckDB has no such cast."""
    if "narrow" not in grammar.kinds:
        return None
    return Expr("CAST(CAST($0 AS INT) AS DATE)", "date", None, (grammar.leaf("narrow"),))


@register("stamp")
def wall_clock(grammar: Grammar, depth: int) -> Expr | None:
    """DuckDB is the oracle only for UTC, where instant and wall clock are equal."""
    kind = grammar.random.choice(["zoned", "local"])
    if kind not in grammar.kinds:
        return None
    return Expr("CAST($0 AS TIMESTAMP)", "stamp", "$0", (grammar.value(kind, depth),))


@register("date")
def made_date(grammar: Grammar, depth: int) -> Expr:
    return Expr("($0 + INTERVAL '1 day')", "date", "($0 + 1)", (grammar.value("date", depth),))


@register("time", "fine_time")
def stamp_as_time(grammar: Grammar, depth: int) -> Expr | None:
    if "stamp" not in grammar.kinds:
        return None
    return Expr("CAST($0 AS TIME)", "time", None, (grammar.value("stamp", depth),))
