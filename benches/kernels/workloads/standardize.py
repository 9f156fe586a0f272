"""Standardize and clip of a float64 column into float32: the classic example of a pandas UDF."""

from __future__ import annotations

import duckdb
import numexpr
import numpy as np
import polars as pl
import pyarrow as pa

from columns import Array, aligned, arrow
from rounds import Goal, Peer, Workload
from runner import Runner, RunnerCopy, chain, output
from workloads import check

ROWS = 4_000_000
BATCH_ROWS = 65_536
BOUND = 3.0


def standardize(runner: Runner, seed: int) -> Workload:
    """Prepare the workload."""
    x = aligned(np.random.default_rng(seed).normal(5.0, 2.0, ROWS))
    mean, std = float(x.mean()), float(x.std())
    runner.load("standardize", {"x": arrow(x)})
    ops = ({"standardize": {"mean": mean, "std": std}}, {"clip": {"min": -BOUND, "max": BOUND}})
    plan = output("FLOAT32", [chain("x", *ops)])
    forebay = [
        runner.prepare(f"Forebay, batches of {BATCH_ROWS:,} rows", "standardize", plan, batch_rows=BATCH_ROWS),
        runner.prepare("Forebay, one batch", "standardize", plan, batch_rows=ROWS),
    ]
    copied = np.ones_like(x)
    memcpy = Peer("memcpy of the column", lambda: np.copyto(copied, x))
    chunk = np.ones(BATCH_ROWS)

    def copy_chunks() -> None:
        for start in range(0, ROWS, BATCH_ROWS):
            rows = x[start : start + BATCH_ROWS]
            np.copyto(chunk[: len(rows)], rows)

    peers = [
        *_numpy(x, mean, std),
        _numexpr(x, mean, std),
        _polars(x, mean, std),
        _duckdb(x, mean, std),
        *_python(x, mean, std),
    ]
    expected = np.clip((x - mean) / std, -BOUND, BOUND).astype(np.float32)
    checks = [check.equal(each.name, each.result(), expected) for each in forebay]
    checks += [check.equal(each.name, np.asarray(each.do(), np.float32), expected) for each in peers]
    others = [
        memcpy,
        RunnerCopy(runner, "memcpy of the column, in Forebay's process", "standardize"),
        Peer(f"memcpy of each {BATCH_ROWS:,} rows to one place", copy_chunks),
    ]
    goals = [Goal(memcpy.name, 1 / 1.25), Goal(peers[0].name, 5), Goal(peers[-2].name, 300)]
    title = f"standardize + clip(-3, 3) of {ROWS:,} float64 into float32"
    return Workload("standardize", title, ROWS, [*forebay, *others, *peers], goals, checks)


def _numpy(x: Array, mean: float, std: float) -> list[Peer]:
    def plain() -> Array:
        return np.clip((x - mean) / std, -BOUND, BOUND).astype(np.float32)

    doubles, singles = np.ones_like(x), np.ones(len(x), np.float32)

    def in_place() -> Array:
        np.subtract(x, mean, out=doubles)
        np.divide(doubles, std, out=doubles)
        np.clip(doubles, -BOUND, BOUND, out=singles, casting="same_kind")
        return singles

    return [Peer("NumPy", plain), Peer("NumPy into existing memory", in_place)]


def _numexpr(x: Array, mean: float, std: float) -> Peer:
    singles = np.ones(len(x), np.float32)
    names = {"x": x, "mean": mean, "std": std, "low": mean - BOUND * std, "high": mean + BOUND * std, "b": BOUND}
    # Comparing before dividing was the fastest variant.
    text = "where(x < low, -b, where(x > high, b, (x - mean) / std))"
    return Peer("numexpr", lambda: numexpr.evaluate(text, names, out=singles, casting="same_kind"))


def _polars(x: Array, mean: float, std: float) -> Peer:
    frame = pl.DataFrame({"x": x}).lazy()
    query = frame.select(((pl.col("x") - mean) / std).clip(-BOUND, BOUND).cast(pl.Float32))
    return Peer("Polars", lambda: query.collect()["x"])


def _duckdb(x: Array, mean: float, std: float) -> Peer:
    connection = duckdb.connect(config={"threads": 1})
    # DuckDB looks the variable up by name.
    given = pa.table({"x": x})  # noqa: F841  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnusedVariable]
    connection.execute("CREATE TABLE numbers AS SELECT x FROM given")
    clipped = f"least(greatest((x - ({mean!r})) / {std!r}, -{BOUND}), {BOUND})"
    query = f"SELECT {clipped}::FLOAT AS x FROM numbers"
    return Peer("DuckDB", lambda: connection.sql(query).to_arrow_table()["x"])


def _python(x: Array, mean: float, std: float) -> list[Peer]:
    def standardized(value: float) -> float:
        z = (value - mean) / std
        return -BOUND if z < -BOUND else BOUND if z > BOUND else z

    def column_to_column() -> Array:
        return np.fromiter(map(standardized, x.tolist()), np.float32, len(x))

    # Python floats in and out: the lowest possible cost of row-at-a-time code.
    values = x.tolist()

    def floats_to_floats() -> list[float]:
        return [standardized(value) for value in values]

    return [
        Peer("Python, row at a time", column_to_column, passes=1, rounds_max=5),
        Peer("Python, row at a time, floats to floats", floats_to_floats, passes=1, rounds_max=5),
    ]
