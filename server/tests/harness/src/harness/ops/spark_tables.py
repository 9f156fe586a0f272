"""The tables that Forebay and Spark read, and both results as arrays in row order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml.linalg import Vector
from pyspark.sql import DataFrame

import forebay as fb

# One more than a multiple of 4: the quartiles are values of the table, not means of two.
ROWS = 401


def tables() -> dict[str, pa.Table]:
    random = np.random.default_rng(12)
    words = np.array([f"w{i}" for i in range(12)] + [" ", "Z", "é"])
    drawn = random.choice(words, ROWS, p=random.dirichlet(np.ones(len(words))))
    plain = {
        "id": pa.array(np.arange(ROWS)),
        "x": pa.array(random.normal(5, 3, ROWS)),
        "y": pa.array(random.exponential(100, ROWS)),
        "negative": pa.array(random.normal(-50, 3, ROWS)),
        "constant": pa.array(np.full(ROWS, 2.5)),
        "zero": pa.array(np.zeros(ROWS)),
        "count": pa.array(random.integers(0, 9, ROWS)),
        "single": pa.array(random.normal(0, 1, ROWS).astype(np.float32)),
        "flag": pa.array(random.random(ROWS) < 0.3),
        "word": pa.array(drawn.tolist()),
        # Each count is there once, or twice.
        "ties": pa.array([f"t{i}" for i in range(20) for _ in range(1 + i % 10)] * 3 + ["t0"] * (ROWS - 330)),
        "text": pa.array([" ".join(random.choice(words[:12], random.integers(0, 6))) for _ in range(ROWS)]),
    }
    gappy = {
        "id": pa.array(np.arange(ROWS)),
        "x": pa.array(plain["x"].to_numpy(), mask=random.random(ROWS) < 0.1),
        "word": pa.array([None if random.random() < 0.1 else word for word in drawn.tolist()]),
        "count": pa.array(random.integers(0, 5, ROWS), mask=random.random(ROWS) < 0.1),
    }
    gappy["nan"] = pa.array(np.where(random.random(ROWS) < 0.1, np.nan, plain["x"].to_numpy()))
    lists = {
        "id": pa.array(np.arange(ROWS)),
        "words": pa.array([text.split() for text in plain["text"].to_pylist()]),
    }
    return {"plain": pa.table(plain), "gappy": pa.table(gappy), "lists": pa.table(lists)}


def write(folder: Path, table: pa.Table) -> None:
    folder.mkdir()
    pq.write_table(table, folder / "a.parquet", row_group_size=97)


def features(client: fb.Client, dataset: str, chain: fb.Columns | fb.Output) -> np.ndarray:
    """One output for every row, in order."""
    fitted = client.fitted(dataset, fb.Plan(outputs={"o": chain}))
    batches = [batch["o"] for batch in client.stream(dataset, fitted, batch_size=64)]
    if isinstance(batches[0], fb.Ragged):
        rows = [row for values, offsets in batches for row in np.split(values, offsets[1:-1])]
        lists = np.empty(len(rows), object)
        lists[:] = rows
        return lists
    return np.concatenate(batches)


def collected(frame: DataFrame, column: str) -> list[Any]:
    """A column's values in the order of the rows."""
    return [row[column] for row in frame.orderBy("id").select(column).collect()]


def numbers(frame: DataFrame, column: str) -> np.ndarray:
    """A column of numbers or of vectors as an array of float64."""
    values = collected(frame, column)
    return np.array([value.toArray() if isinstance(value, Vector) else value for value in values], np.float64)
