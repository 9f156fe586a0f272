"""Trains a small model from `device="cuda"` batches, and measures the overlap of loading with steps.

Per transport: an epoch without steps, the same number of steps on one batch, and both together, in turn; then an epoch
under torch's profiler, for the overlap of copies and kernels on the GPU's own timeline. Without a GPU the same loop
runs on the CPU with a smaller model, as a rehearsal.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from flights_server import running_server

import forebay as fb
from cuda_trace import events_of, overlap_of
from device import torch_problem
from forebay.torch import FlightDataset
from harness.benches import criteo
from served import DATASET, generate, server_program
from step import Failed, Skipped, emit, run

BATCH_SIZE = 8192
ROUNDS = 3
REHEARSAL_ROWS = 3 * BATCH_SIZE
DIMENSIONS = 16
RATE = 0.01
# `dense`, `cats` and `hashed`.
TENSORS = 3
PLAN = fb.Plan(
    outputs={
        "dense": fb.cols(*criteo.DENSE).fill_null(0).log1p().standardize().clip(-3, 3),
        "cats": fb.cols(*criteo.STRINGS).hash_bucket(criteo.HASH_BUCKETS),
        "hashed": fb.cols(*criteo.INTEGERS).hash_bucket(criteo.HASH_BUCKETS),
    }
)

Tensors = dict[str, torch.Tensor]


class Trainer:
    """A model of embeddings and dense layers."""

    def __init__(self, device: str, width: int) -> None:
        torch.manual_seed(7)
        inputs = len(criteo.DENSE) + 2 * DIMENSIONS
        self.device = device
        self.embeddings = torch.nn.EmbeddingBag(criteo.HASH_BUCKETS, DIMENSIONS, device=device)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, width, device=device),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width, device=device),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 1, device=device),
        )
        # Plain gradient descent by hand: torch.optim takes seconds to import.
        self.parameters = [*self.embeddings.parameters(), *self.layers.parameters()]

    def step(self, batch: Tensors) -> None:
        """Run a training step without waiting for the device."""
        vectors = [self.embeddings(batch[name]) for name in ("cats", "hashed")]
        loss = self.layers(torch.cat([batch["dense"], *vectors], dim=1)).square().mean()
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=RATE)

    def wait(self) -> None:
        """Wait until the device is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def epoch(data: Any, trainer: Trainer, number: int, *, with_steps: bool) -> tuple[int, float]:
    """Read an epoch, with or without steps. Return its batches and seconds."""
    data.set_epoch(number)
    count, began = 0, time.perf_counter()
    for batch in data:
        if with_steps:
            trainer.step(batch)
        count += 1
    trainer.wait()
    return count, time.perf_counter() - began


def steps_alone(trainer: Trainer, batch: Tensors, count: int) -> float:
    """Return the seconds of steps on one batch."""
    began = time.perf_counter()
    for _ in range(count):
        trainer.step(batch)
    trainer.wait()
    return time.perf_counter() - began


def measure(url: str, plan: fb.FittedPlan, trainer: Trainer, transport: str, traces: Path) -> None:
    """Measure one transport."""
    device = "cuda" if trainer.device == "cuda" else None
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 7, "remainder": "drop"}
    data = FlightDataset(url, DATASET, plan, device=device, **options)
    resident = {name: tensor.clone() for name, tensor in next(iter(data)).items()}
    epoch(data, trainer, 0, with_steps=True)
    ratios: list[float] = []
    for number in range(1, (1 if device is None else ROUNDS) + 1):
        count, loading = epoch(data, trainer, 2 * number, with_steps=False)
        steps = steps_alone(trainer, resident, count)
        again, together = epoch(data, trainer, 2 * number + 1, with_steps=True)
        if again != count:
            raise Failed(f"an epoch had {count} batches and then {again}")
        ratios.append(together / max(loading, steps))
        seconds = {"loading_seconds": loading, "steps_seconds": steps, "together_seconds": together}
        emit(transport=transport, round=number, batches=count, ratio=ratios[-1], **seconds)
    arrived = data.stats().get("transport", transport)
    emit(transport=transport, arrived_by=arrived, ratio=statistics.median(ratios), stats=data.stats())
    if device is not None:
        profile(data, trainer, transport, traces)


def profile(data: Any, trainer: Trainer, transport: str, traces: Path) -> None:
    """Measure the overlap of an epoch on the GPU's timeline, and keep the trace."""
    path = traces / f"timeline-{transport}.trace.json.gz"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        count, _ = epoch(data, trainer, 2 * ROUNDS + 2, with_steps=True)
    profiler.export_chrome_trace(str(path))
    overlap = overlap_of(events_of(path), copies_per_step=TENSORS)
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
    rows, trainer = (REHEARSAL_ROWS, Trainer("cpu", 16)) if problem else (1_000_000, Trainer("cuda", 2048))
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        data = {DATASET: generate(Path(scratch), rows)}
        with running_server(server_program(), data, Path(scratch) / "state") as server:
            with fb.connect(server.url) as client:
                plan = client.fit(DATASET, PLAN)
            measure(server.url, plan, trainer, "tcp", traces)
        measure(fb.local(data), plan, trainer, "unix", traces)
    if problem:
        raise Skipped(f"rehearsed on the CPU only: {problem}")


if __name__ == "__main__":
    run(main)
