"""One shuffled epoch read by one rank, and by many ranks at once: rates, server CPU and bytes read from storage.

One server has the criteo-shaped data and the fitted plan. A round reads one epoch in every case in turn, each round
another epoch; the clients are threads of four processes with bare pyarrow, also when there is only one. Rates and
ratios are computed within a round. The first round warms up and is not counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from harness.benches import criteo, machine
from harness.benches.bench_server import Server, server_program
from harness.benches.noise import Noise
from harness.benches.reporting import say
from harness.repository import ROOT

CLIENTS = ROOT / "benches" / "service" / "fairness_clients.py"
PROCESSES = 4
READ_BYTES = "forebay_storage_read_bytes_total"
RATE_GOAL, READ_GOAL = 0.95, 1.1


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program, shape = server_program(), criteo.shape_of(options)
    stored_bytes = sum(path.stat().st_size for path in criteo.generate(options.data, shape))
    run: dict[str, Any] = {"bench": "ranks", "command": " ".join(["benches/ranks/run.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "data": dataclasses.asdict(shape), "stored_bytes": stored_bytes}
    run |= {"batch_size": options.batch_size, "order": "file" if options.file_order else "shuffled"}
    cases, noise = [1, options.ranks], Noise()
    visits: list[dict[str, Any]] = []
    with Server(program, options.data, *options.server_flag) as server:
        plan = server.fit(criteo.plan())
        for number in range(-1, options.rounds):
            for ranks in cases:
                request = {"dataset": "criteo", "plan_id": plan, "batch_size": options.batch_size}
                request |= {"shuffle": not options.file_order, "epoch": number + 1, "world_size": ranks}
                visits.append({"round": number, "ranks": ranks, **visit(server, request, ranks, shape.rows)})
                say(json.dumps({key: value for key, value in visits[-1].items() if key != "stage_seconds"}))
    counted = [visit for visit in visits if visit["round"] >= 0]
    run |= {"visits": counted, "summary": summary(counted, cases, stored_bytes), "noise": noise.look()}
    print(json.dumps(run["summary"], indent=1))
    if options.out:
        machine.keep(options.out, run)


def visit(server: Server, request: dict[str, Any], ranks: int, rows: int) -> dict[str, Any]:
    """Read one epoch; return its seconds, the server's CPU seconds and the bytes that it read."""
    clients = [{"request": request, "rank": rank, "epochs": 1} for rank in range(ranks)]
    stages, read, cpu = server.stage_seconds(), read_bytes(server), server.cpu_seconds()
    answers = read_all(server.url, clients)
    cpu, read = server.cpu_seconds() - cpu, read_bytes(server) - read
    if errors := sorted({answer["error"] for answer in answers if answer["error"]}):
        raise SystemExit(errors[0])
    if (got := sum(sum(answer["rows"]) for answer in answers)) != rows:
        raise SystemExit(f"{got:,} rows, not {rows:,}")
    seconds = max(each["times"][-1] for each in answers) - min(each["began"] for each in answers)
    return {
        "seconds": seconds,
        "rows_per_second": rows / seconds,
        "server_cpu_seconds_per_million_rows": cpu / rows * 1e6,
        "read_bytes": read,
        "stage_seconds": {name: after - stages.get(name, 0) for name, after in server.stage_seconds().items()},
    }


def read_all(url: str, clients: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run the clients at once, distributed over a few processes that are all connected before the first reads."""
    shares = [share for share in (clients[start::PROCESSES] for start in range(PROCESSES)) if share]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen([sys.executable, CLIENTS], stdin=pipe, stdout=pipe, text=True) for _ in shares]
    for process, share in zip(processes, shares, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps({"url": url, "clients": share, "seconds": 0}) + "\n")
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


def read_bytes(server: Server) -> float:
    """Return the bytes that the server has read from storage."""
    with urllib.request.urlopen(server.metrics_url) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(READ_BYTES))


def summary(visits: list[dict[str, Any]], cases: list[int], stored_bytes: int) -> dict[str, Any]:
    """Return medians by number of ranks, and the ratio of the rates within a round."""
    found: dict[str, Any] = {}
    by_case = {ranks: [visit for visit in visits if visit["ranks"] == ranks] for ranks in cases}
    for ranks, each in by_case.items():
        found[f"{ranks} ranks"] = {
            "rows_per_second": statistics.median(visit["rows_per_second"] for visit in each),
            "server_cpu_seconds_per_million_rows": statistics.median(
                visit["server_cpu_seconds_per_million_rows"] for visit in each
            ),
            "read_bytes_per_stored_byte": statistics.median(visit["read_bytes"] / stored_bytes for visit in each),
        }
    one, many = by_case[cases[0]], by_case[cases[-1]]
    for key in ("rows_per_second", "server_cpu_seconds_per_million_rows"):
        found[f"{key}, many / one"] = statistics.median(b[key] / a[key] for a, b in zip(one, many, strict=True))
    found["goals"] = {"rows_per_second, many / one": RATE_GOAL, "read_bytes_per_stored_byte": READ_GOAL}
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("--ranks", type=int, default=64, help="ranks of the second case (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=4096, help="rows per batch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument("--file-order", action="store_true", help="read in file order instead of shuffled")
    parser.add_argument("--server-flag", action="append", default=[], help="flag of the server, such as =--lanes=8")
    parser.add_argument("--out", type=Path, help="file for the raw numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
