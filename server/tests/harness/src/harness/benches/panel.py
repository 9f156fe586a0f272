"""An hourly panel: series of one length with eight columns of FLOAT32, sorted by series and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = tuple("abcdefgh")
FILE_ROWS = 10_000_000


def write_panel(folder: Path, series: int, hours: int) -> None:
    """Write the panel, unless it is there."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    # The noise of every series is a part of the same values.
    noise = random.normal(size=hours + series).astype(np.float32)
    times = pa.array(np.arange(hours, dtype=np.int64) * 3_600_000_000, pa.timestamp("us"))
    writer: pq.ParquetWriter | None = None
    rows = 0
    for number in range(series):
        columns: dict[str, Any] = {"series": pa.array(np.full(hours, number, np.int32)), "ts": times}
        columns |= {name: noise[number : number + hours] + place for place, name in enumerate(COLUMNS)}
        table = pa.table(columns)
        if writer is None or rows >= FILE_ROWS:
            if writer is not None:
                writer.close()
            writer, rows = pq.ParquetWriter(folder / f"{number:06}.parquet", table.schema), 0
        writer.write_table(table)
        rows += hours
    if writer is not None:
        writer.close()
