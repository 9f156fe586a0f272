"""scikit-learn: `partial_fit` trains an estimator on a stream, and `batches` yields its matrices and labels.

Imports no scikit-learn: an estimator has all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

from ._client.arrays import Array
from ._client.options import integer
from ._dataset.array_dataset import ArrayDataset
from ._dataset.tabular import Tabular

__all__ = ["batches", "partial_fit"]

E = TypeVar("E")


def batches(
    data: ArrayDataset, *, features: str | Sequence[str], label: str | None = None
) -> Iterator[tuple[Array, Array | None]]:
    """Return an iterator over the next epoch, or the rest of one: pairs of features [n, width] and labels [n].

    `features` and `label` are outputs of the plan; several features are set side by side.
    """
    tabular = Tabular.of(data.schema, features, label)
    return ((tabular.matrix(batch), tabular.labels(batch)) for batch in data)


def partial_fit(
    estimator: E,
    data: ArrayDataset,
    *,
    features: str | Sequence[str],
    label: str | None = None,
    epochs: int = 1,
    **options: Any,
) -> E:
    """Call ``estimator.partial_fit`` with every batch of what is left of `epochs` epochs in all; return the estimator.

    `options` are keywords of ``partial_fit``: ``classes=[0, 1]`` for a classifier. Without a label only the features
    are passed. ``data.state_dict()`` is the position after the last batch, also if ``partial_fit`` raises; the rows of
    that batch are then not repeated.
    """
    integer("epochs", epochs, least=1)
    tabular = Tabular.of(data.schema, features, label)
    fit = cast(Any, estimator).partial_fit
    for _, epoch in data.epochs(epochs):
        for batch in epoch:
            labels = tabular.labels(batch)
            fit(tabular.matrix(batch), *(() if labels is None else (labels,)), **options)
    return estimator
