"""Train while the batches are prepared, with a step as long as the preparation of its batch.

An epoch is run one after the other (prepare every batch, then train) and as one computation (train on the stream).
The goal is 1.1 times the longer of the two alone. Rows and losses of both must be equal. A step is a wait, which leaves
the cores to the server as a step on an accelerator does, or torch on one core.

    .venv/bin/python client/python/examples/overlap.py --picture overlap.svg
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from flights_server import running_server, server_binary
from measuring import Sampler
from overlap_steps import NUMBERS, SEED, TEXTS, WORDS, Batch, Network, Step, wait
from torch import Tensor

import forebay as fb
from forebay.torch import FlightDataset

GOAL = 1.1
PICTURED = "shuffled, waits"
DATASET = "events"
BATCH_ROWS = 8_192
ROW_GROUP_ROWS = 125_000

PLAN = fb.Plan(
    outputs={
        "dense": fb.cols(*(f"number_{n}" for n in range(NUMBERS))).fill_null("mean").standardize().clip(-3, 3),
        "cats": fb.cols(*(f"text_{n}" for n in range(TEXTS))).vocab(min_count=2),
        "label": fb.cols("label"),
    }
)

Interval = tuple[float, float]
Steps = Callable[[float], Step]
"""Makes a new model whose steps take this many seconds."""


@dataclass(frozen=True)
class Job:
    """What is read, and how long and with what it is trained."""

    name: str
    data: FlightDataset
    steps: Steps


@dataclass
class Epoch:
    """An epoch as it was run; times are seconds since its start."""

    steps: list[Interval] = field(default_factory=list[Interval])
    busy: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Time, and the cores that the server used since the time before."""
    preparation_seconds: float = 0.0
    """Preparation of all batches, if it precedes the first step; otherwise 0."""
    seconds: float = 0.0
    rows: list[Tensor] = field(default_factory=list[Tensor], repr=False)
    """The row ids of each batch."""
    losses: list[float] = field(default_factory=list[float])


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Overlap preparation with training steps of the same length.")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the ratios are medians (default: %(default)s)")
    parser.add_argument("--bin-dir", type=Path, help="folder of forebay-server, if not that of forebay.local")
    parser.add_argument("--json", type=Path, help="file for the raw results")
    parser.add_argument("--picture", type=Path, help="file for the timeline, .svg or .png; needs matplotlib")
    given = parser.parse_args()

    torch.set_num_threads(1)
    # The training step has the other cores.
    threads = max(1, (os.cpu_count() or 2) // 2)
    with tempfile.TemporaryDirectory(prefix="forebay-overlap-") as scratch:
        folder = Path(scratch)
        write_events(folder / DATASET, given.rows)
        program, datasets = server_binary(given.bin_dir), {DATASET: folder / DATASET}
        with running_server(program, datasets, folder / "state", "--cpu-threads", str(threads)) as server:
            with fb.connect(server.url) as client:
                fitted = client.fit(DATASET, PLAN)
            found = jobs(server.url, fitted)
            sampler = Sampler(server.pid)
            rounds = [{job.name: both_ways(job, sampler, number) for job in found} for number in range(given.rounds)]
            length = len(found[0].data)
    print(f"{given.rows:,} rows in {length:,} batches of {BATCH_ROWS:,}; threads of the server: {threads}\n")
    print(report(rounds))
    if given.json:
        raw = {"machine": platform.platform(), "rounds": [as_json(one, with_times=one is rounds[-1]) for one in rounds]}
        given.json.write_text(json.dumps(raw) + "\n")
    if given.picture:
        from pictures import timelines

        last = rounds[-1][PICTURED]
        named = {"one after the other": last.apart, "one computation": last.together}
        timelines(given.picture, {name: (epoch.busy, epoch.steps) for name, epoch in named.items()})


def write_events(folder: Path, rows: int) -> None:
    """Write a table of numbers with nulls, texts, and a label that depends on two of the numbers."""
    folder.mkdir()
    random = np.random.default_rng(SEED)
    numbers = random.normal(size=(NUMBERS, rows)).astype(np.float32)
    gaps = random.random(size=(NUMBERS, rows)) < 0.05
    words = pa.array([f"word {n}" for n in range(WORDS)])
    columns = {f"number_{n}": pa.array(numbers[n], mask=gaps[n]) for n in range(NUMBERS)}
    for n in range(TEXTS):
        columns[f"text_{n}"] = words.take(pa.array(random.zipf(1.3, rows) % WORDS, pa.int64()))
    columns["label"] = pa.array(numbers[0] > numbers[1])
    pq.write_table(pa.table(columns), folder / "events.parquet", row_group_size=ROW_GROUP_ROWS, compression="zstd")


def jobs(url: str, fitted: fb.FittedPlan) -> list[Job]:
    """Return the jobs, which read the same table."""
    pass_seconds = Network.pass_seconds(BATCH_ROWS)

    def data(shuffle: bool) -> FlightDataset:
        return FlightDataset(url, DATASET, fitted, batch_size=BATCH_ROWS, shuffle=shuffle, seed=SEED, with_row_ids=True)

    def network(seconds: float) -> Step:
        return Network(seconds / pass_seconds).step

    return [
        Job("file order, waits", data(False), wait),
        Job(PICTURED, data(True), wait),
        Job("shuffled, torch", data(True), network),
    ]


# === Epochs ===


@dataclass
class Round:
    """An epoch in both ways."""

    apart: Epoch
    together: Epoch

    @property
    def steps_seconds(self) -> float:
        """The steps without any preparation."""
        return self.apart.seconds - self.apart.preparation_seconds

    @property
    def ratio(self) -> float:
        """The time of one computation, relative to the longer of preparation and steps alone."""
        return self.together.seconds / max(self.apart.preparation_seconds, self.steps_seconds)


def both_ways(job: Job, sampler: Sampler, number: int) -> Round:
    """Run epoch `number` one after the other and as one computation."""
    job.data.set_epoch(number)
    apart = one_after_the_other(job, sampler)
    job.data.set_epoch(number)
    step = job.steps(apart.preparation_seconds / len(apart.steps))
    together = one_computation(job, step, sampler)
    check_equal(job.name, apart, together)
    return Round(apart, together)


def one_after_the_other(job: Job, sampler: Sampler) -> Epoch:
    """Prepare every batch, then train on them with steps as long as a batch's preparation."""
    epoch = Epoch()
    with sampler:
        began = time.perf_counter()
        batches = list(job.data)
        epoch.preparation_seconds = time.perf_counter() - began
        train(epoch, batches, job.steps(epoch.preparation_seconds / len(batches)), began)
    epoch.busy = sampler.busy
    return epoch


def one_computation(job: Job, step: Step, sampler: Sampler) -> Epoch:
    """Train on the stream."""
    epoch = Epoch()
    with sampler:
        train(epoch, job.data, step, time.perf_counter())
    epoch.busy = sampler.busy
    return epoch


def train(epoch: Epoch, batches: Iterable[Batch], step: Step, began: float) -> None:
    """Take a step on each batch."""
    for batch in batches:
        step_began = time.perf_counter()
        epoch.losses.append(step(batch))
        epoch.steps.append((step_began - began, time.perf_counter() - began))
        epoch.rows.append(batch["__row_id"])
    epoch.seconds = time.perf_counter() - began


def check_equal(name: str, apart: Epoch, together: Epoch) -> None:
    """End the program if a row or a loss differs."""
    if len(apart.rows) != len(together.rows) or not all(map(torch.equal, apart.rows, together.rows)):
        raise SystemExit(f"{name}: the rows of the two epochs differ")
    if apart.losses != together.losses:
        raise SystemExit(f"{name}: the losses of the two epochs differ")


# === The report ===


def report(rounds: list[dict[str, Round]]) -> str:
    """Format the medians of all rounds, a column for each job."""
    lines: list[tuple[str, Callable[[Round], float]]] = [
        ("preparation alone, s", lambda one: one.apart.preparation_seconds),
        ("steps alone, s", lambda one: one.steps_seconds),
        ("one after the other, s", lambda one: one.apart.seconds),
        ("one computation, s", lambda one: one.together.seconds),
        ("until the first step, s", lambda one: one.together.steps[0][0]),
        (f"ratio to the longer (goal {GOAL})", lambda one: one.ratio),
    ]
    names = list(rounds[0])
    text = [f"{'':32}" + "".join(f"{name:>20}" for name in names)]
    for title, value in lines:
        cells = [statistics.median(value(one[name]) for one in rounds) for name in names]
        text.append(f"{title:32}" + "".join(f"{cell:>20.2f}" for cell in cells))
    spreads = [[one[name].ratio for one in rounds] for name in names]
    cells = [f"{min(spread):.2f} to {max(spread):.2f}" for spread in spreads]
    text.append(f"{'minimum to maximum':32}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join([*text, "", f"rows and losses are equal in all {len(rounds)} rounds"])


def as_json(rounds: dict[str, Round], *, with_times: bool) -> dict[str, object]:
    """Return the totals of a round to a tenth of a millisecond, its losses, and on request the times of every step."""
    return {
        name: {
            "ratio": rounded(one.ratio),
            "apart": epoch_json(one.apart, with_times=with_times),
            "together": epoch_json(one.together, with_times=with_times),
            "losses": one.together.losses if any(one.together.losses) else [],
        }
        for name, one in rounds.items()
    }


def epoch_json(epoch: Epoch, *, with_times: bool) -> dict[str, object]:
    """Return the totals of an epoch, a digest of its rows, and on request the times of every step."""
    times = {
        "steps": [tuple(map(rounded, step)) for step in epoch.steps],
        "busy": [tuple(map(rounded, sample)) for sample in epoch.busy],
    }
    return {
        "seconds": rounded(epoch.seconds),
        "preparation_seconds": rounded(epoch.preparation_seconds),
        "first_step_seconds": rounded(epoch.steps[0][0]),
        "rows_sha256": hashlib.sha256(torch.cat(epoch.rows).numpy().tobytes()).hexdigest(),
        **(times if with_times else {}),
    }


def rounded(value: float) -> float:
    """Round to four decimal places."""
    return round(value, 4)


if __name__ == "__main__":
    main()
