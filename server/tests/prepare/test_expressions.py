"""Expressions of a query have the values that they have in a plan, and those of DuckDB.

In SELECT, in WHERE, in arguments of aggregates and windows, in joins and subqueries, and whether or not a column may be
null.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.filters.answers import derived, plain
from harness.filters.grammar import Expr
from harness.filters.search import same
from harness.filters.seeds import draw_exprs
from harness.filters.tables import Drawn, draw_table
from harness.prepare import prepare, written
from harness.serving import Serve

SEEDS = range(int(os.environ.get("QUERY_FUZZ_SEEDS") or 6))
EXPRESSIONS = int(os.environ.get("QUERY_FUZZ_EXPRESSIONS") or 40)

# The largest share of random expressions that the planner of a query refuses: it gives each node a type before
# expressions are typed as those of plans, and has none for times of day of several units.
REFUSED = 0.2

BASE = dt.datetime(2024, 1, 1)


def hours(*counts: int) -> list[dt.datetime]:
    return [BASE + dt.timedelta(hours=count) for count in counts]


def decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


TABLE = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "a": pa.array(hours(0, 1, 2, 3, 4, 5), pa.timestamp("us")),
        "b": pa.array(hours(0, 24, 25, 48, 960, 1), pa.timestamp("us")),
        "z": pa.array(hours(0, 1, 2, 3, 4, 5), pa.timestamp("us", tz="America/New_York")),
        "u": pa.array([0, 1, 3500, 2**63 + 5, 2**64 - 1, 7], pa.uint64()),
        "i": pa.array([0, 1, 3500, -7, 5, None], pa.int64()),
        "x": pa.array([1.0, 0.5, -2.0, math.nan, math.inf, -0.0]),
        "p": pa.array(decimals("0.50", "2.00", "1.00", "3.33", None, "0.10"), pa.decimal128(10, 2)),
        "q": pa.array(decimals("3.00", "1000000.00", "7.00", "0.01", "1.00", "0.00"), pa.decimal128(12, 2)),
        "big": pa.array(
            decimals("12345678901234.5678", "99999999999999.9999", "0.1234", "1.0000", None, "-5.5555"),
            pa.decimal128(18, 4),
        ),
        "day": pa.array(
            [dt.date(2024, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None, BASE.date(), dt.date(2000, 1, 1)],
            pa.date32(),
        ),
        "s": pa.array(["abc", "a.c", "xabcx", None, "", "cost 5"]),
    }
)

# An expression, and how DuckDB writes it where it does otherwise.
EXPRESSIONS_OF_BOTH = [
    ("b - a > INTERVAL '1 day'", ""),
    ("u / 1000", "u // 1000"),
    ("u / 1000 = 3", "u // 1000 = 3"),
    ("power(2, log(2, x))", "CASE WHEN x >= 0 THEN x + 0.0::DOUBLE ELSE 'nan'::DOUBLE END"),
    ("i IN (1, 2) AND i IN (3)", ""),
    ("NOT (i IN (1, 2) OR i IN (1, 3))", ""),
    ("i <> 1 OR i = NULL", ""),
    ("s ~ '.*'", "regexp_matches(s, '.*')"),
    ("s !~ '.*'", "NOT regexp_matches(s, '.*')"),
    ("regexp_like(s, '.*')", "regexp_matches(s, '.*')"),
    ("s SIMILAR TO 'a%'", "s SIMILAR TO 'a.*'"),
    ("s SIMILAR TO 'b'", "s SIMILAR TO 'b'"),
    ("regexp_replace(s, 'cost', '$1x')", ""),
    ("p / q", ""),
    ("1 / q", ""),
    ("p / 3", ""),
    ("big = CAST(big AS DOUBLE)", ""),
    ("CAST(big AS DOUBLE)", ""),
    ("date_part('hour', b - a)", ""),
    ("extract(year FROM day)", ""),
    ("z < to_timestamp(1704067200)", ""),
    ("z = '2024-01-01 00:00:00'", "z = TIMESTAMPTZ '2024-01-01 00:00:00 America/New_York'"),
    ("date_trunc('month', day)", ""),
    ("CAST(day AS TIMESTAMP)", ""),
    ("coalesce(CAST(day AS TIMESTAMP), a)", ""),
    ("x = 0", ""),
    ("x > 9007199254740992.5", ""),
    ("year(day)", ""),
    ("if(i > 1, 'many', 'few')", "CASE WHEN i > 1 THEN 'many' ELSE 'few' END"),
    ("nvl(i, 7)", "coalesce(i, 7)"),
    ("i * 0.5", "i * 0.5::DOUBLE"),
]


@pytest.fixture(scope="module", params=["nullable", "required"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows, or those without nulls in columns that may not have any."""
    root = tmp_path_factory.mktemp("t")
    table = TABLE
    if request.param == "required":
        table = TABLE.drop_null()
        table = table.cast(pa.schema([field.with_nullable(False) for field in TABLE.schema]))
    pq.write_table(table, root / "t.parquet")
    return root


