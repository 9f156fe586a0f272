"""Cost of shuffling: whole epochs of one server, alternately in file order and shuffled.

The figure is the median over adjacent pairs of shuffled / unshuffled, for rows/s and for the server's CPU seconds per
row; the goal for rows/s is 0.9. Lanes and window are the server's defaults unless given.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path
from typing import Any

from epoch import Readers
from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, Server, server_program

GOAL = 0.9
MIB = 2**20


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    shape, program = criteo.shape_of(options), server_program()
    made_on = machine.facts(program)
    criteo.generate(options.data, shape)
    order = {"shuffle": True, "seed": options.seed, "lanes": options.lanes, "window_rows": options.window_rows}
    order = {name: value for name, value in order.items() if value is not None}
    run: dict[str, Any] = {
        "bench": "shuffle",
        "machine": made_on,
        "data": dataclasses.asdict(shape),
        "batch_size": options.batch_size,
        "order": order,
        "warmup_pairs": options.warmup,
        "worlds": [],
    }
    with Server(program, options.data) as server:
        request = {"dataset": DATASET, "plan_id": server.fit(criteo.plan()), "batch_size": options.batch_size}
        for world_size in options.world_sizes:
            with Readers(world_size) as readers:
                rounds = alternate(server, readers, request, order, shape.rows, options)
            run["worlds"].append({"world_size": world_size, "ratios": ratios(rounds), "rounds": rounds})
    print(f"criteo-shaped, {shape.rows:,} rows, batches of {options.batch_size:,}")
    print(f"{made_on['cores']} cores of {made_on['cpu']}, {made_on['server']}")
    print_table(run["worlds"])
    machine.keep(options.out, run)


def alternate(
    server: Server,
    readers: Readers,
    request: dict[str, Any],
    order: dict[str, Any],
    rows: int,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Read epochs ABAB..., A in file order and B shuffled; warm-up pairs are dropped."""
    rounds: list[dict[str, Any]] = []
    for pair in range(-options.warmup, options.rounds):
        for shuffled in (False, True):
            # Each pair has a new epoch number, and so a new permutation.
            epoch_request = {**request, "epoch": pair + options.warmup, **(order if shuffled else {})}
            figures = readers.measure(server, epoch_request, rows)
            if pair >= 0:
                rounds.append({"pair": pair, "shuffled": shuffled, "epoch": epoch_request["epoch"], **figures})
    return rounds


def ratios(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return shuffled / unshuffled of each adjacent pair, with median and range; None if all denominators are 0."""
    result: dict[str, Any] = {}
    for name in ("rows_per_second", "server_cpu_seconds_per_row"):
        pairs = zip(rounds[::2], rounds[1::2], strict=True)
        each = [shuffled[name] / plain[name] for plain, shuffled in pairs if plain[name]]
        if each:
            result[name] = {"median": statistics.median(each), "min": min(each), "max": max(each), "pairs": each}
        else:
            result[name] = None
    return result


def print_table(worlds: list[dict[str, Any]]) -> None:
    """Print medians per world size and order, then the ratios."""
    titles = ("world_size", "order", "rows/s", "server CPU s/Mrow", "readers' CPU s/Mrow", "peak RSS MiB")
    print("  ".join(titles))
    for world in worlds:
        for shuffled in (False, True):
            rounds = [figures for figures in world["rounds"] if figures["shuffled"] is shuffled]
            row = (
                str(world["world_size"]),
                "shuffled" if shuffled else "file",
                f"{statistics.median(f['rows_per_second'] for f in rounds):,.0f}",
                f"{statistics.median(f['server_cpu_seconds_per_row'] for f in rounds) * 1e6:.3f}",
                f"{statistics.median(f['reader_cpu_seconds'] / f['rows'] for f in rounds) * 1e6:.3f}",
                f"{max(f['server_peak_rss_bytes'] for f in rounds) / MIB:,.0f}",
            )
            print("  ".join(cell.rjust(len(title)) for cell, title in zip(row, titles, strict=True)))
    print(
        f"shuffled / unshuffled, median of adjacent pairs [minimum to maximum]; the goal for rows/s is at least {GOAL}"
    )
    for world in worlds:
        labels = {"rows_per_second": "rows/s", "server_cpu_seconds_per_row": "server CPU s/row"}
        figures = [f"{labels[name]} {_spell(ratio)}" for name, ratio in world["ratios"].items()]
        print(f"  world_size {world['world_size']}: {', '.join(figures)}")


def _spell(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return "too short to measure"
    return f"{ratio['median']:.3f} [{ratio['min']:.3f} to {ratio['max']:.3f}, {len(ratio['pairs'])} pairs]"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="measured pairs per world size (%(default)s)")
    parser.add_argument("--warmup", type=int, default=1, help="warm-up pairs (%(default)s)")
    parser.add_argument("--world-sizes", type=int, nargs="+", default=[1, 2], help="world sizes (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=8192, help="rows per batch (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the shuffle (%(default)s)")
    parser.add_argument("--lanes", type=int, help="lanes (the server's default)")
    parser.add_argument("--window-rows", type=int, help="rows per window (the server's default)")
    out = machine.run_folder() / "shuffle.json"
    parser.add_argument("--out", type=Path, default=out, help="raw numbers (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
