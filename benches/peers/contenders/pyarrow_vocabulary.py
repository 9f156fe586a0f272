"""pyarrow.dataset in process with real vocabularies: `index_in` of each chunk's dictionaries, and NumPy's take.

Looking up every string takes longer, also as an expression of the scan: a chunk has each string once in its dictionary.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from features import integers, vocabulary
from protocol import Job, serve
from pyarrow_codes import PyarrowCodes

from harness.benches import criteo


class PyarrowVocabulary(PyarrowCodes):
    """The same scan with codes mapped to vocabulary indices."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._words = {name: vocabulary(job.fitted, name) for name in criteo.STRINGS}

    def categories(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return int32 [n, 26]; values that are not in the vocabulary become 0."""
        cats = np.empty((batch.num_rows, len(criteo.CATEGORIES)), np.int32)
        for index, name in enumerate(criteo.STRINGS):
            column = batch.column(name)
            found = pc.fill_null(pc.index_in(column.dictionary, value_set=self._words[name]), -1).to_numpy() + 1  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
            cats[:, index] = found[column.indices.to_numpy()]  # pyright: ignore[reportAttributeAccessIssue]
        integers(batch, cats)
        return cats


if __name__ == "__main__":
    serve(PyarrowVocabulary, "pyarrow")
