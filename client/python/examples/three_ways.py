"""Standardize and clip a column row by row, vectorized, and as a stream; compare results, times and batch sizes.

The same Parquet file is the input of a Python function per value, of NumPy per Arrow batch, and of a Forebay stream;
with --spark also of PySpark's row UDF and pandas UDF. All results must be equal to the bit.

    .venv/bin/python client/python/examples/three_ways.py --picture three-ways.svg
"""

import argparse
import hashlib
import json
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from flights_server import running_server, server_binary
from measuring import Seconds, measured, median

import forebay as fb

Values = npt.NDArray[np.float64]

LOW, HIGH = -3.0, 3.0
PLAN = fb.Plan(outputs={"x": fb.output(fb.cols("x").standardize().clip(LOW, HIGH), dtype="float64")})
SEED = 7
ROW_GROUP_ROWS = 250_000
BATCH_ROWS = 65_536
CURVE = [10**power for power in range(7)]


@dataclass(frozen=True)
class Scale:
    """The parameters of `standardize`, as the fit learned them."""

    mean: float
    std: float


@dataclass(frozen=True)
class Way:
    """One way to compute the column of the first `rows` rows, in batches of `batch_rows`."""

    name: str
    run: Callable[[int, int], Values]
    batch_rows: int | None = BATCH_ROWS
    """Rows of a batch in the table; None: batches make no difference."""
    read: Callable[[int, int], Values] | None = None
    """The results for the comparison, if `run` discards them."""


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Compare a row UDF, a vectorized UDF and a stream.")
    parser.add_argument("--rows", type=int, default=4_000_000, help="values of the column (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the times are medians (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=20_000, help="batches at most of a point of the curve")
    parser.add_argument("--cpu-seconds", type=float, default=0.25, help="CPU seconds at least of a point of the curve")
    parser.add_argument("--bin-dir", type=Path, help="folder of forebay-server, if not that of forebay.local")
    parser.add_argument("--spark", action="store_true", help="PySpark too; needs Java 17 and the package pyspark")
    parser.add_argument("--json", type=Path, help="file for the raw results")
    parser.add_argument("--picture", type=Path, help="file for the curve, .svg or .png; needs matplotlib")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="forebay-three-ways-") as scratch:
        folder = Path(scratch)
        sizes = {given.rows, *(curve_rows(size, given) for size in CURVE)}
        tables = {rows: write_values(folder / str(rows), rows) for rows in sizes}
        datasets = {dataset(rows): table.parent for rows, table in tables.items()}
        program = server_binary(given.bin_dir)
        with running_server(program, datasets, folder / "state") as server, fb.connect(server.url) as client:
            fitted, fit_seconds = measured(lambda: client.fit(dataset(given.rows), PLAN))
            scale = learned(fitted.plan)
            ways = plain_ways(tables, scale, client, fitted.plan)
            if given.spark:
                from three_ways_spark import spark_ways

                with spark_ways(tables, scale, (LOW, HIGH)) as more:
                    report(given, scale, fit_seconds, [*ways, *more])
            else:
                report(given, scale, fit_seconds, ways)


def learned(plan: fb.Plan) -> Scale:
    """Read the mean and the deviation from a fitted plan."""
    ops = cast("list[dict[str, dict[str, float]]]", plan.outputs["x"].parts[0].to_dict()["ops"])
    return Scale(**ops[0]["standardize"])


def write_values(folder: Path, rows: int) -> Path:
    """Write a table of random values and their numbers; return its file."""
    folder.mkdir()
    values = np.random.default_rng(SEED).normal(50.0, 17.0, rows)
    table = pa.table({"i": pa.array(np.arange(rows)), "x": pa.array(values)})
    pq.write_table(table, folder / "x.parquet", row_group_size=ROW_GROUP_ROWS, use_dictionary=False)
    return folder / "x.parquet"


def dataset(rows: int) -> str:
    """Name the dataset of the table with `rows` rows."""
    return f"values-{rows}"


def curve_rows(batch_rows: int, given: argparse.Namespace) -> int:
    """Count the rows of a point of the curve."""
    return min(given.rows, batch_rows * given.batches)


# === The three ways ===


def plain_ways(tables: dict[int, Path], scale: Scale, client: fb.Client, plan: fb.Plan) -> list[Way]:
    """Return the ways that need no Spark."""
    mean, std = scale.mean, scale.std

    def scaled(value: float) -> float:
        return min(max((value - mean) / std, LOW), HIGH)

    def by_rows(rows: int, _: int) -> Values:
        column = cast("list[float]", pq.read_table(tables[rows], columns=["x"])["x"].to_pylist())
        return np.array([scaled(value) for value in column])

    def by_batches(rows: int, batch_rows: int) -> Values:
        found: list[Values] = []
        for batch in pq.ParquetFile(tables[rows]).iter_batches(batch_rows, columns=["x"]):
            found.append(np.clip((batch.column(0).to_numpy() - mean) / std, LOW, HIGH))
        return np.concatenate(found)

    def by_stream(rows: int, batch_rows: int) -> Values:
        stream = client.stream(dataset(rows), plan, batch_size=batch_rows)
        return np.concatenate([batch["x"] for batch in stream])

    return [
        Way("Python, row by row", by_rows, batch_rows=None),
        Way("NumPy on Arrow batches", by_batches),
        Way("Forebay stream", by_stream),
    ]


