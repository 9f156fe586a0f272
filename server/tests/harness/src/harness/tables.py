"""Small tables that many tests read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def tiny_table() -> pa.Table:
    """100 rows: numbers, numbers with nulls, text with nulls."""
    random = np.random.default_rng(11)
    n = 100
    x = random.normal(3, 2, n)
    gaps = random.random(n)
    return pa.table(
        {
            "id": pa.array(np.arange(n), pa.int64()),
            "x": pa.array(x, pa.float64()),
            "gappy": pa.array(x * 10, pa.float64(), mask=gaps < 0.2),
            "small": pa.array(random.integers(-5, 5, n), pa.int32()),
            "unit": pa.array(random.random(n), pa.float32()),
            "word": pa.array(
                [None if g > 0.9 else w for g, w in zip(gaps, random.choice(["ab", "c", "déf"], n), strict=True)]
            ),
        }
    )


def write_tiny(folder: Path) -> pa.Table:
    """The table in three files of several uneven row groups each."""
    table = tiny_table()
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.slice(0, 41), folder / "a.parquet", row_group_size=17)
    pq.write_table(table.slice(41, 1), folder / "b.parquet")
    pq.write_table(table.slice(42), folder / "c.parquet", row_group_size=9)
    return table
