"""Hugging Face Datasets: `iterable` returns a stream as a `datasets.IterableDataset` that resumes at its position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ._client.mixture import Mixture
from ._client.options import SourceKeywords
from ._dataset.framework import framework
from ._dataset.rank_tables import RankTables, plain_schema, plain_table, rank_tables
from ._plan.fitted import FittedPlan
from ._plan.plan import Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["iterable"]

datasets = framework("datasets", extra="datasets")
ArrowExamples: Any = framework("datasets.iterable_dataset", extra="datasets").ArrowExamplesIterable

Json = dict[str, Any]


def iterable(
    url: str | Sequence[str],
    name: str | Mixture,
    plan: Plan | FittedPlan | str,
    *,
    ranks: int = 1,
    **options: Unpack[SourceKeywords],
) -> Any:
    """Return the rows of a stream as a `datasets.IterableDataset`; `options` are those of `forebay.ArrayDataset`.

    ``set_epoch`` chooses the epoch. ``load_state_dict`` resumes after the last row of ``state_dict`` without reading
    the rows before it. Each of the `ranks` of the stream is a shard, which ``split_dataset_by_node`` and the workers of
    a DataLoader share out. Shuffle with ``shuffle=True``, on the server: `datasets`' own ``shuffle`` buffers rows, and
    a resumed one loses them. Matrices are lists of fixed length.
    """
    source = rank_tables("iterable", url, name, plan, ranks=ranks, **options)
    source.options.refuse_buckets("iterable")
    examples = FlightExamples(source, range(source.options.world_size), source.options.epoch)
    features = datasets.Features.from_arrow_schema(plain_schema(source.schema))
    return datasets.IterableDataset(examples, info=datasets.DatasetInfo(features=features))


class FlightExamples(ArrowExamples):
    """The rows of some ranks. `datasets` keeps the state: the rank, the number of rows that it has, the snapshot."""

    def __init__(self, source: RankTables, ranks: Sequence[int], epoch: int) -> None:
        ArrowExamples.__init__(self, source.batches, {})
        self._source = source
        self._schema = plain_schema(source.schema)
        self._ranks: list[int] = list(ranks)
        self._epoch = epoch

    @property
    def num_shards(self) -> int:
        """The number of ranks."""
        return len(self._ranks)

    @property
    def iter_arrow(self) -> Any:
        """What iterates over tables."""
        return self._iter_arrow

    def shuffle_data_sources(self, generator: Any) -> FlightExamples:
        """Return another epoch: `datasets` seeds the generator with its number."""
        return FlightExamples(self._source, self._ranks, int(generator.bit_generator.seed_seq.entropy) % 2**63)

    def shard_data_sources(self, num_shards: int, index: int, contiguous: bool = True) -> FlightExamples:
        """Return some of the ranks."""
        chosen: list[int] = self.split_shard_indices_by_worker(num_shards, index, contiguous=contiguous)
        return FlightExamples(self._source, [self._ranks[one] for one in chosen], self._epoch)

    def reshard_data_sources(self) -> FlightExamples:
        """Return the same ranks: their number is that of the stream."""
        return self

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Yield the rows as Python values."""
        for state, key, table in self._tables():
            for row in table.to_pylist():
                state["shard_example_idx"] += 1
                yield key, row

    def _iter_arrow(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of each batch."""
        for state, key, table in self._tables():
            state["shard_example_idx"] += table.num_rows
            yield key, table

    def _init_state_dict(self) -> Json:
        self._state_dict = {**ArrowExamples._init_state_dict(self), "snapshot": ""}
        return self._state_dict

    def _tables(self) -> Iterator[tuple[Json, str, pa.Table]]:
        """Yield the state, in which the caller counts rows, and the rows of each batch after those counted."""
        # Without one, `datasets` does not ask for it.
        first: Json = {"shard_idx": 0, "shard_example_idx": 0, "snapshot": ""}
        state = cast("Json | None", self._state_dict) or first
        while state["shard_idx"] < len(self._ranks):
            rank = self._ranks[int(state["shard_idx"])]
            step, skipped = divmod(int(state["shard_example_idx"]), self._source.options.batch_size)
            batches = self._source.batches(rank, epoch=self._epoch, step=step, snapshot=str(state["snapshot"]))
            for snapshot, batch in batches:
                state["snapshot"] = snapshot
                yield state, f"{rank}_{step}", plain_table(batch, self._schema).slice(skipped)
                step, skipped = step + 1, 0
            state["shard_idx"], state["shard_example_idx"] = state["shard_idx"] + 1, 0
