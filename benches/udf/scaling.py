"""The function that benches/udf measures, as Forebay and Spark declare it. All forms have the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from forebay import udf

MEAN, STD, LOW, HIGH = 0.25, 1.75, -1.0, 1.5


@udf.function(arguments=[pa.float64()], returns=pa.float64(), numpy=True)
def scaled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Forebay's form."""
    return np.clip((x - MEAN) / STD, LOW, HIGH)


def scaled_row(x: float) -> float:
    """Spark's row UDF."""
    return min(max((x - MEAN) / STD, LOW), HIGH)


# PySpark evaluates the annotations, and pandas' class takes no type arguments.
def scaled_series(x: pd.Series) -> pd.Series:  # pyright: ignore
    """Spark's pandas_udf."""
    return ((x - MEAN) / STD).clip(LOW, HIGH)
