"""Rows per second on the GPU: Forebay's `device="cuda"`, and a torch DataLoader of pinned batches on the same files.

The DataLoader's 8 workers read row groups with pyarrow and featurize them with NumPy; strings become codes of their
chunk's dictionary, not vocabulary indices. No step runs. Without a GPU, few rows stay on the CPU, as a rehearsal.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from features import Scale
from flights_server import running_server
from protocol import Data
from torch_loader import RowGroups

import forebay as fb
from device import torch_problem
from forebay.torch import FlightDataset
from harness.benches import criteo
from served import DATASET, server_program, statistics_of
from step import Failed, Skipped, emit, run

BATCH_SIZE = 8192
WORKERS = 8
ROUNDS = 3


def pinned(groups: RowGroups, device: str, workers: int) -> Iterator[torch.Tensor]:
    """Yield the dense matrices of a DataLoader's batches on the device."""
    loader = torch.utils.data.DataLoader(groups, batch_size=None, num_workers=workers, pin_memory=device == "cuda")
    for dense, cats in loader:
        for one, other in zip(dense.split(BATCH_SIZE), cats.split(BATCH_SIZE), strict=True):
            moved = one.to(device, non_blocking=True)
            other.to(device, non_blocking=True)
            yield moved


def measured(loader: str, rows: int, batches: Iterable[torch.Tensor], number: int, *, on_gpu: bool) -> None:
    """Read all batches, and report the rate."""
    began, first, count = time.perf_counter(), 0.0, 0
    for dense in batches:
        first = first or time.perf_counter() - began
        count += len(dense)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    if count != rows:
        raise Failed(f"{loader} yielded {count} rows, not {rows}")
    emit(loader=loader, round=number, rows=rows, seconds=seconds, first_seconds=first, rows_per_second=rows / seconds)


def main() -> None:
    """Measure all loaders, in turn."""
    problem = torch_problem()
    files, rows, device = (2, 10_000, "cpu") if problem else (8, 500_000, "cuda")
    workers = 1 if problem else min(WORKERS, len(os.sched_getaffinity(0)))
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "device": device}
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        folder = Path(scratch)
        source = folder / DATASET
        shape = criteo.Shape(files=files, rows_per_file=rows, row_group_rows=131_072)
        criteo.generate(source, shape, workers=files)
        with running_server(server_program(), {DATASET: source}, folder / "state") as server:
            with fb.connect(server.url) as client:
                plan = client.fit(DATASET, fb.Plan.from_dict(criteo.plan()), progress=False)
            groups = RowGroups(Data(str(source), shape.rows), Scale(str(statistics_of(plan, folder))))
            for number in range(1 if problem else ROUNDS):
                for transport, url in (("tcp", server.url), ("unix", fb.local({DATASET: source}))):
                    for name, shuffle in (("file order", False), ("shuffled", True)):
                        data = FlightDataset(url, DATASET, plan, shuffle=shuffle, seed=7, epoch=number, **options)
                        batches = (batch["dense"] for batch in data)
                        loader = f"forebay, {transport}, {name}"
                        measured(loader, shape.rows, batches, number, on_gpu=not problem)
                loader = f"DataLoader, {workers} workers, pinned"
                measured(loader, shape.rows, pinned(groups, device, workers), number, on_gpu=not problem)
    if problem:
        raise Skipped(f"rehearsed on the CPU only: {problem}")


if __name__ == "__main__":
    run(main)
