"""Daft in process: read_parquet, expressions, Arrow batches of the result, torch. Strings are hashed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from features import CLIP, Scale, flat
from protocol import Batch, Data, Job, serve, split

from harness.benches import criteo


class DaftFrames:
    """Daft's local runner."""

    def __init__(self, job: Job) -> None:
        # Disable telemetry.
        os.environ["DAFT_ANALYTICS_ENABLED"] = "0"
        os.environ["DO_NOT_TRACK"] = "true"
        import daft
        from daft import functions

        self._job, self._daft = job, daft
        scale = Scale(job.fitted)
        float32, int32 = daft.DataType.float32(), daft.DataType.int32()
        dense = [
            functions.clip(
                (functions.log1p(functions.fill_null(daft.col(name), 0.0)) - float(mean)) * float(by_std), -CLIP, CLIP
            ).cast(float32)
            for name, mean, by_std in zip(criteo.DENSE, scale.mean, scale.by_std, strict=True)
        ]
        strings = [(functions.hash(daft.col(name)) % criteo.HASH_BUCKETS).cast(int32) for name in criteo.STRINGS]
        integers = [(daft.col(name) % criteo.HASH_BUCKETS).cast(int32) for name in criteo.INTEGERS]
        names = [*criteo.DENSE, *criteo.STRINGS, *criteo.INTEGERS]
        columns = zip([*dense, *strings, *integers], names, strict=True)
        self._columns = [column.alias(name) for column, name in columns]

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield slices of the result's batches."""
        for batch in self._daft.read_parquet(data.files).select(*self._columns).to_arrow_iter():
            dense = np.empty((batch.num_rows, len(criteo.DENSE)), np.float32)
            cats = np.empty((batch.num_rows, len(criteo.CATEGORIES)), np.int32)
            for index in range(len(criteo.DENSE)):
                dense[:, index] = flat(batch.column(index))
            for index in range(len(criteo.CATEGORIES)):
                cats[:, index] = flat(batch.column(len(criteo.DENSE) + index))
            yield from split(dense, cats, self._job.batch_size)

    def close(self) -> None:
        """Do nothing: there is no other process."""


if __name__ == "__main__":
    serve(DaftFrames, "daft", "pyarrow")
