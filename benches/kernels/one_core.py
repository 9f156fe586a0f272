"""One thread and one core for all: to be imported before the peers, whose pools are made when they are imported."""

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
    """Keep this process, and those that it starts, on a core (by default the last that it may use); say which."""
    chosen = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {chosen})
    if polars.thread_pool_size() != 1:
        raise SystemExit("Polars has more than one thread: one_core must be imported before it")
    return chosen
