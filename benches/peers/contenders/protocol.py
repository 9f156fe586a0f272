"""The protocol of all contenders: a job on the command line, then lines of JSON on stdin and stdout.

A contender prepares, prints a line, waits for one, runs one epoch, prints the result, waits for a line and exits. Its
standard output is reserved for these lines; output of libraries is redirected to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from harness.benches import criteo

Batch = tuple[torch.Tensor, torch.Tensor]
"""float32 [n, 13] and int32 [n, 26], each contiguous."""

SHAPES = ((torch.float32, len(criteo.DENSE)), (torch.int32, len(criteo.CATEGORIES)))
# Batches that a check keeps for comparison, if rows arrive in file order.
KEPT_BATCHES = 4


@dataclass(frozen=True)
class Data:
    """A folder of Parquet files."""

    folder: str
    rows: int

    @property
    def files(self) -> list[str]:
        """The files in order."""
        return [str(path) for path in sorted(Path(self.folder).glob("*.parquet"))]


@dataclass(frozen=True)
class Job:
    """Parameters of a visit."""

    whole: Data
    """All rows, which are measured."""
    small: Data
    """Few rows of the same kind, for the warm-up and for checks of contenders whose epoch is stopped."""
    fitted: str
    """Folder of the statistics and vocabularies; see reference.py."""
    scratch: str
    """The contender's folder, kept between visits."""
    server: str
    """The forebay-server to measure."""
    mode: str
    """`time`, `check` over all rows, or `check-small`."""
    batch_size: int
    cores: int
    seed: int
    seconds_max: float
    """Seconds after the first batch at which the epoch is stopped; 0: never."""


class Contender(Protocol):
    """A source of batches."""

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Return the batches of an epoch; the clock starts with this call."""
        ...

    def close(self) -> None:
        """Stop other processes."""
        ...


def serve(make: Callable[[Job], Contender], *packages: str) -> None:
    """Run the job of the command line; `packages` are the ones whose versions are reported."""
    # Output of children and libraries must not mix with the protocol's lines.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    fields: dict[str, Any] = json.loads(sys.argv[1])
    fields.update(whole=Data(**fields["whole"]), small=Data(**fields["small"]))
    job = Job(**fields)
    contender = make(job)
    try:
        if job.mode == "time":
            for _ in contender.epoch(job.small, 0):
                pass
        _write(lines, {"ready": {package: _version(package) for package in ("torch", *packages)}})
        sys.stdin.readline()
        if job.mode == "time":
            _write(lines, {"result": _timed(contender, job, lines)})
        else:
            data = job.whole if job.mode == "check" else job.small
            _write(lines, {"result": _summed(contender, data, Path(job.scratch))})
        sys.stdin.readline()
    finally:
        contender.close()


def split(dense: np.ndarray[Any, Any], cats: np.ndarray[Any, Any], size: int) -> Iterator[Batch]:
    """Yield batches that are views of larger matrices; the last one may be shorter."""
    return zip(torch.from_numpy(dense).split(size), torch.from_numpy(cats).split(size), strict=True)


def _timed(contender: Contender, job: Job, lines: Any) -> dict[str, Any]:
    """Read an epoch; if its time is limited, report the first batch, so that CPU seconds after it can be measured."""
    rows = batches = first_rows = 0
    first_seconds, stopped = 0.0, False
    begin = time.perf_counter()
    epoch = contender.epoch(job.whole, 1)
    for dense, _ in epoch:
        rows, batches = rows + len(dense), batches + 1
        if batches == 1:
            first_rows, first_seconds = rows, time.perf_counter() - begin
            if job.seconds_max:
                _write(lines, {"first": first_rows})
        if job.seconds_max and time.perf_counter() - begin - first_seconds > job.seconds_max:
            stopped = True
            break
    seconds = time.perf_counter() - begin
    del epoch
    return {
        "rows": rows,
        "batches": batches,
        "seconds": seconds,
        "first_rows": first_rows,
        "first_seconds": first_seconds,
        "stopped": stopped,
    }


def _summed(contender: Contender, data: Data, scratch: Path) -> dict[str, Any]:
    """Read a whole epoch, sum its columns in float64 and int64, and write the first batches to first.npz."""
    rows = 0
    sums = np.zeros((2, len(criteo.DENSE)))
    cats_sum = np.zeros(len(criteo.CATEGORIES), np.int64)
    cats_least, cats_most = np.full_like(cats_sum, 2**31), np.full_like(cats_sum, -1)
    kept: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for batch in contender.epoch(data, 1):
        for tensor, (dtype, width) in zip(batch, SHAPES, strict=True):
            if tensor.dtype != dtype or tensor.shape[1:] != (width,) or not tensor.is_contiguous():
                raise SystemExit(
                    f"a tensor is {tensor.dtype} {list(tensor.shape)}, not {dtype} [n, {width}], contiguous"
                )
        dense, cats = (tensor.numpy() for tensor in batch)
        if len(dense) != len(cats):
            raise SystemExit(f"{len(dense)} dense rows but {len(cats)} rows of categories")
        exact = dense.astype(np.float64)
        sums += (exact.sum(0), np.square(exact).sum(0))
        cats_sum += cats.sum(0, dtype=np.int64)
        cats_least, cats_most = np.minimum(cats_least, cats.min(0)), np.maximum(cats_most, cats.max(0))
        rows += len(dense)
        if len(kept) < KEPT_BATCHES:
            kept.append((dense.copy(), cats.copy()))
    first_dense, first_cats = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    np.savez(scratch / "first.npz", dense=first_dense, cats=first_cats)
    return {
        "rows": rows,
        "dense_sum": sums[0].tolist(),
        "dense_square_sum": sums[1].tolist(),
        "cats_sum": cats_sum.tolist(),
        "cats_least": cats_least.tolist(),
        "cats_most": cats_most.tolist(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed: imported from its source"


def _write(lines: Any, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=lines, flush=True)
