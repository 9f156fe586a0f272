"""Restricts everything to one thread and one core. Import it before the peers, which create their pools at import."""

from __future__ import annotations

import os

for _variable in ("POLARS_MAX_THREADS", "NUMEXPR_MAX_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_variable] = "1"

import numexpr  # noqa: E402
import polars  # noqa: E402
import pyarrow as pa  # noqa: E402

numexpr.set_num_threads(1)
pa.set_cpu_count(1)
pa.set_io_thread_count(1)


def pin(core: int | None) -> int:
    """Pin this process and its children to a core (default: the last available one); return the core."""
    chosen = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {chosen})
    if polars.thread_pool_size() != 1:
        raise SystemExit("Polars has more than one thread: import one_core before polars")
    return chosen
