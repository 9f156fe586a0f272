"""The table that the tests of Python functions read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 20_011
ROW_GROUP_ROWS = 7_000


def table() -> pa.Table:
    """Text, numbers of several types, and nulls in one column."""
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "text": pa.array([f"Word №{i % 997}, {'é' * (i % 5)}" for i in range(ROWS)]),
            "small": pa.array([i % 100 for i in range(ROWS)], pa.int32()),
            "x": pa.array([(i % 4001) / 7 for i in range(ROWS)]),
            "y": pa.array([1 + (i % 13) / 3 for i in range(ROWS)], pa.float32()),
            "gap": pa.array([None if i % 10 == 3 else i for i in range(ROWS)], pa.int64()),
            "stamp": pa.array(range(ROWS), pa.timestamp("us")),
        }
    )


def write(folder: Path) -> Path:
    """Write the table to a folder, in several row groups."""
    pq.write_table(table(), folder / "part.parquet", row_group_size=ROW_GROUP_ROWS)
    return folder
