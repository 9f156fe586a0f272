"""Dates, intervals, zones and instants, in streams, takes and exchanges the same as in DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.exchange import exchange
from harness.serving import Serve, plan_of, read, stored
from harness.takes import check_takes

START = dt.datetime(2024, 2, 28, 22)
FAR = dt.datetime(9999, 12, 31)
FIRST = dt.datetime(1, 1, 1)
HOURS = [0, 1, 23, 24, 25, 48, 720, 960, -24, -48]
ENDS = [START + dt.timedelta(hours=hours, milliseconds=250 * row) for row, hours in enumerate(HOURS)]
# Around the nights of 2024 when clocks change in New York, in UTC.
NIGHTS = [dt.datetime(2024, 3, 10, 5), dt.datetime(2024, 11, 3, 4)]
UTC = [night + dt.timedelta(minutes=30 * step) for night in NIGHTS for step in range(8)]
LOCAL = [
    dt.datetime(2024, month, day) + dt.timedelta(minutes=30 * step)
    for month, day in ((3, 10), (11, 3))
    for step in range(8)
]


def pairs(unit: str, zone: str | None) -> pa.Table:
    """Two timestamps, a date and far ones."""
    kind = pa.timestamp(unit, zone)
    far = [FAR, FIRST, None] if unit != "ns" else [ENDS[0], START, None]
    times = [*ENDS, *far]
    return pa.table(
        {
            "id": pa.array(range(len(times)), pa.int64()),
            "a": pa.array([START] * len(ENDS) + [START, START, START], pa.timestamp(unit)).cast(kind),
            "b": pa.array(times, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False).cast(kind),
            "d": pa.array([*(end.date() for end in ENDS), FAR.date(), FIRST.date(), None], pa.date32()),
        }
    )


TABLES = {
    **{f"{unit}": pairs(unit, None) for unit in ("s", "ms", "us", "ns")},
    **{f"{unit}_utc": pairs(unit, "UTC") for unit in ("ms", "us", "ns")},
    "night": pa.table(
        {
            "id": pa.array(range(len(UTC)), pa.int64()),
            "z": pa.array(UTC, pa.timestamp("us")).cast(pa.timestamp("us", "America/New_York")),
            "n": pa.array(LOCAL, pa.timestamp("us")),
        }
    ),
}

LENGTHS = ["1 day", "24 hours", "2 days", "30 days", "1 month", "1 year", "0 seconds", "1 day 1 hour", "-2 days"]
COMPARISONS = [
    *(f"b - a {operator} INTERVAL '{length}'" for length in LENGTHS for operator in (">", "=", "<=")),
    "b - a <> INTERVAL '1 day'",
    "INTERVAL '1 day' >= b - a",
    "NOT (b - a <= INTERVAL '1 day')",
    "b - a BETWEEN INTERVAL '1 day' AND INTERVAL '1 month'",
    "b - a NOT IN (INTERVAL '1 day', INTERVAL '48 hours')",
    "b - a IS DISTINCT FROM INTERVAL '1 day'",
    "CASE WHEN b - a > INTERVAL '1 day' THEN d > DATE '2024-03-01' ELSE b > a END",
    "greatest(b - a, INTERVAL '1 day') > INTERVAL '2 days'",
    "b - a > a - b",
    "b > a + INTERVAL '1 day'",
]
DATES = [
    "b < d + INTERVAL '12 hours'",
    "b >= d + INTERVAL '1 day 6 hours' - INTERVAL '12 hours'",
    "INTERVAL '36 hours' + d > b",
    "d - INTERVAL '1 hour' < d",
    "d + INTERVAL '1 month' > DATE '2024-04-01'",
    "coalesce(d, b) > b",
    "greatest(d, b) = b",
    "least(d, b) = d",
    "CASE WHEN d > DATE '2024-03-01' THEN d ELSE b END > a",
    "date_trunc('month', d) = date_trunc('month', b)",
    "b - d < INTERVAL '1 day'",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("times")
    for name, table in TABLES.items():
        (root / name).mkdir()
        pq.write_table(table, root / name / "a.parquet", row_group_size=4)
    return root


@pytest.fixture(scope="module")
def client(root: Path, serve: Serve) -> Iterator[fl.FlightClient]:
    with fl.connect(serve({name: root / name for name in TABLES}).url) as connected:
        yield connected


def ids(client: fl.FlightClient, dataset: str, text: str) -> list[int]:
    return read(client, dataset, plan_of(stored("id"), filter=text))["id"].to_pylist()


def values(client: fl.FlightClient, dataset: str, text: str) -> pa.ChunkedArray:
    return read(client, dataset, plan_of(stored("v"), derive=[{"name": "v", "expr": text}]))["v"]


def from_duckdb(root: Path, dataset: str, text: str, zone: str = "UTC") -> list[Any]:
    """DuckDB's values. It has no arithmetic of nanoseconds, and its common type of them and dates overflows."""
    rows = f"read_parquet('{root}/{dataset}/a.parquet')"
    if "ns" in dataset:
        kind = "TIMESTAMPTZ" if "utc" in dataset else "TIMESTAMP"
        rows = f"(SELECT * REPLACE (a::{kind} AS a, b::{kind} AS b) FROM {rows})"
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        return [value for (value,) in connection.execute(f"SELECT {text} FROM {rows} ORDER BY id").fetchall()]


