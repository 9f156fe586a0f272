"""Time to make the tensors of a batch: microseconds per batch for columns of these widths. Prints a line of JSON.

`PYTHONPATH` chooses another version of the package.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

import forebay as fb
from forebay._client.header import BatchHeader
from forebay._dataset.device_copy import DeviceCopy

ROWS, REPEATS, ROUNDS = 8192, 2000, 5
# A column of width 1 has one number per row, other columns are matrices.
WIDTHS = ((39,), (39, 1), (13, 1, 1), (13, 26, 1, 1, 1))


def main() -> None:
    """Measure and print."""
    print(
        json.dumps({"rows": ROWS, "microseconds": {"+".join(map(str, widths)): measure(widths) for widths in WIDTHS}})
    )


def measure(widths: tuple[int, ...]) -> float:
    """Return the median over the rounds."""
    columns = {f"c{number}": column(width) for number, width in enumerate(widths)}
    fields = [pa.field(name, array.type, nullable=False) for name, array in columns.items()]
    data = pa.record_batch(list(columns.values()), schema=pa.schema(fields))
    batch, device_copy = fb.Batch(data, BatchHeader.of({})), DeviceCopy(None)
    rounds: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(REPEATS):
            device_copy.copy(batch)
        rounds.append((time.perf_counter() - began) / REPEATS * 1e6)
    return round(statistics.median(rounds), 1)


def column(width: int) -> pa.Array[Any]:
    """Return a column of int64, or a matrix of float32."""
    if width == 1:
        return pa.array(np.arange(ROWS, dtype=np.int64))
    numbers = pa.array(np.zeros(ROWS * width, dtype=np.float32))
    storage = pa.FixedSizeListArray.from_arrays(numbers, width)
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [width]), storage)


if __name__ == "__main__":
    main()
