"""Time from starting a server to the first batch in a running Python process.

The plans are fitted beforehand by another server with the same state. Each case of each round runs in a new process
(`start_visit.py`), so that no connection or gRPC thread is reused; cases alternate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.benches import criteo
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Goal, Measurement, Setting
from start_visit import DATASET

GOAL_MS = 150.0
ROUNDS = 10
BATCH_SIZE = 8192
VISIT = Path(__file__).with_name("start_visit.py")
PARTS = ("listening", "connection", "flight_info", "first_batch")


@dataclass(frozen=True)
class Case:
    """How the server is started, and what is requested."""

    name: str
    way: str
    plan: str
    shuffle: bool


CASES = (
    Case("server, 13 dense columns", "server", "dense", False),
    Case("server, 39 columns with vocabularies", "server", "whole", False),
    Case("server, 39 columns with vocabularies, shuffled", "server", "whole", True),
    Case("fb.local, 13 dense columns", "local", "dense", False),
    Case("fb.local, 39 columns with vocabularies", "local", "whole", False),
)


def measure(setting: Setting) -> Found:
    """Measure several starts of each case."""
    state = setting.scratch / "start-state"
    fit_plans(setting, state)
    rounds = 2 if setting.quick else ROUNDS
    visits: dict[str, list[dict[str, float]]] = {case.name: [] for case in CASES}
    for number in range(-1, rounds):
        for case in CASES:
            for path in sorted(setting.criteo_data.glob("*.parquet")):
                # Put the data into the file cache, to exclude the disk.
                path.read_bytes()
            parts = visit(setting, state, case)
            if number >= 0:
                visits[case.name].append(parts)
        say(f"start: round {number + 1} of {rounds}")
    return report(visits)


def fit_plans(setting: Setting, state: Path) -> None:
    """Fit both plans: into the state, and as files for clients that send their plan."""
    whole = criteo.plan()
    plans = {"dense": {"outputs": whole["outputs"][:1]}, "whole": whole}
    with Server(setting.program, {DATASET: setting.criteo_data}, state) as server:
        for name, plan in plans.items():
            (setting.scratch / f"{name}.json").write_text(json.dumps(server.fit(DATASET, plan)))


def visit(setting: Setting, state: Path, case: Case) -> dict[str, float]:
    """Measure one start in a new process."""
    options = {
        "way": case.way,
        "program": str(setting.program),
        "data": str(setting.criteo_data),
        "state": str(state),
        "fitted": str(setting.scratch / f"{case.plan}.json"),
        "shuffle": case.shuffle,
        "batch_size": BATCH_SIZE,
    }
    command = [sys.executable, str(VISIT), json.dumps(options)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report(visits: dict[str, list[dict[str, float]]]) -> Found:
    """Return medians of the total and of each part."""
    goals, rows, cases = [], [], []
    for name, rounds in visits.items():
        totals = [1e3 * sum(parts.values()) for parts in rounds]
        medians = {part: 1e3 * statistics.median(parts[part] for parts in rounds) for part in PARTS}
        goals.append(Goal(f"start to first batch: {name}", GOAL_MS, statistics.median(totals), "ms"))
        spread = f"{min(totals):,.0f} to {max(totals):,.0f}"
        rows.append([name, f"{statistics.median(totals):,.0f}", spread, *(f"{medians[part]:,.1f}" for part in PARTS)])
        raw: dict[str, Any] = {"case": name, "median_ms": statistics.median(totals), "median_ms_of_parts": medians}
        cases.append({**raw, "rounds_seconds": rounds})
    text = (
        f"Median of {len(next(iter(visits.values())))} starts, ms. Parts: server start until it listens, the client's "
        "first connection, flight info (which sends the plan to a private server), the first batch."
    )
    titles = ["case", "total", "minimum to maximum", *(part.replace("_", " ") for part in PARTS)]
    return Found({"batch_size": BATCH_SIZE, "cases": cases}, goals, f"{text}\n\n{table(titles, rows)}")


MEASUREMENT = Measurement("start", "Start to first batch", measure)
