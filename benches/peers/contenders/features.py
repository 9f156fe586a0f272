"""The features in NumPy and Arrow, for contenders without expressions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.benches import criteo

CLIP = 3.0
Matrix = np.ndarray[Any, Any]


class Scale:
    """Fill 0, log1p, standardize, clip: in place, in float32, all columns at once."""

    def __init__(self, fitted: str) -> None:
        found = json.loads((Path(fitted) / "statistics.json").read_text())
        self.mean = np.array(found["mean"], np.float32)
        self.by_std = np.array(1 / np.array(found["std"]), np.float32)

    def matrix(self, batch: pa.RecordBatch | pa.Table) -> Matrix:
        """Return float32 [n, 13]."""
        dense = np.empty((batch.num_rows, len(criteo.DENSE)), np.float32)
        for index, name in enumerate(criteo.DENSE):
            dense[:, index] = flat(pc.fill_null(batch.column(name), 0))  # pyright: ignore[reportArgumentType]
        return self.apply(dense)

    def apply(self, dense: Matrix) -> Matrix:
        """Transform filled values to features in place."""
        np.log1p(dense, out=dense)
        dense -= self.mean
        dense *= self.by_std
        return np.clip(dense, -CLIP, CLIP, out=dense)


def codes(batch: pa.RecordBatch | pa.Table) -> Matrix:
    """Return int32 [n, 26]: each string's index in the dictionary of its chunk, and integers modulo the buckets.

    The same string has different codes in different chunks: cheaper than a vocabulary, but useless for training.
    """
    cats = np.empty((batch.num_rows, len(criteo.CATEGORIES)), np.int32)
    for index, name in enumerate(criteo.STRINGS):
        column = batch.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        if isinstance(column, pa.ChunkedArray):
            column = column.unify_dictionaries().combine_chunks()
        cats[:, index] = flat(column.indices)  # pyright: ignore[reportAttributeAccessIssue]
    integers(batch, cats)
    return cats


def integers(batch: pa.RecordBatch | pa.Table, cats: Matrix) -> None:
    """Write the integer columns of the categories."""
    for index, name in enumerate(criteo.INTEGERS, start=len(criteo.STRINGS)):
        cats[:, index] = flat(batch.column(name)) % criteo.HASH_BUCKETS


def vocabulary(fitted: str, name: str) -> pa.Array:
    """Return a column's values, most frequent first; index 0 is reserved for nulls and unknown values."""
    return pq.read_table(Path(fitted) / f"{name}.parquet").column(name).combine_chunks()


def flat(column: pa.Array | pa.ChunkedArray) -> Matrix:
    """Return a column without nulls as an array, without a copy if it is one chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return column.to_numpy(zero_copy_only=True)
