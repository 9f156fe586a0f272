"""Train a click model on wide rows, where preparing files first is what a training run waits for.

A forebay-server learns vocabularies and scales and streams the batches. The same job is then done the old way: features
are computed with pandas, written to Parquet, and read back. A table compares the two, and every batch is compared.

Run by `make demo` after flights.py.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import clicks_old_way as old_way
import torch
from clicks_data import CATEGORIES, LABEL, NUMBERS, ROWS, generate_once
from clicks_model import BATCH_ROWS, Trained, train
from flights_model import Batch
from flights_report import aligned
from flights_server import running_server, server_binary

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "clicks"

PLAN = fb.Plan(
    outputs={
        "dense": fb.cols(*NUMBERS).fill_null(0).log1p().standardize(),
        "cats": fb.cols(*CATEGORIES).vocab(min_count=old_way.VOCABULARY_MIN_COUNT),
        "label": fb.cols(LABEL),
    },
)


@dataclass(frozen=True)
class Job:
    """One way to train the model, and its measurements."""

    name: str
    before: str
    before_seconds: float
    trained: Trained
    batches: Callable[[], Iterable[Batch]]
    written_bytes: int


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train on generated clicks, from a stream and from prepared files.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    parser.add_argument("--bin-dir", type=Path, help="folder of forebay-server, if not that of forebay.local")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows to generate (%(default)s)")
    given = parser.parse_args()

    # The server runs next to the training loop: half of the cores for each.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))

    files = generate_once(given.data / DATASET, given.rows)
    size = sum(file.stat().st_size for file in files)
    print(f"{given.rows:,} generated clicks in {files[0].parent}, {size / 1e6:,.0f} MB of Parquet", flush=True)

    binary = server_binary(given.bin_dir)
    with running_server(binary, {DATASET: files[0].parent}, given.data / "state") as server:
        streamed = stream_and_train(server.url)
        prepared = prepare_then_train(files, given.data / "clicks_old_way")
        print(closing_table(streamed, prepared))
        print(comparison(streamed, prepared, given.rows))


def stream_and_train(url: str) -> Job:
    """Fit the plan, then train on the stream."""
    started = time.perf_counter()
    with fb.connect(url) as client:
        # Computed again if an earlier run left it under --state: this demo measures it.
        fitted = client.fit(DATASET, PLAN, refit=True)
    fit_seconds = time.perf_counter() - started
    data = FlightDataset(url, DATASET, fitted, batch_size=BATCH_ROWS)
    trained = train(len(NUMBERS), list(fitted.cardinalities["cats"].values()), data)
    return Job("Forebay", "fit", fit_seconds, trained, lambda: data, 0)


def prepare_then_train(files: list[Path], folder: Path) -> Job:
    """Write all features to files, then train on them."""
    ready = old_way.prepare(files, folder)
    trained = train(len(NUMBERS), ready.category_sizes, ready.batches())
    return Job("the old way", "prepare", ready.seconds, trained, ready.batches, ready.written_bytes)


def closing_table(*jobs: Job) -> str:
    """Format the jobs as columns."""
    rows: list[tuple[str, Callable[[Job], str]]] = [
        ("before training, s", lambda job: f"{job.before_seconds:.2f} ({job.before})"),
        ("until the first step, s", lambda job: f"{job.before_seconds + job.trained.first_step_seconds:.2f}"),
        ("training, s", lambda job: f"{job.trained.total.seconds:.2f}"),
        ("total, s", lambda job: f"{job.before_seconds + job.trained.total.seconds:.2f}"),
        ("waiting for data while training, s", lambda job: f"{job.trained.total.wait_seconds:.2f}"),
        ("rows/s, preparing included", rows_per_second),
        ("bytes of features written", lambda job: f"{job.written_bytes:,}"),
        ("mean loss of the epoch", lambda job: f"{job.trained.loss:.6f}"),
    ]
    return aligned([["", *(job.name for job in jobs)], *([title, *map(cell, jobs)] for title, cell in rows)])


def rows_per_second(job: Job) -> str:
    """Rate of the whole job."""
    return f"{job.trained.total.rows / (job.before_seconds + job.trained.total.seconds):,.0f}"


def comparison(streamed: Job, prepared: Job, rows: int) -> str:
    """Compare every value of every batch of both jobs."""
    steps = compared = 0
    differing = {"dense": 0, "cats": 0, "label": 0}
    for ours, theirs in zip(streamed.batches(), prepared.batches(), strict=True):
        steps, compared = steps + 1, compared + len(ours["label"])
        for name in differing:
            # Bits, not values: NaN differs from itself, and -0 equals 0.
            differing[name] += int((ours[name].view(torch.int32) != theirs[name].view(torch.int32)).sum())
        # Means that differ in their last bit may round another way; indices and labels are equal.
        if differing["cats"] or differing["label"] or not torch.allclose(ours["dense"], theirs["dense"], atol=1e-6):
            raise SystemExit(f"batch {steps} differs: {differing}")
    if compared != rows:
        raise SystemExit(f"{compared:,} of {rows:,} rows were compared: a row was omitted or repeated")
    values = {"dense": len(NUMBERS) * rows, "cats": len(CATEGORIES) * rows, "label": rows}
    counts = ", ".join(f"{differing[name]:,} of {values[name]:,} in {name}" for name in differing)
    return f"values of {steps:,} batches that differ in a bit: {counts}"


if __name__ == "__main__":
    main()
