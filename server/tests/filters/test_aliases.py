"""Functions under the names of other dialects give DuckDB's values, and errors say what to write instead."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.serving import Serve, info, plan_of, read, stored

ROWS = 1500


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(11)
    gaps = random.random(ROWS) < 0.1
    micros = random.integers(-(10**17), 10**17, ROWS)
    micros[:5] = [0, -1, 86_399_999_999, -86_400_000_000, 951_782_400_000_000]
    times = pa.array(micros, pa.int64(), mask=gaps).view(pa.timestamp("us"))
    days = pa.array((random.integers(-200_000, 200_000, ROWS)).astype(np.int32), mask=gaps[::-1]).view(pa.date32())
    words = [f"id={i};k{i % 7}" if i % 5 else "é nothing" * (i % 2) for i in range(ROWS)]
    lists = [None if gap else list(range(i % 6)) for i, gap in enumerate(gaps)]
    return pa.table(
        {
            "t": times,
            "d": days,
            "s": pa.array(words, mask=gaps),
            "k": pa.array(words, mask=gaps).dictionary_encode(),
            "n": pa.array(random.integers(-3, 3, ROWS), mask=gaps[::-1]),
            "m": pa.array(random.integers(-3, 3, ROWS), mask=gaps),
            "l": pa.array(lists, pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def client(table: pa.Table, tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fl.FlightClient]:
    root = tmp_path_factory.mktemp("aliases")
    pq.write_table(table, root / "a.parquet", row_group_size=300)
    with fl.connect(serve({"data": Path(root)}).url) as connected:
        yield connected


PARTS = ("year", "quarter", "month", "weekofyear", "day", "dayofmonth", "dayofyear")
SAME = {
    **{f"{part}(t)": f"{part}(t)" for part in (*PARTS, "hour", "minute", "second")},
    **{f"{part}(d)": f"{part}(d)" for part in PARTS},
    "dayofweek(t)": "dayofweek(t) + 1",
    "DayOfWeek(d)": "dayofweek(d) + 1",
    "datediff(t, d)": "datediff('day', d, t)",
    "datediff(d, t) * 2 + 1": "datediff('day', t, d) * 2 + 1",
    "datediff(d, '2000-02-29')": "datediff('day', DATE '2000-02-29', d)",
    "if(n > 0, n, m)": "CASE WHEN n > 0 THEN n ELSE m END",
    "IF(s IS NULL, 'none', s)": "coalesce(s, 'none')",
    "n <=> m": "n IS NOT DISTINCT FROM m",
    "NOT (n <=> NULL)": "n IS NOT NULL",
    "n == m": "n = m",
    "regexp_extract(s, 'id=([0-9]+);k([0-9])')": "regexp_extract(s, 'id=([0-9]+);k([0-9])', 1)",
    "regexp_extract(k, 'id=([0-9]+);k([0-9])', 2)": "regexp_extract(s, 'id=([0-9]+);k([0-9])', 2)",
    "regexp_extract(s, '[0-9]+', 0)": "regexp_extract(s, '[0-9]+', 0)",
    "array_length(l)": "len(l)",
    "size(l) + 0": "len(l)",
}


@pytest.mark.parametrize("text", SAME)
def test_values_are_those_of_duckdb(client: fl.FlightClient, table: pa.Table, text: str):
    with duckdb.connect() as oracle:
        oracle.register("data", table)
        want = [row[0] for row in oracle.execute(f"SELECT {SAME[text]} FROM data").fetchall()]
    plan = plan_of(stored("v"), derive=[{"name": "v", "expr": text}])
    got = read(client, "data", plan)["v"].to_pylist()
    assert got == want
    assert not isinstance(got[0], (dt.date, float))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('s == "churn"', "strings use single quotes: 'churn'"),
        ("regexp_replce(s, 'a', 'b') = s", 'did you mean "regexp_replace"'),
        ("unix_timestamp(t) > 0", "to_unixtime"),
        ("n IN (SELECT 1)", "subqueries are not supported"),
        ("row_number() OVER () = 1", "window functions"),
        ("s ILIKE ANY ('a', 'b')", "ILIKE ANY is not supported"),
        ("max(n) > 1", "aggregate functions"),
        ("year(n, m) = 1", "year() takes one argument"),
    ],
)
def test_refusals_name_the_form_and_what_to_write(client: fl.FlightClient, text: str, part: str):
    with pytest.raises(pa.ArrowInvalid) as refused:
        info(client, {"dataset": "data", "plan": plan_of(stored("n"), filter=text)})
    assert "INVALID_REQUEST: plan.filter: " in str(refused.value)
    assert part in str(refused.value)
