"""Random ways to store the same rows: writers, files, row groups, pages, encodings and statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from harness.filters.statistics import Weaker, weaken
from harness.filters.tables import Drawn


@dataclass(frozen=True)
class Layout:
    """How a table is written; its repr has all that is needed to write it again."""

    writer: str
    files: int
    options: dict[str, Any]
    weaker: Weaker | None = None
    # Whether a file of no rows follows the others.
    empty_file: bool = False
    # Whether columns without nulls are required, which must not matter.
    required: bool = False

    def write(self, table: pa.Table, folder: Path) -> None:
        """Replaces what the folder holds."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        if self.required:
            table = table.cast(
                pa.schema([field.with_nullable(table[field.name].null_count > 0) for field in table.schema])
            )
        files = max(1, min(self.files, table.num_rows))
        cuts = [table.num_rows * part // files for part in range(files + 1)]
        for number, (start, end) in enumerate(pairwise(cuts)):
            path = folder / f"{number:02}.parquet"
            self._write_file(table.slice(start, end - start), path)
            if self.weaker:
                weaken(path, self.weaker)
        if self.empty_file:
            self._write_file(table.slice(0, 0), folder / "99.parquet")

    def _write_file(self, table: pa.Table, path: Path) -> None:
        if self.writer == "pyarrow":
            pq.write_table(table, path, **self.options)
        elif self.writer == "polars":
            pl.DataFrame(pl.from_arrow(table)).write_parquet(path, **self.options)
        else:
            options = ", ".join(f"{name} {value}" for name, value in self.options.items())
            with duckdb.connect() as connection:
                connection.register("given", table)
                connection.execute(f"COPY given TO '{path}' (FORMAT parquet, {options})")


# One row group and no statistics: nothing can be pruned.
PLAIN = Layout("pyarrow", 1, {"write_statistics": False})


def draw_layouts(table: Drawn, count: int) -> dict[str, Layout]:
    """The plain layout, and others by name. The first of the others has a row group for every few rows."""
    random = Random(f"layouts {table.seed}")
    layouts = {"plain": PLAIN, "fine": with_pyarrow(table, random, group=random.choice([1, 2, 7]))}
    for number in range(count - 1):
        writers = [with_pyarrow, with_polars, with_duckdb] if table.portable else [with_pyarrow]
        layouts[f"other{number}"] = random.choice(writers)(table, random)
    layouts["required"] = replace(with_pyarrow(table, random), required=True)
    return layouts


def with_pyarrow(table: Drawn, random: Random, group: int | None = None) -> Layout:
    names = [column.name for column in table.columns]
    some = random.sample(names, len(names) // 2)
    options = {
        "row_group_size": group or random.choice([1, 2, 3, 7, 16, 100]),
        "write_statistics": True if group else random.choice([True, True, False, some]),
        "use_dictionary": random.choice([True, False, some]),
        "data_page_version": random.choice(["1.0", "2.0"]),
        "data_page_size": random.choice([1, 64, 1 << 20]),
        "write_batch_size": random.choice([1, 5, 1024]),
        "write_page_index": random.choice([True, False]),
        "compression": random.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "store_schema": True,
    }
    weaker = Weaker(random.choice([None, 1, 2, 8, 64]), random.random() < 0.7, random.choice([0, 0, 2, 3]))
    return Layout(
        "pyarrow",
        random.choice([1, 1, 2, 3]),
        options,
        weaker if random.random() < 0.5 else None,
        empty_file=random.random() < 0.2,
    )


def with_polars(table: Drawn, random: Random) -> Layout:
    options = {
        "row_group_size": random.choice([1, 2, 7, 100]),
        "statistics": random.choice([True, "full", False]),
        "data_page_size": random.choice([64, 1 << 20]),
        "compression": random.choice(["uncompressed", "snappy", "zstd", "lz4"]),
    }
    return Layout("polars", random.choice([1, 3, 9]), options)


def with_duckdb(table: Drawn, random: Random) -> Layout:
    # DuckDB's row groups are 2048 rows at least: small ones are files here. Its version 2 writes DELTA_BINARY_PACKED
    # of large differences in a way that no reader can read, pyarrow included.
    options = {
        "PARQUET_VERSION": "v1",
        "COMPRESSION": random.choice(["uncompressed", "snappy", "zstd"]),
    }
    return Layout("duckdb", random.choice([3, 9, 20]), options)
