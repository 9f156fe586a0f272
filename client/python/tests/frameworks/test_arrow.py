"""`Client.table` and streams in the libraries that read Arrow streams: Polars, pandas, DuckDB and pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.leaks import nothing_left
from harness.serving import Serve

READERS: dict[str, Callable[[Any], pa.Table]] = {
    "pyarrow": lambda table: pa.table(table),
    "polars": lambda table: pl.DataFrame(table).to_arrow(),
    "pandas": lambda table: pa.Table.from_pandas(pd.DataFrame.from_arrow(table), preserve_index=False),
    "duckdb": lambda found: duckdb.sql("SELECT * FROM found").to_arrow_table(),
}


@pytest.mark.parametrize("library", READERS)
def test_a_library_reads_the_whole_table_as_often_as_it_likes(client: fb.Client, tiny: pa.Table, library: str):
    table, read = client.table("tiny"), READERS[library]
    assert table.schema.equals(tiny.schema)
    for _ in range(2):
        assert read(table).cast(tiny.schema).equals(tiny)
    chosen = client.table("tiny", columns=["word", "id"])
    assert read(chosen).cast(chosen.schema).equals(tiny.select(["word", "id"]))


@pytest.mark.parametrize("library", READERS)
def test_a_library_reads_what_is_left_of_a_stream(client: fb.Client, library: str):
    plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "unit": fb.cols("unit")})
    with client.stream("tiny", plan, batch_size=8) as stream:
        first = next(stream)["id"]
        # DuckDB opens a stream twice, and this one is read once.
        found = READERS[library](pa.table(stream) if library == "duckdb" else stream)
    assert [*first, *found["id"].to_pylist()] == list(range(100))
    assert found["unit"].type == pa.float32()


@pytest.mark.parametrize("library", READERS)
def test_nothing_is_left_after_a_table(client: fb.Client, library: str):
    table = client.table("tiny")
    READERS[library](table)
    with nothing_left():
        READERS[library](table)
        # Left unread, and left in the middle.
        capsule = table.__arrow_c_stream__()
        reader = table.reader()
        reader.read_next_batch()
        del capsule, reader


def test_a_table_is_read_as_its_reader_asks(serve: Serve, tmp_path: Path):
    # 80 MB, which the buffers of a connection do not hold.
    for part in range(10):
        rows = pa.table({"n": pa.array(range(part * 1_000_000, (part + 1) * 1_000_000), pa.int64())})
        pq.write_table(rows, tmp_path / f"{part}.parquet", row_group_size=100_000)
    server = serve({"numbers": tmp_path})
    with fb.connect(server.url) as client:
        numbers = client.table("numbers")
        total = duckdb.sql("SELECT count(*), sum(n), max(n) FROM numbers").fetchall()
        assert total == [(10_000_000, sum(range(10_000_000)), 9_999_999)]
        reader = numbers.reader()
        assert reader.read_next_batch()["n"][0].as_py() == 0
        # The rest has not arrived.
        server.stop()
        with pytest.raises(fb.Unavailable):
            reader.read_all()


def test_errors_of_a_table(serve: Serve, tmp_path: Path, tiny: pa.Table):
    pq.write_table(tiny, tmp_path / "a.parquet")
    server = serve({"tiny": tmp_path})
    with fb.connect(server.url) as client:
        table = client.table("tiny")
        assert table.read().num_rows == 100
        with pytest.raises(fb.NotFound, match="absent"):
            client.table("absent").read()
        with pytest.raises(fb.NotFound, match="absent"):
            client.table("absent").__arrow_c_stream__()
        with pytest.raises(TypeError, match="columns must be a list"):
            client.table("tiny", columns="id")
        server.stop()
        with pytest.raises(fb.Unavailable):
            table.read()
