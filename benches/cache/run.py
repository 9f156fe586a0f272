"""Epochs with and without the cache of finished rows: rates and server CPU of first and second epochs, and of two jobs.

Every visit starts a server of the criteo-shaped data with the same state directory, in which the plan was fitted once:
without a cache, with one that keeps the whole epoch, and with one that keeps a small part of it. Epochs of a visit have
different seeds. Clients are threads of processes with bare pyarrow. Ratios are computed within a round, whose visits
follow each other; the first round warms up and is not counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, RunningServer, server_program
from harness.benches.noise import Noise
from harness.benches.reporting import say
from harness.repository import ROOT

CLIENTS = ROOT / "benches" / "service" / "fairness_clients.py"
ORDERS = {"file order": False, "shuffled": True}
# Bytes of a cached row beside its outputs, generously: a kibibyte for each chunk of 8,192 rows, and ends of row groups.
CHUNK_BYTES_A_ROW = 1
SMALL_SHARE = 1 / 16
GOALS = {
    "second epoch, first / second": 3,
    "two jobs, with / without": 1.8,
    "small cache, with / without": 1.03,
}


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program, shape = server_program(), criteo.shape_of(options)
    criteo.generate(options.data, shape)
    needed = shape.rows * (criteo.ROW_BYTES + CHUNK_BYTES_A_ROW)
    sizes = {"without": 0, "whole": needed, "small": int(needed * SMALL_SHARE)}
    run: dict[str, Any] = {"bench": "cache", "command": " ".join(["benches/cache/run.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "data": dataclasses.asdict(shape), "cache_bytes": sizes}
    run |= {"batch_size": options.batch_size}
    noise = Noise()
    visits: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as state:
        bench = Bench(program, options, Path(state), sizes, shape.rows)
        for number in range(-1, options.rounds):
            for order in ORDERS:
                for visit in bench.round(order):
                    visits.append({"round": number, "order": order, **visit})
                    say(json.dumps(visits[-1]))
    counted = [visit for visit in visits if visit["round"] >= 0]
    run |= {"visits": counted, "summary": summary(counted), "goals": GOALS, "noise": noise.look()}
    print(json.dumps(run["summary"], indent=1))
    if options.out:
        machine.keep(options.out, run)


class Bench:
    """The servers and requests of a run."""

    def __init__(
        self, program: Path, options: argparse.Namespace, state: Path, sizes: dict[str, int], rows: int
    ) -> None:
        self._program, self._options, self._state, self._sizes, self._rows = program, options, state, sizes, rows
        self._seed = 0
        with self._server("without") as server, fl.connect(server.url) as client:
            body = json.dumps({"dataset": DATASET, "plan": criteo.plan()}).encode()
            *_, last = client.do_action(fl.Action("fit", body))
            self._plan = json.loads(last.body.to_pybytes())["result"]["plan_id"]

    def round(self, order: str) -> list[dict[str, Any]]:
        """Read epochs with every cache, and two at once without a cache and with one of the whole epoch."""
        found: list[dict[str, Any]] = []
        for cache in self._sizes:
            with self._server(cache) as server:
                for epoch in range(2):
                    found.append({"cache": cache, "jobs": 1, "epoch": epoch, **self._visit(server, order, 1)})
        for cache in ("without", "whole"):
            with self._server(cache) as server:
                found.append({"cache": cache, "jobs": 2, "epoch": 0, **self._visit(server, order, 2)})
        return found

    def _server(self, cache: str) -> RunningServer:
        flags = (f"--cache-bytes={self._sizes[cache]}", *self._options.server_flag)
        return RunningServer(self._program, {DATASET: self._options.data}, self._state, *flags)

    def _visit(self, server: RunningServer, order: str, jobs: int) -> dict[str, Any]:
        """Let jobs read an epoch each, at once; return their rate together and the server's CPU seconds."""
        requests: list[dict[str, Any]] = []
        for _ in range(jobs):
            self._seed += 1
            request = {"dataset": DATASET, "plan_id": self._plan, "batch_size": self._options.batch_size}
            requests.append({**request, "shuffle": ORDERS[order], "seed": self._seed})
        cpu = server.cpu_seconds()
        answers = read_all(server.url, requests)
        cpu = server.cpu_seconds() - cpu
        for answer in answers:
            if answer["error"]:
                raise SystemExit(answer["error"])
            if sum(answer["rows"]) != self._rows:
                raise SystemExit(f"{sum(answer['rows']):,} rows, not {self._rows:,}")
        rows = self._rows * jobs
        seconds = max(each["times"][-1] for each in answers) - min(each["began"] for each in answers)
        return {
            "seconds": seconds,
            "rows_per_second": rows / seconds,
            "server_cpu_seconds_per_million_rows": cpu / rows * 1e6,
        }


def read_all(url: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Read the requests at once, each in a process that is connected before the first reads."""
    pipe = subprocess.PIPE
    processes = [subprocess.Popen([sys.executable, CLIENTS], stdin=pipe, stdout=pipe, text=True) for _ in requests]
    for process, request in zip(processes, requests, strict=True):
        assert process.stdin is not None
        clients = [{"request": request, "rank": 0, "epochs": 1}]
        process.stdin.write(json.dumps({"url": url, "clients": clients, "seconds": 0}) + "\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "connected":
            raise SystemExit("a client process exited; see above")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [json.loads(process.communicate()[0])[0] for process in processes]


def summary(visits: list[dict[str, Any]]) -> dict[str, Any]:
    """Return, by order, medians of every case, and ratios of visits within a round."""
    found: dict[str, Any] = {}
    for order in ORDERS:
        of_order = [visit for visit in visits if visit["order"] == order]
        cases: dict[str, list[dict[str, Any]]] = {}
        for visit in of_order:
            cases.setdefault(f"{visit['cache']}, {visit['jobs']} jobs, epoch {visit['epoch']}", []).append(visit)
        keys = ("rows_per_second", "server_cpu_seconds_per_million_rows")
        medians = {
            case: {key: statistics.median(visit[key] for visit in each) for key in keys} for case, each in cases.items()
        }

        def ratio(key: str, one: str, other: str, cases: dict[str, list[dict[str, Any]]] = cases) -> float:
            return statistics.median(a[key] / b[key] for a, b in zip(cases[one], cases[other], strict=True))

        rate, cpu = keys
        found[order] = {
            "medians": medians,
            "second epoch, first / second, CPU": ratio(cpu, "whole, 1 jobs, epoch 0", "whole, 1 jobs, epoch 1"),
            "second epoch, second / first, rate": ratio(rate, "whole, 1 jobs, epoch 1", "whole, 1 jobs, epoch 0"),
            "first epoch, with / without, CPU": ratio(cpu, "whole, 1 jobs, epoch 0", "without, 1 jobs, epoch 0"),
            "two jobs, with / without, rate": ratio(rate, "whole, 2 jobs, epoch 0", "without, 2 jobs, epoch 0"),
            "two jobs, without / with, CPU": ratio(cpu, "without, 2 jobs, epoch 0", "whole, 2 jobs, epoch 0"),
            "small cache, first epoch, with / without, CPU": ratio(
                cpu, "small, 1 jobs, epoch 0", "without, 1 jobs, epoch 0"
            ),
            "small cache, second epoch, with / without, CPU": ratio(
                cpu, "small, 1 jobs, epoch 1", "without, 1 jobs, epoch 1"
            ),
        }
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("--batch-size", type=int, default=4096, help="rows per batch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument(
        "--server-flag", action="append", default=[], help="flag of the server, such as =--cpu-threads=2"
    )
    parser.add_argument("--out", type=Path, help="file for the raw numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
