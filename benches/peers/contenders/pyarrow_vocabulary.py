"""pyarrow.dataset in process with real vocabularies: `index_in` as expressions of the scan."""

from __future__ import annotations

from collections.abc import Iterator

import criteo
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from features import Scale, flat, integers, vocabulary
from protocol import Batch, Data, Job, serve, split

CHUNK_ROWS = 131_072


class PyarrowVocabulary:
    """A dataset's scanner that looks the strings up, in tables bound once; NumPy makes the rest."""

    def __init__(self, job: Job) -> None:
        self._job, self._scale = job, Scale(job.fitted)
        pa.set_cpu_count(job.cores)
        self._columns = {name: pc.field(name) for name in [*criteo.DENSE, *criteo.INTEGERS]}
        for name in criteo.STRINGS:
            self._columns[name] = pc.index_in(pc.field(name), value_set=vocabulary(job.fitted, name))

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield pieces of the scanner's batches."""
        scanner = ds.dataset(data.files, format="parquet").scanner(columns=self._columns, batch_size=CHUNK_ROWS)
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield from split(self._scale.matrix(batch), self._indices(batch), self._job.batch_size)

    def _indices(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return int32 [n, 26]; what is not in the vocabulary is null, and so 0."""
        cats = np.empty((batch.num_rows, len(criteo.CATEGORIES)), np.int32)
        for index, name in enumerate(criteo.STRINGS):
            cats[:, index] = flat(pc.fill_null(batch.column(name), -1))
        cats[:, : len(criteo.STRINGS)] += 1
        integers(batch, cats)
        return cats

    def close(self) -> None:
        """Do nothing: nothing runs beside."""


if __name__ == "__main__":
    serve(PyarrowVocabulary, "pyarrow")
