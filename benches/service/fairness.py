"""Fairness between 64 concurrent clients, and the server's memory per client.

Clients are threads of a few processes, each with its own connection. Ranks all belong to one epoch and read it once.
Other clients read whole epochs of a small dataset for a fixed time, each shuffled with its own seed. Rates cover a
window in which every client runs. The memory budget is the `memory_bytes` of the action `explain` times the number of
streams: the smallest budget that admits all of them, because a stream that does not fit is refused.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from harness.benches import criteo
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Goal, Measurement, Setting

GOAL_RATIO = 1.3
GOAL_ABOVE_BUDGET_MB = 150.0
MANY = 64
PROCESSES = 4
BATCH_SIZE = 1024
# 200,000 rows; each client reads whole epochs, and 64 clients together take a few seconds.
SMALL = criteo.Shape(files=2, rows_per_file=100_000, row_group_rows=25_000)
SECONDS = 15.0
# Excluded at the start of a fixed window, while streams still read ahead.
SETTLE_SECONDS = 3.0
PROGRAM = Path(__file__).with_name("fairness_clients.py")
MB = 1e6


@dataclass(frozen=True)
class Crowd:
    """Clients that read concurrently."""

    name: str
    clients: int
    ranks: bool
    """Whether they are ranks of one epoch; otherwise each reads its own epochs."""
    order: dict[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return "whole" if self.ranks else "small"

    @property
    def world_size(self) -> int:
        """Ranks per epoch."""
        return self.clients if self.ranks else 1


SHUFFLED = {"shuffle": True}
ONE_LANE = {"shuffle": True, "lanes": 1}
CROWDS = (
    *(Crowd(f"{count} with an epoch each, shuffled, 1 lane", count, False, ONE_LANE) for count in (1, 8, MANY)),
    *(Crowd(f"{count} with an epoch each, shuffled, the usual lanes", count, False, SHUFFLED) for count in (1, 8)),
    Crowd(f"{MANY} ranks of an epoch, file order", MANY, True),
    Crowd(f"{MANY} ranks of an epoch, shuffled", MANY, True, SHUFFLED),
)


def measure(setting: Setting) -> Found:
    """Serve each crowd in turn from a new server."""
    small = setting.data / "criteo-small"
    criteo.generate(small, SMALL)
    folders, state = {"whole": setting.criteo_data, "small": small}, setting.scratch / "fairness-state"
    with Server(setting.program, folders, state) as server, server.connect() as client:
        plans = {name: server.fit(name, criteo.plan())["plan_id"] for name in folders}
        budgets = {crowd.name: budget_bytes(client, crowd, request_of(crowd, plans)) for crowd in CROWDS}
    seconds = 6.0 if setting.quick else SECONDS
    runs: list[dict[str, Any]] = []
    for number in range(setting.rounds):
        for crowd in CROWDS:
            budget = budgets[crowd.name]
            with Server(setting.program, folders, state, "--memory-limit-bytes", str(budget)) as server:
                figures = serve(server, crowd, request_of(crowd, plans), seconds)
            runs.append({"round": number, "crowd": crowd.name, "budget_bytes": budget, **figures})
        say(f"fairness: round {number + 1} of {setting.rounds}")
    return report(runs, seconds)


def request_of(crowd: Crowd, plans: dict[str, str]) -> dict[str, Any]:
    """Return the request of every client, without its seed."""
    request = {"dataset": crowd.dataset, "plan_id": plans[crowd.dataset], "batch_size": BATCH_SIZE}
    return {**request, "world_size": crowd.world_size, **crowd.order}


def budget_bytes(client: fl.FlightClient, crowd: Crowd, request: dict[str, Any]) -> int:
    """Return the smallest budget that admits the whole crowd."""
    *_, last = client.do_action(fl.Action("explain", json.dumps(request).encode()))
    return json.loads(last.body.to_pybytes())["memory_bytes"] * crowd.clients


def serve(server: Server, crowd: Crowd, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Run the crowd against a new server; return its rates and the server's memory."""
    idle_bytes = server.rss_bytes()
    clients: list[dict[str, Any]] = [
        {"request": {**request, "seed": 7}, "rank": number, "epochs": 1}
        if crowd.ranks
        else {"request": {**request, "seed": number}, "rank": 0, "epochs": 0}
        for number in range(crowd.clients)
    ]
    answers = read_all(server.url, clients, seconds)
    return {
        "clients": crowd.clients,
        "idle_rss_bytes": idle_bytes,
        "peak_rss_bytes": server.peak_rss_bytes(),
        "errors": sorted({answer["error"] for answer in answers if answer["error"]}),
        "refused": sum(1 for answer in answers if answer["error"]),
        **rates(answers, None if crowd.ranks else (SETTLE_SECONDS, seconds)),
    }


