"""What it costs that a server tells of itself: metrics, the series of each stream and the log, on against off.

Two servers of one program live side by side: one as it is by default, whose page is asked for every second, and one
with `--log off --metrics-listen off`. Epochs alternate between them. CPU seconds of the server are the steadier figure
on a machine that others use too; both are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epoch import Readers
from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, Server, server_program

# The part of the rows a second that all of it together may cost.
GOAL = 0.01
OFF = ("--log", "off", "--metrics-listen", "off")
SCRAPE_SECONDS = 1.0


def main() -> None:
    """Measure, print, keep."""
    options = parse()
    shape, program = criteo.shape_of(options), server_program()
    made_on = machine.facts(program)
    criteo.generate(options.data, shape)
    epochs: list[dict[str, Any]] = []
    with (
        Server(program, options.data) as told,
        Server(program, options.data, *OFF) as silent,
        Readers(1) as readers,
        scraped(told.metrics_url),
    ):
        servers = {"on": told, "off": silent}
        plans = {name: server.fit(criteo.plan()) for name, server in servers.items()}
        for batch_size in options.batch_sizes:
            for number in range(-options.warmup, options.rounds):
                # Whoever is first in one round is second in the next.
                for name in ("on", "off") if number % 2 else ("off", "on"):
                    request = {"dataset": DATASET, "plan_id": plans[name], "batch_size": batch_size}
                    figures = readers.measure(servers[name], request, shape.rows)
                    if number >= 0:
                        epochs.append({"telling": name, "round": number, "batch_size": batch_size, **figures})
    costs = [cost_of([epoch for epoch in epochs if epoch["batch_size"] == size], size) for size in options.batch_sizes]
    for cost in costs:
        cpu, rate = ([cost[f"{name}_ratio_{end}"] for end in ("median", "low", "high")] for name in ("cpu", "rate"))
        print(
            f"batches of {cost['batch_size']}, on / off: "
            f"{cpu[0]:.4f} CPU seconds a row ({cpu[1]:.4f} to {cpu[2]:.4f}), "
            f"{rate[0]:.4f} rows a second ({rate[1]:.4f} to {rate[2]:.4f}); the goal is {1 - GOAL:.2f} or more of these"
        )
    run = {
        "bench": "telling_cost",
        "machine": made_on,
        "data": dataclasses.asdict(shape),
        "costs": costs,
        "epochs": epochs,
    }
    machine.keep(options.out, run)


@contextlib.contextmanager
def scraped(url: str) -> Iterator[None]:
    """Ask for the page now and then, as Prometheus does."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(SCRAPE_SECONDS):
            with urllib.request.urlopen(url) as answer:
                answer.read()

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    try:
        yield
    finally:
        over.set()
        asker.join()


def cost_of(epochs: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    """Ratios on / off by round: the median, and the 95 % interval of the median by order statistics."""

    def ratios(figure: str) -> list[float]:
        by = {(epoch["telling"], epoch["round"]): epoch[figure] for epoch in epochs}
        rounds = sorted({number for _, number in by})
        return sorted(by["on", number] / by["off", number] for number in rounds)

    cost: dict[str, Any] = {"batch_size": batch_size}
    for name, figure in (("cpu", "server_cpu_seconds_per_row"), ("rate", "rows_per_second")):
        found = ratios(figure)
        # Of n sorted values, the median lies between those at n/2 ± √n with 95 % (binomial, normal approximation).
        half = round(len(found) ** 0.5 * 0.98)
        middle = len(found) // 2
        cost[f"{name}_ratio_median"] = statistics.median(found)
        cost[f"{name}_ratio_low"] = found[max(0, middle - half)]
        cost[f"{name}_ratio_high"] = found[min(len(found) - 1, middle + half)]
    return cost


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("--rounds", type=int, default=25, help="measured pairs of epochs (%(default)s)")
    parser.add_argument("--warmup", type=int, default=2, help="pairs before them (%(default)s)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8192, 512], help="(%(default)s)")
    out = machine.run_folder() / "telling_cost.json"
    parser.add_argument("--out", type=Path, default=out, help="raw numbers (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
