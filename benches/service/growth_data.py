"""The same generated floats as few and many files, row groups and columns.

Values are exp(1.5 N(0, 1)) in float32 with 5 % nulls, generated in blocks of 12,000 rows, so `base`, `files` and
`groups` have the same rows. Files generated with other parameters are rewritten.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARAMETERS_KEY = b"growth"
BLOCK_ROWS = 12_000
NULL_FRACTION = 0.05
SEED = 11


@dataclass(frozen=True)
class Layout:
    """Files, row groups and columns of a dataset."""

    files: int
    groups: int
    """Row groups per file."""
    group_rows: int
    columns: int

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return self.files * self.groups * self.group_rows

    def plan(self) -> dict[str, Any]:
        """Return a plan that needs no fit: float32 [n, columns]."""
        ops: list[dict[str, Any]] = [{"fill_null": {"value": 0}}, {"log1p": {}}, {"clip": {"min": -3, "max": 3}}]
        names = [f"x{number}" for number in range(self.columns)]
        return {"outputs": [{"name": "x", "dtype": "FLOAT32", "parts": [{"columns": names, "ops": ops}]}]}


# 2 x 10 x 120,000 rows of 13 float32: 124.8 MB. Each of the others has one of the factors ten times as large, and
# another a tenth as large.
LAYOUTS = {
    "base": Layout(2, 10, 120_000, 13),
    "files": Layout(20, 1, 120_000, 13),
    "groups": Layout(2, 100, 12_000, 13),
    "columns": Layout(2, 10, 12_000, 130),
}
# A tenth of that, for `--quick`.
SMALL_LAYOUTS = {
    "base": Layout(1, 10, 24_000, 13),
    "files": Layout(10, 1, 24_000, 13),
    "groups": Layout(1, 20, 12_000, 13),
    "columns": Layout(1, 2, 12_000, 130),
}


def generate(folder: Path, layout: Layout) -> None:
    """Write missing and outdated files."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(layout.files):
        path = folder / f"part-{file:03}.parquet"
        parameters = json.dumps({**asdict(layout), "seed": SEED, "file": file}, sort_keys=True).encode()
        if not (path.exists() and (pq.read_metadata(path).metadata or {}).get(PARAMETERS_KEY) == parameters):
            _write(path, layout, file, parameters)


def _write(path: Path, layout: Layout, file: int, parameters: bytes) -> None:
    """Write to a temporary name first, so that a file with the final name is complete."""
    names = [f"x{number}" for number in range(layout.columns)]
    schema = pa.schema([(name, pa.float32()) for name in names], {PARAMETERS_KEY: parameters})
    unfinished = path.with_suffix(".unfinished")
    blocks = layout.group_rows // BLOCK_ROWS
    with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        for group in range(file * layout.groups, (file + 1) * layout.groups):
            block_numbers = range(group * blocks, (group + 1) * blocks)
            whole = pa.concat_tables([_block(number, schema) for number in block_numbers])
            writer.write_table(whole, row_group_size=layout.group_rows)
    os.replace(unfinished, path)


def _block(number: int, schema: pa.Schema) -> pa.Table:
    rng = np.random.default_rng([SEED, number])
    values = np.exp(1.5 * rng.standard_normal((len(schema), BLOCK_ROWS), dtype=np.float32))
    nulls = rng.random(values.shape, dtype=np.float32) < NULL_FRACTION
    columns = [pa.array(column, mask=null) for column, null in zip(values, nulls, strict=True)]
    return pa.table(columns, schema=schema)
