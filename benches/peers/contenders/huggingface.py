"""Hugging Face datasets, streaming, as Arrow batches the size of a row group. Strings become codes per batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from features import Scale, codes
from protocol import Batch, Data, Job, serve, split

from harness.benches import criteo

CHUNK_ROWS = 131_072


class HuggingFace:
    """`load_dataset("parquet", streaming=True)`; NumPy computes the features."""

    def __init__(self, job: Job) -> None:
        # The files are local: disable calls to the hub.
        os.environ["HF_HUB_OFFLINE"] = "1"
        import datasets

        self._job, self._scale, self._datasets = job, Scale(job.fitted), datasets

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield slices of its batches."""
        for table in self.tables(self.stream(data)):
            yield from split(self._scale.matrix(table), codes(table), self._job.batch_size)

    def stream(self, data: Data) -> Any:
        """Return the files as a stream of Arrow tables."""
        files = {"train": data.files}
        columns = [*criteo.DENSE, *criteo.CATEGORIES]
        stream = self._datasets.load_dataset(
            "parquet", data_files=files, split="train", streaming=True, columns=columns
        )
        return stream.with_format("arrow")

    def tables(self, stream: Any) -> Iterator[Any]:
        """Yield the stream's tables; larger ones than a batch are faster."""
        return stream.iter(batch_size=CHUNK_ROWS)

    def close(self) -> None:
        """Do nothing: there is no other process."""


if __name__ == "__main__":
    serve(HuggingFace, "datasets", "pyarrow")
