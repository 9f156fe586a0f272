"""Expressions that gave wrong rows or none once, over a table of every column type.

Each has its kind, its text, and what DuckDB reads as the same: the text itself where that is left out, None where it
has no such type.
"""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

from harness.filters.columns import NEGATIVE_NAN, TYPES
from harness.filters.grammar import Expr
from harness.filters.tables import Drawn, spread

ROWS = 60

# What the expressions are about, where the drawn values need not have it.
FIRST_ROWS: dict[str, list[Any]] = {
    "f64": [-0.0, 0.0, NEGATIVE_NAN, float("nan"), 2.5],
    "g64": [0.0, -0.0, float("nan"), NEGATIVE_NAN, NEGATIVE_NAN],
    "i8": [-(2**7)],
    "i16": [-(2**15)],
    "i32": [-(2**31), 3],
    "i64": [2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, 0],
    "u64": [0, 2, 3],
    "dec7_2": [Decimal("-0.01"), Decimal("3.42")],
    "dec15_3": [Decimal("-0.365"), Decimal("-0.365"), Decimal("-0.365")],
    "flag": [False, False, True],
    "dec9_2": [Decimal("8.05"), Decimal("1.25")],
    "at_us": [-1, 0, 253_402_214_400_000_000],
    "utc_us": [-1, 0, 253_402_214_400_000_000],
}

NAN = "CAST('NaN' AS DOUBLE)"

# Two NaN are equal regardless of sign, and greater than every number; -0.0 is 0.0.
FLOATS: list[tuple[str, ...]] = [
    ("bool", "f64 = g64"),
    ("bool", "f64 < g64"),
    ("bool", "f64 IS DISTINCT FROM g64"),
    ("bool", "f32 > 2.5"),
    ("bool", "f32 < -2.5"),
    ("bool", "f64 > -0.0", "f64 > 0::DOUBLE"),
    ("bool", "f64 >= 1e300", "f64 >= 1e300::DOUBLE"),
    ("bool", "f64 IN (0, 2.5)"),
    ("bool", f"f64 IN (1, {NAN})"),
    ("bool", f"g64 NOT IN (-0.0, -{NAN})", f"g64 NOT IN (0, {NAN})"),
    ("bool", "f64 BETWEEN -0.0 AND 0.0", "f64 BETWEEN 0::DOUBLE AND 0::DOUBLE"),
    ("bool", f"f64 BETWEEN 0 AND {NAN}"),
    ("bool", "f16 > 1", "f16::DOUBLE > 1"),
    ("bool", "CASE f64 WHEN -0.0 THEN flag ELSE sign END", "CASE WHEN f64 = 0 THEN flag ELSE sign END"),
    ("f64", "greatest(f64, g64)"),
    ("f64", "least(f64, g64)"),
    ("f64", "nullif(f64, g64)"),
    ("f64", "CASE g64 WHEN f64 THEN 1.0 ELSE 2.0 END"),
]

INTEGERS: list[tuple[str, ...]] = [
    ("i64", "- i8", "- i8::BIGINT"),
    ("i64", "- i16", "- i16::BIGINT"),
    ("i64", "- i32", "- i32::BIGINT"),
    ("bool", "- i8 > 100", "- i8::BIGINT > 100"),
    ("bool", "- i32 > 2147483647", "- i32::BIGINT > 2147483647"),
    ("i64", "abs(i8)", "abs(i8::BIGINT)"),
    ("bool", "abs(i16) = 32768", "abs(i16::BIGINT) = 32768"),
    ("bool", "i64 > 9007199254740992.5", "i64::DECIMAL(38, 1) > 9007199254740992.5"),
    ("bool", "i64 = 9007199254740993.0", "i64::DECIMAL(38, 1) = 9007199254740993.0"),
    ("bool", "i64 >= 9223372036854775807.5", "i64::DECIMAL(38, 1) >= 9223372036854775807.5"),
    (
        "bool",
        "u64 BETWEEN 9007199254740992.5 AND 18446744073709551614",
        "u64 BETWEEN 9007199254740993 AND 18446744073709551614",
    ),
    ("bool", f"i64 IN (9223372036854775807, {NAN})", "i64 = 9223372036854775807"),
    ("bool", "i64 NOT IN (9223372036854775807, 1e300, -0.25)", "i64 <> 9223372036854775807"),
    ("bool", "u64 NOT IN (3, 5e-324)", "u64 <> 3"),
    ("bool", "u64 / 2 IN (1, CAST('inf' AS DOUBLE))", "u64 // 2 = 1"),
    ("bool", "u64 / 2 = 1", "u64 // 2 = 1"),
    ("u64", "u64 / 1000", "u64 // 1000"),
    ("bool", "u64 - 10 < 0", "u64 < 10"),
    ("bool", "u64 * 3 / 3 = u64", "u64 = u64"),
    ("bool", "u64 + i64 > 18446744073709551615", "u64::HUGEINT + i64::HUGEINT > 18446744073709551615"),
    ("bool", "(u64 - 1) % 10 = -1", "u64 = 0"),
    ("i64", "CAST(u64 % 100 - 50 AS BIGINT)", "(u64 % 100)::BIGINT - 50"),
    ("bool", "CAST(i64 AS BOOLEAN) IS DISTINCT FROM true"),
    ("bool", "NOT (TRY_CAST(i32 AS TINYINT) = 1)"),
    ("bool", "TRY_CAST(i64 AS INT) NOT BETWEEN -1 AND 0"),
    ("bool", "TRY_CAST(i64 AS INT) IS DISTINCT FROM 1"),
]

