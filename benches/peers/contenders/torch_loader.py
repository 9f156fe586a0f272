"""torch's DataLoader: two workers read row groups in turn with pyarrow and send them through shared memory.

A worker sends a whole row group, which the loop splits into batches: sending each batch separately is slower.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq
import torch
import torch.utils.data
from features import Scale, codes
from protocol import Batch, Data, Job, serve

from harness.benches import criteo

WORKERS = 2


class RowGroups(torch.utils.data.IterableDataset[Batch]):
    """Every n-th row group, as tensors."""

    def __init__(self, data: Data, scale: Scale) -> None:
        self._data, self._scale = data, scale

    def __iter__(self) -> Iterator[Batch]:
        """Yield this worker's row groups."""
        worker = torch.utils.data.get_worker_info()
        index = 0
        for path in self._data.files:
            with pq.ParquetFile(path, read_dictionary=criteo.STRINGS) as file:
                for group in range(file.num_row_groups):
                    if index % worker.num_workers == worker.id:
                        table = file.read_row_group(group, [*criteo.DENSE, *criteo.CATEGORIES], use_threads=False)
                        yield torch.from_numpy(self._scale.matrix(table)), torch.from_numpy(codes(table))
                    index += 1


class TorchLoader:
    """One DataLoader per epoch; starting its workers is measured, as in a training run."""

    def __init__(self, job: Job) -> None:
        self._job, self._scale = job, Scale(job.fitted)

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield slices of the workers' row groups."""
        groups = RowGroups(data, self._scale)
        for dense, cats in torch.utils.data.DataLoader(groups, batch_size=None, num_workers=WORKERS):
            yield from zip(dense.split(self._job.batch_size), cats.split(self._job.batch_size), strict=True)

    def close(self) -> None:
        """Do nothing: the workers end with their epoch."""


if __name__ == "__main__":
    serve(TorchLoader, "pyarrow")
