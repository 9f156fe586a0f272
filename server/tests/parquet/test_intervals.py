"""Parquet's INTERVAL, as DuckDB writes it: months, days and milliseconds, none of them dropped."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.faults import outcome
from harness.parquet.surgery import SchemaElement, dissect
from harness.parquet.thrift_compact import I32
from harness.serving import Serve, info, plan_of, raw_table, read, stored

INTERVALS = [
    "1 month",
    "2 years",
    "3 days",
    "1 month 2 days 3 seconds",
    "1 millisecond",
    "23 hours",
    "0 days",
]
# Months, days and nanoseconds of each.
WANT = [
    (1, 0, 0),
    (24, 0, 0),
    (0, 3, 0),
    (1, 2, 3_000_000_000),
    (0, 0, 1_000_000),
    (0, 0, 82_800_000_000_000),
    (0, 0, 0),
]
ROWS = 210


def want(rows: int = ROWS) -> list[tuple[int, int, int] | None]:
    return [None if i % 10 == 9 else WANT[i % len(WANT)] for i in range(rows)]


def write(path: Path, options: str = "") -> None:
    rows = ", ".join(f"({i}, {'NULL' if i % 10 == 9 else repr(INTERVALS[i % len(INTERVALS)])})" for i in range(ROWS))
    path.parent.mkdir(parents=True, exist_ok=True)
    duckdb.sql(
        f"""COPY (SELECT id::BIGINT AS id, i::INTERVAL AS i, [i::INTERVAL, NULL] AS list,
            {{'i': i::INTERVAL, 'id': id}} AS struct, [{{'i': [i::INTERVAL]}}] AS deep, MAP {{'k': i::INTERVAL}} AS map
            FROM (VALUES {rows}) t(id, i) ORDER BY id) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048 {options})"""
    )


@pytest.mark.parametrize("options", ["", ", PARQUET_VERSION v2", ", DICTIONARY_SIZE_LIMIT 1", ", COMPRESSION zstd"])
def test_every_part_of_an_interval_is_kept(tmp_path: Path, serve: Serve, options: str):
    write(tmp_path / "t" / "a.parquet", options)
    kind = pa.month_day_nano_interval()
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        raw = raw_table(client, "t")
        assert raw.schema.field("i").type == kind
        for got in (raw, read(client, "t", plan_of(stored(*raw.column_names)))):
            got.validate(full=True)
            assert got["i"].to_pylist() == want()
            assert got["list"].to_pylist() == [[i, None] for i in want()]
            assert got["struct"].to_pylist() == [{"i": value, "id": i} for i, value in enumerate(want())]
            assert got["deep"].to_pylist() == [[{"i": [i]}] for i in want()]
            assert got["map"].to_pylist() == [[("k", i)] for i in want()]


def test_expressions_count_the_months(tmp_path: Path, serve: Serve):
    write(tmp_path / "t" / "a.parquet")
    text = "TIMESTAMP '2024-01-31 00:00:00' + i"
    plan = plan_of(stored("then"), derive=[{"name": "then", "expr": text}], filter="i IS NOT NULL")
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        got = read(client, "t", plan)["then"].cast(pa.timestamp("us")).to_pylist()
    path = tmp_path / "t" / "a.parquet"
    wanted = duckdb.sql(f"SELECT {text} FROM '{path}' WHERE i IS NOT NULL ORDER BY id").fetchall()
    assert got == [row[0] for row in wanted]
    assert dt.datetime(2024, 2, 29) in got
    assert dt.datetime(2026, 1, 31) in got


def test_order_and_resume_match_other_columns(tmp_path: Path, serve: Serve):
    write(tmp_path / "t" / "a.parquet")
    plan = plan_of(stored("id", "i"))
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        request: dict[str, Any] = {"dataset": "t", "plan": plan, "batch_size": 30, "shuffle": True, "seed": 3}
        whole = client.do_get(info(client, request).endpoints[0].ticket).read_all()
        assert whole["i"].to_pylist() == [want()[i] for i in whole["id"].to_pylist()]
        rest = client.do_get(info(client, {**request, "start_position": 60}).endpoints[0].ticket).read_all()
        assert rest.to_pylist() == whole.slice(60).to_pylist()


def interval_bytes(*parts: int) -> bytes:
    """Months, days and milliseconds."""
    return b"".join(part.to_bytes(4, "little", signed=part < 0) for part in parts)


def hand_made(path: Path, values: list[bytes | None], *, store_schema: bool) -> None:
    """A column of 12 bytes that says it is an interval."""
    table = pa.table({"id": pa.array(range(len(values)), pa.int64()), "i": pa.array(values, pa.binary(12))})
    file = dissect(table, store_schema=store_schema)
    file.element("i").add(SchemaElement.CONVERTED, I32, 21)
    path.write_bytes(file.build())


def test_milliseconds_are_unsigned(tmp_path: Path, serve: Serve):
    hand_made(tmp_path / "a.parquet", [interval_bytes(0, 0, 2**32 - 1)], store_schema=False)
    with fl.connect(serve({"t": tmp_path}).url) as client:
        assert raw_table(client, "t")["i"].to_pylist() == [(0, 0, (2**32 - 1) * 10**6)]


@pytest.mark.parametrize("part", ["months", "days"])
def test_rejects_an_interval_out_of_range_by_name(tmp_path: Path, serve: Serve, part: str):
    value = interval_bytes(-1, 0, 0) if part == "months" else interval_bytes(0, -1, 0)
    hand_made(tmp_path / "far.parquet", [interval_bytes(1, 2, 3), value, None], store_schema=False)
    with fl.connect(serve({"t": tmp_path}).url) as client:
        for request in (lambda: raw_table(client, "t"), lambda: read(client, "t", plan_of(stored("i")))):
            code, text = outcome(request)
            assert code == "FAILED_PRECONDITION", text
            assert "far.parquet" in text, text
            assert 'row group 0, column "i"' in text, text
            assert f"4294967295 {part}" in text, text
        assert read(client, "t", plan_of(stored("id"))).num_rows == 3


def test_intervals_beside_an_arrow_schema_are_signed(tmp_path: Path, serve: Serve):
    """Arrow's Rust library, the one Arrow that writes intervals, writes negative ones as two's complement."""
    hand_made(tmp_path / "a.parquet", [interval_bytes(-1, -2, -3), None], store_schema=True)
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 2
    with fl.connect(serve({"t": tmp_path}).url) as client:
        assert raw_table(client, "t")["i"].to_pylist() == [(-1, -2, -3_000_000), None]
