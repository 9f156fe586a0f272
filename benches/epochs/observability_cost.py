"""Cost of observability: metrics, series of each stream and the log, on compared with off.

Two servers run side by side: one with its defaults, scraped every second, and one with `--log off --metrics-listen
off`. Epochs alternate between them. On a shared machine the server's CPU seconds are more stable than its rate; both
are recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import threading
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from epoch import Readers
from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, Server, server_program

# Largest share of the rate that all of it together may cost.
GOAL = 0.01
OFF = ("--log", "off", "--metrics-listen", "off")
SCRAPE_SECONDS = 1.0


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    shape, program = criteo.shape_of(options), server_program()
    made_on = machine.facts(program)
    criteo.generate(options.data, shape)
    epochs: list[dict[str, Any]] = []
    with (
        Server(program, options.data) as observed,
        Server(program, options.data, *OFF) as silent,
        Readers(1) as readers,
        scraped(observed.metrics_url),
    ):
        servers = {"on": observed, "off": silent}
        plans = {name: server.fit(criteo.plan()) for name, server in servers.items()}
        for batch_size in options.batch_sizes:
            for number in range(-options.warmup, options.rounds):
                # The order alternates from round to round.
                for name in ("on", "off") if number % 2 else ("off", "on"):
                    request = {"dataset": DATASET, "plan_id": plans[name], "batch_size": batch_size}
                    figures = readers.measure(servers[name], request, shape.rows)
                    if number >= 0:
                        epochs.append({"observability": name, "round": number, "batch_size": batch_size, **figures})
    costs = [cost_of([epoch for epoch in epochs if epoch["batch_size"] == size], size) for size in options.batch_sizes]
    for cost in costs:
        cpu, rate = ([cost[f"{name}_ratio_{end}"] for end in ("median", "low", "high")] for name in ("cpu", "rate"))
        print(
            f"batches of {cost['batch_size']}, on / off: {cpu[0]:.4f} CPU seconds per row "
            f"({cpu[1]:.4f} to {cpu[2]:.4f}), {rate[0]:.4f} rows per second ({rate[1]:.4f} to {rate[2]:.4f}); "
            f"goal for the rate: at least {1 - GOAL:.2f}"
        )
    run = {
        "bench": "observability_cost",
        "machine": made_on,
        "data": dataclasses.asdict(shape),
        "costs": costs,
        "epochs": epochs,
    }
    machine.keep(options.out, run)


@contextlib.contextmanager
def scraped(url: str) -> Generator[None, None, None]:
    """Scrape the page periodically, as Prometheus does."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE_SECONDS):
            with urllib.request.urlopen(url) as answer:
                answer.read()

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    try:
        yield
    finally:
        over.set()
        scraper.join()


def cost_of(epochs: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    """Return the median of the ratios on / off by round, and its 95 % interval by order statistics."""

    def ratios(figure: str) -> list[float]:
        by = {(epoch["observability"], epoch["round"]): epoch[figure] for epoch in epochs}
        rounds = sorted({number for _, number in by})
        return sorted(by["on", number] / by["off", number] for number in rounds)

    cost: dict[str, Any] = {"batch_size": batch_size}
    for name, figure in (("cpu", "server_cpu_seconds_per_row"), ("rate", "rows_per_second")):
        found = ratios(figure)
        # The 95 % interval of the median is n/2 ± 0.98 √n in sorted order (binomial, normal approximation).
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
    parser.add_argument("--warmup", type=int, default=2, help="warm-up pairs (%(default)s)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8192, 512], help="rows per batch (%(default)s)")
    out = machine.run_folder() / "observability_cost.json"
    parser.add_argument("--out", type=Path, default=out, help="raw numbers (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
