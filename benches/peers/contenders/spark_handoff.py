"""Handoff: Spark computes features with pandas UDFs and writes Parquet, which pyarrow reads for torch.

The epoch includes both, and the first batch arrives after everything is written. Spark itself hashes strings and
computes the remainders of integers; only the dense columns pass through Python.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
from features import CLIP, Scale, flat
from protocol import Batch, Data, Job, serve, split
from pyspark.sql import Column, SparkSession, functions

from harness.benches import criteo

CHUNK_ROWS = 131_072
DRIVER_MEMORY = "4g"
# One task per quarter of a file.
SPLIT_BYTES = 24 * 2**20


class SparkHandoff:
    """A local session with one thread per core."""

    def __init__(self, job: Job) -> None:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        here = Path(job.scratch)
        self._job, self._written = job, here / "written"
        settings = {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(here),
            "spark.sql.warehouse.dir": str(here / "warehouse"),
            "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNK_ROWS),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        builder = SparkSession.builder.master(f"local[{job.cores}]").appName("forebay-peers")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        scale = Scale(job.fitted)
        dense = [
            standardize(float(mean), float(by_std))(functions.col(name)).alias(name)
            for name, mean, by_std in zip(criteo.DENSE, scale.mean, scale.by_std, strict=True)
        ]
        buckets = functions.lit(criteo.HASH_BUCKETS)
        strings = [functions.pmod(functions.xxhash64(name), buckets).cast("int").alias(name) for name in criteo.STRINGS]
        integers = [functions.pmod(functions.col(name), buckets).cast("int").alias(name) for name in criteo.INTEGERS]
        self._columns = [*dense, *strings, *integers]

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Compute and write the features, then read them."""
        shutil.rmtree(self._written, ignore_errors=True)
        self._spark.read.parquet(*data.files).select(self._columns).write.parquet(str(self._written))
        scanner = ds.dataset(self._written, format="parquet").scanner(batch_size=CHUNK_ROWS)
        for batch in scanner.to_batches():
            dense = np.empty((batch.num_rows, len(criteo.DENSE)), np.float32)
            cats = np.empty((batch.num_rows, len(criteo.CATEGORIES)), np.int32)
            for index, name in enumerate(criteo.DENSE):
                dense[:, index] = flat(batch.column(name))
            for index, name in enumerate([*criteo.STRINGS, *criteo.INTEGERS]):
                cats[:, index] = flat(batch.column(name))
            if batch.num_rows:
                yield from split(dense, cats, self._job.batch_size)

    def close(self) -> None:
        """Stop the session and remove what it wrote."""
        self._spark.stop()
        shutil.rmtree(self._written, ignore_errors=True)


def standardize(mean: float, by_std: float) -> Any:
    """Return a pandas UDF of one column."""

    @functions.pandas_udf("float")  # pyright: ignore[reportUntypedFunctionDecorator]
    def apply(values: pd.Series) -> pd.Series:
        filled = values.fillna(0).to_numpy(np.float32)
        return pd.Series(np.clip((np.log1p(filled) - np.float32(mean)) * np.float32(by_std), -CLIP, CLIP))

    def of(column: Column) -> Column:
        return apply(column)

    return of


if __name__ == "__main__":
    serve(SparkHandoff, "pyspark", "pyarrow", "pandas")
