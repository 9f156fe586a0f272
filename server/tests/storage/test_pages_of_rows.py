"""Readers of some rows of a row group fetch only the pages with these rows, as the files' page indexes say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.convert import convert, parts
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import info

ROWS, GROUP_ROWS = 60_000, 30_000
READ_BYTES = "forebay_storage_read_bytes_total"


def table() -> pa.Table:
    """Columns of every kind that is stored differently."""
    random = np.random.default_rng(5)
    n = np.arange(ROWS)
    gaps = n % 7 == 3
    return pa.table(
        {
            "id": n,
            "x": pa.array(random.normal(size=ROWS), mask=gaps),
            "y": random.normal(size=ROWS).astype(np.float32),
            "flag": pa.array(n % 3 == 0, mask=gaps),
            "word": pa.array([f"word {i % 90}" for i in n], mask=gaps),
            "text": [f"value {i} of {ROWS - i}" for i in n],
            "none": pa.nulls(ROWS, pa.int32()),
            "cents": pa.array([int(i) * 10**12 for i in n], pa.decimal128(20, 2)),
            "items": pa.array([None if i % 9 == 0 else [int(i), None] * (i % 3) for i in n], pa.list_(pa.int64())),
            "pair": pa.array([None if i % 7 == 0 else {"a": int(i), "b": [f"b{i}"]} for i in n]),
        }
    )


TABLE = table()
Write = Callable[[pa.Table, Path], None]


def with_pyarrow(**options: Any) -> Write:
    """Pages of about a hundred rows."""
    fixed = {"row_group_size": GROUP_ROWS, "write_page_index": True, "data_page_size": 400, "write_batch_size": 100}
    return lambda made, path: pq.write_table(made, path, **{**fixed, **options})


def with_forebay(made: pa.Table, path: Path) -> None:
    source = path.parent.parent / "source.parquet"
    pq.write_table(made, source)
    assert convert(source, path.parent.parent / "out", f"--row-group-rows={GROUP_ROWS}").code == 0
    (part,) = parts(path.parent.parent / "out")
    part.rename(path)


def with_duckdb(made: pa.Table, path: Path) -> None:
    duckdb.sql("SELECT * FROM made").write_parquet(str(path), row_group_size=GROUP_ROWS)
    assert made.num_rows


def with_polars(made: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(made)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, row_group_size=GROUP_ROWS, data_page_size=4000)


WRITERS: dict[str, Write] = {
    "version 1": with_pyarrow(),
    "version 2": with_pyarrow(data_page_version="2.0"),
    "plain": with_pyarrow(use_dictionary=False, compression="none"),
    "large pages": with_pyarrow(data_page_size=1 << 20, write_batch_size=1024, max_rows_per_page=20_000),
    "one page": with_pyarrow(data_page_size=1 << 30, max_rows_per_page=1 << 30, write_batch_size=1 << 20),
    "fallback": with_pyarrow(dictionary_pagesize_limit=4000),
    "checksums": with_pyarrow(write_page_checksum=True, compression="zstd"),
    "gzip": with_pyarrow(compression="gzip"),
    "brotli": with_pyarrow(compression="brotli", data_page_version="2.0"),
    "lz4": with_pyarrow(compression="lz4"),
    "no index": with_pyarrow(write_page_index=False),
    "convert": with_forebay,
    "DuckDB": with_duckdb,
    "Polars": with_polars,
}


@contextmanager
def running(folder: Path) -> Iterator[Daemon]:
    daemon = Daemon(*LOOPBACK, "--state", str(folder / "state"), "--dataset", f"data={folder / 'data'}")
    try:
        yield daemon
    finally:
        daemon.stop()


def written(folder: Path, write: Write, made: pa.Table = TABLE) -> Path:
    (folder / "data").mkdir()
    write(made, folder / "data" / "a.parquet")
    return folder


def plan(columns: list[str]) -> dict[str, Any]:
    return {"outputs": [{"name": n, "dtype": "AS_STORED", "parts": [{"columns": [n]}]} for n in columns]}


def request(columns: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    fixed = {"dataset": "data", "plan": plan(columns or TABLE.column_names), "batch_size": 5000, "with_row_ids": True}
    return {**fixed, **changes}


def read_bytes(daemon: Daemon) -> int:
    return int(scrape(daemon).value(READ_BYTES))


def explain(client: fl.FlightClient, wanted: dict[str, Any]) -> dict[str, Any]:
    (answer,) = client.do_action(fl.Action("explain", json.dumps(wanted).encode()))
    return json.loads(answer.body.to_pybytes())


def read_ranks(daemon: Daemon, client: fl.FlightClient, wanted: dict[str, Any]) -> tuple[pa.Table, list[int]]:
    """The rows of all ranks, one rank after the other, and the bytes that each has read from storage."""
    tables: list[pa.Table] = []
    bytes_read: list[int] = []
    for endpoint in info(client, wanted).endpoints:
        before = read_bytes(daemon)
        tables.append(client.do_get(endpoint.ticket).read_all())
        bytes_read.append(read_bytes(daemon) - before)
    return pa.concat_tables(tables, promote_options="permissive"), bytes_read


def check_rows(found: pa.Table, expected: pa.Table) -> None:
    """Every row once, each with its values."""
    found = found.sort_by("__row_id")
    assert found["__row_id"].to_pylist() == list(range(expected.num_rows))
    for name in expected.column_names:
        values = found[name].combine_chunks()
        values = values.cast(expected[name].type) if values.type != expected[name].type else values
        assert values.equals(expected[name].combine_chunks()), name


@pytest.fixture(scope="module", params=list(WRITERS), ids=str)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Daemon]]:
    folder = written(tmp_path_factory.mktemp("pages"), WRITERS[request.param])
    with running(folder) as daemon:
        yield request.param, daemon


ORDERS: list[dict[str, Any]] = [
    {"world_size": 7},
    {"world_size": 3, "shuffle": True, "lanes": 9, "window_rows": 3000},
    {"world_size": 1, "shuffle": True, "lanes": 11, "seed": 4, "epoch": 2},
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_rank_reads_its_rows(served: tuple[str, Daemon], order: dict[str, Any]):
    writer, daemon = served
    with fl.connect(daemon.url) as client:
        wanted = request(**order)
        explained = explain(client, wanted)
        found, bytes_read = read_ranks(daemon, client, wanted)
        check_rows(found, TABLE)
        predicted = [rank["read_bytes"] for rank in explained["ranks"]]
        assert explained["read_bytes"] == sum(predicted)
        if "shuffle" in order:
            # Lanes that are read at the same time share what they have fetched.
            assert all(read <= most for read, most in zip(bytes_read, predicted, strict=True))
        else:
            assert bytes_read == predicted
        if writer in ("no index", "one page", "DuckDB") and order["world_size"] == 7:
            assert explained["read_amplification"] > 3


def test_random_ranges_of_rows(served: tuple[str, Daemon]):
    """A stream that begins anywhere, with other chunks before and after."""
    _, daemon = served
    random = np.random.default_rng(8)
    with fl.connect(daemon.url) as client:
        for world in random.integers(2, 40, 6):
            wanted = request(["items", "text", "x", "word"], world_size=int(world), batch_size=1000)
            endpoints = info(client, wanted).endpoints
            for rank in random.integers(0, world, 3):
                start, end = (int(r) * ROWS // int(world) for r in (rank, rank + 1))
                found = client.do_get(endpoints[rank].ticket).read_all()
                assert found["__row_id"].to_pylist() == list(range(start, end))
                for name in ("items", "text", "x", "word"):
                    expected = TABLE[name].slice(start, end - start).combine_chunks()
                    assert found[name].combine_chunks().cast(expected.type).equals(expected), name


def numbers(rows: int, columns: int) -> pa.Table:
    random = np.random.default_rng(2)
    return pa.table({f"c{i}": random.normal(size=rows) for i in range(columns)})


def test_many_lanes_read_a_row_group_once(tmp_path: Path):
    """Lanes of one stream share pages and indexes: together they read each page once."""
    made = numbers(200_000, 4)
    write = with_pyarrow(row_group_size=100_000, data_page_size=8000, write_batch_size=1000, use_dictionary=False)
    folder = written(tmp_path, write, made)
    stored = sum(path.stat().st_size for path in (folder / "data").iterdir())
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        wanted = request(made.column_names, shuffle=True, lanes=32, window_rows=512)
        found, (bytes_read,) = read_ranks(daemon, client, wanted)
        check_rows(found, made)
        assert 0.95 * stored < bytes_read < 1.05 * stored
        # The next epoch knows where the pages are.
        found, (bytes_read,) = read_ranks(daemon, client, {**wanted, "epoch": 1})
        assert bytes_read < 1.05 * stored


def test_ranks_that_read_at_once_share_pages(tmp_path: Path):
    made = numbers(200_000, 4)
    write = with_pyarrow(row_group_size=100_000, data_page_size=8000, write_batch_size=1000, use_dictionary=False)
    folder = written(tmp_path, write, made)
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        wanted = request(made.column_names, world_size=16, shuffle=True, lanes=16, window_rows=512)
        explained = explain(client, wanted)
        before = read_bytes(daemon)
        with ThreadPoolExecutor(16) as pool:
            tickets = [endpoint.ticket for endpoint in info(client, wanted).endpoints]
            tables = list(pool.map(lambda ticket: client.do_get(ticket).read_all(), tickets))
        check_rows(pa.concat_tables(tables), made)
        assert read_bytes(daemon) - before <= explained["read_bytes"]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("world", [1, 4, 16])
def test_lanes_that_end_within_row_groups_read_little_twice(tmp_path: Path, world: int, version: int):
    """Nine row groups over 16 lanes: nearly every lane begins or ends within one."""
    made = numbers(900_000, 2)
    write = with_pyarrow(row_group_size=100_000, data_page_size=8000, write_batch_size=1000, use_dictionary=False)
    folder = written(tmp_path, write, made)
    stored = sum(path.stat().st_size for path in (folder / "data").iterdir())
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        wanted = request(made.column_names, world_size=world, shuffle=True, lanes=16, batch_size=8192)
        wanted |= {"order_version": version}
        found, bytes_read = read_ranks(daemon, client, wanted)
        check_rows(found, made)
        # Lanes of 56,250 rows decode whole chunks of 8192 rows. From version 3 on, they begin in their middle and have
        # one more piece, which lanes of the same rank share.
        assert sum(bytes_read) < (1.2 if world == 1 or version == 2 else 1.3) * stored


@pytest.mark.parametrize("lanes", [7, 8])
def test_lanes_that_meet_fetch_a_row_group_without_an_index_once(tmp_path: Path, lanes: int):
    """Each cut between lanes is within one of 70 row groups, which both lanes read at the same time."""
    made = numbers(210_000, 2)
    folder = written(tmp_path, with_pyarrow(row_group_size=3000, write_page_index=False), made)
    stored = sum(path.stat().st_size for path in (folder / "data").iterdir())
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        for epoch in range(3):
            wanted = request(made.column_names, shuffle=True, lanes=lanes, epoch=epoch, window_rows=1000)
            explained = explain(client, wanted)
            found, (bytes_read,) = read_ranks(daemon, client, wanted)
            check_rows(found, made)
            # The lanes at both ends of an odd number of lanes do not meet.
            assert bytes_read <= explained["read_bytes"] < (1.03 if lanes % 2 else 1.01) * stored


def test_mixtures_read_the_pages_of_their_rows(tmp_path: Path):
    made = numbers(200_000, 4)
    write = with_pyarrow(row_group_size=100_000, data_page_size=8000, write_batch_size=1000, use_dictionary=False)
    folder = written(tmp_path, write, made)
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        for order in ({}, {"shuffle": True, "lanes": 5, "order_version": 2}, {"shuffle": True, "lanes": 5}):
            sources = [{"dataset": "data", "weight": 1}]
            wanted = {"sources": sources, "plan": plan(made.column_names), "batch_size": 8192, "with_row_ids": True}
            wanted |= {"world_size": 5, **order}
            explained = explain(client, wanted)
            found, bytes_read = read_ranks(daemon, client, wanted)
            for name in made.column_names:
                ids = found["__row_id"].to_numpy()
                assert np.array_equal(found[name].to_numpy(), made[name].to_numpy()[ids])
            assert sorted(found["__row_id"].to_pylist()) == list(range(made.num_rows))
            most = [rank["read_bytes"] for rank in explained["ranks"]]
            # From version 3 on, a lane may have two pieces with rows of one chunk open at the same time.
            is_turned = bool(order) and "order_version" not in order
            least = [0.8 * predicted if is_turned else predicted for predicted in most]
            ranks = zip(least, bytes_read, most, strict=True)
            assert all(low <= read <= high for low, read, high in ranks)
            assert explained["read_amplification"] < 1.5


def test_filters_and_whole_row_groups_need_no_index(tmp_path: Path):
    """A filtered stream reads row groups as a whole, and so does one that begins where a row group does."""
    made = numbers(200_000, 4)
    write = with_pyarrow(row_group_size=100_000, data_page_size=8000, write_batch_size=1000, use_dictionary=False)
    folder = written(tmp_path, write, made)
    stored = sum(
        group.column(c).total_compressed_size
        for meta in [pq.read_metadata(folder / "data" / "a.parquet")]
        for group in (meta.row_group(g) for g in range(meta.num_row_groups))
        for c in range(group.num_columns)
    )
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        _, bytes_read = read_ranks(daemon, client, request(made.column_names, world_size=2))
        assert sum(bytes_read) == stored
        filtered = {**plan(made.column_names), "filter": "c0 > -100"}
        wanted = request(made.column_names, plan=filtered, world_size=4)
        explained = explain(client, wanted)
        found, bytes_read = read_ranks(daemon, client, wanted)
        check_rows(found, made)
        assert sum(bytes_read) == explained["read_bytes"] == 2 * stored
