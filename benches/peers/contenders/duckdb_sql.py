"""DuckDB in process: one SQL query over the files, Arrow batches of its result, torch. Strings are hashed."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
from features import CLIP, Scale, flat
from protocol import Batch, Data, Job, serve, split

from harness.benches import criteo

CHUNK_ROWS = 131_072


class DuckdbSql:
    """A connection with as many threads as there are cores."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._connection = duckdb.connect(config={"threads": job.cores})
        scale = Scale(job.fitted)
        dense = [
            f"greatest(least((ln(1 + coalesce({name}, 0)) - {mean!r}) * {by_std!r}, {CLIP}), -{CLIP})::FLOAT AS {name}"
            for name, mean, by_std in zip(criteo.DENSE, scale.mean.tolist(), scale.by_std.tolist(), strict=True)
        ]
        strings = [f"(hash({name}) % {criteo.HASH_BUCKETS})::INTEGER AS {name}" for name in criteo.STRINGS]
        integers = [f"({name} % {criteo.HASH_BUCKETS})::INTEGER AS {name}" for name in criteo.INTEGERS]
        self._select = "SELECT " + ", ".join([*dense, *strings, *integers])

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield slices of the result's batches."""
        query = f"{self._select} FROM read_parquet({data.files!r})"
        for batch in self._connection.sql(query).to_arrow_reader(CHUNK_ROWS):
            dense = np.empty((batch.num_rows, len(criteo.DENSE)), np.float32)
            cats = np.empty((batch.num_rows, len(criteo.CATEGORIES)), np.int32)
            for index, name in enumerate(criteo.DENSE):
                dense[:, index] = flat(batch.column(name))
            for index, name in enumerate([*criteo.STRINGS, *criteo.INTEGERS]):
                cats[:, index] = flat(batch.column(name))
            yield from split(dense, cats, self._job.batch_size)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


if __name__ == "__main__":
    serve(DuckdbSql, "duckdb", "pyarrow")
