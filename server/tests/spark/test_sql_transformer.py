"""Expressions of a SQLTransformer, computed by Spark and by the plan that they are translated to."""

from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.ml import PipelineModel
from pyspark.ml.feature import SQLTransformer
from pyspark.sql import SparkSession

import forebay as fb
from forebay._plan.translation.mllib.sql_expression import REWRITTEN, SAME

ROWS = 60

# Expressions of numbers, texts and times; every function of the translation is in one.
EXPRESSIONS = [
    *("x + i * 2 - 1", "- x * 2 + 1", "(x + 1) * (i - 2)", "i / 3", "x / 4", "i % 3", "x / i", "i % (i - 1)", "+ x"),
    *("i = 3 OR i > 4 AND x < 0", "NOT i = 3", "NOT i > 2 OR x < 0 AND NOT x > -2", "x <> gap", "gap == gap"),
    *("gap <=> NULL", "gap < 0", "gap >= x", "x < 1e300", "i != 2", "i <= 2", "text < 'b'", "flag"),
    *("i IN (1, 2)", "text NOT IN ('a', 'é')", "x BETWEEN -1 AND 1", "i NOT BETWEEN 2 AND 3", "text LIKE 'a%'"),
    *("text NOT LIKE '_'", "gap IS NULL", "gap IS NOT NULL", "flag IS TRUE", "(i > 2) IS NOT FALSE", "NULL"),
    *("CASE WHEN x > 1 THEN 'up' WHEN x < -1 THEN 'down' END", "CASE i WHEN 1 THEN x ELSE - x END"),
    *("CAST(x AS int)", "CAST(i AS double) / 7", "CAST(text IS NULL AS int)", "CAST(i AS string)", "CAST(i AS float)"),
    *("CAST(t AS date)", "text || '-' || text", 'concat(text, "\'s")', "concat(text, 'x', text)", '"a" = text'),
    *("abs(x)", "abs(i - 4)", "coalesce(gap, x)", "coalesce(gap, i, 2)", "nvl(gap, 0)", "ifnull(text, 'none')"),
    *("nullif(i, 2)", "if(x > 0, x, 0)", "if(gap > 0, 'yes', 'no')", "nanvl(gap, x)", "greatest(x, gap, 0)"),
    *("least(x, gap)", "signum(x)", "exp(x)", "pow(x, 2)", "power(x, 3)", "floor(x)", "ceil(x)", "round(x * 2)"),
    *("upper(text)", "lower(upper(text))", "length(text)", "char_length(text)", "trim(text)", "ltrim(text)"),
    *("rtrim(text)", "replace(text, 'b', '--')", "reverse(text)", "year(d)", "quarter(d)", "month(t)", "weekofyear(d)"),
    *("day(t)", "dayofmonth(d)", "dayofyear(d)", "dayofweek(d)", "hour(t)", "minute(t)", "second(t)"),
    *("datediff(d, e)", "ln(x)", "log(i)", "log2(x)", "log10(x)", "sqrt(x)", "sqrt(i)", "isnan(gap)", "isnan(x)"),
    *("isnull(gap)", "isnotnull(gap)", "`odd name` + 1", "X + I"),
]


def table() -> pa.Table:
    texts = ["a", "b c", "é", " ab ", "it's", "", "Zb", None]
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "x": pa.array([math.sin(n) * 3 for n in range(ROWS)]),
            "gap": pa.array([None if n % 7 == 0 else math.nan if n % 11 == 0 else math.cos(n) for n in range(ROWS)]),
            "i": pa.array([None if n % 13 == 0 else 2 + n % 5 for n in range(ROWS)]),
            "text": pa.array([texts[n % len(texts)] for n in range(ROWS)]),
            "flag": pa.array([None if n % 9 == 0 else n % 2 == 0 for n in range(ROWS)]),
            "d": pa.array([date(2019 + n % 6, 1 + n % 12, 1 + n % 28) for n in range(ROWS)]),
            "e": pa.array([date(2020, 2, 1 + n % 28) for n in range(ROWS)]),
            "t": pa.array([datetime(2024, 3, 1 + n % 28, n % 24, n, n, 5) for n in range(ROWS)], pa.timestamp("us")),
            "odd name": pa.array([float(n) for n in range(ROWS)]),
        }
    )


def test_every_function_is_in_an_expression():
    for name in [*SAME, *REWRITTEN]:
        assert any(f"{name}(" in expr for expr in EXPRESSIONS), name


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_expressions_have_the_results_of_spark(spark: SparkSession, tmp_path: Path, ansi: str):
    (tmp_path / "rows").mkdir()
    pq.write_table(table(), tmp_path / "rows/a.parquet")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    listed = ", ".join(f"{expr} AS e{number}" for number, expr in enumerate(EXPRESSIONS))
    model = PipelineModel([SQLTransformer(statement=f"SELECT id, {listed} FROM __THIS__")])
    made = model.transform(spark.read.parquet(str(tmp_path / "rows")))
    # Spark names no type for a column of NULL, which Parquet cannot store.
    made = made.withColumn(f"e{EXPRESSIONS.index('NULL')}", made[f"e{EXPRESSIONS.index('NULL')}"].cast("int"))
    made.write.parquet(str(tmp_path / "shards"))
    with fb.connect(fb.local(rows=tmp_path / "rows")) as client:
        plan = fb.from_mllib(model, schema=client.schema("rows")).plan
        found = fb.compare(plan, tmp_path / "shards", url=client, by="id", ulps=2)
    wrong = [
        f"{EXPRESSIONS[int(column.name[1:])]}: {column.plan_type}, {column.shards_type}, {column.differences[0]}"
        for column in found.columns
        if column.rows_differ
    ]
    assert not wrong, "\n".join(wrong)
    assert found.equal, found
    assert len(found.columns) == len(EXPRESSIONS)
