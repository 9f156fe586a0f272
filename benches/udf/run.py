"""Cost per row of a Python function for calls of 1 to 100,000 rows: Forebay's processes next to Spark's UDFs.

Three ways call the same function, and their results must be equal to the bit:

- `socket`: calls of n rows over the Unix socket of `python -m forebay.udf`, one process, as a server makes them.
- `exchange`: batches of n rows through a server (DoExchange) that calls the function.
- with --spark, PySpark's row UDF and pandas_udf on one core, in Arrow batches of n rows.

The raw numbers are kept with --out, and drawn with --plot. A comparison needs a release build of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay as fb
from forebay.udf import frames
from harness.benches import machine
from harness.benches.bench_server import server_program
from harness.benches.reporting import say
from harness.daemon import LOOPBACK, Daemon
from harness.udf.pool import Functions
from scaling import scaled, scaled_row, scaled_series

HERE = Path(__file__).parent
SIZES = (1, 10, 100, 1_000, 10_000, 100_000)
# A measurement of small calls has this many, one of large calls this many rows at least.
CALLS, ROWS = 300, 100_000
COLOURS = {"socket": "tab:blue", "exchange": "tab:cyan", "Spark row UDF": "tab:red", "Spark pandas_udf": "tab:orange"}

Way = Callable[[int, int], np.ndarray[Any, Any]]
"""Computes the first rows of the values in calls of a size."""


def main() -> None:
    """Measure, compare, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-server", action="store_true", help="measure the processes alone, without exchanges")
    parser.add_argument("--spark", action="store_true", help="measure PySpark too (requirements/spark.txt, Java 17)")
    parser.add_argument("--out", type=Path, help="file for the raw numbers, JSON")
    parser.add_argument("--plot", type=Path, help="file for the picture, SVG")
    options = parser.parse_args()
    values = np.random.default_rng(1).normal(size=ROWS)
    expected = np.asarray(scaled(values))
    run: dict[str, Any] = {"bench": "udf", "command": " ".join(["benches/udf/run.py", *sys.argv[1:]])}
    facts = {} if options.without_server else machine.facts(server_program())
    run |= {"machine": facts, "load": os.getloadavg(), "microseconds_per_row": {}}
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder,
        processes(Path(folder)) as (path, digest),
    ):
        measure(run, {"socket": calls(path, digest, values)}, expected, options.rounds)
        if not options.without_server:
            with exchanges(Path(folder), path, values) as way:
                measure(run, {"exchange": way}, expected, options.rounds)
    if options.spark:
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder, spark_ways(Path(folder), values) as ways:
            measure(run, ways, expected, options.rounds)
    if options.out is not None:
        options.out.write_text(json.dumps(run, indent=1) + "\n")
    if options.plot is not None:
        draw(run["microseconds_per_row"], options.plot)


def measure(run: dict[str, Any], ways: dict[str, Way], expected: np.ndarray[Any, Any], rounds: int) -> None:
    """Add the ways' microseconds per row by call size: each round's, after one that warms up and is compared."""
    for name, way in ways.items():
        found: dict[int, list[float]] = {}
        for size in SIZES:
            rows = min(ROWS, max(size, CALLS * size))
            result = way(rows, size)
            if result.tobytes() != expected[:rows].tobytes():
                raise SystemExit(f"{name}, calls of {size} rows: the values differ from the function's")
            for _ in range(rounds):
                start = time.perf_counter()
                way(rows, size)
                found.setdefault(size, []).append(1e6 * (time.perf_counter() - start) / rows)
            say(f"{name:>18} {size:>8,} rows {statistics.median(found[size]):>12.3f} µs per row")
        run["microseconds_per_row"][name] = found


@contextmanager
def processes(folder: Path) -> Generator[tuple[Path, str], None, None]:
    """Start one process that serves the function; yields its socket and the function's digest."""
    path = folder / "udf.sock"
    with Functions(["scaling:scaled"], path, processes=1, folder=HERE):
        yield path, str(ask(path, {"describe": "scaled"})[0]["function"]["digest"])


def calls(path: Path, digest: str, values: np.ndarray[Any, Any]) -> Way:
    """Return the way that calls the process as a server does."""

    def compute(rows: int, size: int) -> np.ndarray[Any, Any]:
        call = {"call": "scaled", "digest": digest}
        answers = [ask(path, call, values[first : min(first + size, rows)])[1] for first in range(0, rows, size)]
        batches = [pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch() for body in answers]
        return np.concatenate([np.asarray(batch.column(0)) for batch in batches])

    return compute


@contextmanager
def exchanges(folder: Path, path: Path, values: np.ndarray[Any, Any]) -> Generator[Way, None, None]:
    """Start a server that calls the process; yields the way through an exchange."""
    pq.write_table(pa.table({"x": pa.array(values)}), folder / "part.parquet")
    flags = ["--dataset", f"t={folder}/part.parquet", "--state", str(folder / "state"), "--udf", f"scaled=unix:{path}"]
    server = Daemon(*LOOPBACK, *flags)
    plan = fb.Plan(outputs={"x": fb.output(fb.cols("x").udf("scaled"), dtype="FLOAT64")})
    try:
        with fb.connect(server.url) as client, client.exchange(plan) as exchange:

            def compute(rows: int, size: int) -> np.ndarray[Any, Any]:
                parts = [
                    exchange({"x": values[first : min(first + size, rows)]})["x"] for first in range(0, rows, size)
                ]
                return np.concatenate([np.asarray(part).reshape(-1) for part in parts])

            yield compute
    finally:
        server.stop()


def ask(path: Path, head: dict[str, Any], values: np.ndarray[Any, Any] | None = None) -> tuple[dict[str, Any], Any]:
    """Make one call."""
    body = memoryview(b"")
    if values is not None:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([pa.array(values)], names=["x"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body = memoryview(sink.getvalue())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        frames.send(connection, head, body)
        answer, answered = frames.receive(connection)
    if "error" in answer:
        raise SystemExit(f"the call failed: {answer['error']}")
    return answer, answered


@contextmanager
def spark_ways(folder: Path, values: np.ndarray[Any, Any]) -> Generator[dict[str, Way], None, None]:
    """Start Spark on one core; it ends with the block."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import pandas_udf, udf

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[1]").appName("udf").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def way(function: Any) -> Way:
        def compute(rows: int, size: int) -> np.ndarray[Any, Any]:
            session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(size))
            path = folder / f"{rows}.parquet"
            if not path.exists():
                pq.write_table(pa.table({"x": pa.array(values[:rows])}), path)
            frame = session.read.parquet(str(path)).select(function("x").alias("x"))
            return frame.toArrow()["x"].to_numpy()

        return compute

    try:
        row, series = udf(scaled_row, "double", useArrow=False), pandas_udf(scaled_series, "double")
        yield {"Spark row UDF": way(row), "Spark pandas_udf": way(series)}
    finally:
        session.stop()


def draw(measured: dict[str, dict[int, list[float]]], path: Path) -> None:
    """Draw the medians, both axes logarithmic."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for name, sizes in measured.items():
        medians = [statistics.median(times) for times in sizes.values()]
        axes.plot(list(sizes), medians, marker="o", label=name, color=COLOURS[name])
    axes.set(xscale="log", yscale="log", xlabel="rows per call", ylabel="µs per row")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
