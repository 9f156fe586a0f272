"""Scalers of groups: seconds of a fit and rows a second of an epoch, by series and of all rows, and by Polars.

The panel has --series series of --hours hours, sorted by series, and again with its rows in random order. Each fit
learns `standardize` of four columns, or `robust` of one, of all rows or by series; an epoch in file order then streams
the scaled columns as FLOAT32. Polars computes the same columns from the same files, in memory. They take turns. CPU
seconds are those of the server, from /proc, and of the client or of Polars, which run on the same cores. The columns of
the first epoch by series are compared with those of Polars.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.benches import machine
from harness.benches.bench_server import RunningServer, server_program
from harness.benches.noise import Noise
from harness.benches.panel import write_panel
from harness.benches.reporting import say
from harness.serving import fit, info

COLUMNS = {"standardize": ("a", "b", "c", "d"), "robust": ("a",)}
ROW_GROUP_ROWS = 131_072


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=5_000, help="series (%(default)s)")
    parser.add_argument("--hours", type=int, default=800, help="rows of a series (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="fits and epochs of each kind (%(default)s)")
    parser.add_argument("--data", type=Path, help="folder of the panels, which are written if they are missing")
    parser.add_argument("--out", type=Path, help="file for the raw results, .json")
    options = parser.parse_args()
    program, noise = server_program(), Noise()
    run: dict[str, Any] = {"bench": "groups", "command": " ".join(["benches/fit/groups.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "series": options.series, "hours": options.hours}
    visits: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        folder = options.data or Path(scratch)
        panels = write_panels(folder, options.series, options.hours)
        with RunningServer(program, panels, Path(scratch) / "state") as server, fl.connect(server.url) as client:
            for number in range(options.rounds):
                for panel, op in [(panel, op) for panel in panels for op in COLUMNS]:
                    expected, of_peer = of_polars(panels[panel], op)
                    visits.append({"visit": f"Polars, {op} by series, {panel}", **of_peer})
                    for by in ([], ["series"]):
                        kind = f"{op} {'by series' if by else 'of all rows'}, {panel}"
                        plan, learned = fitted(server, client, panel, op, by)
                        visits.append({"visit": f"fit, {kind}", **learned})
                        compared = expected if by and number == 0 else None
                        visits.append({"visit": f"epoch, {kind}", **epoch(server, client, panel, plan, compared)})
                    for visit in visits[-5:]:
                        say(json.dumps(visit))
    print(json.dumps(visits, indent=1))
    if options.out:
        machine.keep(options.out, run | {"visits": visits, "noise": noise.look()})


def write_panels(folder: Path, series: int, hours: int) -> dict[str, Path]:
    """Write the panel, and its rows in random order."""
    panels = {"sorted": folder / "sorted", "mixed": folder / "mixed"}
    write_panel(panels["sorted"], series, hours)
    mixed = panels["mixed"]
    if not mixed.exists():
        mixed.mkdir()
        rows = pa.concat_tables(pq.ParquetFile(file).read() for file in sorted(panels["sorted"].glob("*.parquet")))
        order = np.random.default_rng(2).permutation(len(rows))
        pq.write_table(rows.take(order), mixed / "rows.parquet", row_group_size=ROW_GROUP_ROWS)
    return panels


def fitted(server: RunningServer, client: fl.FlightClient, panel: str, op: str, by: list[str]) -> tuple[str, Any]:
    """Fit a plan again; return its id and what it took."""
    parts = [{"columns": list(COLUMNS[op]), "ops": [{op: {"by": by} if by else {}}]}]
    plan = {"outputs": [{"name": "out", "dtype": "FLOAT32", "parts": parts}]}
    server_cpu, start = server.cpu_seconds(), time.monotonic()
    result = fit(client, panel, plan, refit=True)[-1]["result"]
    wall = time.monotonic() - start
    return result["plan_id"], {"wall_s": wall, "server_cpu_s": server.cpu_seconds() - server_cpu}


def epoch(
    server: RunningServer, client: fl.FlightClient, panel: str, plan_id: str, expected: np.ndarray | None
) -> dict[str, Any]:
    """Read an epoch in file order; compare its values with expected ones, if there are any."""
    server_cpu, cpu, start = server.cpu_seconds(), time.process_time(), time.monotonic()
    found = info(client, {"dataset": panel, "plan_id": plan_id, "batch_size": 4096})
    rows, parts = 0, []
    for chunk in client.do_get(found.endpoints[0].ticket):
        rows += chunk.data.num_rows
        if expected is not None:
            column = chunk.data["out"]
            is_matrix = isinstance(column, pa.FixedShapeTensorArray)
            parts.append(column.to_numpy_ndarray() if is_matrix else column.to_numpy()[:, None])
    wall = time.monotonic() - start
    server_cpu, cpu = server.cpu_seconds() - server_cpu, time.process_time() - cpu
    if expected is not None:
        assert np.allclose(np.concatenate(parts), expected, rtol=1e-4, atol=1e-5), "the values differ"
    return {"rows": rows, "wall_s": wall, "server_cpu_s": server_cpu, "client_cpu_s": cpu, "rows_per_s": rows / wall}


def of_polars(panel: Path, op: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the scaled columns by Polars, and what they took."""
    cpu, start = time.process_time(), time.monotonic()
    scaled = []
    for name in COLUMNS[op]:
        column = pl.col(name).cast(pl.Float64)
        if op == "standardize":
            shift, divisor = column.mean(), column.std(ddof=0)
        else:
            shift = column.median()
            divisor = column.quantile(0.75, "linear") - column.quantile(0.25, "linear")
        scaled.append(((column - shift.over("series")) / divisor.over("series")).cast(pl.Float32).alias(name))
    values = pl.scan_parquet(panel / "*.parquet").select(scaled).collect().to_numpy()
    wall = time.monotonic() - start
    return values, {"rows": len(values), "wall_s": wall, "cpu_s": time.process_time() - cpu}


if __name__ == "__main__":
    main()
