"""Compute features on a GPU and land the batches in its memory; they equal those of the CPU to the bit.

An epoch is read twice: from a server that computes on the CPU, into this process's memory, and from one that runs with
`--device cuda:0`, with ``device="cuda"``. Each half that finds no GPU runs on the CPU, and the program says so.

    .venv/bin/python client/python/examples/gpu_landing.py
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from flights_data import LATE_MINUTES, TRAINING, convert_once
from flights_server import running_server, server_binary

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "flights"
# Ops that the GPU runs; texts, such as carriers, become numbers on the CPU first.
PLAN = fb.Plan(
    filter=TRAINING,
    derive={"late": f"arr_delay > {LATE_MINUTES}"},
    outputs={
        "dense": fb.cols("dep_delay", "distance", "hour").fill_null("mean").standardize().clip(-3, 3),
        "half": fb.output(fb.cols("air_time").fill_null(0.0).log1p(), dtype="float16"),
        "carrier": fb.cols("carrier").vocab(),
        "flight": fb.cols("flight").hash_bucket(1000),
        "late": fb.cols("late"),
    },
)
OPTIONS: dict[str, Any] = {"batch_size": 4096, "shuffle": True, "seed": 7, "with_row_ids": True}
REFUSED = "cannot use --device"
LOADED = "outputs by device"
# What a server logs if a GPU that it has runs less than the plan.
FELL_BACK = ("the GPU runs no output of the plan", "cannot load the plan on the GPU", "computing a batch on the CPU")

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Used:
    """Where a half of the work was done."""

    requested: str
    gpu: str | None
    """Name of the GPU; None: the CPU did it."""
    reason: str = ""
    """Why there was no GPU, or what it did not run."""

    def __str__(self) -> str:
        return f"the CPU: {self.reason}" if self.gpu is None else f"{self.gpu}{self.reason and f' ({self.reason})'}"


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Compute on a GPU, land in its memory, and compare with the CPU.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    parser.add_argument("--bin-dir", type=Path, help="folder of forebay-server, if not that of forebay.local")
    parser.add_argument("--require-gpu", action="store_true", help="fail unless a GPU computes and lands the batches")
    given = parser.parse_args()

    datasets = {DATASET: convert_once(given.data / DATASET).parent}
    with tempfile.TemporaryDirectory(prefix="forebay-gpu-") as scratch:
        program, folder = server_binary(given.bin_dir), Path(scratch)
        with running_server(program, datasets, folder / "cpu") as server:
            with fb.connect(server.url) as client:
                fitted = client.fit(DATASET, PLAN)
            expected = list(FlightDataset(server.url, DATASET, fitted, **OPTIONS))
        landing = landing_place()
        with running_server(program, datasets, folder / "gpu", "--device", "cuda:0") as server:
            device = None if landing.gpu is None else "cuda"
            found = list(FlightDataset(server.url, DATASET, fitted, device=device, **OPTIONS))
            features = computing_place(server.log)

    check_equal(found, expected, on_gpu=landing.gpu is not None)
    rows = sum(len(batch["__row_id"]) for batch in expected)
    print(f"features with --device {features.requested}: on {features}")
    print(f'batches with device="{landing.requested}": on {landing}')
    print(f"{rows:,} rows in {len(expected)} batches, {len(expected[0])} columns: equal to the CPU's to the bit")
    skipped = [what for what, used in (("kernels", features), ("copies", landing)) if used.gpu is None]
    print(f"not run on a GPU: {', '.join(skipped) or 'nothing'}")
    if given.require_gpu and skipped:
        sys.exit("--require-gpu: no GPU ran the above")


def landing_place() -> Used:
    """Return where torch can place batches."""
    if not torch.cuda.is_available():
        return Used("cuda", None, "torch.cuda.is_available() is False")
    return Used("cuda", torch.cuda.get_device_name())


def computing_place(log: Iterable[str]) -> Used:
    """Return where a server computed, by its log."""
    gpu, reason = None, "the server did not log a device"
    for line in list(log):
        fields = logged(line)
        message = str(fields.get("message", ""))
        if message.startswith(REFUSED):
            return Used("cuda:0", None, message.partition("computing on the CPU: ")[2])
        if message.startswith("computing on cuda:"):
            gpu, reason = str(fields.get("gpu", message)), ""
        elif message.startswith(FELL_BACK):
            return Used("cuda:0", None, message)
        elif message.startswith(LOADED) and fields.get("cpu") not in (None, "[]"):
            reason = f"the CPU ran {fields['cpu']}"
    return Used("cuda:0", gpu, reason)


def logged(line: str) -> dict[str, Any]:
    """Return the fields of a line of JSON; none for other lines."""
    try:
        return cast("dict[str, Any]", json.loads(line)["fields"])
    except (ValueError, KeyError, TypeError):
        return {}


def check_equal(found: list[Batch], expected: list[Batch], *, on_gpu: bool) -> None:
    """End the program if a batch is in the wrong memory, or differs in a name, a type, a shape or a bit."""
    if len(found) != len(expected):
        sys.exit(f"{len(found)} batches instead of {len(expected)}")
    for step, (one, other) in enumerate(zip(found, expected, strict=True)):
        if list(one) != list(other):
            sys.exit(f"batch {step}: columns {list(one)} instead of {list(other)}")
        for name, column in one.items():
            if column.is_cuda != on_gpu:
                sys.exit(f"batch {step}: {name} is on {column.device}")
            if column.dtype != other[name].dtype or not torch.equal(bits(column), bits(other[name])):
                sys.exit(f"batch {step}: {name} differs from the CPU's")


def bits(column: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a column, row by row, in this process's memory."""
    return column.cpu().contiguous().view(torch.uint8)


if __name__ == "__main__":
    main()
