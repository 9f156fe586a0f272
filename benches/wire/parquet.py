"""Cost of Parquet to wire: plain uncompressed floats through Forebay, compared with pyarrow's server of ready batches.

Forebay reads a Parquet file, which is in the file cache, and sends it as the raw table and as one FLOAT32 matrix
without ops. pyarrow's server sends batches that it made before the clock started, as a table and as a matrix. Both
send the same bytes over loopback to bare pyarrow in this process. A round goes through all cases; figures are medians
over the rounds, and ratios are computed within a round. CPU seconds are those of the server process, including the
operating system's part. The first round warms up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.benches import machine
from harness.benches.bench_server import Server, server_program
from harness.benches.noise import Noise
from harness.benches.processes import process_cpu_seconds
from harness.benches.reporting import say

GOAL = 2.0
PYARROW_SERVER = Path(__file__).with_name("pyarrow_server.py")


class Prepared:
    """A pyarrow server with ready batches."""

    def __init__(self, options: argparse.Namespace, *flags: str) -> None:
        command = [sys.executable, str(PYARROW_SERVER), str(options.columns), str(options.batch_size), *flags]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"grpc://{self._process.stdout.readline().strip()}"

    def stop(self) -> None:
        """Stop it."""
        self._process.communicate()

    def cpu_seconds(self) -> float:
        """Return CPU seconds used so far, user and system."""
        return process_cpu_seconds(self._process.pid)


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program, noise = server_program(), Noise()
    run: dict[str, Any] = {"bench": "parquet_to_wire", "machine": machine.facts(program)}
    run["command"] = " ".join(["benches/wire/parquet.py", *sys.argv[1:]])
    run |= {name: getattr(options, name) for name in ("rows", "columns", "row_group_rows", "batch_size", "epochs")}
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        generate(Path(scratch), options)
        server = Server(program, Path(scratch), *options.server_flag)
        ready = {"table": Prepared(options, "table"), "matrix": Prepared(options)}
        tickets = {"table": raw_ticket, "matrix": matrix_ticket}
        try:
            for number in range(-1, options.rounds):
                figures: dict[str, dict[str, float]] = {}
                for form in ready:
                    figures[f"forebay {form}"] = visit(server, tickets[form], options)
                    figures[f"pyarrow {form}"] = visit(ready[form], ready_ticket, options)
                say(json.dumps(figures))
                if number >= 0:
                    rounds.append(figures)
        finally:
            server.stop()
            for each in ready.values():
                each.stop()
    run |= {"rounds": rounds, "summary": summary(rounds), "noise": noise.look()}
    print(json.dumps(run["summary"], indent=1))
    if options.out:
        machine.keep(options.out, run)


def generate(folder: Path, options: argparse.Namespace) -> None:
    """Write a file of random floats without nulls, dictionaries and compression."""
    rng = np.random.default_rng(5)
    names = [f"x{number}" for number in range(options.columns)]
    schema = pa.schema([pa.field(name, pa.float32(), nullable=False) for name in names])
    with pq.ParquetWriter(folder / "0.parquet", schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, options.rows, options.row_group_rows):
            rows = min(options.row_group_rows, options.rows - start)
            values = rng.standard_normal((options.columns, rows), dtype=np.float32)
            writer.write_table(pa.table(list(values), schema=schema), row_group_size=rows)


Ticket = Callable[[fl.FlightClient, argparse.Namespace], fl.Ticket]


def raw_ticket(client: fl.FlightClient, options: argparse.Namespace) -> fl.Ticket:
    """Return the ticket of the stored table."""
    del options
    return client.get_flight_info(fl.FlightDescriptor.for_path("criteo")).endpoints[0].ticket


def matrix_ticket(client: fl.FlightClient, options: argparse.Namespace) -> fl.Ticket:
    """Return the ticket of one output of all columns."""
    parts = [{"columns": [f"x{number}" for number in range(options.columns)]}]
    plan = {"outputs": [{"name": "x", "dtype": "FLOAT32", "parts": parts}]}
    request = {"dataset": "criteo", "plan": plan, "batch_size": options.batch_size}
    return client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request).encode())).endpoints[0].ticket


def ready_ticket(client: fl.FlightClient, options: argparse.Namespace) -> fl.Ticket:
    """Return the ticket of as many ready batches as the file has rows for."""
    del client
    return fl.Ticket(str(options.rows // options.batch_size).encode())


def visit(server: Server | Prepared, ticket: Ticket, options: argparse.Namespace) -> dict[str, float]:
    """Read a few epochs; return bytes, seconds and CPU seconds by GB."""
    with fl.connect(server.url) as client:
        before, began, received = server.cpu_seconds(), time.perf_counter(), 0
        for _ in range(options.epochs):
            rows = 0
            for chunk in client.do_get(ticket(client, options)):
                rows += chunk.data.num_rows
                received += chunk.data.nbytes
            if rows != options.rows:
                raise SystemExit(f"{rows:,} rows, not {options.rows:,}")
        seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - before
    gb = received / 1e9
    return {"gb": gb, "gb_per_second": gb / seconds, "server_cpu_seconds_per_gb": cpu / gb}


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return medians, and ratios within a round."""
    found: dict[str, Any] = {}
    for name in rounds[0]:
        found[name] = {key: statistics.median(one[name][key] for one in rounds) for key in rounds[0][name]}
    for form in ("table", "matrix"):
        key = "server_cpu_seconds_per_gb"
        ratios = [one[f"forebay {form}"][key] / one[f"pyarrow {form}"][key] for one in rounds]
        found[f"CPU, {form}, forebay / pyarrow"] = {
            "median": statistics.median(ratios),
            "lowest": min(ratios),
            "highest": max(ratios),
            "goal": GOAL,
        }
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=8192, help="rows per batch (%(default)s)")
    parser.add_argument("--columns", type=int, default=39, help="float32 columns (%(default)s)")
    parser.add_argument("--rows", type=int, default=256 * 8192, help="rows of the file (%(default)s)")
    parser.add_argument("--row-group-rows", type=int, default=16 * 8192, help="row group size (%(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="epochs of a visit (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument("--server-flag", action="append", default=[], help="flag of the server, such as =--lanes=8")
    parser.add_argument("--out", type=Path, help="file for the raw numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
