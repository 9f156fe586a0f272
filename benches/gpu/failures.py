"""What happens if a GPU is missing, full or lost: a server computes on the CPU, a training process gets an error.

Every case ends within its limit. Without a GPU, only that of the missing one runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flights_server import Server, running_server

import forebay as fb
from device import torch_problem
from served import DATASET, PLAN, device_problem, generate, server_program, wait_until_loaded
from server_stream import batches, compare
from step import Failed, Skipped, emit, run

ROWS = 100_000
# Less than a batch needs.
LEFT_BYTES = 1 << 20
SECONDS = 60

FORKED = """
import sys, torch
from torch.utils.data import DataLoader
from forebay.torch import FlightDataset
torch.zeros(1, device="cuda")
data = FlightDataset(sys.argv[1], sys.argv[2], sys.argv[3], batch_size=4096, device="cuda")
for batch in DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="fork"):
    pass
"""

LOST = """
import sys, torch
from forebay.torch import FlightDataset
data = FlightDataset(sys.argv[1], sys.argv[2], sys.argv[3], batch_size=4096, device="cuda")
batches = iter(data)
next(batches)
# An index out of range: CUDA then refuses everything in this process.
torch.zeros(4, device="cuda")[torch.full((4,), 1 << 40, device="cuda")]
for batch in batches:
    pass
"""


def missing(cpu: Server, plan: fb.FittedPlan, data: dict[str, Path], folder: Path) -> None:
    """Start a server with `--device` where no GPU is visible."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        with running_server(server_program(), data, folder / "missing", "--device", "cuda:0") as server:
            compare(server, cpu, plan, shuffle=True)
            emit(case="server without a visible GPU", log=fallback_message(server))
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]


def fallback_message(server: Server) -> str:
    """Return the log line of a server that computes on the CPU."""
    problem = device_problem(server.log)
    if not problem:
        raise Failed("the server does not say that it computes on the CPU")
    return problem


def full(cpu: Server, plan: fb.FittedPlan, data: dict[str, Path], folder: Path) -> None:
    """Fill the GPU's memory before a server starts, and while it computes."""
    import torch

    with running_server(server_program(), data, folder / "full", "--device", "cuda:0") as server:
        for _ in batches(server, plan, shuffle=False):
            pass
        wait_until_loaded(server.log)
        if problem := device_problem(server.log):
            raise Failed(f"before the GPU was full: {problem}")
        filled = fill()
        for shuffle in (False, True):
            compare(server, cpu, plan, shuffle=shuffle)
        # The memory that it has serves batches of the same size; larger ones need more.
        compare(server, cpu, plan, shuffle=True, batch_size=65_536)
        emit(case="GPU full during streams", log=fallback_message(server))
        with running_server(server_program(), data, folder / "filled", "--device", "cuda:0") as late:
            compare(late, cpu, plan, shuffle=True)
            emit(case="GPU full at a server's start", log=fallback_message(late))
        from forebay.torch import FlightDataset

        landed = FlightDataset(cpu.url, DATASET, plan, batch_size=65_536, device="cuda")
        try:
            kept = [batch for _ in range(100) for batch in landed]
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            emit(case="GPU full during a training loop", error=str(error).splitlines()[0][:200])
        else:
            raise Failed(f"{len(kept)} batches were copied to a GPU that is full")
        filled.clear()
        torch.cuda.empty_cache()
        count = sum(1 for _ in FlightDataset(cpu.url, DATASET, plan, batch_size=65_536, device="cuda"))
        emit(case="GPU with free memory again", batches=count)
        compare(server, cpu, plan, shuffle=True, batch_size=65_536)
        if any("the GPU is lost" in line for line in server.log):
            raise Failed("a server gave up a GPU that was full for a while")


def fill() -> list[Any]:
    """Take the GPU's memory, in pieces."""
    import torch

    taken: list[Any] = []
    size = torch.cuda.mem_get_info()[0]
    while size > LEFT_BYTES:
        try:
            taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    emit(bytes_left=torch.cuda.mem_get_info()[0])
    return taken


def fails(case: str, program: str, cpu: Server, plan: str, *texts: str) -> None:
    """Run a program that must end with one of these errors."""
    began = time.monotonic()
    command = [sys.executable, "-c", program, cpu.url, DATASET, plan]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{case}: the process hung for {SECONDS} s") from None
    lines = [line for line in done.stderr.splitlines() if any(text in line for text in texts)]
    if done.returncode == 0 or not lines:
        raise Failed(f"{case}: exit code {done.returncode}, {done.stderr[-500:]}")
    emit(case=case, error=lines[0].strip()[:300], exit_code=done.returncode, seconds=time.monotonic() - began)


def main() -> None:
    """Run every case."""
    problem = torch_problem()
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        folder = Path(scratch)
        data = {DATASET: generate(folder, 20_000 if problem else ROWS)}
        with running_server(server_program(), data, folder / "cpu") as cpu:
            with fb.connect(cpu.url) as client:
                plan = client.fit(DATASET, PLAN)
            missing(cpu, plan, data, folder)
            if problem:
                raise Skipped(f"only the case without a GPU: {problem}")
            fails("CUDA in a forked worker", FORKED, cpu, plan.plan_id, "forked subprocess")
            fails("GPU lost during a training loop", LOST, cpu, plan.plan_id, "device-side assert")
            full(cpu, plan, data, folder)


if __name__ == "__main__":
    run(main)
