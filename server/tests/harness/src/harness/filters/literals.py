"""Values as literals of SQL, as Forebay and as DuckDB read them."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from random import Random
from typing import Any

from harness.filters.columns import DAY_SECONDS, FIRST_DAY, LAST_DAY, NEGATIVE_NAN

DAY_NS = DAY_SECONDS * 10**9

# (text for Forebay, text for DuckDB or None, digits as written where DuckDB reads them as a decimal)
Texts = tuple[str, str | None, str]

INTEGERS = [0, 1, -1, 2, 7, 127, 128, -128, 255, 256, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
FRACTIONS = [
    Decimal("0.5"),
    Decimal("2.5"),
    Decimal("-2.5"),
    Decimal("8.05"),
    Decimal("0.1"),
    Decimal("-0.25"),
    Decimal("9007199254740992.5"),
    Decimal("9007199254740993.0"),
    Decimal("9223372036854775807.5"),
    Decimal("18446744073709551615.5"),
]
FLOATS = [0.0, -0.0, float("nan"), NEGATIVE_NAN, float("inf"), float("-inf"), 0.1, 2.5, -2.5, 1e300, -1e300, 5e-324]


def any_value(kind: str, random: Random) -> Any:
    """A value for comparison with the kind, deliberately not always of the kind itself."""
    match kind:
        case "narrow" | "i64" | "u64":
            return random.choice([*INTEGERS, *INTEGERS, *FRACTIONS, *FLOATS])
        case "decimal" | "wide":
            return random.choice([*INTEGERS, *FRACTIONS, *FRACTIONS])
        case "f16" | "f32" | "f64":
            return random.choice([*INTEGERS, *FRACTIONS, *FLOATS, *FLOATS])
        case "date":
            return random.choice([FIRST_DAY, LAST_DAY, 0, -1, random.randint(-400, 20_000)])
        case "stamp" | "zoned" | "local":
            edges = [
                FIRST_DAY * DAY_NS,
                (LAST_DAY + 1) * DAY_NS - 1000,
                LAST_DAY * DAY_NS,
                0,
                -1,
                1,
                -(2**63),
                2**63 - 1,
            ]
            return random.choice([*edges, random.randint(-400, 20_000) * DAY_NS])
        case "time" | "fine_time":
            return random.choice([0, 1, DAY_NS - 1000, DAY_NS // 2])
        case "text":
            return random.choice(["", "a", "ab", "B", "é", "日本", "%", "1", "-7", "'", " a "])
        case "bytes":
            return random.choice([b"", b"\0", b"ab", b"\xff"])
        case _:
            return random.random() < 0.5


def texts(kind: str, value: Any, unit_ns: int | None, random: Random, *, untyped: bool) -> Texts:
    """A literal of the value; with `untyped`, a timestamp may be a plain string.

    Dates are days; times and timestamps count `unit_ns` nanoseconds, or one where it is None.
    """
    match kind:
        case "date":
            text = f"DATE '{day(value)}'"
            return text, text, ""
        case "stamp" | "zoned" | "local":
            return stamp(kind, value * (unit_ns or 1), random, untyped=untyped)
        case "time" | "fine_time":
            text = f"TIME '{clock(value * (unit_ns or 1))}'"
            # DuckDB's TIME has microseconds.
            return text, text if value * (unit_ns or 1) % 1000 == 0 else None, ""
        case "text":
            text = "'" + value.replace("'", "''") + "'"
            # A NUL is more than DuckDB's parser takes.
            return text, None if "\0" in value else text, ""
        case "bytes":
            return f"X'{value.hex()}'", "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB", ""
        case "bool":
            return ("true", "true", "") if value else ("false", "false", "")
        case _:
            return number(value)


def number(value: Any) -> Texts:
    if isinstance(value, int):
        return in_brackets(str(value)), in_brackets(str(value)), in_brackets(str(value))
    if isinstance(value, Decimal):
        return in_brackets(f"{value:f}"), in_brackets(f"{value:f}"), in_brackets(f"{value:f}")
    if math.isnan(value):
        sign = "-" if math.copysign(1, value) < 0 else ""
        return in_brackets(f"{sign}CAST('NaN' AS DOUBLE)"), "'NaN'::DOUBLE", ""
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return in_brackets(f"{sign}CAST('inf' AS DOUBLE)"), f"'{sign}inf'::DOUBLE", ""
    text = repr(value)
    return in_brackets(text), f"'{text}'::DOUBLE", in_brackets(text) if "e" not in text else ""


def in_brackets(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def day(days: int) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=days)).isoformat()


def clock(ns: int) -> str:
    seconds, fraction = divmod(ns, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if fraction % 1000:
        return f"{text}.{fraction:09}"
    return f"{text}.{fraction // 1000:06}" if fraction else text


def stamp(kind: str, ns: int, random: Random, *, untyped: bool) -> Texts:
    days, of_day = divmod(ns, DAY_NS)
    text = f"{day(days)} {clock(of_day)}"
    if kind == "zoned" and random.random() < 0.3:
        text += random.choice(["Z", "+00:00"])
    duck = f"({ns})::HUGEINT"
    if kind == "stamp" and of_day == 0 and random.random() < 0.3:
        return f"DATE '{day(days)}'", duck, ""
    return (f"'{text}'" if untyped and random.random() < 0.2 else f"TIMESTAMP '{text}'"), duck, ""
