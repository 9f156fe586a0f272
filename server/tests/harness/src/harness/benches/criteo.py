"""Generated criteo-shaped data, and a plan for training batches.

A row is an int8 label, 13 float32 columns exp(1.5 N(0, 1)) of which column j has 15 % * j / 12 nulls, and 26
categoricals zipf(1.3) mod 10, 100, 1000, 20000, 200000 in turn: the odd ones strings "k...", the others int64. Files
in the folder that were generated with other parameters are rewritten.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.repository import ROOT

DATA = ROOT / "data" / "criteo"
# Key of the generation parameters in a file's footer.
PARAMETERS_KEY = b"criteo"
DENSE = [f"i{index}" for index in range(1, 14)]
CATEGORIES = [f"c{index}" for index in range(1, 27)]
STRINGS, INTEGERS = CATEGORIES[::2], CATEGORIES[1::2]
CARDINALITIES = (10, 100, 1_000, 20_000, 200_000)
ZIPF_EXPONENT = 1.3
NULL_FRACTION_MAX = 0.15
LABEL_FRACTION = 0.25
HASH_BUCKETS = 100_003
# float32 [n, 13] and int32 [n, 26].
ROW_BYTES = 4 * (len(DENSE) + len(CATEGORIES))


@dataclass(frozen=True)
class Shape:
    """Size and seed of the data."""

    files: int = 4
    rows_per_file: int = 1_000_000
    row_group_rows: int = 131_072
    seed: int = 7

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return self.files * self.rows_per_file


def plan() -> dict[str, Any]:
    """Return the unfitted plan: `dense` float32 [n, 13] and `cats` int32 [n, 26], the strings before the integers."""
    dense: list[dict[str, Any]] = [
        {"fill_null": {"value": 0}},
        {"log1p": {}},
        {"standardize": {}},
        {"clip": {"min": -3, "max": 3}},
    ]
    cats = [
        {"columns": STRINGS, "ops": [{"vocab": {}}]},
        {"columns": INTEGERS, "ops": [{"hash_bucket": {"buckets": HASH_BUCKETS}}]},
    ]
    return {
        "outputs": [
            {"name": "dense", "dtype": "FLOAT32", "parts": [{"columns": DENSE, "ops": dense}]},
            {"name": "cats", "dtype": "INT32", "parts": cats},
        ]
    }


def generate(folder: Path, shape: Shape, *, workers: int = 1) -> list[Path]:
    """Write missing and outdated files, each by one of the worker processes; return all paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number:03}.parquet" for number in range(shape.files)]
    foreign = sorted({path.name for path in folder.glob("*.parquet")} - {path.name for path in paths})
    if foreign:
        raise SystemExit(f"{folder} has other Parquet files, such as {foreign[0]}: remove them or use another folder")
    if workers == 1:
        for number, path in enumerate(paths):
            _write_if_outdated(path, shape, number)
    else:
        # Forked processes would inherit locks of pyarrow's threads.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_write_if_outdated, paths, itertools.repeat(shape), range(len(paths))))
    return paths


def table(shape: Shape, number: int) -> pa.Table:
    """Return the rows of one file."""
    rng, rows = np.random.default_rng([shape.seed, number]), shape.rows_per_file
    columns: dict[str, pa.Array] = {"label": pa.array((rng.random(rows) < LABEL_FRACTION).astype(np.int8))}
    for index, name in enumerate(DENSE):
        values = np.exp(1.5 * rng.standard_normal(rows, dtype=np.float32))
        null = rng.random(rows) < NULL_FRACTION_MAX * index / (len(DENSE) - 1)
        columns[name] = pa.array(values, mask=null)
    for index, name in enumerate(CATEGORIES):
        cardinality = CARDINALITIES[index % len(CARDINALITIES)]
        codes = pa.array(rng.zipf(ZIPF_EXPONENT, rows) % cardinality, pa.int64())
        columns[name] = pa.array([f"k{code}" for code in range(cardinality)]).take(codes) if name in STRINGS else codes
    return pa.table(columns)


def _write_if_outdated(path: Path, shape: Shape, number: int) -> None:
    parameters = json.dumps({**dataclasses.asdict(shape), "file": number}, sort_keys=True).encode()
    if not _is_current(path, parameters):
        _write(path, table(shape, number), parameters, shape.row_group_rows)


def _is_current(path: Path, parameters: bytes) -> bool:
    if not path.exists():
        return False
    return (pq.read_metadata(path).metadata or {}).get(PARAMETERS_KEY) == parameters


def _write(path: Path, rows: pa.Table, parameters: bytes, row_group_rows: int) -> None:
    """Write to a temporary name first, so that a file with the final name is complete."""
    unfinished = path.with_suffix(".unfinished")
    rows = rows.replace_schema_metadata({PARAMETERS_KEY: parameters})
    pq.write_table(rows, unfinished, compression="zstd", row_group_size=row_group_rows)
    os.replace(unfinished, path)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the data's size and folder."""
    whole = Shape()
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the Parquet files (%(default)s)")
    parser.add_argument("--files", type=int, default=whole.files, help="files (%(default)s)")
    parser.add_argument("--rows-per-file", type=int, default=whole.rows_per_file, help="rows per file (%(default)s)")
    parser.add_argument("--row-group-rows", type=int, default=whole.row_group_rows, help="row group size (%(default)s)")
    parser.add_argument("--data-seed", type=int, default=whole.seed, help="seed of the data (%(default)s)")


def shape_of(options: argparse.Namespace) -> Shape:
    """Return the shape that the options describe."""
    return Shape(options.files, options.rows_per_file, options.row_group_rows, options.data_seed)


def main() -> None:
    """Write the data."""
    parser = argparse.ArgumentParser(description="Write missing criteo-shaped Parquet files.")
    add_options(parser)
    options = parser.parse_args()
    shape = shape_of(options)
    total_bytes = sum(path.stat().st_size for path in generate(options.data, shape))
    print(f"{shape.rows:,} rows in {shape.files} files, {total_bytes / 1e6:,.1f} MB, in {options.data}")


if __name__ == "__main__":
    main()
