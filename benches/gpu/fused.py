"""Compares the fused GPU kernel with a device copy of the same bytes and with torch in eager mode, in one run.

    benches/gpu/check.sh --only fused

The rows are already on the GPU. The chain (fill, log1p, standardize, clip of float32 columns with nulls) and the
assembly into one row-major matrix are timed. Without torch, only the kernel and the copy are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from device import driver_problem, torch_problem
from step import Failed, Skipped, emit, run

# Memory that torch needs for each element: values, nulls, columns of the result, and the stacked result.
EAGER_BYTES = 24


def forebay(program: Path, rows: int, columns: int, repetitions: int) -> dict[str, Any]:
    """Time the fused kernel and the copy."""
    command = [str(program), str(rows), str(columns), str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"gpu-kernel: {done.stderr.strip()}")
    return json.loads(done.stdout)


def eager(rows: int, columns: int, repetitions: int) -> tuple[list[float], list[float]]:
    """Time the same chain in torch, column by column, including the stack; and torch's own copy of the result."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(7)
    shape = (columns, rows)
    values = torch.exp(torch.rand(shape, generator=generator, device="cuda") * 6 - 3)
    is_null = torch.rand(shape, generator=generator, device="cuda") < 0.1

    def chain(column: torch.Tensor, null: torch.Tensor) -> torch.Tensor:
        filled = torch.where(null, torch.zeros((), device="cuda"), column)
        return ((torch.log1p(filled) - 0.7) / 0.9).clamp(-3, 3)

    def timed(work: Any) -> float:
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        work()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / 1e3

    def features() -> None:
        torch.stack([chain(values[column], is_null[column]) for column in range(columns)], dim=1)

    for _ in range(3):
        timed(features)
    seconds = [timed(features) for _ in range(repetitions)]
    target = torch.empty_like(values)
    return seconds, [timed(lambda: target.copy_(values)) for _ in range(repetitions + 3)][3:]


def rows_that_fit(rows: int, columns: int) -> int:
    """Return as many rows as the GPU has free memory for."""
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return min(rows, int(0.8 * free_bytes) // (columns * EAGER_BYTES))


def main() -> None:
    """Time both, and report the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("target/release/gpu-kernel"))
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=50)
    given = parser.parse_args()
    if not given.program.is_file():
        raise Failed(f"{given.program} does not exist; run make gpu-kit")
    if problem := driver_problem():
        raise Skipped(problem)
    without_torch = torch_problem()
    rows = given.rows if without_torch else rows_that_fit(given.rows, given.columns)
    ours = forebay(given.program, rows, given.columns, given.repetitions)
    kernel, copy = statistics.median(ours["kernel_seconds"]), statistics.median(ours["copy_seconds"])
    moved = ours["read_bytes"] + ours["written_bytes"]
    rates = {"kernel_gb_per_second": moved / kernel / 1e9, "copy_gb_per_second": moved / copy / 1e9}
    emit(forebay=ours, **rates, of_copy=copy / kernel)
    if without_torch:
        raise Skipped(f"measured without torch: {without_torch}")
    seconds, copies = eager(rows, given.columns, given.repetitions)
    copied = 2 * 4 * rows * given.columns
    emit(
        eager_seconds=seconds,
        torch_copy_seconds=copies,
        torch_copy_gb_per_second=copied / statistics.median(copies) / 1e9,
        of_eager=statistics.median(seconds) / kernel,
    )


if __name__ == "__main__":
    run(main)