DECIMALS: list[tuple[str, ...]] = [
    ("bool", "CAST(dec7_2 AS INT) = dec7_2", "trunc(dec7_2)::INT = dec7_2"),
    ("bool", "CAST(dec15_3 AS BIGINT) < dec15_3", "trunc(dec15_3)::BIGINT < dec15_3"),
    ("bool", "i32 < dec7_2"),
    ("decimal", "dec7_2 + 2"),
    ("decimal", "dec7_2 % 2"),
    ("decimal", "dec7_2 * i8"),
    ("decimal", "dec15_3 - 1"),
    ("bool", "dec7_2 / 2 > 1", "dec7_2 > 2"),
    ("f64", "dec7_2 / 3"),
    ("f64", "1 / dec9_2"),
    ("f64", "dec9_2 / 1000000"),
    ("f64", "CAST(dec18_0 AS DOUBLE)"),
    ("f64", "CAST(dec38_10 AS DOUBLE)", "dec38_10::VARCHAR::DOUBLE"),
    ("bool", "dec38_10 = f64", "dec38_10::VARCHAR::DOUBLE = f64"),
    ("decimal", "ceil(dec38_10)", None),
    ("decimal", "ceil(dec9_2)"),
    ("decimal", "floor(dec7_2)"),
    ("bool", "nullif(dec9_2, 8.05) IS NULL", "dec9_2 IS NULL OR dec9_2 = 8.05"),
    ("bool", "nullif(dec7_2, -0.01) = dec7_2", "CASE WHEN dec7_2 = -0.01 THEN NULL ELSE dec7_2 = dec7_2 END"),
    ("bool", "CASE dec9_2 WHEN 8.05 THEN flag ELSE sign END"),
    ("bool", "CASE WHEN flag THEN dec7_2 ELSE dec15_3 END > -0.365"),
    ("decimal", "least(dec7_2, 9999999.99)"),
    ("bool", "CAST(dec9_2 AS INT) = 1", "trunc(dec9_2)::INT = 1"),
    ("bool", "CAST(dec9_2 AS INT) IN (0, 2, 5)", "trunc(dec9_2)::INT IN (0, 2, 5)"),
    ("bool", "dec38_10 < 9999999999999999999999999999.9999999998"),
    ("bool", "dec38_10 = -9999999999999999999999999999.9999999999"),
]

