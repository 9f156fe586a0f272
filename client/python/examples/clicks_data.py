"""Clicks on advertisements, generated in the shape of Criteo's logs: a label, 13 numbers and 26 categories.

Counts have a long tail and up to 15 % nulls. Categories follow Zipf's law over 10 to 200,000 values; every other one is
a string. The label depends on some of them, so that a model can learn it.

Run as a program, it writes the files to data/clicks, or to the folder given.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LABEL = "label"
NUMBERS = [f"i{index}" for index in range(1, 14)]
CATEGORIES = [f"c{index}" for index in range(1, 27)]

ROWS = 1_500_000
FILES = 4
ROW_GROUP_ROWS = 65_536
CARDINALITIES = (10, 100, 1_000, 20_000, 200_000)
ZIPF_EXPONENT = 1.3
NULL_FRACTION_MAX = 0.15
CATEGORY_NULL_FRACTION = 0.02
SEED = 7

# Key of the parameters in a file's footer.
PARAMETERS = b"clicks"


def generate_once(folder: Path, rows: int = ROWS) -> list[Path]:
    """Write the files that are missing or have other parameters; return all."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        count = rows * (number + 1) // FILES - rows * number // FILES
        parameters = json.dumps({"rows": count, "file": number, "seed": SEED}).encode()
        if path.exists() and (pq.read_metadata(path).metadata or {}).get(PARAMETERS) == parameters:
            continue
        half_written = path.with_suffix(".partial")
        table = _rows(np.random.default_rng([SEED, number]), count).replace_schema_metadata({PARAMETERS: parameters})
        pq.write_table(table, half_written, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        os.replace(half_written, path)
    return paths


def _rows(random: np.random.Generator, count: int) -> pa.Table:
    columns: dict[str, pa.Array[Any]] = {}
    logit = np.full(count, -1.6)
    for index, name in enumerate(NUMBERS):
        values = np.exp(1.5 * random.standard_normal(count) + 1).astype(np.int32)
        null = random.random(count) < NULL_FRACTION_MAX * index / (len(NUMBERS) - 1)
        columns[name] = pa.array(values, mask=null)
        logit += 0.1 * (-1) ** index * np.log1p(np.where(null, 0, values))
    for index, name in enumerate(CATEGORIES):
        cardinality = CARDINALITIES[index % len(CARDINALITIES)]
        codes = random.zipf(ZIPF_EXPONENT, count) % cardinality
        values = pa.array(codes, pa.int64(), mask=random.random(count) < CATEGORY_NULL_FRACTION)
        if index % 2 == 0:
            values = pa.array([f"{code:08x}" for code in range(cardinality)]).take(values)
        columns[name] = values
        # Each value shifts the odds by its own amount.
        logit += 0.1 * (codes * 2_654_435_761 % 7 - 3)
    label = (random.random(count) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return pa.Table.from_arrays([pa.array(label), *columns.values()], names=[LABEL, *columns])


if __name__ == "__main__":
    print(*generate_once(Path(sys.argv[1] if len(sys.argv) > 1 else "data/clicks")), sep="\n")
