"""Statistics that writers got wrong: filters pass every row, and skip row groups where the statistics are right."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.faults import outcome
from harness.parquet.surgery import Chunk, FileMeta, SchemaElement, Statistics, dissect
from harness.parquet.thrift_compact import I32, I64
from harness.parquet.wrong_statistics import (
    OLD,
    ORDERED,
    UNDECLARED,
    Bounds,
    as_signed_integers,
    by_signed_bytes,
    by_unsigned_bytes,
    cut,
    decimals_the_wrong_way_round,
    of_the_first,
    restate,
    the_last_twice,
    the_wrong_way_round,
    with_lengths,
)
from harness.serving import Serve, info, plan_of, read, stored

GROUP = 3


def decimals(*cents: int, kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal(number).scaleb(-2) for number in cents], kind)


def groups_of(array: pa.Array) -> list[pa.Array]:
    return [array[start : start + GROUP] for start in range(0, len(array), GROUP)]


def rows_of(client: fl.FlightClient, condition: str, column: str = "v") -> tuple[int, int]:
    """Rows that a filter announces and passes."""
    plan = plan_of(stored(column), filter=condition)
    return info(client, {"dataset": "t", "plan": plan}).total_records, read(client, "t", plan).num_rows


TEXTS = pa.array(["aé", "az", "b", "zz", "éa", "中", "a", "b", "c"])
LONG = pa.array([f"value {letter * 9}" for letter in "cabfedihg"])


def unsigned(bits: int, kind: pa.DataType) -> pa.Array:
    """Numbers with and without the highest bit."""
    return pa.array([1, 2**bits - 1, 5, 7, 2 ** (bits - 1), 3, 4, 9, 8], kind)


U32, U64 = unsigned(32, pa.uint32()), unsigned(64, pa.uint64())
MONEY = decimals(-500, 300, -125, 700, -900, 1, 2, -3, 4, kind=pa.decimal128(24, 2))

WRONG: dict[str, tuple[pa.Array, str, str, Bounds]] = {
    "text by signed bytes": (TEXTS, "parquet-mr version 1.8.1 (build 4aba4da)", OLD, by_signed_bytes),
    "text by signed bytes of 1.9": (
        TEXTS,
        "parquet-mr version 1.9.0 (build 38262e2)",
        OLD,
        by_signed_bytes,
    ),
    "text by signed bytes of Impala": (TEXTS, "impala version 2.9.0-RELEASE (build 1)", OLD, by_signed_bytes),
    "text by signed bytes without a writer": (TEXTS, "", OLD, by_signed_bytes),
    "bytes of a reused buffer": (TEXTS, "parquet-mr version 1.6.0rc3 (build d4d5a07)", OLD, the_last_twice),
    "bytes of a reused buffer in Go": (LONG, "github.com/segmentio/parquet-go version 0.0.0", ORDERED, the_last_twice),
    "texts with their length": (TEXTS, "parquet-go version latest", UNDECLARED, with_lengths),
    "texts cut without rounding up": (LONG, "hyparquet", UNDECLARED, cut),
    "uint32 by sign": (U32, "parquet-mr version 1.8.1 (build 4aba4da)", OLD, as_signed_integers),
    "uint64 by sign": (U64, "parquet-mr version 1.8.1 (build 4aba4da)", OLD, as_signed_integers),
    "uint64 of pages merged by sign": (U64, "Polars", ORDERED, as_signed_integers),
    "uint64 of an unknown writer": (U64, "a writer version 1.0", ORDERED, as_signed_integers),
    "decimals by bytes": (MONEY, "parquet-mr version 1.8.1 (build 4aba4da)", OLD, by_unsigned_bytes),
    "decimals by signed bytes": (MONEY, "parquet-cpp version 1.5.1-SNAPSHOT", ORDERED, by_signed_bytes),
    "decimals by bytes in order": (MONEY, "Polars", ORDERED, by_unsigned_bytes),
    "decimals the wrong way round": (MONEY, "parquet-cpp-arrow version 20.0.0", ORDERED, decimals_the_wrong_way_round),
    "text the wrong way round": (TEXTS, "parquet-cpp-arrow version 20.0.0", ORDERED, the_wrong_way_round),
    "dictionaries of which the first counts": (
        TEXTS.dictionary_encode(),
        "parquet-cpp-arrow version 10.0.1",
        ORDERED,
        of_the_first,
    ),
}


def literal(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"CAST('{value}' AS DECIMAL(24,2))"
    return f"'{value}'" if isinstance(value, str) else str(value)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bounds_lose_no_row(tmp_path: Path, serve: Serve, name: str):
    array, writer, fields, bounds = WRONG[name]
    file = dissect(pa.table({"v": array}), row_group_size=GROUP)
    plain = array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array
    restate(file, groups_of(plain), writer, fields, bounds)
    (tmp_path / "a.parquet").write_bytes(file.build())
    with fl.connect(serve({"t": tmp_path}).url) as client:
        values = plain.to_pylist()
        for value in values:
            for operator, want in (("=", values.count(value)), (">=", sum(other >= value for other in values))):
                assert rows_of(client, f"v {operator} {literal(value)}") == (want, want), f"{operator} {value}"


def test_wrong_bounds_of_decimals_in_bytes_lose_no_row(tmp_path: Path, serve: Serve):
    """As many bytes as each number needs, compared as bytes: 256 is before 2."""
    numbers = [-5, 3, 300, 256, 2, -300, 7, -1, 90_000]
    encoded = [number.to_bytes(max(1, (number.bit_length() + 8) // 8), "big", signed=True) for number in numbers]
    array = pa.array(encoded, pa.binary())
    file = dissect(pa.table({"v": array}), row_group_size=GROUP, store_schema=False)
    element = file.element("v")
    for field, value in ((SchemaElement.CONVERTED, 5), (SchemaElement.SCALE, 0), (SchemaElement.PRECISION, 9)):
        element.add(field, I32, value)
    restate(file, groups_of(array), "parquet-rs version 59.0.0", ORDERED, by_unsigned_bytes)
    (tmp_path / "a.parquet").write_bytes(file.build())
    with fl.connect(serve({"t": tmp_path}).url) as client:
        for number in numbers:
            assert rows_of(client, f"v = {number}") == (1, 1), number


# === Counts of nulls ===

NULLS = pa.array(["a", None, "b", None, None, None, "c", "d", "e"])
COUNTS: dict[str, tuple[pa.Array, str, Callable[[int], int]]] = {
    "none of dictionaries": (NULLS.dictionary_encode(), "parquet-cpp-arrow version 4.0.1", lambda _: 0),
    "once a page": (NULLS, "Polars", lambda nulls: min(3, nulls * 3)),
    "of an unknown writer": (NULLS, "fraugster/parquet-go version 0.9.0", lambda nulls: 3 - nulls),
    "negative": (NULLS, "parquet-cpp-arrow version 20.0.0", lambda _: -1),
    "more than values": (NULLS, "parquet-cpp-arrow version 20.0.0", lambda _: 2**40),
}


@pytest.mark.parametrize("name", COUNTS)
def test_wrong_counts_of_nulls_lose_no_row(tmp_path: Path, serve: Serve, name: str):
    array, writer, count = COUNTS[name]
    file = dissect(pa.table({"v": array, "n": range(len(array))}), row_group_size=GROUP)
    file.footer[FileMeta.CREATED_BY] = writer.encode()
    for group in range(3):
        nulls = NULLS[group * GROUP : (group + 1) * GROUP].null_count
        file.chunk(group, "v")[Chunk.STATISTICS].add(Statistics.NULLS, I64, count(nulls))
    (tmp_path / "a.parquet").write_bytes(file.build())
    with fl.connect(serve({"t": tmp_path}).url) as client:
        for condition, want in (("v IS NULL", 4), ("v IS NOT NULL", 5), ("v > 'b'", 3), ("v IS NULL OR v = 'e'", 5)):
            assert rows_of(client, condition, "n") == (want, want), condition


def test_a_count_below_zero_refuses_no_file(tmp_path: Path, serve: Serve):
    table = pa.table({"v": pa.array([1, None, 3], pa.int32()), "s": ["a", None, "c"]})
    file = dissect(table)
    for column in ("v", "s"):
        file.chunk(0, column)[Chunk.STATISTICS].add(Statistics.NULLS, I64, -1)
    (tmp_path / "a.parquet").write_bytes(file.build())
    assert pq.ParquetFile(tmp_path / "a.parquet").read().equals(table)
    with fl.connect(serve({"t": tmp_path}).url) as client:
        assert read(client, "t", plan_of(stored("v", "s"))).to_pydict() == table.to_pydict()


# === Trusted statistics ===


# DuckDB writes row groups of whole vectors.
SORTED_GROUP = 2048


def sorted_table() -> pa.Table:
    n = range(3 * SORTED_GROUP)
    return pa.table(
        {
            "int": pa.array(n, pa.int64()),
            "small": pa.array(n, pa.int16()),
            "uint": pa.array([i + 2**63 - 150 for i in n], pa.uint64()),
            "text": [f"é{i:04d}" for i in n],
            "day": pa.array([dt.date(1969, 8, 1) + dt.timedelta(days=i) for i in n]),
            "time": pa.array([dt.datetime(1969, 12, 1) + dt.timedelta(hours=i) for i in n], pa.timestamp("us")),
            "cents": pa.array([Decimal(i - 150).scaleb(-2) for i in n], pa.decimal128(9, 2)),
            "money": pa.array([Decimal(i - 150).scaleb(-2) for i in n], pa.decimal128(30, 2)),
        }
    )


# A condition for the first 50 of the rows.
FIRST = {
    "int": "int < 50",
    "small": "small < 50",
    "uint": f"uint < {2**63 - 100}",
    "text": "text < 'é0050'",
    "day": "day < DATE '1969-09-20'",
    "time": "time < TIMESTAMP '1969-12-03 02:00:00'",
    "cents": "cents < -1",
    "money": "money < -1",
}


def with_pyarrow(path: Path) -> None:
    pq.write_table(sorted_table(), path, row_group_size=SORTED_GROUP, compression="none")


def with_duckdb(path: Path) -> None:
    duckdb.from_arrow(sorted_table()).write_parquet(str(path), row_group_size=SORTED_GROUP, compression="uncompressed")


def with_polars(path: Path) -> None:
    frame = pl.from_arrow(sorted_table())
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, row_group_size=SORTED_GROUP, compression="uncompressed")


def with_spark(path: Path) -> None:
    """Another writer's name only: bounds are in the same fields and in the same order."""
    file = dissect(sorted_table(), row_group_size=SORTED_GROUP, store_schema=False)
    file.footer[FileMeta.CREATED_BY] = b"parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)"
    path.write_bytes(file.build())


WRITERS: dict[str, tuple[Callable[[Path], None], Sequence[str]]] = {
    "pyarrow": (with_pyarrow, tuple(FIRST)),
    "DuckDB": (with_duckdb, tuple(FIRST)),
    # Its bounds of the other columns may be wrong.
    "Polars": (with_polars, ("int", "small", "text", "day", "time")),
    "Spark": (with_spark, tuple(FIRST)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_right_bounds_skip_row_groups(tmp_path: Path, serve: Serve, writer: str):
    """The other row groups are damaged, so that reading them is an error."""
    write, columns = WRITERS[writer]
    write(tmp_path / "a.parquet")
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert metadata.num_row_groups == 3
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    for group in (1, 2):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + 8] = b"\xff" * 8
    (tmp_path / "a.parquet").write_bytes(data)
    with fl.connect(serve({"t": tmp_path}).url) as client:
        code, text = outcome(lambda: read(client, "t", plan_of(stored("int"))))
        assert code == "DATA_LOSS", text
        for column in columns:
            got = read(client, "t", plan_of(stored("int"), filter=FIRST[column]))
            assert got["int"].to_pylist() == list(range(50)), column
