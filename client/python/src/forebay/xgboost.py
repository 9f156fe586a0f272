"""XGBoost: `FlightIter`, a `DataIter` for `QuantileDMatrix` and `ExtMemQuantileDMatrix`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._client.stream import Batch
from ._dataset.array_dataset import ArrayDataset
from ._dataset.elements import Elements
from ._dataset.framework import framework
from ._dataset.one_epoch import OneEpoch
from ._dataset.tabular import Tabular

__all__ = ["FlightIter"]

xgboost = framework("xgboost", extra="xgboost")
DataIter: Any = xgboost.DataIter


class FlightIter(DataIter):
    """The batches of one epoch of `data`, as often as XGBoost reads them: ``QuantileDMatrix(FlightIter(data, …))``.

    XGBoost reads the data several times and requires the same batches each time. Every pass is therefore the epoch that
    `data` was at when this object was made, of the same files: if they change, `forebay.SnapshotChanged` is raised. A
    position is not part of a model's checkpoint: a resumed training makes the matrix again.

    `features`, `label` and `weight` are outputs of the plan. `cache_prefix` and further `options` are those of
    ``xgboost.DataIter``.
    """

    def __init__(
        self,
        data: ArrayDataset,
        *,
        features: str | Sequence[str],
        label: str | None = None,
        weight: str | None = None,
        cache_prefix: str | None = None,
        **options: Any,
    ) -> None:
        # First, as its finalizer requires it.
        DataIter.__init__(self, cache_prefix, **options)
        self._epoch = OneEpoch(data)
        self._tabular = Tabular.of(data.schema, features, label, weight)
        self._batches: Elements[Batch] | None = None

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Pass the next batch to XGBoost; return False after the last one."""
        if self._batches is None:
            self.reset()
        assert self._batches is not None
        batch = next(self._batches, None)
        if batch is None:
            self._close()
            return False
        found = {"label": self._tabular.labels(batch), "weight": self._tabular.weights(batch)}
        input_data(
            data=self._tabular.matrix(batch), **{name: value for name, value in found.items() if value is not None}
        )
        return True

    def reset(self) -> None:
        """Return to the first batch."""
        self._close()
        self._batches = self._epoch.open()

    def _close(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()
