"""Whether 64 clients at once get the same, and what memory clients cost the server.

Clients are threads of a few processes, each with a connection of its own. Ranks: all are ranks of one epoch and read it
once. Others: each reads whole epochs of a small dataset, shuffled by a seed of its own, for a fixed time. Rates are
those of a window in which every client runs. The memory budget is what the server itself says (action `explain`) that
the streams need, times their number: the least that lets all of them in, for a stream that does not fit is refused.
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
# Epochs of it are read whole, by each client: 200,000 rows, which all 64 together read in some seconds.
SMALL = criteo.Shape(files=2, rows_per_file=100_000, row_group_rows=25_000)
SECONDS = 15.0
# What a window of the fixed time leaves out at its begin, where streams still fill what they hold ahead.
SETTLE_SECONDS = 3.0
PROGRAM = Path(__file__).with_name("fairness_clients.py")
MB = 1e6


@dataclass(frozen=True)
class Crowd:
    """Clients that read at once."""

    name: str
    clients: int
    ranks: bool
    """Whether they are ranks of one epoch, or each reads its own."""
    order: dict[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """What they read."""
        return "whole" if self.ranks else "small"

    @property
    def world_size(self) -> int:
        """Ranks of an epoch."""
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
    """Serve each crowd from a fresh server, in turn."""
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
    """Return what every client asks for, but for its seed."""
    asked = {"dataset": crowd.dataset, "plan_id": plans[crowd.dataset], "batch_size": BATCH_SIZE}
    return {**asked, "world_size": crowd.world_size, **crowd.order}


def budget_bytes(client: fl.FlightClient, crowd: Crowd, request: dict[str, Any]) -> int:
    """Return the least budget that lets all of them in."""
    *_, last = client.do_action(fl.Action("explain", json.dumps(request).encode()))
    return json.loads(last.body.to_pybytes())["memory_bytes"] * crowd.clients


def serve(server: Server, crowd: Crowd, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Let them read from a fresh server; return their rates and its memory."""
    idle_bytes = server.rss_bytes()
    asked: list[dict[str, Any]] = [
        {"request": {**request, "seed": 7}, "rank": number, "epochs": 1}
        if crowd.ranks
        else {"request": {**request, "seed": number}, "rank": 0, "epochs": 0}
        for number in range(crowd.clients)
    ]
    answers = read_all(server.url, asked, seconds)
    return {
        "clients": crowd.clients,
        "idle_rss_bytes": idle_bytes,
        "peak_rss_bytes": server.peak_rss_bytes(),
        "errors": sorted({answer["error"] for answer in answers if answer["error"]}),
        "refused": sum(1 for answer in answers if answer["error"]),
        **rates(answers, None if crowd.ranks else (SETTLE_SECONDS, seconds)),
    }


def read_all(url: str, asked: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Run the clients, dealt to a few processes, all at once."""
    shares = [share for share in (asked[start::PROCESSES] for start in range(PROCESSES)) if share]
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
            raise SystemExit("a process of clients ended; see above")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return list(itertools.chain.from_iterable(json.loads(process.communicate()[0]) for process in processes))


def rates(answers: list[dict[str, Any]], fixed: tuple[float, float] | None) -> dict[str, Any]:
    """Return the rates of a window: the fixed one since all began, or that in which all are between first and last."""
    whole = [answer for answer in answers if len(answer["times"]) > 1]
    if not whole:
        raise SystemExit(f"no client got two batches: {answers[0]['error'] or 'there are too few rows'}")
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
    """Return the ratios' medians and the memory's most."""
    goals, rows = [], []
    for crowd in CROWDS:
        these = [run for run in runs if run["crowd"] == crowd.name]
        # A client that got nothing has no ratio: that is as unfair as can be.
        unfair = statistics.median(run["max_over_min"] or math.inf for run in these)
        peak, budget = max(run["peak_rss_bytes"] for run in these) / MB, these[0]["budget_bytes"] / MB
        if crowd.clients == MANY:
            goals.append(Goal(f"fastest / slowest: {crowd.name}", GOAL_RATIO, unfair, "", 2))
        goals.append(Goal(f"peak RSS less the budget: {crowd.name}", GOAL_ABOVE_BUDGET_MB, peak - budget, "MB"))
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
        f"A fresh server for each crowd, {idle:,.0f} MB resident before its first client; its budget is what it says "
        f"that the streams need. Batches of {BATCH_SIZE:,} rows; rounds: {rounds}. Rates, ratios and waits are "
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
