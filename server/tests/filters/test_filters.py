"""Filters pass the same rows as pyarrow, with and without pruning by statistics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.serving import Serve, info

ROWS = 2000
GROUP = 100
F = pc.field


def filtered_table() -> pa.Table:
    """Rising, falling, scattered, constant and empty columns; every hundred rows are a row group."""
    random = np.random.default_rng(5)
    n = np.arange(ROWS)
    gaps = random.random(ROWS) < 0.1
    # Row groups 3 and 7 are all null, 5 is constant, 9 is all NaN.
    group = n // GROUP
    spotted = [None if g in (3, 7) else (7 if g == 5 else int(i)) for i, g in zip(n, group, strict=True)]
    floats = random.normal(0, 50, ROWS)
    floats[random.random(ROWS) < 0.05] = np.nan
    floats[group == 9] = np.nan
    floats[group == 4] = 2.5
    floats[::97] = -0.0
    start = dt.datetime(2013, 1, 1, 12)
    return pa.table(
        {
            "rise": pa.array(n, pa.int64()),
            "fall": pa.array(ROWS - n, pa.int32()),
            "byte": pa.array(random.integers(0, 256, ROWS), pa.uint8()),
            "huge": pa.array((n.astype(np.uint64) << np.uint64(53)) + np.uint64(2**63 - 1), pa.uint64()),
            "spotted": pa.array(spotted, pa.int64()),
            "constant": pa.array([42] * ROWS, pa.int16()),
            "empty": pa.nulls(ROWS, pa.int32()),
            "float": pa.array(floats, mask=gaps),
            "ramp": pa.array(n / 16, pa.float32()),
            "decimal": pa.array([Decimal(int(i) - 500).scaleb(-2) for i in n], pa.decimal128(9, 2)),
            "word": pa.array([f"w{i:04d}" + "é" * (i % 3) for i in n]),
            "gappy": pa.array([None if g else "abcXYZ_%"[i % 8] * (i % 4) for i, g in zip(n, gaps, strict=True)]),
            "day": pa.array([(start + dt.timedelta(days=int(i) // 3)).date() for i in n]),
            "time": pa.array([start + dt.timedelta(minutes=int(i)) for i in n], pa.timestamp("us")),
            "flag": pa.array(group % 4 == 0, mask=gaps),
        }
    )


def day(text: str) -> pa.Scalar:
    return pa.scalar(dt.date.fromisoformat(text))


def time(text: str) -> pa.Scalar:
    return pa.scalar(dt.datetime.fromisoformat(text), pa.timestamp("us"))


# DataFusion's floats are in total order: NaN is equal to itself and larger than every number.
NAN = pc.is_nan(F("float"))

CASES: dict[str, pc.Expression] = {
    "rise = 777": F("rise") == 777,
    "rise <> 777": F("rise") != 777,
    "rise < 250": F("rise") < 250,
    "rise >= 1999": F("rise") >= 1999,
    "1500 < rise": F("rise") > 1500,
    "rise > 5000": F("rise") > 5000,
    "rise > 1e300": pc.scalar(False),
    "rise < 250.5": F("rise") <= 250,
    "rise BETWEEN 99 AND 100": (F("rise") >= 99) & (F("rise") <= 100),
    "rise NOT BETWEEN 100 AND 1900": (F("rise") < 100) | (F("rise") > 1900),
    "rise IN (0, 199, 200, 1999, 2000)": F("rise").isin([0, 199, 200, 1999, 2000]),
    "rise NOT IN (1, 2, 3)": ~F("rise").isin([1, 2, 3]),
    "fall <= 3": F("fall") <= 3,
    "fall + rise = 2000 AND fall < 10": F("fall") < 10,
    "rise * 2 > 3900": F("rise") * 2 > 3900,
    "-rise < -1990": F("rise") > 1990,
    "rise % 7 = 3": (F("rise") - pc.multiply(pc.divide(F("rise"), 7), 7)) == 3,
    "byte > 250": F("byte") > 250,
    "byte > -1": F("byte") > -1,
    "huge > 9223372036854775807": F("huge") > pa.scalar(2**63 - 1, pa.uint64()),
    "spotted IS NULL": F("spotted").is_null(),
    "spotted IS NOT NULL AND rise < 800": F("spotted").is_valid() & (F("rise") < 800),
    "spotted = 7": F("spotted") == 7,
    "spotted <> 7": F("spotted") != 7,
    "NOT (spotted = 7)": F("spotted") != 7,
    "NOT (spotted = 7 OR spotted > 900)": ~((F("spotted") == 7) | (F("spotted") > 900)),
    "NOT (NOT (spotted > 900 AND rise < 1000))": (F("spotted") > 900) & (F("rise") < 1000),
    "spotted IS DISTINCT FROM 7": F("spotted").is_null() | (F("spotted") != 7),
    "coalesce(spotted, -1) = -1": F("spotted").is_null(),
    "nullif(spotted, 7) IS NULL": F("spotted").is_null() | (F("spotted") == 7),
    "constant = 42": pc.scalar(True),
    "constant <> 42": pc.scalar(False),
    "constant > 42 OR rise = 5": F("rise") == 5,
    "empty IS NULL": pc.scalar(True),
    "empty IS NOT NULL": pc.scalar(False),
    "empty > 0 OR rise = 5": F("rise") == 5,
    "NOT (empty > 0) OR rise = 5": F("rise") == 5,
    "float > 60": (F("float") > 60) | NAN,
    "float < -60": F("float") < -60,
    "float = 2.5": F("float") == 2.5,
    "float <> 2.5": F("float") != 2.5,
    "NOT (float <= 60)": (F("float") > 60) | NAN,
    "isnan(float)": NAN,
    "float IS NULL": F("float").is_null(nan_is_null=False),
    "float > 60 AND NOT isnan(float)": F("float") > 60,
    "abs(float) < 1 AND float <> 0": (pc.abs(F("float")) < 1) & (F("float") != 0.0),
    "ramp >= 100.0625": F("ramp") >= 100.0625,
    "sqrt(ramp) < 2": F("ramp") < 4,
    "decimal < -1.5": F("decimal") < Decimal("-1.50"),
    "decimal BETWEEN 0 AND 0.05": (F("decimal") >= Decimal("0.00")) & (F("decimal") <= Decimal("0.05")),
    "word = 'w1234é'": F("word") == "w1234é",
    "word > 'w1990'": F("word") > "w1990",
    "word LIKE 'w01%'": pc.starts_with(F("word"), "w01"),
    "word LIKE '%é'": pc.ends_with(F("word"), "é"),
    "word LIKE 'w_00é'": pc.match_substring_regex(F("word"), "^w.00é$"),
    "word NOT LIKE 'w0%'": ~pc.starts_with(F("word"), "w0"),
    "gappy = ''": F("gappy") == "",
    "gappy ILIKE 'x%'": pc.starts_with(F("gappy"), "X"),
    r"gappy LIKE '\%%'": pc.starts_with(F("gappy"), "%"),
    "upper(gappy) IN ('AA', 'XXX')": F("gappy").isin(["aa", "XXX"]),
    "length(gappy) = 2": pc.utf8_length(F("gappy")) == 2,
    "day = DATE '2013-02-01'": F("day") == day("2013-02-01"),
    "day >= '2014-10-01'": F("day") >= day("2014-10-01"),
    "time < TIMESTAMP '2013-01-01 13:00:00'": F("time") < time("2013-01-01T13:00"),
    "time BETWEEN '2013-01-02 00:00:00' AND '2013-01-02 00:05:00'": (
        (F("time") >= time("2013-01-02T00:00")) & (F("time") <= time("2013-01-02T00:05"))
    ),
    "time >= DATE '2013-01-02'": F("time") >= time("2013-01-02T00:00"),
    "date_part('month', day) = 2": pc.month(F("day")) == 2,
    "extract(hour FROM time) = 13": pc.hour(F("time")) == 13,
    "flag": F("flag"),
    "NOT flag": ~F("flag"),
    "flag = false": ~F("flag"),
    "flag IS NOT TRUE": F("flag").is_null() | ~F("flag"),
    "flag IS UNKNOWN": F("flag").is_null(),
    "CASE WHEN rise < 100 THEN flag WHEN rise < 200 THEN true ELSE false END": (
        ((F("rise") < 100) & F("flag")) | ((F("rise") >= 100) & (F("rise") < 200))
    ),
    "CAST(rise AS TEXT) LIKE '19_9'": pc.match_substring_regex(F("rise").cast(pa.string()), "^19.9$"),
    "CAST(ramp AS INT) = 3": (F("ramp") >= 3) & (F("ramp") < 4),
    "CAST(word AS TEXT) < 'w0003'": F("word") < "w0003",
    "CAST(time AS DATE) = DATE '2013-01-01'": F("time") < time("2013-01-02T00:00"),
    "try_cast(gappy AS INT) IS NULL": pc.scalar(True),
    "(rise < 10 OR fall < 10) AND (byte >= 0)": (F("rise") < 10) | (F("fall") < 10),
    "true": pc.scalar(True),
    "false": pc.scalar(False),
    "NULL": pc.scalar(False),
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return filtered_table()


@pytest.fixture(scope="module")
def client(table: pa.Table, tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fl.FlightClient]:
    root = tmp_path_factory.mktemp("filters")
    layouts = {"with": {}, "without": {"write_statistics": False}, "index": {"write_page_index": True}}
    for name, options in layouts.items():
        (root / name).mkdir()
        pq.write_table(table, root / name / "a.parquet", row_group_size=GROUP, **options)
    with fl.connect(serve({name: Path(root / name) for name in layouts}).url) as connected:
        yield connected


def row_ids(client: fl.FlightClient, dataset: str, filter_text: str) -> list[int]:
    outputs = [{"name": "rise", "dtype": "INT64", "parts": [{"columns": ["rise"]}]}]
    request = {"dataset": dataset, "plan": {"filter": filter_text, "outputs": outputs}, "with_row_ids": True}
    found = info(client, request)
    got = client.do_get(found.endpoints[0].ticket).read_all()
    assert found.total_records == got.num_rows
    assert got["rise"].to_pylist() == got["__row_id"].to_pylist()
    return got["rise"].to_pylist()


@pytest.mark.parametrize("text", CASES)
def test_filters_match_pyarrow(client: fl.FlightClient, table: pa.Table, text: str):
    want = table.filter(CASES[text])["rise"].to_pylist()
    for dataset in ("with", "without", "index"):
        assert row_ids(client, dataset, text) == want, dataset
