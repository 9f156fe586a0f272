"""Features of earlier rows over an hourly panel: rows a second and CPU seconds, with and without, beside DataFrames.

The panel has --series series of --hours hours. The plain plan reads four of its columns as FLOAT32. The other one adds
the value an hour before, the difference from a day before, the mean of a day and the largest value of a week. Epochs in
file order and shuffled take turns with Polars, DuckDB and pandas, which read the same files and compute the same
columns as FLOAT32, in memory and in file order. CPU seconds are those of the server, from /proc, and of the client or
the peer, which run on the same cores. The columns of an epoch in file order are compared with those of Polars.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.flight as fl

from harness.benches import machine
from harness.benches.bench_server import RunningServer, server_program
from harness.benches.noise import Noise
from harness.benches.panel import write_panel
from harness.benches.reporting import say
from harness.serving import info

BASE = ("a", "b", "c", "d")
FEATURES: dict[str, list[Any]] = {
    "lag": ["a", {"lag": {"n": 1}}],
    "diff": ["b", {"diff": {"n": 24}}],
    "mean": ["c", {"rolling": {"stat": "MEAN", "length": 24}}],
    "max": ["d", {"rolling": {"stat": "MAX", "length": 168}}],
}
FILL = {"fill_null": {"value": 0}}
OUTPUTS = [{"name": name, "dtype": "FLOAT32", "parts": [{"columns": [name]}]} for name in BASE]
HISTORY = [
    {"name": name, "dtype": "FLOAT32", "parts": [{"columns": [column], "ops": [op, FILL]}]}
    for name, (column, op) in FEATURES.items()
]
PLANS: dict[str, dict[str, Any]] = {
    "plain": {"outputs": OUTPUTS},
    "history": {"outputs": [*OUTPUTS, *HISTORY], "history": {"by": ["series"], "order": "ts"}},
}
ORDERS: dict[str, dict[str, Any]] = {"file order": {}, "shuffled": {"shuffle": True, "seed": 7}}
SQL = """
SELECT a, b, c, d,
  coalesce(lag(a, 1) OVER w, 0)::FLOAT AS lag,
  coalesce(b - lag(b, 24) OVER w, 0)::FLOAT AS diff,
  avg(c) OVER (w ROWS 23 PRECEDING)::FLOAT AS mean,
  max(d) OVER (w ROWS 167 PRECEDING)::FLOAT AS max
FROM read_parquet('{files}') WINDOW w AS (PARTITION BY series ORDER BY ts) ORDER BY series, ts
"""


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=400, help="series (%(default)s)")
    parser.add_argument("--hours", type=int, default=10_000, help="rows of a series (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each kind (%(default)s)")
    parser.add_argument("--data", type=Path, help="folder of the panel, which is written if it is missing")
    parser.add_argument("--out", type=Path, help="file for the raw results, .json")
    options = parser.parse_args()
    program, noise = server_program(), Noise()
    run: dict[str, Any] = {"bench": "history", "command": " ".join(["benches/history/run.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "series": options.series, "hours": options.hours}
    visits: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        data, state = options.data or Path(scratch) / "panel", Path(scratch) / "state"
        write_panel(data, options.series, options.hours)
        expected = of_polars(data)
        with RunningServer(program, {"panel": data}, state) as server, fl.connect(server.url) as client:
            for number in range(-1, options.rounds):
                for order, fields in ORDERS.items():
                    for name, plan in PLANS.items():
                        request = {"dataset": "panel", "plan": plan, "batch_size": 4096, "epoch": number + 1, **fields}
                        compared = expected if (order, name, number) == ("file order", "history", -1) else None
                        found = epoch(server, client, request, compared)
                        if number >= 0:
                            visits.append({"visit": f"{name}, {order}", **found})
                            say(json.dumps(visits[-1]))
                for name, peer in PEERS.items() if number >= 0 else ():
                    visits.append({"visit": name, **measured(peer, data)})
                    say(json.dumps(visits[-1]))
    print(json.dumps(visits, indent=1))
    if options.out:
        machine.keep(options.out, run | {"visits": visits, "noise": noise.look()})


def epoch(
    server: RunningServer, client: fl.FlightClient, request: dict[str, Any], expected: dict[str, np.ndarray] | None
) -> dict[str, Any]:
    """Read an epoch; compare its columns with expected ones, if there are any."""
    server_cpu, cpu, start = server.cpu_seconds(), time.process_time(), time.monotonic()
    found = info(client, request)
    reader = client.do_get(found.endpoints[0].ticket)
    rows, parts = 0, []
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            break
        rows += batch.num_rows
        if expected is not None:
            parts.append({name: batch[name].to_numpy() for name in batch.schema.names})
    wall = time.monotonic() - start
    if expected is not None:
        for name, values in expected.items():
            streamed = np.concatenate([part[name] for part in parts])
            assert np.allclose(streamed, values, rtol=1e-6, atol=1e-6), f"{name} differs"
    server_cpu, cpu = server.cpu_seconds() - server_cpu, time.process_time() - cpu
    return {"rows": rows, "wall_s": wall, "server_cpu_s": server_cpu, "client_cpu_s": cpu, "rows_per_s": rows / wall}


def measured(peer: Callable[[Path], dict[str, np.ndarray]], data: Path) -> dict[str, Any]:
    """Compute the columns with a peer."""
    cpu, start = time.process_time(), time.monotonic()
    rows = len(peer(data)["lag"])
    wall = time.monotonic() - start
    return {"rows": rows, "wall_s": wall, "cpu_s": time.process_time() - cpu, "rows_per_s": rows / wall}


def of_polars(data: Path) -> dict[str, np.ndarray]:
    """Return the columns by Polars."""
    single = pl.Float32
    frame = pl.scan_parquet(data / "*.parquet").select(
        *BASE,
        pl.col("a").shift(1).over("series").fill_null(0).cast(single).alias("lag"),
        pl.col("b").diff(24).over("series").fill_null(0).cast(single).alias("diff"),
        pl.col("c").cast(pl.Float64).rolling_mean(24, min_samples=1).over("series").cast(single).alias("mean"),
        pl.col("d").rolling_max(168, min_samples=1).over("series").cast(single).alias("max"),
    )
    return {name: column.to_numpy() for name, column in frame.collect().to_dict().items()}


def of_duckdb(data: Path) -> dict[str, np.ndarray]:
    """Return the columns by DuckDB."""
    return duckdb.sql(SQL.format(files=data / "*.parquet")).fetchnumpy()


def of_pandas(data: Path) -> dict[str, np.ndarray]:
    """Return the columns by pandas."""
    frame = pd.read_parquet(data, columns=["series", *BASE])
    series = frame.groupby("series", sort=False)

    def rolled(column: str, length: int) -> Any:
        return series[column].rolling(length, min_periods=1)

    columns = {
        "lag": series["a"].shift(1).fillna(0),
        "diff": series["b"].diff(24).fillna(0),
        "mean": rolled("c", 24).mean(),
        "max": rolled("d", 168).max(),
    }
    return {name: column.to_numpy(np.float32) for name, column in columns.items()}


PEERS = {"Polars": of_polars, "DuckDB": of_duckdb, "pandas": of_pandas}


if __name__ == "__main__":
    main()
