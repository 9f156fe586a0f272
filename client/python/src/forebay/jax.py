"""JAX: `JaxDataset`, one process's batches as `jax.Array`, on one device or sharded over several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ._client.arrays import Array, field_of, is_bfloat16, is_numbers
from ._client.mixture import Mixture
from ._client.stream import Batch
from ._dataset.array_dataset import RankDataset
from ._dataset.framework import framework
from ._plan.fitted import FittedPlan
from ._plan.plan import Plan
from .errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JaxBatch", "JaxDataset"]

jax = framework("jax", extra="jax")

JaxBatch = dict[str, Any]
"""Column name → `jax.Array` ([n] or [n, width]); NumPy `Ragged` for lists; `pyarrow.Array` for anything else."""


class JaxDataset(RankDataset[JaxBatch]):
    """One process's batches of an epoch as dicts of `jax.Array`, copied to the devices by a background thread.

    `sharding` is a ``jax.sharding.Sharding`` over rows, or a device. With several processes their batches are the parts
    of one global array. Batches of a sharding must have the same size, so it requires ``remainder="drop"`` or "pad".
    Rank and world size default to ``jax.process_index()`` and ``jax.process_count()``. `options` are those of
    `forebay.ArrayDataset`.

    64-bit columns are refused unless ``jax_enable_x64`` is set, as JAX would cut them to 32 bits. Lists and columns
    that are not numbers stay in host memory.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        sharding: Any = None,
        **options: Any,
    ) -> None:
        if "rank" not in options and "world_size" not in options:
            options |= {"rank": jax.process_index(), "world_size": jax.process_count()}
        self._sharding = sharding
        super().__init__(url, dataset, plan, **options)
        if isinstance(sharding, jax.sharding.Sharding) and not self.options.has_whole_batches:
            self.close()
            raise InvalidRequest(
                'a sharding requires batches of one size: pass remainder="drop" or "pad", and no max_tokens'
            )
        for column in cast("list[pa.Field[Any]]", list(self.schema)):
            _check_width(column)

    def converter(self) -> Callable[[Batch], JaxBatch]:
        """Return what copies a batch to the devices."""
        return partial(_to_devices, self._sharding)


def _to_devices(sharding: Any, batch: Batch) -> JaxBatch:
    return {name: _placed(sharding, batch, name) for name in batch}


def _placed(sharding: Any, batch: Batch, name: str) -> Any:
    """Return a column on the devices, if it has numbers."""
    value, column = batch[name], field_of(batch.data, name)
    if not is_numbers(column):
        return value
    array = cast(Array, value)
    if is_bfloat16(column):
        array = cast(Array, cast(Any, array).view(jax.numpy.bfloat16))
    if isinstance(sharding, jax.sharding.Sharding):
        return jax.make_array_from_process_local_data(sharding, array)
    return jax.device_put(array, sharding)


def _check_width(column: pa.Field[Any]) -> None:
    """Raise if JAX would truncate the column's numbers."""
    kind: Any = column.type
    kind = getattr(kind, "value_type", kind) if is_numbers(column) else None
    if kind is not None and kind.bit_width == 64 and not jax.config.jax_enable_x64:
        raise InvalidRequest(
            f"output {column.name!r} is {kind}, which JAX would cut to 32 bits: choose another dtype, or call "
            'jax.config.update("jax_enable_x64", True)'
        )
