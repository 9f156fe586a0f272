"""Times copies to the GPU: from pageable memory, from pinned memory, and through pinned staging; and whole batches.

Batches of few and of many columns are copied as `device="cuda"` copies them; the time is that of the reading thread,
without waiting for the copies.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from device import require_torch
from step import Failed, emit, run

# A batch, a large batch, and a size at which the link's rate shows.
SIZES = (1_310_720, 16 << 20, 128 << 20)
REPETITIONS = 20
# Columns and rows of batches of about the same number of bytes.
BATCHES = ((1, 400_000), (40, 10_000), (400, 1000))


def seconds(copy: Callable[[], object], wait: Callable[[], None]) -> list[float]:
    """Return the durations of copies, each until it is done."""
    durations: list[float] = []
    for _ in range(REPETITIONS + 3):
        began = time.perf_counter()
        copy()
        wait()
        durations.append(time.perf_counter() - began)
    return durations[3:]


def main() -> None:
    """Time every way for every size, and compare the bytes that arrived."""
    require_torch()
    import torch

    for size in SIZES:
        pageable = torch.randint(0, 256, (size,), dtype=torch.uint8)
        pinned = pageable.pin_memory()
        target = torch.empty(size, dtype=torch.uint8, device="cuda")
        ways: dict[str, Callable[[], object]] = {
            "pageable": lambda here=pageable, there=target: there.copy_(here),
            "pinned": lambda here=pinned, there=target: there.copy_(here, non_blocking=True),
            "staged": lambda here=pageable: here.pin_memory().to("cuda", non_blocking=True),
        }
        for way, copy in ways.items():
            target.zero_()
            durations = seconds(copy, torch.cuda.synchronize)
            arrived = copy()
            torch.cuda.synchronize()
            if not isinstance(arrived, torch.Tensor) or not torch.equal(arrived.cpu(), pageable):
                raise Failed(f"{size} bytes copied from {way} memory differ from their source")
            rate = size / statistics.median(durations) / 1e9
            emit(way=way, bytes=size, gb_per_second=rate, seconds=durations)
    for columns, rows in BATCHES:
        land(columns, rows)


def land(columns: int, rows: int) -> None:
    """Time the copies of one batch, and compare what arrived."""
    import torch

    import forebay as fb
    from forebay._dataset.device_copy import DeviceCopy, resolve_device
    from forebay._dataset.tensors import to_tensors

    schema = pa.schema([pa.field(f"c{column}", pa.float32(), nullable=False) for column in range(columns)])
    values = np.random.default_rng(7).random((columns, rows), np.float32)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(row) for row in values], schema=schema))
    batch = fb.Batch(pa.ipc.open_stream(sink.getvalue()).read_next_batch(), pa.py_buffer(b""))
    device_copy = DeviceCopy(resolve_device("cuda"))
    durations: list[float] = []
    landed: dict[str, torch.Tensor] = {}
    for _ in range(REPETITIONS + 3):
        began = time.perf_counter()
        copied = device_copy.copy(batch)
        durations.append(time.perf_counter() - began)
        landed = copied.take()
        torch.cuda.synchronize()
    expected = to_tensors(batch)
    if any(not torch.equal(landed[name].cpu(), tensor) for name, tensor in expected.items()):
        raise Failed(f"a column of a batch of {columns} columns differs after its copy")
    emit(columns=columns, rows=rows, copy_seconds=statistics.median(durations[3:]), seconds=durations[3:])


if __name__ == "__main__":
    run(main)
