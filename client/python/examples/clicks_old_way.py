"""The same job as usually done: learn vocabularies and scales, write all features to Parquet, train on the files.

The features are those of the plan in clicks.py, computed with pandas, one column or one file at a time.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from clicks_data import CATEGORIES, LABEL, NUMBERS
from clicks_model import BATCH_ROWS
from flights_model import Batch
from numpy.typing import NDArray

VOCABULARY_MIN_COUNT = 10
SHARD_ROWS = 16 * BATCH_ROWS


@dataclass
class Prepared:
    """Shards of prepared features, and their dimensions."""

    shards: list[Path]
    category_sizes: list[int]
    written_bytes: int
    seconds: float

    def batches(self) -> Iterator[Batch]:
        """Read the shards in order, one batch at a time."""
        for shard in self.shards:
            table = pq.read_table(shard)
            dense = _matrix(table, "dense", len(NUMBERS))
            cats = _matrix(table, "cats", len(CATEGORIES))
            label = torch.from_numpy(table["label"].to_numpy().copy())
            for at in range(0, len(label), BATCH_ROWS):
                rows = slice(at, at + BATCH_ROWS)
                yield {"dense": dense[rows], "cats": cats[rows], "label": label[rows]}


def prepare(files: list[Path], folder: Path) -> Prepared:
    """Compute all features and write them to shards in `folder`, replacing its contents."""
    started = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scales = {name: _scale(_column(files, name)) for name in NUMBERS}
    vocabularies = {name: _vocabulary(_column(files, name)) for name in CATEGORIES}
    shards = _write_shards((_features(pd.read_parquet(file), scales, vocabularies) for file in files), folder)
    return Prepared(
        shards=shards,
        category_sizes=[len(index) + 1 for index in vocabularies.values()],
        written_bytes=sum(shard.stat().st_size for shard in shards),
        seconds=time.perf_counter() - started,
    )


def _column(files: list[Path], name: str) -> pd.Series:
    return pd.concat([pd.read_parquet(file, columns=[name])[name] for file in files], ignore_index=True)


def _logarithm(values: pd.Series) -> NDArray[np.float64]:
    return np.log1p(values.fillna(0).to_numpy(np.float64))


def _scale(values: pd.Series) -> tuple[float, float]:
    logarithm = _logarithm(values)
    return float(logarithm.mean()), float(logarithm.std())


def _vocabulary(values: pd.Series) -> pd.Series:
    """Map each value to its index, from 1, by descending count and then by value."""
    counts = values.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    frequent = counts[counts >= VOCABULARY_MIN_COUNT]
    return pd.Series(np.arange(1, len(frequent) + 1, dtype=np.int32), index=frequent.index)


def _features(
    raw: pd.DataFrame, scales: dict[str, tuple[float, float]], vocabularies: dict[str, pd.Series]
) -> pa.Table:
    dense = np.empty((len(raw), len(NUMBERS)), np.float32)
    for index, (name, (mean, std)) in enumerate(scales.items()):
        dense[:, index] = (_logarithm(raw[name]) - mean) / std
    cats = np.empty((len(raw), len(CATEGORIES)), np.int32)
    for index, (name, vocabulary) in enumerate(vocabularies.items()):
        cats[:, index] = raw[name].map(vocabulary).fillna(0)
    matrices = [pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1]) for rows in (dense, cats)]
    return pa.Table.from_arrays(
        [*matrices, pa.array(raw[LABEL].to_numpy(np.float32))], names=["dense", "cats", "label"]
    )


def _write_shards(tables: Iterator[pa.Table], folder: Path) -> list[Path]:
    """Write shards of whole batches, except for the last one."""
    shards: list[Path] = []
    rest: pa.Table | None = None

    def write(rows: pa.Table) -> None:
        shards.append(folder / f"{len(shards):04}.parquet")
        pq.write_table(rows, shards[-1])

    for table in tables:
        rest = table if rest is None else pa.concat_tables([rest, table])
        whole = rest.num_rows // SHARD_ROWS * SHARD_ROWS
        for at in range(0, whole, SHARD_ROWS):
            write(rest.slice(at, SHARD_ROWS))
        rest = rest.slice(whole)
    if rest is not None and rest.num_rows > 0:
        write(rest)
    return shards


def _matrix(table: pa.Table, name: str, width: int) -> torch.Tensor:
    values = pc.list_flatten(table[name]).to_numpy()
    return torch.from_numpy(values.copy()).view(-1, width)
