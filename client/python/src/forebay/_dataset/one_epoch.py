"""One epoch of a dataset, read several times or from several positions, always of the same files."""

from __future__ import annotations

from dataclasses import replace

from forebay._client.cursor import Cursor, resolved
from forebay._client.stream import Batch

from .array_dataset import ArrayDataset
from .elements import Elements


class OneEpoch:
    """The epoch that `data` is at. `open` moves the position of `data`, which no other loop may use meanwhile."""

    def __init__(self, data: ArrayDataset) -> None:
        self._data = data
        data.set_epoch(data.next_epoch)
        info, options = data.info(), data.options
        options.refuse_buckets("a table of an epoch")
        self.rows = info.rank_rows
        """Rows of this rank."""
        self.batch_size = options.batch_size
        self._start = Cursor(
            data.next_epoch,
            0,
            options.world_size,
            resolved(options.order, options.world_size, info=info),
            info.snapshot,
            info.plan_id,
            info.order_version,
        )

    def open(self, step: int = 0) -> Elements[Batch]:
        """Return an iterator over the batches from a step on. Raises `forebay.SnapshotChanged` if the files changed."""
        position = step * self.batch_size * self._start.world_size
        self._data.load_state_dict(replace(self._start, position=position).to_dict())
        return iter(self._data)