@pytest.mark.parametrize("dataset", [name for name in TABLES if name != "night"])
@pytest.mark.parametrize("text", [*COMPARISONS, *DATES])
def test_filters_of_intervals_match_duckdb(client: fl.FlightClient, root: Path, dataset: str, text: str):
    want = [row for row, passes in enumerate(from_duckdb(root, dataset, text)) if passes]
    assert ids(client, dataset, text) == want
    assert [row for row, passes in enumerate(values(client, dataset, text).to_pylist()) if passes] == want


PARTS = ["day", "hour", "minute", "second", "millisecond", "microsecond", "month", "epoch"]


@pytest.mark.parametrize("dataset", [name for name in TABLES if name != "night"])
@pytest.mark.parametrize("part", PARTS)
def test_parts_of_differences_match_duckdb(client: fl.FlightClient, root: Path, dataset: str, part: str):
    for text in (f"date_part('{part}', b - a)", f"extract({part} FROM a - b)"):
        assert values(client, dataset, text).to_pylist() == from_duckdb(root, dataset, text), text


NEW_YORK = "AT TIME ZONE 'America/New_York'"
ZONES = [
    f"epoch(n {NEW_YORK})",
    f"epoch((n - INTERVAL '1 day') {NEW_YORK} + INTERVAL '1 day')",
    f"epoch((n + INTERVAL '1 day') {NEW_YORK} - INTERVAL '1 day')",
    f"epoch((n - INTERVAL '1 month') {NEW_YORK} + INTERVAL '1 month')",
    "epoch(z + INTERVAL '1 day')",
    "epoch(z - INTERVAL '1 day')",
    "epoch(z + INTERVAL '1 hour')",
    "epoch(z + INTERVAL '1 month 1 day 1 hour')",
    f"z > n {NEW_YORK}",
    f"greatest(z, n {NEW_YORK}) = z",
]


@pytest.mark.parametrize("text", ZONES)
def test_local_times_around_clock_changes_match_duckdb(client: fl.FlightClient, root: Path, text: str):
    ours = text.replace("epoch(", "date_part('epoch', ")
    assert values(client, "night", ours).to_pylist() == from_duckdb(root, "night", text, "America/New_York")


MET = [
    "z > $n",
    "z = $n",
    "$n <= z",
    "z IN ($n)",
    "coalesce($n, z) = z",
    "greatest($n, z) = z",
    "z - $n > INTERVAL '30 minutes'",
    "z BETWEEN $n AND $n + INTERVAL '1 hour'",
]


@pytest.mark.parametrize("text", MET)
def test_local_times_meet_a_zoned_column_as_in_duckdb(client: fl.FlightClient, root: Path, text: str):
    wanted = from_duckdb(root, "night", text.replace("$n", f"(n {NEW_YORK})"), "America/New_York")
    assert values(client, "night", text.replace("$n", "n")).to_pylist() == wanted


INSTANTS = [
    "to_timestamp(1710054000)",
    "to_timestamp_micros(1710054000000000)",
    "from_unixtime(1710054000)",
    "to_timestamp('2024-03-10T03:00:00-04:00')",
    "to_timestamp('2024-03-10T07:00:00Z')",
    "'2024-03-10T08:00:00+01:00'",
    "TIMESTAMP '2024-03-10 02:00:00'",
]


@pytest.mark.parametrize("text", INSTANTS)
def test_instants_are_compared_as_instants(client: fl.FlightClient, text: str):
    split = dt.datetime(2024, 3, 10, 7)
    assert ids(client, "night", f"z < {text}") == [row for row, time in enumerate(UTC) if time < split]
    assert ids(client, "night", f"{text} <= z") == [row for row, time in enumerate(UTC) if time >= split]


def test_values_are_the_same_in_streams_takes_and_exchanges(client: fl.FlightClient):
    derived = {
        "long": "b - a > INTERVAL '1 month'",
        "noon": "d + INTERVAL '12 hours'",
        "later": "greatest(d, b)",
        "epoch": "date_part('epoch', b - a)",
        "instant": "to_timestamp(date_part('epoch', b))",
        "there": "hour(b AT TIME ZONE 'America/New_York')",
        "month": "to_char(date_trunc('month', d), '%Y-%m')",
    }
    plan = plan_of(stored(*derived), derive=[{"name": name, "expr": text} for name, text in derived.items()])
    table = TABLES["us"]
    assert check_takes(client, {"dataset": "us", "plan": plan, "shuffle": True, "batch_size": 3}) == table.num_rows
    (batch,) = table.combine_chunks().to_batches()
    (answer,) = exchange(client, {"plan": plan}, [batch])
    streamed = read(client, "us", plan)
    assert pa.Table.from_batches([answer]).equals(streamed)
    # Nullability changes no value.
    strict = batch.filter(batch["b"].is_valid())
    strict = strict.cast(pa.schema([field.with_nullable(False) for field in strict.schema]))
    (answer,) = exchange(client, {"plan": plan}, [strict])
    assert pa.Table.from_batches([answer]).equals(streamed.slice(0, strict.num_rows))
