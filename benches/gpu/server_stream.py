"""Compares streams of a server that runs with `--device cuda:0`, and batches landed on the GPU, with the CPU's.

Each batch is compared byte by byte. Without a GPU, both servers compute on the CPU, which rehearses the comparison.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flights_server import Server, running_server

import forebay as fb
from device import driver_problem, torch_problem
from harness.benches.processes import process_cpu_seconds
from served import DATASET, PLAN, device_problem, generate, server_program, wait_until_loaded
from step import Failed, Skipped, emit, run

BATCH_SIZE = 4096
ORDERS = (False, True)


def batches(
    server: Server, plan: fb.FittedPlan, *, shuffle: bool, batch_size: int = BATCH_SIZE
) -> Iterator[dict[str, Any]]:
    """Yield the batches of an epoch."""
    with (
        fb.connect(server.url) as client,
        client.stream(DATASET, plan, batch_size=batch_size, shuffle=shuffle, seed=3) as stream,
    ):
        for batch in stream:
            yield dict(batch)


def compare(
    server: Server, oracle: Server, plan: fb.FittedPlan, *, shuffle: bool, batch_size: int = BATCH_SIZE
) -> None:
    """Compare an epoch of two servers."""
    count = size = 0
    before = [process_cpu_seconds(each.pid) for each in (server, oracle)]
    both = (batches(each, plan, shuffle=shuffle, batch_size=batch_size) for each in (server, oracle))
    for one, other in zip(*both, strict=True):
        if list(one) != list(other):
            raise Failed(f"batch {count}: columns {list(one)} instead of {list(other)}")
        for name, values in other.items():
            if one[name].dtype != values.dtype or one[name].tobytes() != values.tobytes():
                raise Failed(f"batch {count}, shuffle={shuffle}: {name} differs from the CPU's")
            size += values.nbytes
        count += 1
    used = [process_cpu_seconds(each.pid) - began for each, began in zip((server, oracle), before, strict=True)]
    emit(compared="--device cuda:0", shuffle=shuffle, batches=count, bytes=size, cpu_seconds=used[0], on_cpu=used[1])


def land(url: str, plan: fb.FittedPlan, device: str, transport: str) -> None:
    """Compare the tensors on a device with those in the received memory."""
    import torch

    from forebay.torch import FlightDataset

    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 3, "with_row_ids": True}
    expected = FlightDataset(url, DATASET, plan, **options)
    landed = FlightDataset(url, DATASET, plan, device=device, **options)
    count = 0
    for one, other in zip(landed, expected, strict=True):
        for name, tensor in other.items():
            arrived = one[name]
            is_there = arrived.device.type == device and (arrived.dtype, arrived.shape) == (tensor.dtype, tensor.shape)
            if not is_there or not torch.equal(bits(arrived), bits(tensor)):
                raise Failed(f"batch {count}, {transport}: {name} with device={device!r} differs from the CPU's")
        count += 1
    emit(compared=f"device={device!r}", transport=landed.stats().get("transport", transport), batches=count)


def bits(tensor: Any) -> Any:
    """Return a tensor's bytes in this process's memory."""
    import torch

    return tensor.cpu().contiguous().view(torch.uint8)


def main() -> None:
    """Start both servers, and compare."""
    no_device, no_torch = driver_problem(), torch_problem()
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        folder = Path(scratch)
        data = {DATASET: generate(folder, 20_000 if no_device else 1_000_000)}
        with (
            running_server(server_program(), data, folder / "gpu", "--device", "cuda:0") as gpu,
            running_server(server_program(), data, folder / "cpu") as cpu,
        ):
            with fb.connect(cpu.url) as client:
                plan = client.fit(DATASET, PLAN)
            # Computed on the CPU, until the GPU has the plan.
            count = sum(1 for _ in batches(gpu, plan, shuffle=False))
            if not no_device:
                wait_until_loaded(gpu.log)
            emit(batches_of_the_first_stream=count)
            for shuffle in ORDERS:
                compare(gpu, cpu, plan, shuffle=shuffle)
            on_cpu = device_problem(gpu.log)
            cached = ("--device", "cuda:0", "--cache-bytes", "1GiB")
            with running_server(server_program(), data, folder / "cached", *cached) as caching:
                next(batches(caching, plan, shuffle=False))
                if not no_device:
                    wait_until_loaded(caching.log)
                # Fills the cache, copies from it, and copies in another order.
                for shuffle in (False, *ORDERS):
                    compare(caching, cpu, plan, shuffle=shuffle)
            landing = "cpu" if no_torch else "cuda"
            land(cpu.url, plan, landing, "tcp")
            land(fb.local(data), plan, landing, "unix")
        emit(server_log=[line.strip() for line in gpu.log if "device" in line or "GPU" in line])
    if no_device:
        raise Skipped(f"compared on the CPU only: {no_device}")
    if on_cpu:
        raise Failed(f"the driver reports a device, but the server computed on the CPU: {on_cpu}")
    if no_torch:
        raise Skipped(f'compared --device cuda:0 only, not device="cuda": {no_torch}')


if __name__ == "__main__":
    run(main)
