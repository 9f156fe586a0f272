"""Rules for what combines dates, timestamps, intervals and zones: sums, differences, instants and local times.

Lengths are nanoseconds as HUGEINT in DuckDB's texts, like timestamps; what months, zones and parts of intervals mean is
DuckDB's own.
"""

from __future__ import annotations

from harness.filters.grammar import Expr, Grammar, register
from harness.filters.rules_bool import COMPARISONS, moment

SECOND_NS = 10**9
DAY_NS = 86_400 * SECOND_NS

# Intervals without months, and their lengths.
CLOCKS = [
    ("6 hours", 6 * 3600 * SECOND_NS),
    ("90 minutes", 5400 * SECOND_NS),
    ("1 second", SECOND_NS),
    ("36 hours", 129_600 * SECOND_NS),
    ("1 day 6 hours", DAY_NS + 6 * 3600 * SECOND_NS),
    ("2 days 250 milliseconds", 2 * DAY_NS + SECOND_NS // 4),
    ("-1 day 1 hour", 3600 * SECOND_NS - DAY_NS),
]
# Intervals to compare with: DuckDB takes a month as 30 days and a day as 24 hours.
LENGTHS = [
    *CLOCKS,
    ("0 days", 0),
    ("1 day", DAY_NS),
    ("24 hours", DAY_NS),
    ("7 days", 7 * DAY_NS),
    ("1 month", 30 * DAY_NS),
    ("30 days", 30 * DAY_NS),
    ("1 year", 360 * DAY_NS),
    ("100 years", 36_000 * DAY_NS),
    ("2 months -1 day", 59 * DAY_NS),
]
MONTHS = ["1 month", "1 month 6 hours", "1 year", "-1 month", "2 months 1 day"]
PARTS = ["year", "month", "day", "hour", "minute", "second", "millisecond", "microsecond"]

# From 1990 to 2035, in which both time zone databases have rules for Berlin.
RECENT = (631_152_000, 2_051_222_400)
# From the autumn change of 2020 to the spring change of the same year.
TO_SPRING = "210 days"


def moments(grammar: Grammar) -> list[str]:
    return [kind for kind in ("date", "stamp", "zoned") if kind in grammar.kinds]


def of_nanoseconds(*parts: Expr) -> bool:
    """Whether a part may have digits beyond microseconds, which a common type with a date or another unit drops."""
    return any("_ns" in part.sql or "nanos" in part.sql for part in parts)


def pair_of_moments(grammar: Grammar) -> tuple[Expr, Expr] | None:
    """Two values whose difference is a duration."""
    kinds = moments(grammar)
    if not kinds or kinds == ["date"]:
        return None
    left, right = grammar.leaf(grammar.random.choice(kinds)), grammar.leaf(grammar.random.choice(kinds))
    if left.kind == right.kind == "date":
        return None
    return left, right


def difference(left: Expr, right: Expr) -> str | None:
    """DuckDB's nanoseconds from one to the other."""
    if of_nanoseconds(left, right):
        return None
    return f"({moment(left)} - {moment(right).replace('$0', '$1')})"


@register("bool", weight=6)
def compared_length(grammar: Grammar, depth: int) -> Expr | None:
    pair = pair_of_moments(grammar)
    if pair is None:
        return None
    length = difference(*pair)
    operator = grammar.random.choice(COMPARISONS)
    (text, wanted), (other, most) = grammar.random.choice(LENGTHS), grammar.random.choice(LENGTHS)
    minus = "($0 - $1)"
    forms = [
        (f"({minus} {operator} INTERVAL '{text}')", f"({length} {operator} {wanted}::HUGEINT)"),
        (f"(INTERVAL '{text}' {operator} {minus})", f"({wanted}::HUGEINT {operator} {length})"),
        (
            f"({minus} BETWEEN INTERVAL '{text}' AND INTERVAL '{other}')",
            f"({length} BETWEEN {wanted}::HUGEINT AND {most}::HUGEINT)",
        ),
        (
            f"({minus} NOT IN (INTERVAL '{text}', INTERVAL '{other}'))",
            f"({length} NOT IN ({wanted}::HUGEINT, {most}::HUGEINT))",
        ),
        (
            f"(greatest({minus}, INTERVAL '{text}') {operator} INTERVAL '{other}')",
            f"(greatest({length}, {wanted}::HUGEINT) {operator} {most}::HUGEINT)",
        ),
        (
            f"CASE {minus} WHEN INTERVAL '{text}' THEN true ELSE {minus} {operator} INTERVAL '{other}' END",
            f"CASE {length} WHEN {wanted}::HUGEINT THEN true ELSE {length} {operator} {most}::HUGEINT END",
        ),
        (
            f"(CASE WHEN $0 IS NULL THEN INTERVAL '{text}' ELSE {minus} END {operator} INTERVAL '{other}')",
            f"(CASE WHEN $0 IS NULL THEN {wanted}::HUGEINT ELSE {length} END {operator} {most}::HUGEINT)",
        ),
    ]
    form, duck = grammar.random.choice(forms)
    return Expr(form, "bool", duck if length else None, pair, lazy=form.startswith(("CASE", "(CASE")))


@register("i64", "f64")
def part_of_length(grammar: Grammar, depth: int) -> Expr | None:
    """DuckDB's intervals have microseconds, as its timestamps do."""
    pair = pair_of_moments(grammar)
    if pair is None:
        return None
    left, right = (f"as_stamp({moment(part)})" for part in pair)
    is_known = not of_nanoseconds(*pair)
    duck = f"({left} - {right.replace('$0', '$1')})"
    part = grammar.random.choice([*PARTS, "epoch", "epoch"])
    form = grammar.random.choice([f"date_part('{part}', $0 - $1)", f"extract({part} FROM ($0 - $1))"])
    return Expr(form, "f64" if part == "epoch" else "i64", f"date_part('{part}', {duck})" if is_known else None, pair)


@register("stamp", weight=3)
def day_and_clock(grammar: Grammar, depth: int) -> Expr | None:
    """A date and hours are a timestamp."""
    if "date" not in grammar.kinds:
        return None
    text, length = grammar.random.choice(CLOCKS)
    form, sign = grammar.random.choice(
        [(f"($0 + INTERVAL '{text}')", "+"), (f"(INTERVAL '{text}' + $0)", "+"), (f"($0 - INTERVAL '{text}')", "-")]
    )
    return Expr(form, "stamp", f"(date_ns($0) {sign} ({length})::HUGEINT)", (grammar.value("date", depth),))


@register("stamp")
def plus_months(grammar: Grammar, depth: int) -> Expr | None:
    kinds = [kind for kind in ("date", "stamp") if kind in grammar.kinds]
    if not kinds:
        return None
    value = grammar.leaf(grammar.random.choice(kinds))
    operator = grammar.random.choice("+-")
    # A date and whole days are a date, which this rule does not make.
    text = grammar.random.choice([text for text in MONTHS if value.kind == "stamp" or "hours" in text])
    duck = f"us_ns(as_stamp({moment(value)}) {operator} INTERVAL '{text}')"
    return Expr(f"($0 {operator} INTERVAL '{text}')", "stamp", None if of_nanoseconds(value) else duck, (value,))


@register("stamp", weight=3)
def day_or_stamp(grammar: Grammar, depth: int) -> Expr | None:
    """A date and a timestamp have a common type that holds every year."""
    if "date" not in grammar.kinds or "stamp" not in grammar.kinds:
        return None
    day, stamp = grammar.leaf("date"), grammar.leaf("stamp")
    if grammar.random.random() < 0.5:
        day, stamp = stamp, day
    texts = moment(day), moment(stamp).replace("$0", "$1")
    form = grammar.random.choice(
        [
            "coalesce($0, $1)",
            "greatest($0, $1)",
            "least($0, $1)",
            "CASE WHEN $0 < $1 THEN $0 ELSE $1 END",
        ]
    )
    known = form.replace("$0", "$a").replace("$1", "$b")
    duck = known.replace("$a", texts[0]).replace("$b", texts[1])
    lazy = not form.startswith(("greatest", "least"))
    return Expr(form, "stamp", None if of_nanoseconds(day, stamp) else duck, (day, stamp), lazy=lazy)


@register("text")
def formatted(grammar: Grammar, depth: int) -> Expr | None:
    kinds = moments(grammar)
    if not kinds:
        return None
    value = grammar.value(grammar.random.choice(kinds), depth)
    duck = f"strftime(as_stamp({moment(value)}), '%m/%d %H-%M-%S')"
    return Expr("to_char($0, '%m/%d %H-%M-%S')", "text", duck, (value,))


@register("stamp")
def instant_of_a_float(grammar: Grammar, depth: int) -> Expr | None:
    """Null where a float is not an instant."""
    if "f64" not in grammar.kinds:
        return None
    part = grammar.column("f64")
    duck = "CASE WHEN isfinite($0) AND abs($0) < 9e12 THEN round($0 * 1000000)::HUGEINT * 1000 END"
    return Expr("to_timestamp($0)", "stamp", duck, (part,)) if part else None


@register("bool", weight=4)
def against_an_instant(grammar: Grammar, depth: int) -> Expr | None:
    """An instant is not a local time of the column's zone."""
    kinds = [kind for kind in ("stamp", "zoned", "local") if kind in grammar.kinds]
    if not kinds:
        return None
    value = grammar.column(grammar.random.choice(kinds))
    if value is None:
        return None
    seconds = grammar.random.choice([1_603_587_600, 1_500_000_000, 0, -1, 253_402_214_400])
    instant = grammar.random.choice(
        [
            f"to_timestamp({seconds})",
            f"to_timestamp({seconds}.0)",
            f"to_timestamp_seconds({seconds})",
            f"to_timestamp_millis({seconds}000)",
            f"to_timestamp_micros({seconds}000000)",
            f"from_unixtime({seconds})",
            f"from_unixtime({seconds}, 'Europe/Berlin')",
        ]
    )
    operator = grammar.random.choice(COMPARISONS)
    known = "(epoch_ms($0)::HUGEINT * 1000000)" if value.kind == "local" else "$0"
    if value.kind == "local":
        value = Expr(value.form, "local", value.form, column=value.column)
    return Expr(
        f"($0 {operator} {instant})", "bool", f"({known} {operator} {seconds}::HUGEINT * {SECOND_NS})", (value,)
    )


@register("f64", weight=4)
def around_a_change(grammar: Grammar, depth: int) -> Expr | None:
    """Local times that a zone skips or repeats."""
    if "local" not in grammar.kinds:
        return None
    name = "berlin_ms"
    local = f"timezone('Europe/Berlin', {name})"
    zone = "AT TIME ZONE 'Europe/Berlin'"
    form, duck = grammar.random.choice(
        [
            (f"to_local_time({name}) {zone}", f"{local} {zone}"),
            (
                f"(to_local_time({name}) - INTERVAL '{TO_SPRING}') {zone}",
                f"({local} - INTERVAL '{TO_SPRING}') {zone}",
            ),
            (f"{name} - INTERVAL '{TO_SPRING}'", f"({local} - INTERVAL '{TO_SPRING}') {zone}"),
            (f"to_local_time({name}) AT TIME ZONE 'UTC'", f"{local} AT TIME ZONE 'UTC'"),
        ]
    )
    first, last = RECENT
    given = f"{name} BETWEEN to_timestamp({first}) AND to_timestamp({last})"
    known = f"epoch_ms({name}) BETWEEN {first}000 AND {last}000"
    column = Expr(name, "local", name, column=name)
    return Expr(
        f"CASE WHEN {given} AND $0 IS NOT NULL THEN date_part('epoch', {form}) END",
        "f64",
        f"CASE WHEN {known} AND $0 IS NOT NULL THEN epoch({duck}) END",
        (column,),
        lazy=True,
    )
