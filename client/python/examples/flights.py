"""Train a model that predicts late flights, on features computed during training.

A forebay-server reads the flights out of New York City in 2013 from Parquet, filters them, computes the features and
streams the batches. The same job is then done with features prepared in advance, and a table compares the two.

Run by `make demo`, which installs all requirements.
"""

import argparse
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import flights_old_way as old_way
import torch
from flights_data import HELD_OUT, LATE_MINUTES, TRAINING, convert_once, row_counts
from flights_model import BATCH_ROWS, EPOCHS, SEED, Batch, FlightModel, read_only, score, train
from flights_report import Job, closing_table
from flights_server import running_server, server_binary

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "flights"

PLAN = fb.Plan(
    filter=TRAINING,
    derive={
        "late": f"arr_delay > {LATE_MINUTES}",
        "weekday": "date_part('dow', make_date(year, month, day))",
        # Clock times are written as HHMM.
        "dep_minutes": "dep_time / 100 * 60 + dep_time % 100",
        "sched_dep_minutes": "sched_dep_time / 100 * 60 + sched_dep_time % 100",
        "sched_arr_minutes": "sched_arr_time / 100 * 60 + sched_arr_time % 100",
    },
    outputs={
        "dense": [
            # The departure delay again, with a higher resolution in the range that matters most.
            fb.cols("dep_delay").fill_null("mean").clip(-30, 60).standardize(),
            fb.cols("dep_delay", "distance", "dep_minutes", "sched_dep_minutes", "sched_arr_minutes")
            .fill_null("mean")
            .standardize()
            .clip(-3, 3),
        ],
        "cats": [
            fb.cols("carrier", "origin", "dest").vocab(min_count=old_way.VOCABULARY_MIN_COUNT),
            fb.cols("month", "weekday").vocab(min_count=old_way.VOCABULARY_MIN_COUNT),
        ],
        "label": fb.cols("late"),
    },
)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train on real flights from a Forebay stream.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    parser.add_argument("--bin-dir", type=Path, help="folder of forebay-server, if not that of forebay.local")
    given = parser.parse_args()

    # The server runs next to the training loop: half of the cores for each.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))

    flights = convert_once(given.data / DATASET)
    flight_count, known_count = row_counts(flights)
    print(f"{flight_count:,} flights in {flights}, {known_count:,} of them with a recorded arrival", flush=True)

    binary = server_binary(given.bin_dir)
    with running_server(binary, {DATASET: flights.parent}, given.data / "state") as server:
        print(f"forebay-server on {server.url}, metrics on {server.metrics_url}", flush=True)
        streamed = stream_and_train(server.url)
    prepared = prepare_then_train(flights, given.data / "old_way")

    for job in (streamed, prepared):
        if job.training.rows != EPOCHS * (known_count - job.held_out.rows):
            raise SystemExit(f"{job.name}: {job.training.rows:,} training rows; a flight was omitted or repeated")
    print(closing_table(streamed, prepared))


def stream_and_train(url: str) -> Job:
    """Fit the plan on the training days, then train on the stream."""
    started = time.perf_counter()
    with fb.connect(url) as client:
        fitted = client.fit(DATASET, PLAN)
    fit_seconds = time.perf_counter() - started

    data = FlightDataset(url, DATASET, fitted, batch_size=BATCH_ROWS)

    def epoch_batches(epoch: int) -> Iterable[Batch]:
        data.set_epoch(epoch)
        return data

    model = new_model(dense_width(fitted.plan), category_sizes(fitted.plan))
    training = train(model, epoch_batches, len(data), "from the stream")
    # The plan fitted on the training days, applied to the held-out days.
    held_out_plan = fitted.with_filter(HELD_OUT)
    return Job(
        name="Forebay",
        before="fit",
        before_seconds=fit_seconds,
        training=training,
        reading=read_only(epoch_batches(EPOCHS)),
        held_out=score(model, FlightDataset(url, DATASET, held_out_plan, batch_size=BATCH_ROWS)),
        written_bytes=0,
    )


def prepare_then_train(flights: Path, folder: Path) -> Job:
    """Write all features to files, then train on them."""
    ready = old_way.prepare(flights, folder)
    model = new_model(ready.dense_width, ready.category_sizes)
    steps = -(-ready.training_rows // BATCH_ROWS)
    return Job(
        name="the old way",
        before="prepare",
        before_seconds=ready.seconds,
        training=train(model, lambda _: ready.batches(ready.training), steps, "from prepared files"),
        reading=read_only(ready.batches(ready.training)),
        held_out=score(model, ready.batches(ready.held_out)),
        written_bytes=ready.written_bytes,
    )


def new_model(dense: int, categories: list[int]) -> FlightModel:
    """Return a model with reproducible initial weights."""
    torch.manual_seed(SEED)
    return FlightModel(dense, categories)


def dense_width(plan: fb.Plan) -> int:
    """Count the dense features; none of their ops adds columns."""
    return sum(len(part.names) for part in plan.outputs["dense"].parts)


def category_sizes(fitted: fb.Plan) -> list[int]:
    """Count the indices of each column of `cats`: the learned values, and 0 for unknown ones."""
    sizes: list[int] = []
    for part in fitted.outputs["cats"].parts:
        for op in cast("list[dict[str, Any]]", part.to_dict()["ops"]):
            values = cast("dict[str, list[object]]", op["vocab"]["values"])
            sizes += [1 + sum(map(len, values.values()))] * len(part.names)
    return sizes


if __name__ == "__main__":
    main()