def read_all(url: str, clients: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Run the clients concurrently, distributed over a few processes."""
    shares = [share for share in (clients[start::PROCESSES] for start in range(PROCESSES)) if share]
    processes = [
        subprocess.Popen([sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in shares
    ]
    for process, share in zip(processes, shares, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps({"url": url, "clients": share, "seconds": seconds}) + "\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "connected":
            raise SystemExit("a client process exited; see above")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return list(itertools.chain.from_iterable(json.loads(process.communicate()[0]) for process in processes))


def rates(answers: list[dict[str, Any]], fixed: tuple[float, float] | None) -> dict[str, Any]:
    """Return the rates in the fixed window, or in the one in which all clients are between first and last batch."""
    whole = [answer for answer in answers if len(answer["times"]) > 1]
    if not whole:
        raise SystemExit(f"no client got two batches: {answers[0]['error'] or 'too few rows'}")
    if fixed is None:
        begin, end = max(each["times"][0] for each in whole), min(each["times"][-1] for each in whole)
    else:
        begin, end = min(each["began"] for each in whole) + fixed[0], min(each["began"] for each in whole) + fixed[1]
    length = end - begin
    each_rate = []
    for answer in answers:
        pairs = zip(answer["times"], answer["rows"], strict=True)
        each_rate.append(sum(rows for at, rows in pairs if begin < at <= end) / length if length > 0 else 0.0)
    slowest = min(each_rate)
    return {
        "window_seconds": length,
        "first_batch_seconds_max": max(each["times"][0] - each["began"] for each in whole),
        "first_batch_seconds_min": min(each["times"][0] - each["began"] for each in whole),
        "seconds_until_the_last_ended": max(each["times"][-1] - each["began"] for each in whole),
        "seconds_until_the_first_ended": min(each["times"][-1] - each["began"] for each in whole),
        "rows_per_second": each_rate,
        "max_over_min": max(each_rate) / slowest if slowest else None,
    }


def report(runs: list[dict[str, Any]], seconds: float) -> Found:
    """Return the median ratios and the peak memory."""
    goals, rows = [], []
    for crowd in CROWDS:
        these = [run for run in runs if run["crowd"] == crowd.name]
        # If a client received nothing, the ratio is infinite.
        unfair = statistics.median(run["max_over_min"] or math.inf for run in these)
        peak, budget = max(run["peak_rss_bytes"] for run in these) / MB, these[0]["budget_bytes"] / MB
        if crowd.clients == MANY:
            goals.append(Goal(f"fastest / slowest: {crowd.name}", GOAL_RATIO, unfair, "", 2))
        goals.append(Goal(f"peak RSS minus budget: {crowd.name}", GOAL_ABOVE_BUDGET_MB, peak - budget, "MB"))
        first, last = (
            statistics.median(run[f"seconds_until_the_{which}_ended"] for run in these) for which in ("first", "last")
        )
        cells = [
            f"{statistics.median(sum(run['rows_per_second']) for run in these):,.0f}",
            f"{unfair:.2f}",
            f"{statistics.median(run['window_seconds'] for run in these):.1f}",
            f"{first:.1f}, {last:.1f}" if crowd.ranks else "",
            f"{statistics.median(run['first_batch_seconds_max'] for run in these):,.2f}",
            f"{budget:,.0f}",
            f"{peak:,.0f}",
            str(max(run["refused"] for run in these)),
        ]
        rows.append([crowd.name, *cells])
    rounds = max(run["round"] for run in runs) + 1
    idle = statistics.median(run["idle_rss_bytes"] for run in runs) / MB
    text = (
        f"A new server for each crowd, {idle:,.0f} MB resident before its first client; its budget is the streams' "
        f"`memory_bytes` from `explain`. Batches of {BATCH_SIZE:,} rows; rounds: {rounds}. Rates, ratios and waits are "
        "medians, peaks the highest."
    )
    titles = [
        "crowd",
        "rows/s in the window",
        "fastest / slowest",
        "window, s",
        "first, last end, s",
        "last first batch, s",
    ]
    raw = {"batch_size": BATCH_SIZE, "seconds": seconds, "runs": runs}
    return Found(raw, goals, f"{text}\n\n{table([*titles, 'budget, MB', 'peak RSS, MB', 'refused'], rows)}")


MEASUREMENT = Measurement("fairness", "Many clients at once", measure)
