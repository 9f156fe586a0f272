"""`map_batches`: a vectorized function of each batch, in the training process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class _Resumable(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class MappedBatches(Generic[Item, Result]):
    """The results of a function for the batches of a source, in their order; made by `map_batches`."""

    def __init__(self, source: Iterable[Item], function: Callable[[Item], Result]) -> None:
        self.source = source
        self.function = function

    def __iter__(self) -> Iterator[Result]:
        """Iterate over the source again; nothing is read ahead of the loop."""
        return map(self.function, iter(self.source))

    def __len__(self) -> int:
        """Return the length of the source."""
        return len(cast(Sized, self.source))

    def __repr__(self) -> str:
        return f"map_batches({self.source!r}, {self.function!r})"

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the source: that after the last batch that the loop has."""
        return self._resumable("state_dict").state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the source from a state."""
        self._resumable("load_state_dict").load_state_dict(dict(state))

    def _resumable(self, method: str) -> _Resumable:
        if not isinstance(self.source, _Resumable):
            raise TypeError(f"map_batches: {type(self.source).__name__} has no {method}; use its own cursor")
        return self.source


def map_batches(source: Iterable[Item], function: Callable[[Item], Result]) -> MappedBatches[Item, Result]:
    """Apply a function to each batch of a stream, a `FlightDataset` or a loader, in this process and in order.

    Length and state are those of the source. An exception of the function ends the loop at its batch. To compute in
    the workers of a ``DataLoader(data, batch_size=None)``, pass the function as its ``collate_fn`` instead.
    """
    return MappedBatches(source, function)
