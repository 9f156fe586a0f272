"""Parquet as DuckDB, Polars, pandas and pyarrow write it, in every encoding: read as pyarrow reads it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.serving import Serve, Server, info, raw_table

ROWS = 2500


def logical_table() -> pa.Table:
    """Types that every writer knows, with nulls, and values at their limits."""
    random = np.random.default_rng(21)
    n = np.arange(ROWS)
    gaps = n % 7 == 3
    # No two differ by more than 31 bits: DuckDB's DELTA_BINARY_PACKED of larger differences is broken, for pyarrow too.
    start = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)

    def gappy(values: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, kind, mask=gaps)

    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "small": gappy(random.integers(-(2**15), 2**15, ROWS), pa.int16()),
            "int": gappy(random.integers(-(2**30), 2**30, ROWS), pa.int32()),
            "big": gappy(random.integers(-(2**63), 2**63 - 1, ROWS), pa.int64()),
            "unsigned": gappy(random.integers(0, 2**31, ROWS), pa.uint32()),
            "float": gappy(random.normal(0, 1, ROWS).astype(np.float32), pa.float32()),
            "double": gappy(np.where(n % 11 == 0, np.inf, random.normal(0, 1e300, ROWS)), pa.float64()),
            "flag": gappy(n % 3 == 0),
            "word": gappy(random.choice(["", "a", "déf", "x" * 300], ROWS)),
            "unique": gappy([f"value {i} of {ROWS - i}" for i in n]),
            "bytes": gappy([bytes([i % 256]) * (i % 5) for i in n], pa.binary()),
            "day": gappy([dt.date(1900, 1, 1) + dt.timedelta(days=int(i) * 31) for i in n], pa.date32()),
            "time": gappy([start + dt.timedelta(microseconds=int(i) ** 4) for i in n], pa.timestamp("us")),
            "zoned": gappy([start + dt.timedelta(seconds=int(i)) for i in n], pa.timestamp("us", "UTC")),
            "cents": gappy([Decimal(int(i) - 1000).scaleb(-2) for i in n], pa.decimal128(9, 2)),
            "money": gappy([Decimal(int(i) * 10**12 - 1).scaleb(-4) for i in n], pa.decimal128(18, 4)),
            "wealth": gappy([Decimal(-int(i) * 10**30).scaleb(-6) for i in n], pa.decimal128(38, 6)),
        }
    )


Write = Callable[[pa.Table, Path], None]


def with_pyarrow(**options: Any) -> Write:
    return lambda table, path: pq.write_table(table, path, **{"row_group_size": 700, **options})


def encodings(table: pa.Table) -> dict[str, str]:
    """One of Parquet's newer encodings for every column that has one."""
    kinds: dict[str, str] = {}
    for field in table.schema:
        if pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
            kinds[field.name] = "DELTA_BINARY_PACKED"
        elif field.name in ("word", "bytes"):
            kinds[field.name] = "DELTA_LENGTH_BYTE_ARRAY"
        elif field.name == "unique":
            kinds[field.name] = "DELTA_BYTE_ARRAY"
        elif pa.types.is_floating(field.type) or pa.types.is_decimal(field.type):
            kinds[field.name] = "BYTE_STREAM_SPLIT"
        elif pa.types.is_boolean(field.type):
            kinds[field.name] = "RLE"
    return kinds


def deltas(version: str) -> Write:
    def write(table: pa.Table, path: Path) -> None:
        options: dict[str, Any] = {"use_dictionary": False, "data_page_version": version, "data_page_size": 2000}
        kinds = {name: kind for name, kind in encodings(table).items() if kind != "RLE" or version == "2.0"}
        with_pyarrow(column_encoding=kinds, **options)(table, path)

    return write


def with_duckdb(options: str) -> Write:
    def write(table: pa.Table, path: Path) -> None:
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY given TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, {options})")

    return write


def with_polars(**options: Any) -> Write:
    return lambda table, path: pl.DataFrame(pl.from_arrow(table)).write_parquet(path, row_group_size=600, **options)


def with_pandas(table: pa.Table, path: Path) -> None:
    table.to_pandas(types_mapper=pd.ArrowDtype).set_index("id").to_parquet(path)


