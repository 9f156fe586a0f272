"""Polars in process: a lazy scan, expressions, the streaming engine's batches, NumPy, torch.

Strings are hashed, which is cheaper than a vocabulary. Of its forms (everything at once, file by file, batches of
other sizes) this was the quickest.
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
    """Expressions over a scan; how a string becomes a number is the caller's."""

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
        """Return what makes int32 of a column of strings."""
        column = self._polars.col(name)
        return (column.hash() % criteo.HASH_BUCKETS).cast(self._polars.Int32)

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield pieces of the engine's batches."""
        frames = self._polars.scan_parquet(data.files).select(self._expressions)
        cats = [*criteo.STRINGS, *criteo.INTEGERS]
        for frame in frames.collect_batches(chunk_size=CHUNK_ROWS, maintain_order=True, engine="streaming"):
            matrices = (frame.select(names).to_numpy(order="c", writable=True) for names in (criteo.DENSE, cats))
            yield from split(*matrices, self._job.batch_size)

    def close(self) -> None:
        """Do nothing: nothing runs beside."""


def limited(job: Job) -> Job:
    """Keep Polars to the cores; it looks at this once, when it is imported."""
    if "polars" in sys.modules:
        raise SystemExit("polars was imported before its threads were counted")
    os.environ["POLARS_MAX_THREADS"] = str(job.cores)
    return job


if __name__ == "__main__":
    serve(lambda job: PolarsScan(limited(job)), "polars")
