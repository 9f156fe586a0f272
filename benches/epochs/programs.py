"""Rates of two builds of the server: whole epochs of each in turn, in file order and shuffled.

The figures are medians over adjacent pairs of second / first program, for rows/s and the server's CPU seconds per row.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from epoch import Readers
from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, Server
from harness.benches.noise import Noise
from harness.benches.reporting import table

FIGURES = ("rows_per_second", "server_cpu_seconds_per_row")


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("programs", type=Path, nargs=2, help="two builds of forebay-server")
    parser.add_argument("--rounds", type=int, default=9, help="measured pairs per order (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=8192, help="rows per batch (%(default)s)")
    parser.add_argument("--out", type=Path, default=machine.run_folder() / "programs.json", help="raw numbers")
    options = parser.parse_args()

    shape, noise = criteo.shape_of(options), Noise()
    criteo.generate(options.data, shape)
    rounds: list[dict[str, Any]] = []
    with ExitStack() as ending:
        servers = [ending.enter_context(Server(program.absolute(), options.data)) for program in options.programs]
        plans = [server.fit(criteo.plan()) for server in servers]
        readers = ending.enter_context(Readers(1))
        # The first pair warms up.
        for pair in range(-1, options.rounds):
            for shuffle in (False, True):
                for number, server in enumerate(servers):
                    request = {"dataset": DATASET, "plan_id": plans[number], "batch_size": options.batch_size}
                    request |= {"epoch": pair + 1, "shuffle": shuffle}
                    figures = readers.measure(server, request, shape.rows)
                    if pair >= 0:
                        rounds.append({"pair": pair, "shuffle": shuffle, "program": number, **figures})
    ratios = {order: ratios_of(rounds, shuffle) for order, shuffle in (("file order", False), ("shuffled", True))}
    rows = [[order, *(spell(ratios[order][name]) for name in FIGURES)] for order in ratios]
    print(table(["order", "rows/s, second / first", "server's CPU seconds, second / first"], rows))
    run = {
        "bench": "programs",
        "programs": [f"{program.absolute().parent.name}/{program.name}" for program in options.programs],
    }
    run |= {"machine": machine.facts(options.programs[0].absolute()), "data": dataclasses.asdict(shape)}
    machine.keep(options.out, run | {"ratios": ratios, "rounds": rounds, "noise": noise.look()})


def ratios_of(rounds: list[dict[str, Any]], shuffle: bool) -> dict[str, dict[str, float]]:
    """Return second / first program of each pair, as median and range."""
    first, second = ([found for found in rounds if found["shuffle"] is shuffle][number::2] for number in (0, 1))
    ratios = {name: [b[name] / a[name] for a, b in zip(first, second, strict=True)] for name in FIGURES}
    return {
        name: {"median": statistics.median(each), "min": min(each), "max": max(each)} for name, each in ratios.items()
    }


def spell(ratio: dict[str, float]) -> str:
    """Return a ratio with its range."""
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"


if __name__ == "__main__":
    main()
