"""Overlap of batch preparation with a training step of the same length.

A round reads an epoch at full speed, which gives the preparation time per batch, then runs as many steps of that length
without data, then both together. A step is a sleep: like a step on a GPU, it leaves the cores to the server.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from forebay.torch import FlightDataset
from harness.benches import criteo
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Goal, Measurement, Setting

GOAL_RATIO = 1.1
DATASET = "criteo"
BATCH_SIZE = 8192
ORDERS = {"file order": False, "shuffled": True}


def measure(setting: Setting) -> Found:
    """Measure epochs, steps, and both together, in turn."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in ORDERS}
    with Server(setting.program, {DATASET: setting.criteo_data}, setting.scratch / "overlap-state") as server:
        plan_id = server.fit(DATASET, criteo.plan())["plan_id"]
        for number in range(-1, setting.rounds):
            for name, shuffle in ORDERS.items():
                options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": shuffle, "seed": 7}
                data = FlightDataset(server.url, DATASET, plan_id, **options, epoch=number + 1, rank=0, world_size=1)
                figures = one_round(data, number + 1)
                if number >= 0:
                    rounds[name].append(figures)
            say(f"overlap: round {number + 1} of {setting.rounds}")
    return report(rounds)


def one_round(data: FlightDataset, epoch: int) -> dict[str, Any]:
    """Return the seconds of reading, of the steps, and of both together."""
    data.set_epoch(epoch)
    batches, alone = run_epoch(data, 0.0)
    step = alone / batches
    began = time.perf_counter()
    for _ in range(batches):
        time.sleep(step)
    steps = time.perf_counter() - began
    again, together = run_epoch(data, step)
    if again != batches:
        raise SystemExit(f"an epoch had {batches:,} batches and then {again:,}")
    return {
        "batches": batches,
        "step_seconds": step,
        "preparation_seconds": alone,
        "steps_seconds": steps,
        "together_seconds": together,
        "ratio": together / max(alone, steps),
    }


def run_epoch(data: FlightDataset, step_seconds: float) -> tuple[int, float]:
    """Return an epoch's batches and its seconds from the request to the end of the last step."""
    batches, began = 0, time.perf_counter()
    for _ in data:
        batches += 1
        if step_seconds:
            time.sleep(step_seconds)
    return batches, time.perf_counter() - began


def report(rounds: dict[str, list[dict[str, Any]]]) -> Found:
    """Return medians over the rounds."""
    goals, rows = [], []
    round_count = max(map(len, rounds.values()))
    for name, figures in rounds.items():
        ratios = [each["ratio"] for each in figures]
        goals.append(Goal(f"together / the longer alone: {name}", GOAL_RATIO, statistics.median(ratios), "", 2))
        names = ("preparation_seconds", "steps_seconds", "together_seconds")
        seconds = [f"{statistics.median(each[key] for each in figures):.2f}" for key in names]
        step = 1e3 * statistics.median(each["step_seconds"] for each in figures)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append([name, f"{step:.1f} ms", *seconds, f"{statistics.median(ratios):.2f}", spread])
    titles = ["order", "step", "preparation, s", "steps, s", "together, s", "ratio", "minimum to maximum"]
    text = (
        f"An epoch through FlightDataset, batches of {BATCH_SIZE:,} rows, medians of {round_count} rounds. A step is "
        "a sleep as long as a batch's preparation in the same round."
    )
    return Found({"batch_size": BATCH_SIZE, "rounds": rounds}, goals, f"{text}\n\n{table(titles, rows)}")


MEASUREMENT = Measurement("overlap", "Preparation overlapped with steps", measure)