# === The comparison ===


def report(given: argparse.Namespace, scale: Scale, fit_seconds: Seconds, ways: list[Way]) -> None:
    """Compare and measure all ways, print tables, and write the raw results."""
    expected = ways[0].run(given.rows, 0)
    for way in ways[1:]:
        check_equal(way, given.rows, way.batch_rows or 0, expected)
    rounds: dict[str, list[Seconds]] = {way.name: [] for way in ways}
    for _ in range(given.rounds):
        for way in ways:
            rounds[way.name].append(measured(lambda way=way: way.run(given.rows, way.batch_rows or 0))[1])
    print(f"{given.rows:,} values, mean {scale.mean!r}, deviation {scale.std!r}, fitted in {fit_seconds.wall:.2f} s")
    print(f"all {len(ways)} results are equal to the bit\n")
    print(table_of_times(given.rows, ways, {name: median(seconds) for name, seconds in rounds.items()}))

    curves: dict[str, dict[int, Seconds]] = {}
    for way in ways:
        if way.batch_rows is not None:
            curves[way.name] = {
                size: point(way, size, curve_rows(size, given), expected, given.cpu_seconds) for size in CURVE
            }
    print(f"\nCPU ns per value by rows per batch\n\n{table_of_curves(curves)}", flush=True)

    if given.json:
        raw = {
            "machine": platform.platform(),
            "arguments": {name: str(value) for name, value in vars(given).items()},
            "scale": asdict(scale),
            "result_sha256": hashlib.sha256(expected.tobytes()).hexdigest(),
            "fit_seconds": asdict(fit_seconds),
            "rounds": {name: [asdict(one) for one in seconds] for name, seconds in rounds.items()},
            "curve_seconds_per_value": {
                name: {size: asdict(one) for size, one in curve.items()} for name, curve in curves.items()
            },
        }
        given.json.write_text(json.dumps(raw, indent=1) + "\n")
    if given.picture:
        from pictures import curves as draw_curves

        named = {name: {size: 1e9 * one.cpu for size, one in curve.items()} for name, curve in curves.items()}
        draw_curves(given.picture, named, ("rows per batch", "CPU ns per value"), "Standardize and clip, from Parquet")


def check_equal(way: Way, rows: int, batch_rows: int, expected: Values) -> None:
    """End the program if a value differs in a bit."""
    found = (way.read or way.run)(rows, batch_rows)
    if len(found) != rows:
        raise SystemExit(f"{way.name}: {len(found):,} values instead of {rows:,}")
    wrong = np.flatnonzero(found.view(np.uint64) != expected[:rows].view(np.uint64))
    if len(wrong):
        at = wrong[0]
        raise SystemExit(
            f"{way.name}: {len(wrong):,} values differ; value {at} is {found[at]!r}, not {expected[at]!r} "
            f"({batch_rows:,} rows per batch)"
        )


def point(way: Way, batch_rows: int, rows: int, expected: Values, cpu_seconds_min: float) -> Seconds:
    """Return the seconds per value with batches of this size, whose results are compared too."""
    check_equal(way, rows, batch_rows, expected)
    runs = 1
    while True:
        _, seconds = measured(lambda runs=runs: repeat(way, rows, batch_rows, runs))
        if seconds.cpu >= cpu_seconds_min:
            return Seconds(seconds.wall / runs / rows, seconds.cpu / runs / rows)
        runs *= 2


def repeat(way: Way, rows: int, batch_rows: int, runs: int) -> None:
    """Run a way several times."""
    for _ in range(runs):
        way.run(rows, batch_rows)


def table_of_times(rows: int, ways: list[Way], times: dict[str, Seconds]) -> str:
    """Format the medians."""
    lines = [f"{'':28}{'rows per batch':>16}{'wall, s':>10}{'CPU, s':>10}{'CPU ns per value':>18}"]
    for way in ways:
        size = "1" if way.batch_rows is None else f"{way.batch_rows:,}"
        one = times[way.name]
        lines.append(f"{way.name:28}{size:>16}{one.wall:>10.2f}{one.cpu:>10.2f}{1e9 * one.cpu / rows:>18,.0f}")
    return "\n".join(lines)


def table_of_curves(curves: dict[str, dict[int, Seconds]]) -> str:
    """Format the curves as columns."""
    lines = ["".join(["rows per batch", *(f"{name:>26}" for name in curves)])]
    for size in CURVE:
        lines.append("".join([f"{size:>14,}", *(f"{1e9 * curve[size].cpu:>26,.0f}" for curve in curves.values())]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
