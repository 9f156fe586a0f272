"""MosaicML streaming: shuffled, resumable, from its own format, into which the features were written beforehand.

A sample is the two feature vectors of a row, so the loader only shuffles, reads and stacks. Writing is not measured,
and is limited to the rows that a stopped epoch can reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
from features import Scale, codes
from protocol import Batch, Data, Job, serve
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from harness.benches import criteo

WRITTEN_ROWS_MAX = 1_000_000
COLUMNS = {"dense": f"ndarray:float32:{len(criteo.DENSE)}", "cats": f"ndarray:int32:{len(criteo.CATEGORIES)}"}


class MosaicMds:
    """StreamingDataset in a StreamingDataLoader, one worker per core."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._folders = {data: write(job, data) for data in (job.small, job.whole)}
        clean_stale_shared_memory()

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield the loader's batches."""
        dataset = StreamingDataset(
            local=str(self._folders[data]),
            shuffle=True,
            shuffle_seed=self._job.seed,
            batch_size=self._job.batch_size,
        )
        for batch in StreamingDataLoader(dataset, batch_size=self._job.batch_size, num_workers=self._job.cores):
            yield batch["dense"], batch["cats"]

    def close(self) -> None:
        """Do nothing: the workers end with their epoch."""


def write(job: Job, data: Data) -> Path:
    """Write the features in the first visit; later visits reuse them."""
    folder = Path(job.scratch) / f"mds-{data.rows}"
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".unfinished")
    scale, rows = Scale(job.fitted), 0
    with MDSWriter(out=str(unfinished), columns=COLUMNS) as out:
        for batch in ds.dataset(data.files, format="parquet").to_batches(batch_size=131_072):
            for dense, cats in zip(scale.matrix(batch), codes(batch), strict=True):
                out.write({"dense": dense, "cats": cats})
            rows += batch.num_rows
            if rows >= WRITTEN_ROWS_MAX:
                break
    os.replace(unfinished, folder)
    return folder


if __name__ == "__main__":
    serve(MosaicMds, "mosaicml-streaming", "numpy")
