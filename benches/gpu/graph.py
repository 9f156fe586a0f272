"""Captures a training step as a CUDA graph while the prefetch thread copies batches to the GPU, and replays it.

The capture sleeps, so that the thread works in it. The replayed steps sum their categories, which are integers: the
totals must be those of the same batches on the CPU.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

from device import require_torch
from served import DATASET, served
from step import Failed, emit, run

BATCH_SIZE = 4096
ROWS = 200_000
# So many that the thread still copies batches during the capture.
PREFETCH = 32
CAPTURE_SECONDS = 0.2
NAMES = ("cats", "hashed")


def totals_of(batches: Iterable[dict[str, Any]]) -> list[int]:
    """Return the sum of each matrix of categories over all batches."""
    totals = [0] * len(NAMES)
    for batch in batches:
        totals = [total + int(batch[name].sum()) for total, name in zip(totals, NAMES, strict=True)]
    return totals


def replayed_totals(data: Any, mode: str) -> list[int]:
    """Return the same sums from a captured step that is replayed for each batch."""
    import torch

    from train import Trainer

    trainer = Trainer("cuda", 256)
    batches = iter(data)
    first = next(batches)
    static = {name: tensor.clone() for name, tensor in first.items()}
    sums = torch.zeros(len(NAMES), dtype=torch.int64, device="cuda")

    def step() -> None:
        trainer.step(static)
        sums.add_(torch.stack([static[name].sum(dtype=torch.int64) for name in NAMES]))

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    sums.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        step()
        time.sleep(CAPTURE_SECONDS)
    for batch in itertools.chain([first], batches):
        for name, tensor in static.items():
            tensor.copy_(batch[name])
        graph.replay()
    torch.cuda.synchronize()
    return sums.tolist()


def main() -> None:
    """Capture in both modes, by both transports."""
    require_torch()
    from forebay.torch import FlightDataset
    from train import PLAN

    failures: list[str] = []
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 7, "remainder": "drop"}
    with served(ROWS, PLAN) as (urls, plan):
        for (transport, url), mode in itertools.product(urls.items(), ("thread_local", "global")):
            expected = totals_of(FlightDataset(url, DATASET, plan, **options))
            try:
                found = replayed_totals(
                    FlightDataset(url, DATASET, plan, device="cuda", prefetch=PREFETCH, **options), mode
                )
                problem = "" if found == expected else f"the sums are {found}, not {expected}"
            except RuntimeError as error:
                problem = str(error).splitlines()[0]
            emit(transport=transport, capture_error_mode=mode, problem=problem)
            if problem:
                failures.append(f"{transport}, {mode}: {problem}")
    if failures:
        raise Failed("; ".join(failures))


if __name__ == "__main__":
    run(main)
