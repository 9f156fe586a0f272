"""Ray: `FlightDatasource`, whose read tasks are the ranks of a stream, and the stream of a worker of Ray Train."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._client.mixture import Mixture
from ._client.options import SourceKeywords
from ._dataset.framework import framework
from ._dataset.rank_tables import RankTables, rank_tables
from ._plan.fitted import FittedPlan
from ._plan.plan import Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._dataset.dataset import FlightDataset

__all__ = ["FlightDatasource", "save_position", "train_dataset"]

data = framework("ray.data", extra="ray")
Datasource: Any = data.Datasource
ReadTask: Any = data.ReadTask
BlockMetadata: Any = framework("ray.data.block", extra="ray").BlockMetadata

# The file with the position, in the folder of a checkpoint.
POSITION = "forebay.json"


class FlightDatasource(Datasource):
    """An epoch of a stream for Ray Data: ``ray.data.read_datasource(FlightDatasource(url, "flights", plan, ranks=8))``.

    Each of the `ranks` is a read task, which receives its rows from the server; together they have every row once.
    `options` are those of `forebay.ArrayDataset`. Make a source for each ``epoch``. All tasks, and those that Ray
    repeats, read the files of the time when the source was made: if they change, `forebay.SnapshotChanged` is raised.
    Ray Data has no position to resume from; `train_dataset` has.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        name: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        ranks: int = 1,
        **options: Unpack[SourceKeywords],
    ) -> None:
        Datasource.__init__(self)
        self._source = rank_tables("FlightDatasource", url, name, plan, ranks=ranks, **options)
        self._shares = self._source.shares()

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "Forebay"

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of all rows."""
        return sum(share.bytes for share in self._shares)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, *_: Any, **__: Any) -> list[Any]:
        """Return a task for each rank, whatever parallelism Ray proposes."""
        return [
            ReadTask(
                partial(_batches, self._source, share.rank),
                BlockMetadata(num_rows=share.rows, size_bytes=share.bytes, input_files=None, exec_stats=None),
                schema=self._source.schema,
                per_task_row_limit=per_task_row_limit,
            )
            for share in self._shares
        ]


def train_dataset(
    url: str | Sequence[str], name: str | Mixture, plan: Plan | FittedPlan | str, **options: Any
) -> FlightDataset:
    """Return the `forebay.torch.FlightDataset` of a worker, for the function that a trainer of Ray Train runs.

    Its rank and world size are the worker's. It starts at the position of the checkpoint that Ray restores, which
    `save_position` has written there, also after a failure or with another number of workers. `options` are those of
    `forebay.torch.FlightDataset`.
    """
    from .torch import FlightDataset

    for word in ("rank", "world_size"):
        if word in options:
            raise TypeError(f"train_dataset has no argument {word!r}: rank and world size are those of Ray's worker")
    train = framework("ray.train", extra="ray")
    context = train.get_context()
    stream = FlightDataset(
        url, name, plan, rank=context.get_world_rank(), world_size=context.get_world_size(), **options
    )
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            file = Path(folder) / POSITION
            if not file.is_file():
                raise FileNotFoundError(
                    f"{checkpoint} has no {POSITION}: call forebay.ray.save_position for its folder before "
                    "ray.train.report"
                )
            stream.load_state_dict(json.loads(file.read_text()))
    return stream


def save_position(stream: FlightDataset, folder: str | os.PathLike[str]) -> None:
    """Write the position after the loop's last batch to the folder of a checkpoint; any rank's is that of all."""
    (Path(folder) / POSITION).write_text(json.dumps(stream.state_dict()) + "\n")


def _batches(source: RankTables, rank: int) -> Iterator[pa.Table]:
    """Yield the batches of a rank."""
    for _, batch in source.batches(rank, snapshot=source.info.snapshot):
        yield pa.Table.from_batches([batch])
