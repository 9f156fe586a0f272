"""LightGBM: `FlightSequence`, the rows of one epoch by their index, of which one batch is in memory."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._client.arrays import Array
from ._client.stream import Batch
from ._dataset.array_dataset import ArrayDataset
from ._dataset.elements import Elements
from ._dataset.framework import framework
from ._dataset.one_epoch import OneEpoch
from ._dataset.tabular import Tabular
from .errors import StreamError

__all__ = ["FlightSequence"]

lightgbm = framework("lightgbm", extra="lightgbm")
Rows: Any = lightgbm.Sequence

# Batches that are read and skipped rather than opening the stream at another position.
SKIPPED_MAX = 4


class FlightSequence(Rows):
    """The features of one epoch of `data` by row: ``lightgbm.Dataset(rows, rows.labels())``.

    Rows are those of the epoch that `data` was at when this object was made, in its order and of the same files: if
    they change, `forebay.SnapshotChanged` is raised. LightGBM samples rows in ascending order and then reads all of
    them, each in one pass over the stream. Indices in another order open the stream again.

    `features` and `label` are outputs of the plan; several features are set side by side. Rows are float64.
    """

    def __init__(self, data: ArrayDataset, *, features: str | Sequence[str], label: str | None = None) -> None:
        self._tabular = Tabular.of(data.schema, features, label)
        self._epoch = OneEpoch(data)
        self.batch_size = self._epoch.batch_size
        self._batches: Elements[Batch] | None = None
        # The number of the batch read last, and its features.
        self._step = -1
        self._matrix: Array | None = None

    def __len__(self) -> int:
        return self._epoch.rows

    def __getitem__(self, index: int | slice | list[int]) -> Array:
        """Return a row [width], or rows [n, width]."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._range(start, stop) if step == 1 else self._rows(range(start, stop, step))
        if isinstance(index, (list, np.ndarray)):
            return self._rows(index)
        return self._row(operator.index(index))

    def labels(self) -> Array:
        """Read the labels of all rows, in one pass over the stream."""
        if self._tabular.label is None:
            raise ValueError("name the output of the labels: FlightSequence(data, features=…, label=…)")
        self.close()
        found = [np.array(self._tabular.labels(batch)) for batch in self._epoch.open()]
        return np.concatenate(found) if found else np.empty(0, np.float32)

    def close(self) -> None:
        """End the stream; a later access opens it again."""
        batches, self._batches, self._matrix, self._step = self._batches, None, None, -1
        if batches is not None:
            batches.close()

    def _rows(self, indices: Sequence[int]) -> Array:
        return np.stack([self._row(operator.index(one)) for one in indices]) if len(indices) else self._range(0, 0)

    def _row(self, at: int) -> Array:
        if not -len(self) <= at < len(self):
            raise IndexError(f"there is no row {at} of {len(self)}")
        step, offset = divmod(at % len(self), self.batch_size)
        return self._features(step)[offset]

    def _range(self, start: int, stop: int) -> Array:
        if stop <= start:
            return self._features(0)[:0]
        parts: list[Array] = []
        for step in range(start // self.batch_size, -(-stop // self.batch_size)):
            first = step * self.batch_size
            parts.append(self._features(step)[max(0, start - first) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _features(self, step: int) -> Array:
        """Return the features of a batch of the epoch, and keep them."""
        if self._matrix is not None and step == self._step:
            return self._matrix
        if self._batches is None or not self._step < step <= self._step + SKIPPED_MAX:
            self.close()
            self._batches, self._step = self._epoch.open(step), step - 1
        for batch in self._batches:
            self._step += 1
            if self._step == step:
                # LightGBM requires float64 where it samples rows.
                self._matrix = self._tabular.matrix(batch).astype(np.float64)
                return self._matrix
        raise StreamError(f"the epoch ended before step {step}")
