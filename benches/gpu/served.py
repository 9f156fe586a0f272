"""Criteo-shaped data and servers for the steps that stream."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flights_server import running_server

import forebay as fb
from harness.benches import criteo
from step import Failed

DATASET = "criteo"
# Outputs of every kind that the GPU computes, besides the two matrices of the criteo plan.
MORE = {
    "half": fb.output(fb.cols("i1", "i2").fill_null(0.5).log1p(), dtype="float16"),
    "brain": fb.output(fb.cols("i3").fill_null(0).clip(0, 10), dtype="bfloat16"),
    "hot": fb.output(fb.cols("i4").fill_null(0).bucketize([0.5, 1, 2]).one_hot(), dtype="uint8"),
    "id": fb.output(fb.cols("c2"), dtype="int64"),
    "label": fb.cols("label"),
}
PLAN = fb.Plan(
    outputs={
        "dense": fb.cols(*criteo.DENSE).fill_null(0).log1p().standardize().clip(-3, 3),
        "cats": fb.cols(*criteo.STRINGS).vocab(),
        "hashed": fb.cols(*criteo.INTEGERS).hash_bucket(criteo.HASH_BUCKETS),
        **MORE,
    }
)
# What a server logs once a plan is compiled for the GPU, and if it does not compute on it.
LOADED = "outputs by device"
ON_CPU = "computing on the CPU"
# Compiling takes seconds.
LOADING_SECONDS = 60


def generate(folder: Path, rows: int) -> Path:
    """Write the data; return its folder."""
    criteo.generate(folder / DATASET, criteo.Shape(files=2, rows_per_file=rows // 2, row_group_rows=65_536))
    return folder / DATASET


@contextmanager
def served(rows: int, plan: fb.Plan) -> Generator[tuple[dict[str, str], fb.FittedPlan], None, None]:
    """Serve generated rows; yield the URLs by transport, and the fitted plan."""
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        data = {DATASET: generate(Path(scratch), rows)}
        with running_server(server_program(), data, Path(scratch) / "state") as server:
            with fb.connect(server.url) as client:
                fitted = client.fit(DATASET, plan)
            yield {"tcp": server.url, "unix": fb.local(data)}, fitted


def statistics_of(plan: fb.FittedPlan, folder: Path) -> Path:
    """Write a plan's means and deviations to where contenders of the peers read them; return the folder."""
    outputs: list[dict[str, Any]] = plan.plan.to_dict()["outputs"]  # pyright: ignore[reportAssignmentType]
    dense = next(each for each in outputs if each["name"] == "dense")
    fitted = [op["standardize"] for part in dense["parts"] for op in part["ops"] if "standardize" in op]
    statistics = {name: [each[name] for each in fitted] for name in ("mean", "std")}
    (folder / "statistics.json").write_text(json.dumps(statistics))
    return folder


def server_program() -> Path:
    """Return the server under test."""
    return Path(os.environ["FOREBAY_SERVER_BIN"])


def device_problem(log: Iterable[str]) -> str:
    """Return the log line that says that a server computed on the CPU; empty if it computed on the GPU."""
    return next((line.strip() for line in list(log) if ON_CPU in line), "")


def wait_until_loaded(log: Iterable[str]) -> None:
    """Wait until a plan is compiled for the GPU, or is not going to be; before that the CPU computes it."""
    deadline = time.monotonic() + LOADING_SECONDS
    while not any(text in line for line in list(log) for text in (LOADED, ON_CPU)):
        if time.monotonic() > deadline:
            raise Failed(f"no plan was compiled for the GPU within {LOADING_SECONDS} s")
        time.sleep(0.05)
