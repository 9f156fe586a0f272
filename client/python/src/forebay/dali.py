"""NVIDIA DALI: `DaliDataset`, whose batches a pipeline reads through ``fn.external_source``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ._client.arrays import Array, is_bfloat16, is_numbers
from ._client.mixture import Mixture
from ._client.options import RankKeywords
from ._client.stream import Batch
from ._dataset.array_dataset import RankDataset
from ._dataset.framework import framework
from ._plan.fitted import FittedPlan
from ._plan.plan import Plan
from .errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

__all__ = ["DaliDataset"]

fn: Any = framework("nvidia.dali.fn", extra="dali", package="nvidia.dali")

Arrays = tuple[Array, ...]


class DaliDataset(RankDataset[Arrays]):
    """One process's batches of an epoch as the source of a DALI pipeline; the options are `forebay.ArrayDataset`'s.

    In a pipeline's definition, ``dense, label = data.external_source()`` are the plan's outputs, one sample per row.
    The pipeline's ``batch_size`` is at least the dataset's. It raises StopIteration at the end of an epoch, and
    continues with the next one after ``reset()``. Errors of the server are raised by ``run()``.

    DALI reads batches ahead of the loop, which cannot be observed here: `state_dict` requires `steps`, the number of
    batches that the loop has of the epoch, counted from the first one after a `load_state_dict`.
    """

    reads_ahead: ClassVar[bool] = True

    def __init__(
        self,
        url: str | Sequence[str],
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        prefetch: int = 2,
        **options: Unpack[RankKeywords],
    ) -> None:
        super().__init__(url, dataset, plan, prefetch=prefetch, **options)
        for column in cast("list[pa.Field[Any]]", list(self.schema)):
            if not is_numbers(column) or is_bfloat16(column):
                self.close()
                raise InvalidRequest(
                    f"output {column.name!r} is {column.type}, which DALI does not read: give it a dtype other than "
                    "BFLOAT16 and AS_STORED, and pad lists to one length"
                )

    def external_source(self, **options: Any) -> tuple[Any, ...]:
        """Return the outputs as nodes of the pipeline that is being defined, in the order of `schema`.

        `options` are those of ``nvidia.dali.fn.external_source``, such as ``device="gpu"``.
        """
        names = self.schema.names
        return tuple(fn.external_source(source=self, num_outputs=len(names), cycle="raise", batch=True, **options))

    def state_dict(self, *, steps: int | None = None) -> dict[str, Any]:
        """Return the position after the last batch that the loop has: small, and the same on every rank."""
        if steps is None and self._state.is_behind:
            raise RuntimeError(
                "DALI may have read ahead of the loop: pass the number of batches that the loop has of this epoch, "
                "state_dict(steps=…)"
            )
        return super().state_dict(steps=steps)

    def converter(self) -> Callable[[Batch], Arrays]:
        """Return what converts a batch."""
        return partial(_arrays, tuple(self.schema.names))


def _arrays(names: tuple[str, ...], batch: Batch) -> Arrays:
    return tuple(cast(Array, batch[name]) for name in names)
