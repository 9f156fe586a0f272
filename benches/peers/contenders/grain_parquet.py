"""Grain over Parquet: its iterator of rows, batched; NumPy computes the features of a whole batch.

Grain yields rows as dicts of NumPy scalars with NaN for null; its workers interleave the files. Strings become codes
per batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grain
import grain.experimental
import numpy as np
import pyarrow as pa
import torch
from features import Scale
from protocol import Batch, Data, Job, serve

from harness.benches import criteo


class GrainParquet:
    """ParquetIterDataset, batch, features, one worker per core."""

    def __init__(self, job: Job) -> None:
        self._job, self._scale = job, Scale(job.fitted)

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield Grain's batches."""
        rows = grain.experimental.ParquetIterDataset(data.files)
        workers = grain.MultiprocessingOptions(num_workers=self._job.cores)
        batches = rows.batch(self._job.batch_size, batch_fn=self._features).mp_prefetch(workers)
        for dense, cats in batches:
            yield torch.from_numpy(dense), torch.from_numpy(cats)

    def _features(self, rows: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        dense = np.array([[row[name] for name in criteo.DENSE] for row in rows], np.float32)
        np.nan_to_num(dense, copy=False)
        cats = np.empty((len(rows), len(criteo.CATEGORIES)), np.int32)
        for index, name in enumerate(criteo.STRINGS):
            cats[:, index] = pa.array([row[name] for row in rows]).dictionary_encode().indices.to_numpy()
        integers = np.array([[row[name] for name in criteo.INTEGERS] for row in rows])
        cats[:, len(criteo.STRINGS) :] = integers % criteo.HASH_BUCKETS
        return self._scale.apply(dense), cats

    def close(self) -> None:
        """Do nothing: the workers end with their epoch."""


if __name__ == "__main__":
    serve(GrainParquet, "grain", "pyarrow")
