"""The same job as usually done: compute all features, write them to Parquet, then train on the files.

The features are those of the plan in flights.py, computed with pandas.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from flights_data import LATE_MINUTES
from flights_model import BATCH_ROWS, Batch

SHARD_ROWS = 32 * BATCH_ROWS
VOCABULARY_MIN_COUNT = 10

CATEGORIES = ["carrier", "origin", "dest", "month", "weekday"]


@dataclass
class Prepared:
    """Shards of prepared features, and their dimensions."""

    training: list[Path]
    held_out: list[Path]
    training_rows: int
    dense_width: int
    category_sizes: list[int]
    written_bytes: int
    seconds: float

    def batches(self, shards: list[Path]) -> Iterator[Batch]:
        """Read the shards in order, one batch at a time."""
        for shard in shards:
            table = pq.read_table(shard)
            dense = _matrix(table, [f"dense_{i}" for i in range(self.dense_width)])
            cats = _matrix(table, [f"cats_{i}" for i in range(len(self.category_sizes))])
            label = torch.from_numpy(table["label"].to_numpy().copy())
            for at in range(0, len(label), BATCH_ROWS):
                rows = slice(at, at + BATCH_ROWS)
                yield {"dense": dense[rows], "cats": cats[rows], "label": label[rows]}


def prepare(flights: Path, folder: Path) -> Prepared:
    """Compute all features of all flights and write them to shards in `folder`, replacing its contents."""
    started = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    raw = pd.read_parquet(flights)
    raw = raw[raw["arr_delay"].notna()]
    raw = raw.assign(
        weekday=pd.to_datetime(raw[["year", "month", "day"]]).dt.dayofweek,
        dep_minutes=_minutes(raw["dep_time"]),
        sched_dep_minutes=_minutes(raw["sched_dep_time"]),
        sched_arr_minutes=_minutes(raw["sched_arr_time"]),
    )
    is_held_out = raw["day"] % 5 == 0
    seen = raw[~is_held_out]

    dense = pd.DataFrame(
        {
            "near_delay": _standardized(raw["dep_delay"].clip(-30, 60), seen["dep_delay"].clip(-30, 60)),
            **{
                name: _standardized(raw[name], seen[name]).clip(-3, 3)
                for name in ["dep_delay", "distance", "dep_minutes", "sched_dep_minutes", "sched_arr_minutes"]
            },
        }
    )
    vocabularies = {name: _vocabulary(seen[name]) for name in CATEGORIES}
    columns = {f"dense_{i}": dense[name].astype(np.float32) for i, name in enumerate(dense)}
    columns |= {
        f"cats_{i}": raw[name].map(index).fillna(0).astype(np.int32)
        for i, (name, index) in enumerate(vocabularies.items())
    }
    columns["label"] = (raw["arr_delay"] > LATE_MINUTES).astype(np.float32)
    ready = pd.DataFrame(columns)

    training = _write_shards(ready[~is_held_out], folder / "training")
    held_out = _write_shards(ready[is_held_out], folder / "held_out")
    return Prepared(
        training=training,
        held_out=held_out,
        training_rows=len(seen),
        dense_width=len(dense.columns),
        category_sizes=[len(index) + 1 for index in vocabularies.values()],
        written_bytes=sum(shard.stat().st_size for shard in [*training, *held_out]),
        seconds=time.perf_counter() - started,
    )


def _minutes(clock: pd.Series) -> pd.Series:
    """Convert a clock time in the form HHMM to minutes since midnight."""
    return clock // 100 * 60 + clock % 100


def _standardized(values: pd.Series, seen: pd.Series) -> pd.Series:
    """Fill with the mean, centre and scale, with the statistics of `seen`."""
    mean = seen.mean()
    std = seen.fillna(mean).std(ddof=0)
    return (values.fillna(mean) - mean) / std


def _vocabulary(seen: pd.Series) -> dict[object, int]:
    """Map each value to its index, from 1, by descending count and then by value."""
    counts = seen.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    frequent = counts[counts >= VOCABULARY_MIN_COUNT]
    return {value: index for index, value in enumerate(frequent.index, start=1)}


def _write_shards(ready: pd.DataFrame, folder: Path) -> list[Path]:
    folder.mkdir()
    shards: list[Path] = []
    for at in range(0, len(ready), SHARD_ROWS):
        shard = folder / f"{at // SHARD_ROWS:04}.parquet"
        pq.write_table(pa.Table.from_pandas(ready.iloc[at : at + SHARD_ROWS], preserve_index=False), shard)
        shards.append(shard)
    return shards


def _matrix(table: pa.Table, names: list[str]) -> torch.Tensor:
    return torch.from_numpy(np.column_stack([table[name].to_numpy() for name in names]))
