"""pyarrow in process, dictionary codes only: the dictionaries of each chunk, never unified to a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from features import Scale, codes
from protocol import Batch, Data, Job, serve, split

from harness.benches import criteo

CHUNK_ROWS = 131_072


class PyarrowCodes:
    """A dataset's scanner that reads strings as dictionaries."""

    def __init__(self, job: Job) -> None:
        self._job, self._scale = job, Scale(job.fitted)
        pa.set_cpu_count(job.cores)
        self._format = ds.ParquetFileFormat(dictionary_columns=criteo.STRINGS)

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield slices of the scanner's batches."""
        columns = [*criteo.DENSE, *criteo.CATEGORIES]
        scanner = ds.dataset(data.files, format=self._format).scanner(columns=columns, batch_size=CHUNK_ROWS)
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield from split(self._scale.matrix(batch), self.categories(batch), self._job.batch_size)

    def categories(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return int32 [n, 26]."""
        return codes(batch)

    def close(self) -> None:
        """Do nothing: there is no other process."""


if __name__ == "__main__":
    serve(PyarrowCodes, "pyarrow")
