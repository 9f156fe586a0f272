"""`ArrayDataset`: one rank's batches as NumPy arrays, with the epochs and states of `forebay.torch.FlightDataset`.

`RankDataset` is the same for batches in another form, such as JAX's. Imports no framework.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from forebay._client.header import BatchHeader, StreamInfo
from forebay._client.mixture import Mixture
from forebay._client.options import RankKeywords, StreamOptions, integer
from forebay._client.ring import SLOTS_BESIDES_PREFETCH
from forebay._client.stream import Batch
from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan

from .elements import Elements, Position
from .epochs import Epochs
from .prefetch import Prefetch
from .rank_epochs import RankEpochs, rank_streams
from .stacking import refuse_stacking

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")


class RankDataset(Iterable[T], ABC, Generic[T]):
    """One rank's batches of an epoch, read ahead and converted in a background thread.

    The batches, their order, the options and the states are those of `forebay.torch.FlightDataset`, and each loads the
    other's states. A new iterator after a finished epoch is the next epoch; one after an epoch that was left early
    starts the same epoch again. `set_epoch` chooses. ``len(data)`` is the number of steps of a whole epoch.

    Rank and world size default to RANK and WORLD_SIZE of the environment, else to 0 of 1. Connects, fits the plan if
    necessary and reads the schema now, so the server's errors are raised here. `close` it, or use it in a ``with``
    block. A pickled one connects again.
    """

    reads_ahead: ClassVar[bool] = False
    """Whether batches are taken before the loop has them."""

    def __init__(
        self,
        url: str | Sequence[str],
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        prefetch: int = 2,
        **options: Unpack[RankKeywords],
    ) -> None:
        self._depth = integer("prefetch", prefetch, least=1)
        streams = rank_streams(type(self).__name__, url, dataset, plan, **options)
        self._client = streams.client
        self._client.ring_slots = self._depth + SLOTS_BESIDES_PREFETCH
        self._state = RankEpochs(streams)

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch."""
        return self._state.schema

    @property
    def epoch(self) -> int:
        """The epoch of the running loop; between loops, that of the next one."""
        return self._state.epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration; that of the running loop until it has finished it."""
        return self._state.next_epoch

    @property
    def options(self) -> StreamOptions:
        """The options of the next stream, apart from its position."""
        return self._state.options

    def info(self) -> StreamInfo:
        """Return the description of the whole epoch: its files, its rows, and this rank's share of them."""
        return self._state.info()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which starts at its first batch.

        Does nothing if that iteration is of this epoch anyway, so that a loaded state stays in effect.
        """
        self._state.set_epoch(epoch)

    def epochs(self, count: int) -> Epochs[T]:
        """Iterate over the epochs that are left of `count` in all: pairs of an epoch's number and its batches.

        After `load_state_dict` the first one is the rest of the interrupted epoch. Leaving an inner loop early ends its
        epoch.
        """
        return Epochs(self, count, self, lambda: self._state.generation)

    def state_dict(self, *, steps: int | None = None) -> dict[str, Any]:
        """Return the position after the last batch that the loop has: small, and the same on every rank.

        At the end of an epoch it is the start of the next one. `steps` is the number of batches that the loop has of
        this iteration, for a loop that is behind those taken.
        """
        return self._state.state_dict(steps=steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the next iteration, after the last batch that the saving loop had.

        Seed, shuffling, lanes, window and remainder are the state's; batch size and world size are this dataset's.
        Raises `forebay.CursorRefused`, a ValueError, for a state that does not fit.
        """
        self._state.load_state_dict(state)

    def close(self) -> None:
        """Close the connection; running iterations end with their iterators."""
        self._client.close()

    def __len__(self) -> int:
        return self._state.info().rank_steps

    def __iter__(self) -> Elements[T]:
        """Return an iterator over the epoch; its first batch opens the stream, and dropping it ends the stream."""
        refuse_stacking(type(self).__name__)
        return Elements(self._begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client!r}, epoch {self.epoch}, {', '.join(self.schema.names)})"

    @abstractmethod
    def converter(self) -> Callable[[Batch], T]:
        """Return what converts a batch; the background thread calls it."""

    def _begin(self) -> tuple[Position, Prefetch[tuple[BatchHeader, T]]]:
        position, stream = self._state.begin(is_direct=not self.reads_ahead)
        return position, Prefetch(stream, partial(_converted, self.converter()), depth=self._depth)


class ArrayDataset(RankDataset[Batch]):
    """One rank's batches of an epoch as `forebay.Batch`: NumPy arrays by name, over the received memory.

    For libraries without an adapter, and the source of those for XGBoost, LightGBM and scikit-learn.
    """

    def converter(self) -> Callable[[Batch], Batch]:
        """Return what converts a batch: nothing to do."""
        return _unchanged


def _unchanged(batch: Batch) -> Batch:
    return batch


def _converted(convert: Callable[[Batch], T], batch: Batch) -> tuple[BatchHeader, T]:
    return batch.header, convert(batch)
