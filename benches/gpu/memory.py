"""GPU memory that torch holds after each of many epochs of `device="cuda"`: it must not grow from epoch to epoch.

Without a GPU, a few epochs are read on the CPU, as a rehearsal.
"""

from __future__ import annotations

from typing import Any

import torch

import forebay as fb
from device import torch_problem
from forebay.torch import FlightDataset
from served import DATASET, served
from step import Failed, Skipped, emit, run
from train import PLAN

EPOCHS = 40
# Pools are filled by then.
SETTLED = 8
BATCH_SIZE = 4096


def reserved_bytes(url: str, plan: fb.FittedPlan, device: str | None, transport: str) -> list[int]:
    """Return the reserved bytes after each epoch."""
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 7}
    data = FlightDataset(url, DATASET, plan, device=device, **options)
    reserved: list[int] = []
    for epoch in range(2 if device is None else EPOCHS):
        data.set_epoch(epoch)
        total = sum(batch["dense"].sum() for batch in data)
        if not torch.isfinite(torch.as_tensor(total)):
            raise Failed(f"epoch {epoch}: the sum is {total}")
        reserved.append(0 if device is None else torch.cuda.memory_reserved())
    emit(transport=transport, reserved_bytes=reserved)
    return reserved


def main() -> None:
    """Read the epochs by both transports."""
    problem = torch_problem()
    device = None if problem else "cuda"
    with served(10_000 if problem else 100_000, PLAN) as (urls, plan):
        reserved = {transport: reserved_bytes(url, plan, device, transport) for transport, url in urls.items()}
    if problem:
        raise Skipped(f"rehearsed on the CPU only: {problem}")
    for transport, counts in reserved.items():
        if counts[-1] > counts[SETTLED]:
            raise Failed(
                f"{transport}: torch reserved {counts[SETTLED]:,} bytes after epoch {SETTLED}, and {counts[-1]:,} "
                f"after epoch {EPOCHS - 1}"
            )


if __name__ == "__main__":
    run(main)
