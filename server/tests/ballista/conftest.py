"""A cluster and the tables that its queries read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cluster import Cluster

ROWS, KEYS = 40_000, 700


def facts(first: int, rows: int, seed: int) -> pa.Table:
    """Rows with nulls, and with numbers whose sums are exact in any order."""
    random = np.random.default_rng(seed)

    def nulls() -> np.ndarray:
        return random.random(rows) < 0.1

    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "k": pa.array(random.integers(0, KEYS, rows), mask=nulls()),
            "x": pa.array(random.integers(-1000, 1000, rows) / 8, mask=nulls()),
            "s": pa.array([f"text {n}" for n in random.integers(0, 50, rows)], mask=nulls()),
            "t": pa.array(random.integers(0, 10**15, rows), pa.timestamp("us"), mask=nulls()),
            "tags": [[f"tag {n}", "all"][: n % 3] for n in random.integers(0, 9, rows)],
        }
    )


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Facts in folders with a column each, in files whose schemas differ, and names."""
    root = tmp_path_factory.mktemp("in put ü")
    quarter = ROWS // 4
    for part in range(4):
        table = facts(part * quarter, quarter, part)
        if part == 1:
            table = table.set_column(1, "k", table["k"].cast(pa.int32()))
        if part == 2:
            table = table.drop_columns(["s"])
        folder = root / "facts" / f"day={part % 2 + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        int96 = part == 3
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=3_000, use_deprecated_int96_timestamps=int96)
    (root / "names").mkdir()
    names = pa.table({"k": np.arange(0, KEYS, 2), "name": [f"name {n}" for n in range(0, KEYS, 2)]})
    pq.write_table(names, root / "names/a.parquet")
    return {name: root / name for name in ("facts", "names")}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two executors, which no test harms."""
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and two executors for one test."""
    running = Cluster(tmp_path / "cluster")
    yield running
    running.stop()
