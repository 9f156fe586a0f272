"""What a fit costs the server when nothing is known, when its result is kept, and when four ranks ask at once.

The plan has the means and deviations of the 13 dense columns of the criteo-shaped data. Every round starts two
servers with an empty state: one fits the plan three times in turn (the second from the kept result, the third with
`refit`), the other answers four clients that ask at the same time. CPU seconds are those of the server process, from
/proc.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, OWN_CONNECTION, Server, server_program
from harness.benches.noise import Noise
from harness.benches.reporting import say

RANKS = 4
OPS: list[dict[str, Any]] = [{"fill_null": {"value": 0}}, {"log1p": {}}, {"standardize": {}}]
OUTPUT = {"name": "dense", "dtype": "FLOAT32", "parts": [{"columns": criteo.DENSE, "ops": OPS}]}


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program, shape, noise = server_program(), criteo.shape_of(options), Noise()
    criteo.generate(options.data, shape)
    run: dict[str, Any] = {"bench": "fit_kept", "command": " ".join(["benches/fit/kept.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "data": dataclasses.asdict(shape), "rounds": []}
    for number in range(options.rounds):
        figures: dict[str, dict[str, float]] = {}
        with Server(program, options.data) as server:
            figures["first"] = timed(server, lambda: fit(server, cached=False))
            figures["second"] = timed(server, lambda: fit(server, cached=True))
            figures["refit"] = timed(server, lambda: fit(server, cached=False, refit=True))
        with Server(program, options.data) as server, ThreadPoolExecutor(RANKS) as pool:
            figures["four at once"] = timed(server, lambda: list(pool.map(lambda _: fit(server), range(RANKS))))
        run["rounds"].append(figures)
        say(f"round {number + 1}: {json.dumps(figures)}")
    run["medians"] = {
        case: {key: statistics.median(one[case][key] for one in run["rounds"]) for key in run["rounds"][0][case]}
        for case in run["rounds"][0]
    }
    run["noise"] = noise.look()
    print(json.dumps(run["medians"], indent=1))
    if options.out:
        machine.keep(options.out, run)


def timed(server: Server, work: Callable[[], Any]) -> dict[str, float]:
    """Return wall seconds, and CPU seconds of the server."""
    cpu, began = server.cpu_seconds(), time.perf_counter()
    work()
    return {"seconds": time.perf_counter() - began, "server_cpu_seconds": server.cpu_seconds() - cpu}


def fit(server: Server, *, cached: bool | None = None, refit: bool = False) -> None:
    """Fit the plan, and check whether the result was kept."""
    request = {"dataset": DATASET, "plan": {"outputs": [OUTPUT]}, "refit": refit}
    with fl.FlightClient(server.url, generic_options=OWN_CONNECTION) as client:
        *_, last = client.do_action(fl.Action("fit", json.dumps(request).encode()))
    result = json.loads(last.body.to_pybytes())["result"]
    if cached is not None and result.get("cached", False) != cached:
        raise SystemExit(f"cached: {result.get('cached')}, not {cached}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
