"""A table as several Parquet files, whose row groups and cuts a test chooses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write(folder: Path, table: pa.Table, *, cuts: list[int], row_group_size: int) -> None:
    """Write a table as files that end at these rows; two equal cuts have an empty file between them."""
    folder.mkdir()
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, table.num_rows])):
        pq.write_table(table.slice(start, end - start), folder / f"{number}.parquet", row_group_size=row_group_size)
