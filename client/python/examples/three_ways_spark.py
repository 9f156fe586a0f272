"""The ways of three_ways.py in PySpark: a row UDF and a pandas UDF, on all cores of this machine.

The timed runs discard the results (Spark's `noop` sink), so they contain no hand-off to a training process.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf

if TYPE_CHECKING:
    from three_ways import Scale, Values, Way

OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
BATCH_ROWS_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"
BATCH_ROWS = 10_000
"""Spark's default."""


@contextmanager
def spark_ways(
    tables: dict[int, Path], scale: "Scale", bounds: tuple[float, float]
) -> "Generator[list[Way], None, None]":
    """Start Spark, and return its ways; it ends with the block."""
    from three_ways import Way

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    builder = SparkSession.builder.master("local[*]").appName("three ways")
    for name, value in OPTIONS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    mean, std = scale.mean, scale.std
    low, high = bounds

    def scaled(value: float) -> float:
        return min(max((value - mean) / std, low), high)

    def scaled_batch(values: pd.Series) -> pd.Series:
        return ((values - mean) / std).clip(low, high)

    row_udf = udf(scaled, "double", useArrow=False)
    batch_udf = pandas_udf(scaled_batch, "double")

    def way(name: str, function: Any, batch_rows: int | None) -> "Way":
        def column(rows: int, size: int) -> Any:
            session.conf.set(BATCH_ROWS_OPTION, str(size or BATCH_ROWS))
            frame = session.read.parquet(str(tables[rows]))
            return frame.select("i", function("x").alias("x"))

        def run(rows: int, size: int) -> "Values":
            column(rows, size).select("x").write.format("noop").mode("overwrite").save()
            return np.empty(0)

        def read(rows: int, size: int) -> "Values":
            return column(rows, size).toPandas().sort_values("i")["x"].to_numpy()

        return Way(name, run, batch_rows, read)

    try:
        yield [way("PySpark row UDF", row_udf, None), way("PySpark pandas UDF", batch_udf, BATCH_ROWS)]
    finally:
        session.stop()
