"""Reference results (statistics, vocabularies, column sums in float64) from NumPy and pyarrow, and the checks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import xxhash

from harness.benches import criteo
from lineup import Entry, Strings

CLIP = 3.0
FIRST_ROWS = 4 * 8192
# A few float32 roundings of values up to 3; the mean's rounding error is divided by a deviation of about 0.5.
VALUE_BOUND = 4e-6
# Rounding errors partly cancel in the means of a column and of its squares.
MEAN_BOUND = 1e-6
Matrix = np.ndarray[Any, Any]


class Disagreement(Exception):
    """A contender's output differs from the reference."""


@dataclass(frozen=True)
class Statistics:
    """Mean and population deviation of log1p of the filled columns, in float64."""

    mean: Matrix
    std: Matrix


@dataclass(frozen=True)
class Expected:
    """Column sums of a folder, and its first rows."""

    rows: int
    dense_sum: Matrix
    dense_square_sum: Matrix
    strings_sum: Matrix
    remainders_sum: Matrix
    """Sums of the integers modulo the number of buckets."""
    hashes_sum: Matrix
    """Sums of Forebay's hash_bucket of the integers."""
    first_dense: Matrix
    first_strings: Matrix


def fit(folder: Path, fitted: Path) -> Statistics:
    """Fit all rows; write statistics.json and one Parquet file per vocabulary for the contenders."""
    count, total, squares = 0, np.zeros(len(criteo.DENSE)), np.zeros(len(criteo.DENSE))
    counts: dict[str, list[pa.StructArray]] = {name: [] for name in criteo.STRINGS}
    for batch in _batches(folder):
        dense = _log1p(batch)
        count, total, squares = count + len(dense), total + dense.sum(0), squares + np.square(dense).sum(0)
        for name, found in counts.items():
            found.append(batch.column(name).value_counts())
    mean = total / count
    statistics = Statistics(mean, np.sqrt(squares / count - mean**2))
    kept = {"mean": statistics.mean.tolist(), "std": statistics.std.tolist()}
    (fitted / "statistics.json").write_text(json.dumps(kept) + "\n")
    for name, found in counts.items():
        words = pa.concat_arrays([each.field("values") for each in found])
        table = pa.table({name: words, "count": pa.concat_arrays([each.field("counts") for each in found])})
        table = table.group_by(name).aggregate([("count", "sum")])
        table = table.sort_by([("count_sum", "descending"), (name, "ascending")])
        pq.write_table(table.select([name]), fitted / f"{name}.parquet")
    return statistics


def expect(folder: Path, fitted: Path, statistics: Statistics) -> Expected:
    """Compute the reference sums of a folder."""
    words = {name: pq.read_table(fitted / f"{name}.parquet").column(name).combine_chunks() for name in criteo.STRINGS}
    hashes = {}
    rows = 0
    dense_sums, cats_sums = np.zeros((2, len(criteo.DENSE))), np.zeros((3, len(criteo.STRINGS)), np.int64)
    first: list[tuple[Matrix, Matrix]] = []
    for batch in _batches(folder):
        dense = np.clip((_log1p(batch) - statistics.mean) / statistics.std, -CLIP, CLIP)
        dense_sums += (dense.sum(0), np.square(dense).sum(0))
        indices = [pc.fill_null(pc.index_in(batch.column(name), words[name]), -1) for name in criteo.STRINGS]  # pyright: ignore[reportArgumentType]
        strings = np.stack([index.to_numpy() for index in indices], 1).astype(np.int64) + 1
        integers = np.stack([batch.column(name).to_numpy() for name in criteo.INTEGERS], 1)
        values, places = np.unique(integers, return_inverse=True)
        for value in values.tolist():
            if value not in hashes:
                hashes[value] = xxhash.xxh3_64_intdigest(value.to_bytes(8, "little")) % criteo.HASH_BUCKETS
        hashed = np.array([hashes[value] for value in values.tolist()])[places.reshape(integers.shape)]
        remainders = integers % criteo.HASH_BUCKETS
        cats_sums += (strings.sum(0), remainders.sum(0), hashed.sum(0))
        if rows < FIRST_ROWS:
            first.append((dense[: FIRST_ROWS - rows], strings[: FIRST_ROWS - rows]))
        rows += len(dense)
    first_dense, first_strings = (np.concatenate(parts) for parts in zip(*first, strict=True))
    return Expected(rows, *dense_sums, *cats_sums, first_dense, first_strings)  # pyright: ignore[reportCallIssue]


def check(entry: Entry, found: dict[str, Any], first: Path, expected: Expected) -> list[str]:
    """Compare a contender's sums and first batches with the reference; return the findings for the report."""
    if found["rows"] != expected.rows:
        raise Disagreement(f"{found['rows']:,} rows, not {expected.rows:,}")
    distances = [
        np.abs(np.array(found[name]) - getattr(expected, name)).max() / expected.rows
        for name in ("dense_sum", "dense_square_sum")
    ]
    if max(distances) > MEAN_BOUND:
        raise Disagreement(f"a dense column's mean is {max(distances):.2g} off, over {MEAN_BOUND:g}")
    seen = [f"means of dense columns and of their squares within {max(distances):.1g}"]
    width = len(criteo.STRINGS)
    cats = np.array(found["cats_sum"])
    integers = expected.hashes_sum if entry.is_forebay else expected.remainders_sum
    if (cats[width:] != integers).any():
        raise Disagreement("the sums of the integers differ")
    seen.append("sums of integers equal")
    if entry.strings is Strings.VOCABULARY:
        if (cats[:width] != expected.strings_sum).any():
            raise Disagreement("the sums of the vocabulary indices differ")
        seen.append("sums of vocabulary indices equal")
    if min(found["cats_least"]) < 0 or (
        entry.strings is Strings.HASH and max(found["cats_most"]) >= criteo.HASH_BUCKETS
    ):
        raise Disagreement("a category is out of range")
    if entry.in_order:
        seen.append(_check_first(entry, first, expected))
    return seen


def _check_first(entry: Entry, first: Path, expected: Expected) -> str:
    """Compare the first rows individually."""
    with np.load(first) as kept:
        dense, strings = kept["dense"], kept["cats"][:, : len(criteo.STRINGS)]
    rows = min(len(dense), FIRST_ROWS, len(expected.first_dense))
    distance = np.abs(dense[:rows] - expected.first_dense[:rows]).max()
    if distance > VALUE_BOUND:
        raise Disagreement(f"a dense value of the first rows is {distance:.2g} off, over {VALUE_BOUND:g}")
    summary = f"first {rows:,} rows: dense within {distance:.1g}"
    words = expected.first_strings[:rows]
    if entry.strings is Strings.VOCABULARY:
        if (strings[:rows] != words).any():
            raise Disagreement("a vocabulary index of the first rows differs")
        return f"{summary}, vocabulary indices equal"
    if entry.strings is Strings.HASH:
        for index in range(words.shape[1]):
            pairs = np.stack([words[:, index], strings[:rows, index]], 1)
            if len(np.unique(pairs, axis=0)) != len(np.unique(words[:, index])):
                raise Disagreement("one string has two hashes")
        return f"{summary}, a string always has the same hash"
    return summary


def _batches(folder: Path) -> Any:
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    return ds.dataset(files, format="parquet").to_batches(batch_size=131_072)


def _log1p(batch: pa.RecordBatch) -> Matrix:
    columns = [pc.fill_null(batch.column(name), 0).to_numpy() for name in criteo.DENSE]  # pyright: ignore[reportArgumentType]
    return np.log1p(np.stack(columns, 1).astype(np.float64))
