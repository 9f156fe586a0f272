"""Compare the fused GPU kernel with a device copy of the same bytes and with torch in eager mode, in one run.

    cargo build --release -p forebay-benches --bin gpu-kernel
    .venv/bin/python benches/gpu/fused.py [--rows 4000000] [--columns 100] [--repetitions 50]

The rows are already on the GPU. The chain (fill, log1p, standardize, clip of float32 columns with nulls) and the
assembly into one row-major matrix are timed. Requires an NVIDIA GPU, and FOREBAY_NVRTC if NVRTC is not among the
system's libraries. Raw numbers are kept under benches/runs/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from harness.benches.machine import ROOT, facts, keep, run_folder

PROGRAM = ROOT / "target" / "release" / "gpu-kernel"
# Goals: 0.85 of the copy's rate, and 4 times eager.
COPY_MIN = 0.85
EAGER_MIN = 4.0


def forebay(rows: int, columns: int, repetitions: int) -> dict[str, Any]:
    """Time the fused kernel and the copy."""
    command = [str(PROGRAM), str(rows), str(columns), str(repetitions)]
    env = dict(os.environ)
    if "FOREBAY_NVRTC" not in env:
        found = sorted(Path(torch.__file__).parents[1].glob("nvidia/cu*/lib/libnvrtc.so.1[0-9]"))
        if found:
            env["FOREBAY_NVRTC"] = str(found[-1])
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"gpu-kernel: {done.stderr.strip()}")
    return json.loads(done.stdout)


def eager(rows: int, columns: int, repetitions: int) -> list[float]:
    """Time the same chain in torch, column by column, including the stack."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    shape = (columns, rows)
    values = torch.exp(torch.rand(shape, generator=generator, device="cuda") * 6 - 3)
    is_null = torch.rand(shape, generator=generator, device="cuda") < 0.1

    def chain(column: torch.Tensor, null: torch.Tensor) -> torch.Tensor:
        filled = torch.where(null, torch.zeros((), device="cuda"), column)
        return ((torch.log1p(filled) - 0.7) / 0.9).clamp(-3, 3)

    def once() -> float:
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        torch.stack([chain(values[column], is_null[column]) for column in range(columns)], dim=1)
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / 1e3

    for _ in range(3):
        once()
    return [once() for _ in range(repetitions)]


def main() -> None:
    """Run both and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=50)
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} does not exist: cargo build --release -p forebay-benches --bin gpu-kernel")
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU; nothing was measured")
    ours = forebay(options.rows, options.columns, options.repetitions)
    theirs = eager(options.rows, options.columns, options.repetitions)
    kernel = statistics.median(ours["kernel_seconds"])
    copy = statistics.median(ours["copy_seconds"])
    of_copy, of_eager = copy / kernel, statistics.median(theirs) / kernel
    moved = ours["read_bytes"] + ours["written_bytes"]
    print(f"{ours['gpu']}: {options.rows:,} rows x {options.columns} columns, {moved / 1e9:.2f} GB read and written")
    print(f"kernel {kernel * 1e3:.3f} ms ({moved / kernel / 1e9:.0f} GB/s), copy {copy * 1e3:.3f} ms")
    print(f"{of_copy:.2f} of the copy's rate (goal: {COPY_MIN})")
    print(f"{of_eager:.1f} x torch eager (goal: {EAGER_MIN})")
    arguments = ("server", "server_program", "server_built")
    machine = {name: fact for name, fact in _machine().items() if name not in arguments}
    raw = {"machine": machine, "torch": torch.__version__, "forebay": ours, "eager_seconds": theirs}
    keep(run_folder() / "gpu_fused.json", raw)


def _machine() -> dict[str, Any]:
    # facts() runs the program with --version, which gpu-kernel lacks, so Python is named instead.
    return facts(Path(sys.executable))


if __name__ == "__main__":
    main()