def shown(column: pa.ChunkedArray) -> list[Any]:
    """Values that are equal if their meanings are: decimals as floats, dates as midnights, zoned times as instants."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return [None if value is None else float(value) for value in column.to_pylist()]
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"))
    return plain(column)


def queried(sql: str, folder: Path, out: Path) -> pa.Table:
    """The result of a query."""
    run = prepare(sql, {"t": folder}, out)
    assert run.code == 0, run.error
    return written(out)


def duck(folder: Path, sql: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.sql("SET timezone = 'UTC'")
        connection.register("t", pq.read_table(folder / "t.parquet"))
        return connection.sql(sql).to_arrow_table()


def agree(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(same, left, right))


def test_values_are_those_of_duckdb_and_of_plans(folder: Path, tmp_path: Path, serve: Serve):
    columns = [f"{text} AS v{n}" for n, (text, _) in enumerate(EXPRESSIONS_OF_BOTH)]
    got = queried(f"SELECT id, {', '.join(columns)} FROM t ORDER BY id", folder, tmp_path / "out")
    with fl.connect(serve({"t": str(folder / "t.parquet")}).url) as client:
        of_plan = derived(client, "t", [text for text, _ in EXPRESSIONS_OF_BOTH])
    for n, (text, other) in enumerate(EXPRESSIONS_OF_BOTH):
        values = plain(got[f"v{n}"])
        assert of_plan[n].values is not None, (text, of_plan[n].error)
        assert agree(values, of_plan[n].values), (text, values, of_plan[n].values)
        wanted = shown(duck(folder, f"SELECT {other or text} AS v FROM t ORDER BY id")["v"])
        assert agree(shown(got[f"v{n}"]), wanted), (text, values, wanted)


QUERIES = {
    "WHERE": "SELECT id FROM t WHERE b - a > INTERVAL '1 day' ORDER BY id",
    "HAVING": "SELECT i, count(*) AS n FROM t GROUP BY i HAVING max(b) - min(a) > INTERVAL '1 day' ORDER BY i",
    "aggregates": "SELECT sum(CASE WHEN b - a > INTERVAL '1 day' THEN 1 END) AS late, sum(i * 1.5::DOUBLE) AS x FROM t",
    "FILTER": "SELECT count(*) FILTER (WHERE NOT (i IN (1, 2) OR i IN (1, 3))) AS n FROM t",
    "groups": """
        SELECT b - a > INTERVAL '1 day' AS late, count(*) AS n FROM t GROUP BY b - a > INTERVAL '1 day' ORDER BY 1""",
    "ORDER BY": "SELECT id FROM t ORDER BY CASE WHEN b - a > INTERVAL '1 day' THEN 0 ELSE 1 END, id",
    "windows": "SELECT id, sum(p / 3) OVER (ORDER BY id) AS total FROM t ORDER BY id",
    "a join": """
        SELECT l.id, r.id AS other FROM t l JOIN t r ON l.id < r.id AND r.b - l.a > INTERVAL '40 days' ORDER BY 1, 2""",
    "a subquery": "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE b - a > INTERVAL '1 day') ORDER BY id",
    "a scalar subquery": """
        SELECT id, (SELECT max(r.p / 3) FROM t r WHERE r.b - r.a > INTERVAL '1 day' AND r.id = l.id) AS third FROM t l
        ORDER BY id""",
    "CTE and UNION": """
        WITH parts AS (SELECT id, p / 3 AS third FROM t)
        SELECT id, third FROM parts UNION ALL SELECT id + 10, p / 7 FROM t ORDER BY 1""",
    "UNION of numbers": "SELECT 0.5::DOUBLE AS x UNION SELECT i / 8::DOUBLE FROM t WHERE i > 2 ORDER BY 1",
    "a recursive CTE": """
        WITH RECURSIVE days AS (
            SELECT 0 AS n, DATE '2024-01-30'::TIMESTAMP AS d
            UNION ALL SELECT n + 1, d + INTERVAL '36 hours' FROM days WHERE n < 3)
        SELECT n, d FROM days ORDER BY n""",
    "DISTINCT ON": "SELECT DISTINCT ON (i > 1) i > 1 AS many, p / 3 AS third FROM t ORDER BY i > 1, id",
    "EXISTS": """
        SELECT id FROM t l WHERE EXISTS (SELECT 1 FROM t r WHERE r.i = l.i AND r.b - r.a > INTERVAL '1 day')
        ORDER BY id""",
    "GROUPING SETS": """
        SELECT i IN (1, 2) AND i IN (3) AS both, count(*) AS n FROM t
        GROUP BY GROUPING SETS ((i IN (1, 2) AND i IN (3)), ()) ORDER BY 2, 1""",
    "LATERAL and unnest": "SELECT id, unnest([p / 3, x]) AS y FROM t WHERE id < 2 ORDER BY id, y",
    "CASE over a moved date": """
        SELECT id, moved > TIMESTAMP '2024-01-02 00:00:00' AS late
        FROM (SELECT id, day + INTERVAL '36 hours' AS moved FROM t) ORDER BY id""",
    "VALUES": "SELECT a, b / 4 AS quarter FROM (VALUES (1, 0.5::DOUBLE), (2, 1.5::DOUBLE)) AS v(a, b) ORDER BY a",
    "constants": "SELECT 1.5::DOUBLE AS x, 1 / 8::DOUBLE AS y, DATE '2024-01-31' + INTERVAL '1 month' AS z",
    "percentiles": "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i) AS half, median(i) AS same FROM t",
}


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_queries_agree_with_duckdb(sql: str, folder: Path, tmp_path: Path):
    got, wanted = queried(sql, folder, tmp_path / "out"), duck(folder, sql)
    assert got.column_names == wanted.column_names
    for name in got.column_names:
        assert agree(shown(got[name]), shown(wanted[name])), (name, shown(got[name]), shown(wanted[name]))


def test_numbers_of_queries_are_floats(folder: Path, tmp_path: Path):
    sql = "SELECT x * 0.1 AS product, 0.1 AS tenth, v.c FROM t, (VALUES (0.25)) AS v(c)"
    got = queried(sql, folder, tmp_path / "out")
    assert [str(field.type) for field in got.schema] == ["double"] * 3


def test_days_in_milliseconds_and_times_in_seconds_stay_dates_and_times(tmp_path: Path):
    """Parquet has no such types, and a reader would find integers. An Arrow schema in a file says what they are."""
    days, times = [dt.date(2024, 2, 29), None], [dt.time(13, 45, 59), None]
    table = pa.table({"day": pa.array(days, pa.date32()), "time": pa.array(times, pa.time32("ms"))})
    (tmp_path / "t").mkdir()
    pq.write_table(table, tmp_path / "t/t.parquet")
    sql = """SELECT arrow_cast(day, 'Date64') AS day, arrow_cast(time, 'Time32(Second)') AS time,
             [arrow_cast(day, 'Date64')] AS days FROM t"""
    got = queried(sql, tmp_path / "t", tmp_path / "out")
    assert got.to_pydict() == {"day": days, "time": times, "days": [[day] for day in days]}
    part = prepare("SELECT arrow_cast(1, 'Date64') AS day", {"t": tmp_path / "t"}, tmp_path / "part")
    assert part.code == 1
    assert 'column "day" of type Date64 has a value that is not a whole day' in part.error


def test_the_time_of_a_query_is_one_time(folder: Path, tmp_path: Path):
    before = dt.datetime.now(dt.UTC)
    sql = "SELECT now() AS a, current_timestamp AS b, current_date AS day, now() - INTERVAL '1 day' < now() AS c FROM t"
    got = queried(sql, folder, tmp_path / "out")
    assert set(got["c"].to_pylist()) == {True}
    assert got["a"].equals(got["b"])
    (first,) = set(got["a"].cast(pa.timestamp("us", "UTC"), safe=False).to_pylist())
    assert before - dt.timedelta(seconds=1) <= first <= dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    assert set(got["day"].to_pylist()) <= {before.date(), first.date()}


def test_an_ambiguous_condition_is_refused(folder: Path, tmp_path: Path):
    run = prepare("SELECT id FROM t WHERE i IS DISTINCT FROM 1 AND i > 0", {"t": folder}, tmp_path / "out")
    assert run.code == 2
    assert "put (… IS DISTINCT FROM …) in parentheses" in run.error


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_have_the_values_of_plans(seed: int, tmp_path: Path, serve: Serve):
    table = draw_table(seed)
    # An argument has no NUL.
    exprs = [expr for expr in draw_exprs(table, EXPRESSIONS) if "\0" not in expr.sql]
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(table.table(), root / "t.parquet")
    with fl.connect(serve({"t": str(root / "t.parquet")}).url) as client:
        answers = derived(client, "t", [expr.sql for expr in exprs])
    known = [(expr, answer.values) for expr, answer in zip(exprs, answers, strict=True) if answer.values is not None]
    assert len(known) > EXPRESSIONS / 2
    got = evaluated(root, [expr for expr, _ in known], tmp_path, table)
    refused = [found for found in got if isinstance(found, str)]
    assert all(error.startswith("error: SQL") for error in refused), refused
    assert len(refused) <= REFUSED * len(known), refused
    for (expr, values), found in zip(known, got, strict=True):
        if isinstance(found, str):
            continue
        assert agree(found, values), (expr.sql, found, values)


def evaluated(root: Path, exprs: list[Expr], tmp_path: Path, table: Drawn) -> list[list[Any] | str]:
    """The values of expressions in one query, or in two of half of them if it fails; the errors of single ones."""
    columns = [f"{expr.sql} AS value{n}" for n, expr in enumerate(exprs)]
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    run = prepare(f"SELECT id AS row, {', '.join(columns)} FROM t ORDER BY id", {"t": root}, out)
    if run.code == 0:
        got = written(out) if table.rows else None
        return [plain(got[f"value{n}"]) if got else [] for n in range(len(exprs))]
    if len(exprs) == 1:
        return [run.error]
    half = len(exprs) // 2
    return evaluated(root, exprs[:half], tmp_path, table) + evaluated(root, exprs[half:], tmp_path, table)
