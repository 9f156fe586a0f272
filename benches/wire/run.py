"""Cost of sending prepared batches to one client: Forebay's body and ring, arrow-flight's encoder, pyarrow's server.

Every server sends the same bytes, [rows, columns] float32 in one column, on one machine. A round goes through all
pairs of server and client; figures are medians over the rounds, and ratios are computed within a round. CPU seconds
include the operating system's part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.benches import machine
from harness.benches.processes import process_cpu_seconds
from harness.repository import ROOT

HERE = Path(__file__).parent
# The server's default: see SENDING_BYTES in server/stream/src/epoch/memory.rs.
SENDING_BYTES = 4 << 20
PAIRS = (
    ("direct", "pyarrow"),
    ("unix", "pyarrow"),
    ("ring", "forebay"),
    ("direct", "native"),
    ("stock", "pyarrow"),
    ("pyarrow", "pyarrow"),
    ("direct", "sink"),
    ("stock", "sink"),
    ("pyarrow", "sink"),
    ("raw", "sink"),
)
GOALS = (
    ("server CPU, to pyarrow", "server_cpu_seconds_per_gb", ("direct", "pyarrow"), ("stock", "pyarrow"), 0.35, "most"),
    ("server CPU, to pyarrow", "server_cpu_seconds_per_gb", ("direct", "pyarrow"), ("pyarrow", "pyarrow"), 0.9, "most"),
    ("rate to pyarrow", "gb_per_second", ("direct", "pyarrow"), ("pyarrow", "pyarrow"), 1.5, "least"),
    ("rate of the ring", "gb_per_second", ("ring", "forebay"), ("direct", "pyarrow"), 2.5, "least"),
    ("client CPU of the ring", "client_cpu_seconds_per_gb", ("ring", "forebay"), ("direct", "pyarrow"), 0.3, "most"),
    ("server CPU of the ring", "server_cpu_seconds_per_gb", ("ring", "forebay"), ("direct", "pyarrow"), 0.8, "most"),
    ("client CPU, native", "client_cpu_seconds_per_gb", ("direct", "native"), ("direct", "pyarrow"), 0.5, "most"),
    ("rate to a sink", "gb_per_second", ("direct", "sink"), ("raw", "sink"), 0.7, "least"),
)


class Server:
    """A server of the bench, which exits when its stdin closes."""

    def __init__(self, kind: str, options: argparse.Namespace) -> None:
        shape = [str(options.columns), str(options.rows)]
        if kind == "pyarrow":
            command = [sys.executable, str(HERE / "pyarrow_server.py"), *shape]
        else:
            command = [options.server, kind, *shape, str(options.sending_bytes)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def cpu_seconds(self) -> float:
        """Return CPU seconds used so far, user and system."""
        return process_cpu_seconds(self._process.pid)


def measure(server: Server, kind: str, client: str, options: argparse.Namespace) -> dict[str, float]:
    """Read the configured number of batches and return the figures."""
    if client in ("pyarrow", "forebay", "native"):
        transport = "native" if client == "native" else kind if kind in ("unix", "ring") else "tcp"
        command = [sys.executable, str(HERE / "pyarrow_client.py"), transport, server.address]
    else:
        command = [options.sink, "raw" if kind == "raw" else "grpc", server.address]
    before = server.cpu_seconds()
    done = subprocess.run([*command, str(options.batches)], check=True, capture_output=True, text=True)
    cpu_seconds = server.cpu_seconds() - before
    found = json.loads(done.stdout)
    seconds = found["seconds"]
    gb = options.batches * options.rows * options.columns * 4 / 1e9
    return {
        "gb": gb,
        "seconds": seconds,
        "gb_per_second": gb / seconds,
        "server_cpu_seconds_per_gb": cpu_seconds / gb,
        # The sink does not measure itself.
        "client_cpu_seconds_per_gb": found.get("cpu_seconds", 0.0) / gb,
    }


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    made_on = machine.facts(Path(options.server))
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(-1, options.rounds):
        figures: dict[str, dict[str, float]] = {}
        for kind, client in PAIRS:
            with Server(kind, options) as server:
                figures[f"{kind} to {client}"] = measure(server, kind, client, options)
        # The first round warms up.
        if number >= 0:
            rounds.append(figures)
    goals = [goal(rounds, *each) for each in GOALS]
    text = table(rounds, goals)
    print(text)
    run = {
        "bench": "wire",
        "machine": made_on,
        "rows": options.rows,
        "columns": options.columns,
        "batches": options.batches,
        "sending_bytes": options.sending_bytes,
        "rounds": rounds,
        "goals": goals,
    }
    machine.keep(options.out, run)
    options.out.with_suffix(".md").write_text(text)


def goal(
    rounds: list[dict[str, dict[str, float]]],
    what: str,
    figure: str,
    ours: tuple[str, str],
    other: tuple[str, str],
    reach: float,
    way: str,
) -> dict[str, Any]:
    """Return a goal and its result."""
    pair = [" to ".join(one) for one in (ours, other)]
    ratios = [one[pair[0]][figure] / one[pair[1]][figure] for one in rounds]
    median = statistics.median(ratios)
    reached = median <= reach if way == "most" else median >= reach
    return {
        "what": what,
        "against": pair[1],
        "way": way,
        "reach": reach,
        "median": median,
        "lowest": min(ratios),
        "highest": max(ratios),
        "reached": reached,
    }


def table(rounds: list[dict[str, dict[str, float]]], goals: list[dict[str, Any]]) -> str:
    """Return both tables as Markdown."""
    lines = [
        "# Cost of sending",
        "",
        f"Medians of {len(rounds)} rounds; method: [benches/wire](../../wire/README.md); raw: [wire.json](wire.json).",
        "",
        "| server to client | GB/s | lowest-highest | server CPU s/GB | lowest-highest | client CPU s/GB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in rounds[0]:
        rates = [one[name]["gb_per_second"] for one in rounds]
        costs = [one[name]["server_cpu_seconds_per_gb"] for one in rounds]
        client = statistics.median(one[name]["client_cpu_seconds_per_gb"] for one in rounds)
        shown = f"{client:.3f}" if client else ""
        lines.append(
            f"| {name} | {statistics.median(rates):.2f} | {min(rates):.2f}-{max(rates):.2f} "
            f"| {statistics.median(costs):.3f} | {min(costs):.3f}-{max(costs):.3f} | {shown} |"
        )
    lines += [
        "",
        "| goal | base | target | median | lowest-highest | reached |",
        "|---|---|---:|---:|---:|---|",
    ]
    for one in goals:
        lines.append(
            f"| {one['what']} | {one['against']} | at {one['way']} {one['reach']} x | {one['median']:.2f} x "
            f"| {one['lowest']:.2f}-{one['highest']:.2f} | {'yes' if one['reached'] else 'no'} |"
        )
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """Read the command line."""
    examples = ROOT / "target" / "release" / "examples"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8192, help="rows per batch (%(default)s)")
    parser.add_argument("--columns", type=int, default=39, help="float32 values per row (%(default)s)")
    parser.add_argument("--batches", type=int, default=4000, help="batches per measurement (%(default)s)")
    parser.add_argument(
        "--sending-bytes", type=int, default=SENDING_BYTES, help="send buffer of `direct` (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument(
        "--programs",
        type=Path,
        default=examples,
        help="folder of wire_server and wire_sink (%(default)s)",
    )
    parser.add_argument("--out", type=Path, default=machine.run_folder() / "wire.json", help="results (%(default)s)")
    options = parser.parse_args()
    options.server, options.sink = str(options.programs / "wire_server"), str(options.programs / "wire_sink")
    return options


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("FOREBAY_", "MIMALLOC_"))}


if __name__ == "__main__":
    main()
