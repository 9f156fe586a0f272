"""Ray Data: read_parquet, map_batches over Arrow, iter_torch_batches. Strings become codes per chunk.

Blocks may arrive in any order, which is the default and the fastest setting.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from features import Scale, codes
from protocol import Batch, Data, Job, serve

from harness.benches import criteo

# The fastest of 8192, 32,768, 131,072 and whole blocks.
CHUNK_ROWS = 32_768
OBJECT_STORE_BYTES = 2 * 2**30


class RayData:
    """A local Ray instance with one CPU per core."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # Workers import this file by its name.
        paths = [str(Path(__file__).parent), os.environ["PYTHONPATH"]]
        ray.init(
            num_cpus=job.cores,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}},
        )
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.verbose_progress = False
        self._fitted = job.fitted

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield Ray's tensors."""
        rows = ray.data.read_parquet(data.files, columns=[*criteo.DENSE, *criteo.CATEGORIES])
        features = rows.map_batches(
            featurize,
            fn_kwargs={"fitted": self._fitted},
            batch_format="pyarrow",
            batch_size=CHUNK_ROWS,
            zero_copy_batch=True,
        )
        for batch in features.iter_torch_batches(batch_size=self._job.batch_size):
            yield batch["dense"], batch["cats"]

    def close(self) -> None:
        """Shut Ray down."""
        ray.shutdown()


def featurize(table: Any, fitted: str) -> dict[str, Any]:
    """Return the matrices of a table; runs in a worker."""
    return {"dense": Scale(fitted).matrix(table), "cats": codes(table)}


if __name__ == "__main__":
    # Workers import the functions by the module's name, which is not __main__ there.
    sys.modules["ray_data"] = sys.modules["__main__"]
    featurize.__module__ = "ray_data"
    serve(RayData, "ray", "pyarrow")
