"""Plans share the tables that they look up, and the memory budget counts each table once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.cached import started
from harness.daemon import Daemon, poll
from harness.metrics import scrape
from harness.serving import Serve

ROWS = 200_000
# Eight bytes of a key, and its place in an index.
KEYS_BYTES = ROWS * (8 + 24)
COLUMN_BYTES = ROWS * 4


def reserved(server: Daemon) -> float:
    return scrape(server).value("forebay_memory_reserved_bytes")


def write(path: Path, rows: int = ROWS) -> Path:
    numbers = np.random.default_rng(0).random(rows).astype("float32")
    pq.write_table(pa.table({"key": np.arange(rows), "y": numbers, "z": numbers}), path, row_group_size=50_000)
    return path


def lagged(lag: int, column: str = "y") -> fb.Plan:
    return fb.Plan(
        filter=f"key >= {lag} AND key < {lag + 100}",
        derive={"k": f"key - {lag}"},
        outputs={"lag": fb.cols("k").lookup("t", "key", [column])},
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Daemon]:
    server = started({"t": write(tmp_path / "t.parquet")}, tmp_path / "state")
    yield server
    server.stop()


def test_plans_share_a_table_and_count_it_once(server: Daemon, tmp_path: Path):
    want = pq.read_table(tmp_path / "t.parquet")["y"].to_numpy()[:100]
    before = reserved(server)

    def holds(table_bytes: int) -> bool:
        """Whether the server holds these bytes, once the memory of its last stream is released."""
        return poll(lambda: table_bytes <= reserved(server) - before < 1.05 * table_bytes)

    with fb.connect(server.url) as client:
        for lag in range(1, 6):
            (batch,) = client.stream("t", lagged(lag))
            assert np.array_equal(batch["lag"], want)
            assert holds(KEYS_BYTES + COLUMN_BYTES)
        # A join shares what lookups have read, and another column has the same keys.
        joined = fb.Plan(
            filter="key < 100", join=fb.join("t", on="key", columns=["y"], prefix="t_"), outputs={"y": fb.cols("t_y")}
        )
        (batch,) = client.stream("t", joined)
        assert np.array_equal(batch["y"], want)
        assert holds(KEYS_BYTES + COLUMN_BYTES)
        list(client.stream("t", lagged(1, "z")))
        assert holds(KEYS_BYTES + 2 * COLUMN_BYTES)


def test_a_table_beyond_the_limit_is_refused(serve: Serve, tmp_path: Path):
    server = serve({"t": write(tmp_path / "t.parquet", 3_000_000)}, "--memory-limit-bytes", "64MiB")
    with fb.connect(server.url) as client:
        with pytest.raises(fb.ForebayError, match="memory-limit-bytes") as caught:
            list(client.stream("t", lagged(1)))
        assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_tables_that_no_stream_reads_give_way(serve: Serve, tmp_path: Path):
    paths = {name: write(tmp_path / f"{name}.parquet", 1_000_000) for name in ("t", "u", "v")}
    server = serve(paths, "--memory-limit-bytes", "96MiB")
    with fb.connect(server.url) as client:
        # Each table needs more than a third of the limit.
        for _ in range(2):
            for name in paths:
                plan = fb.Plan(filter="key < 100", outputs={"y": fb.cols("key").lookup(name, "key", ["y"])})
                (batch,) = client.stream("t", plan)
                assert len(batch["y"]) == 100
