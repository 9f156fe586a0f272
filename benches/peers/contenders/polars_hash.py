"""Polars in process: a lazy scan, expressions, the streaming engine's batches, NumPy, torch.

Strings are hashed, which is cheaper than a vocabulary. This was the fastest variant: whole frames, file by file and
other batch sizes were slower.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from features import CLIP, Scale
from protocol import Batch, Data, Job, serve, split

from harness.benches import criteo

if TYPE_CHECKING:
    import polars as pl

CHUNK_ROWS = 131_072


class PolarsScan:
    """Expressions over a scan; subclasses define how strings become numbers."""

    def __init__(self, job: Job) -> None:
        import polars as pl

        self._job, self._polars = job, pl
        scale = Scale(job.fitted)
        dense = [
            pl.col(name).fill_null(0).log1p().sub(float(mean)).mul(float(by_std)).clip(-CLIP, CLIP).cast(pl.Float32)
            for name, mean, by_std in zip(criteo.DENSE, scale.mean, scale.by_std, strict=True)
        ]
        integers = [(pl.col(name) % criteo.HASH_BUCKETS).cast(pl.Int32) for name in criteo.INTEGERS]
        self._expressions = [*dense, *(self.string(name) for name in criteo.STRINGS), *integers]

    def string(self, name: str) -> pl.Expr:
        """Return the expression that converts a string column to int32."""
        column = self._polars.col(name)
        return (column.hash() % criteo.HASH_BUCKETS).cast(self._polars.Int32)

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield slices of the engine's batches."""
        frames = self._polars.scan_parquet(data.files).select(self._expressions)
        cats = [*criteo.STRINGS, *criteo.INTEGERS]
        for frame in frames.collect_batches(chunk_size=CHUNK_ROWS, maintain_order=True, engine="streaming"):
            matrices = (frame.select(names).to_numpy(order="c", writable=True) for names in (criteo.DENSE, cats))
            yield from split(*matrices, self._job.batch_size)  # pyright: ignore[reportCallIssue]

    def close(self) -> None:
        """Do nothing: there is no other process."""


def limited(job: Job) -> Job:
    """Limit Polars to the job's cores; the variable is read once, at import."""
    if "polars" in sys.modules:
        raise SystemExit("polars was imported before POLARS_MAX_THREADS was set")
    os.environ["POLARS_MAX_THREADS"] = str(job.cores)
    return job


if __name__ == "__main__":
    serve(lambda job: PolarsScan(limited(job)), "polars")