MOMENTS: list[tuple[str, ...]] = [
    ("bool", "at_us = TIMESTAMP '9999-12-31'"),
    ("bool", "at_us < TIMESTAMP '9999-12-31 23:59:59.999999'"),
    ("bool", "at_ms >= TIMESTAMP '0001-01-01'"),
    ("bool", "at_ns < TIMESTAMP '9999-12-31'", "at_ns IS NOT NULL OR NULL"),
    ("bool", "utc_us < TIMESTAMP '1970-01-01 00:00:00.000000001'", "us_ns(utc_us) < 1"),
    ("bool", "at_us > TIMESTAMP '1969-12-31 23:59:59.999999999'", "us_ns(at_us) > -1"),
    ("bool", "coalesce(at_us, TIMESTAMP '9999-12-31') > TIMESTAMP '2020-01-01'"),
    ("bool", "nullif(at_us, TIMESTAMP '2021-05-18') IS NULL"),
    ("bool", "day <= at_us", "date_ns(day) <= us_ns(at_us)"),
    ("bool", "utc_ns <= utc_s", "epoch_ns(utc_ns)::HUGEINT <= us_ns(utc_s)"),
    (
        "bool",
        "nullif(utc_ns, utc_us) IS NULL",
        "utc_ns IS NULL OR coalesce(epoch_ns(utc_ns)::HUGEINT = us_ns(utc_us), false)",
    ),
    ("bool", "time_ms <= time_us"),
    ("stamp", "date_trunc('day', at_us)", "us_ns(date_trunc('day', at_us))"),
    ("stamp", "date_trunc('year', at_s)", "us_ns(date_trunc('year', at_s))"),
    ("stamp", "date_bin(INTERVAL '15 minutes', at_us, TIMESTAMP '1970-01-01')", "bin_ns(us_ns(at_us), 900)"),
    ("stamp", "date_bin(INTERVAL '1 day', at_s, TIMESTAMP '1970-01-01')", "bin_ns(us_ns(at_s), 86400)"),
    ("bool", "CAST(at_us AS TIME) > TIME '06:00:00'"),
    ("bool", "CAST(at_ms AS TIME) = TIME '00:00:00'"),
    ("bool", "arrow_cast(at_us, 'Time32(Second)') < arrow_cast('06:00:00', 'Time32(Second)')", None),
    ("bool", "time_s >= TIME '05:00:00'"),
    ("bool", "time_ms IN (TIME '23:59:59.999', TIME '00:00:00')"),
    ("bool", "CASE WHEN flag THEN time_us ELSE TIME '11:00:00' END > TIME '10:00:00'"),
]

# Identities that do not hold for every value, and texts that are null.
REWRITTEN: list[tuple[str, ...]] = [
    ("bool", "log(f64, 1.0) >= 0", "log(f64, 1::DOUBLE) >= 0"),
    ("bool", "log(f64, f64) = 1.0", "log(f64, f64) = 1::DOUBLE"),
    ("bool", "isnan(power(10.0, log(10.0, f64)))", "isnan(power(10::DOUBLE, log(10::DOUBLE, f64)))"),
    ("bool", "NOT (i64 IN (1) AND i64 IN (2))"),
    ("bool", "(i64 IN (1) AND i64 IN (2)) IS NOT NULL"),
    ("bool", "i64 NOT IN (1) OR i64 NOT IN (2)"),
    ("bool", "NOT (i64 IN (1, 2) AND i64 NOT IN (1, 2))"),
    ("bool", "(word ~ '.*') IS NULL", "word IS NULL"),
    ("bool", "NOT (word ~* '.*')", "CASE WHEN word IS NOT NULL THEN false END"),
    ("bool", "regexp_like(word, '.*') IS NOT NULL", "word IS NOT NULL"),
    ("bool", "word !~ '.*' IS NULL", "word IS NULL"),
    ("bool", "word SIMILAR TO 'a'", "word = 'a'"),
    ("bool", "word SIMILAR TO 'a%'", "word LIKE 'a%'"),
    ("bool", "word SIMILAR TO '_'", "word LIKE '_'"),
    ("text", "regexp_replace(word, 'a', '$0$')"),
    ("f64", "round(f64, 400)", "f64"),
    ("f64", "trunc(f64, 400)", "f64"),
    ("stamp", "CAST(day AS TIMESTAMP)", "date_ns(day)"),
]

ANSWERED = [*FLOATS, *INTEGERS, *DECIMALS, *MOMENTS, *REWRITTEN]

# What has no right answer yet, and is refused rather than answered wrongly.
REFUSED: list[tuple[str, ...]] = [
    ("i64", "- u8", "- u8::BIGINT"),
    ("bool", "round(dec9_2, 1) = 1.3", "dec9_2 >= 1.25 AND dec9_2 < 1.35"),
    (
        "bool",
        "CAST(utc_us AS TIMESTAMP) IS DISTINCT FROM TIMESTAMP '9999-12-31'",
        "us_ns(utc_us) IS DISTINCT FROM us_ns(TIMESTAMP '9999-12-31')",
    ),
    ("bool", "coalesce(time_s, time_us) >= TIME '05:00:00'"),
    ("bool", "CAST(berlin_ms AS TIMESTAMP) > TIMESTAMP '2020-10-25 02:30:00'", None),
]


def table() -> Drawn:
    """Every column of the search, at once."""
    random = Random("regressions")
    values = {column.name: [*FIRST_ROWS.get(column.name, []), *spread(column, ROWS, random)][:ROWS] for column in TYPES}
    return Drawn(-1, TYPES, values, ROWS, portable=False)


def exprs(listed: list[tuple[str, ...]]) -> list[Expr]:
    return [Expr(text, kind, rest[0] if rest else text) for kind, text, *rest in listed]
