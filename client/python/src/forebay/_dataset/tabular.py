"""Batches as the matrix, labels and weights that libraries for tabular models take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forebay._client.arrays import Array, is_bfloat16, is_numbers


@dataclass(frozen=True)
class Tabular:
    """Which outputs of a plan are the features, the label and the weight. Checks them against the stream's schema."""

    features: tuple[str, ...]
    label: str | None = None
    weight: str | None = None

    @classmethod
    def of(
        cls, schema: pa.Schema, features: str | Sequence[str], label: str | None = None, weight: str | None = None
    ) -> Tabular:
        """Check the names; `features` is an output or a list of outputs, which are set side by side."""
        names = (features,) if isinstance(features, str) else tuple(features)
        if not names:
            raise ValueError("features must name at least one output of the plan")
        for name in [*names, *(one for one in (label, weight) if one is not None)]:
            if name not in schema.names:
                raise ValueError(f"the plan has no output {name!r}; it has {', '.join(schema.names)}")
            column = cast("pa.Field[Any]", schema.field(name))  # pyright: ignore[reportUnknownMemberType]
            if not is_numbers(column) or is_bfloat16(column):
                raise TypeError(
                    f"output {name!r} is {column.type}, not numbers without nulls: give it a dtype other than "
                    "BFLOAT16 and AS_STORED"
                )
        return cls(names, label, weight)

    def matrix(self, batch: Mapping[str, Any]) -> Array:
        """Return the features as one matrix [n, width]: a view of the received memory if they are one output."""
        parts = [cast(Array, batch[name]) for name in self.features]
        columns = [cast(Array, cast(Any, part).reshape(len(part), -1)) for part in parts]
        return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)

    def labels(self, batch: Mapping[str, Any]) -> Array | None:
        """Return the labels [n], or [n, width]; None without a label."""
        return None if self.label is None else _flat(batch[self.label])

    def weights(self, batch: Mapping[str, Any]) -> Array | None:
        """Return the weights [n]; None without a weight."""
        return None if self.weight is None else _flat(batch[self.weight])


def _flat(values: Array) -> Array:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
