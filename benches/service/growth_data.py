"""The same floats as few and many files, row groups and columns, from a seed.

Values are exp(1.5 N(0, 1)) in float32 with 5 % nulls, made in blocks of 12,000 rows; so the rows of `base`, `files` and
`groups` are the same ones. Files that were made with other parameters are written anew.
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
    """How the floats lie."""

    files: int
    groups: int
    """Row groups of a file."""
    group_rows: int
    columns: int

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return self.files * self.groups * self.group_rows

    def plan(self) -> dict[str, Any]:
        """Return a plan with nothing to learn: float32 [n, columns]."""
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
# A tenth of it, for rehearsals.
SMALL_LAYOUTS = {
    "base": Layout(1, 10, 24_000, 13),
    "files": Layout(10, 1, 24_000, 13),
    "groups": Layout(1, 20, 12_000, 13),
    "columns": Layout(1, 2, 12_000, 130),
}


def generate(folder: Path, layout: Layout) -> None:
    """Write the files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(layout.files):
        path = folder / f"part-{file:03}.parquet"
        made_from = json.dumps({**asdict(layout), "seed": SEED, "file": file}, sort_keys=True).encode()
        if not (path.exists() and (pq.read_metadata(path).metadata or {}).get(PARAMETERS_KEY) == made_from):
            _write(path, layout, file, made_from)


def _write(path: Path, layout: Layout, file: int, made_from: bytes) -> None:
    """Write under another name first, so that a file of the right name is whole."""
    names = [f"x{number}" for number in range(layout.columns)]
    schema = pa.schema([(name, pa.float32()) for name in names], {PARAMETERS_KEY: made_from})
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
