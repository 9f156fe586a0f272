"""Times copies to the GPU: from pageable memory, from pinned memory, and through pinned staging as `device="cuda"`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from device import require_torch
from step import Failed, emit, run

# A batch, a large batch, and a size at which the link's rate shows.
SIZES = (1_310_720, 16 << 20, 128 << 20)
REPETITIONS = 20


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


if __name__ == "__main__":
    run(main)