WRITERS: dict[str, Write] = {
    "pyarrow-v1-dictionary": with_pyarrow(version="1.0", data_page_version="1.0", data_page_size=1000),
    "pyarrow-v2-plain": with_pyarrow(version="2.6", data_page_version="2.0", use_dictionary=False, compression="zstd"),
    "pyarrow-full-dictionary": with_pyarrow(dictionary_pagesize_limit=500, write_batch_size=64, data_page_size=300),
    "pyarrow-without-schema": with_pyarrow(store_schema=False),
    "pyarrow-int96": with_pyarrow(use_deprecated_int96_timestamps=True, store_schema=False),
    "pyarrow-int-decimals": with_pyarrow(store_decimal_as_integer=True),
    "pyarrow-page-index": with_pyarrow(write_page_index=True, write_page_checksum=True, sorting_columns=None),
    "pyarrow-deltas-v1": deltas("1.0"),
    "pyarrow-deltas-v2": deltas("2.0"),
    "duckdb-v1": with_duckdb("PARQUET_VERSION v1, COMPRESSION snappy"),
    "duckdb-v2": with_duckdb("PARQUET_VERSION v2, COMPRESSION zstd"),
    "duckdb-plain": with_duckdb("PARQUET_VERSION v2, COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1"),
    "polars": with_polars(),
    "polars-plain": with_polars(compression="lz4", statistics="full", data_page_size=3000),
    "pandas": with_pandas,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("writers")
    table = logical_table()
    for name, write in WRITERS.items():
        (root / name).mkdir()
        write(table, root / name / "a.parquet")
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({name: root / name for name in WRITERS})


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def same(got: pa.ChunkedArray, want: pa.ChunkedArray, place: str) -> None:
    got.validate(full=True)
    plain = got.cast(want.type) if got.type != want.type else got
    assert plain.combine_chunks().equals(want.combine_chunks()), place


@pytest.mark.parametrize("writer", WRITERS)
def test_raw_table_matches_pyarrow(client: fl.FlightClient, root: Path, writer: str):
    got = raw_table(client, writer)
    want = pq.read_table(root / writer / "a.parquet", coerce_int96_timestamp_unit="us")
    assert got.column_names == want.column_names
    assert got.num_rows == ROWS
    for name in want.column_names:
        same(got[name], want[name], name)
    if writer not in ("duckdb-v1", "duckdb-v2", "duckdb-plain", "polars", "polars-plain", "pandas"):
        different = [name for name in want.column_names if got[name].type != want[name].type]
        assert different == [], {name: (got[name].type, want[name].type) for name in different}


def read(client: fl.FlightClient, dataset: str, plan: dict[str, Any], **changes: Any) -> pa.Table:
    found = info(client, {"dataset": dataset, "plan": plan, "batch_size": 512, **changes})
    return client.do_get(found.endpoints[0].ticket).read_all()


HASH = {"hash_bucket": {"buckets": 1000}}
FEATURES: dict[str, Any] = {
    "filter": "time > TIMESTAMP '1970-01-01 00:00:00' AND cents > -9.5 AND (word <> 'a' OR unsigned > 100000)",
    "derive": [
        {"name": "year", "expr": "date_part('year', day)"},
        {"name": "dollars", "expr": "CAST(money AS DOUBLE) / 3"},
        {"name": "long", "expr": "length(unique) > 17 AND bytes IS NOT NULL"},
    ],
    "outputs": [
        {"name": "numbers", "parts": [{"columns": ["float", "double", "small", "dollars"]}]},
        {"name": "whole", "dtype": "INT64", "parts": [{"columns": ["id", "big", "unsigned", "year", "flag", "long"]}]},
        {"name": "hashes", "dtype": "INT64", "parts": [{"columns": ["word", "int"], "ops": [HASH]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["unique"]}]},
    ],
}


def test_features_do_not_depend_on_the_writer(client: fl.FlightClient):
    tables = {writer: read(client, writer, FEATURES) for writer in WRITERS}
    want = tables["pyarrow-v1-dictionary"]
    assert 1000 < want.num_rows < ROWS
    for writer, got in tables.items():
        for name in want.column_names:
            same(got[name], want[name], f"{writer}: {name}")
