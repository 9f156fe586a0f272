"""Trains a small model from `device="cuda"` batches, and measures the overlap of loading with steps.

Per transport: an epoch without steps, the same number of steps on one batch, and both together, in turn; then an epoch
under torch's profiler, for the overlap of copies and kernels on the GPU's own timeline. Without a GPU the same loop
runs on the CPU with a smaller model, as a rehearsal.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import forebay as fb
from cuda_trace import events_of, overlap_of
from device import torch_problem
from forebay.torch import FlightDataset
from served import DATASET, served
from step import Failed, Skipped, emit, run
from train import PLAN, Tensors, Trainer

BATCH_SIZE = 8192
ROUNDS = 3
REHEARSAL_ROWS = 3 * BATCH_SIZE
# A batch is one copy.
COPIES = 1
# Widths of the model: steps of milliseconds, and steps so short that the feed decides.
WIDTHS = (2048, 256)


@dataclass(frozen=True)
class Epoch:
    """A measured epoch."""

    batches: int
    seconds: float
    reading_cpu_seconds: float
    """CPU time of the thread that reads the epoch ahead. While it runs Python, the loop does not."""


def epoch(data: Any, trainer: Trainer, number: int, *, with_steps: bool) -> Epoch:
    """Read an epoch, with or without steps."""
    data.set_epoch(number)
    count, cpu_seconds, began = 0, 0.0, time.perf_counter()
    for batch in data:
        if with_steps:
            trainer.step(batch)
        count += 1
        cpu_seconds = max(cpu_seconds, reading_cpu_seconds())
    trainer.wait()
    return Epoch(count, time.perf_counter() - began, cpu_seconds)


def reading_cpu_seconds() -> float:
    """Return the CPU time of the thread that reads ahead; 0 if it has ended.

    Another one may have begun with the next epoch: it has used less.
    """
    used = [0.0]
    for thread in threading.enumerate():
        if thread.name == "forebay-prefetch" and thread.ident is not None:
            with contextlib.suppress(OSError):
                used.append(time.clock_gettime(time.pthread_getcpuclockid(thread.ident)))
    return max(used)


def steps_alone(trainer: Trainer, batch: Tensors, count: int) -> float:
    """Return the seconds of steps on one batch."""
    began = time.perf_counter()
    for _ in range(count):
        trainer.step(batch)
    trainer.wait()
    return time.perf_counter() - began


def measure(url: str, plan: fb.FittedPlan, device: str | None, width: int, transport: str, traces: Path) -> None:
    """Measure one transport and one model."""
    trainer = Trainer(device or "cpu", width)
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 7, "remainder": "drop"}
    data = FlightDataset(url, DATASET, plan, device=device, **options)
    resident = {name: tensor.clone() for name, tensor in next(iter(data)).items()}
    epoch(data, trainer, 0, with_steps=True)
    ratios: list[float] = []
    for number in range(1, (1 if device is None else ROUNDS) + 1):
        loading = epoch(data, trainer, 2 * number, with_steps=False)
        count = loading.batches
        steps = steps_alone(trainer, resident, count)
        waited = float(data.stats()["wait_seconds"])
        together = epoch(data, trainer, 2 * number + 1, with_steps=True)
        waited = float(data.stats()["wait_seconds"]) - waited
        if together.batches != count:
            raise Failed(f"an epoch had {count} batches and then {together.batches}")
        ratios.append(together.seconds / max(loading.seconds, steps))
        seconds = {
            "loading_seconds": loading.seconds,
            "steps_seconds": steps,
            "together_seconds": together.seconds,
            "step_wait_seconds": waited / count,
            "reading_cpu_seconds_per_batch": loading.reading_cpu_seconds / count,
        }
        emit(transport=transport, width=width, round=number, batches=count, ratio=ratios[-1], **seconds)
    stats = data.stats()
    arrived = stats.get("transport", transport)
    emit(transport=transport, width=width, arrived_by=arrived, ratio=statistics.median(ratios), stats=stats)
    if device is not None and width == WIDTHS[0]:
        profile(data, trainer, transport, traces)


def profile(data: Any, trainer: Trainer, transport: str, traces: Path) -> None:
    """Measure the overlap of an epoch on the GPU's timeline, and keep the trace."""
    path = traces / f"timeline-{transport}.trace.json.gz"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        count = epoch(data, trainer, 2 * ROUNDS + 2, with_steps=True).batches
    profiler.export_chrome_trace(str(path))
    overlap = overlap_of(events_of(path), copies_per_step=COPIES)
    emit(transport=transport, trace=path.name, batches=count, overlap_ratio=overlap.ratio, **asdict(overlap))
    if not overlap.kernels or not overlap.copies:
        raise Failed(f"{path.name} has {overlap.kernels} kernels and {overlap.copies} copies to the GPU")


def main() -> None:
    """Measure both transports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="folder of the traces")
    traces, problem = parser.parse_args().traces, torch_problem()
    if problem:
        # Threads that wait for each other on busy cores take minutes.
        torch.set_num_threads(1)
    rows, device, widths = (REHEARSAL_ROWS, None, (16,)) if problem else (1_000_000, "cuda", WIDTHS)
    with served(rows, PLAN) as (urls, plan):
        for transport, url in urls.items():
            for width in widths:
                measure(url, plan, device, width, transport, traces)
    if problem:
        raise Skipped(f"rehearsed on the CPU only: {problem}")


if __name__ == "__main__":
    run(main)
