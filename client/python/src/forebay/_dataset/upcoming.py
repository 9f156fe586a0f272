"""Which epochs a dataset's loops read next, and the stream of the next one if it is open."""

from __future__ import annotations

import warnings
from typing import Any

from forebay._client.options import integer

from .reading import NextEpoch


class Upcoming:
    """The next epochs of one dataset."""

    def __init__(self, first: int, epochs: int | None) -> None:
        self.epochs: range | None = None
        """The epochs that one iterator yields; None if it yields one."""
        if epochs is not None:
            self.epochs = range(first, first + integer("epochs", epochs, least=1))
        # The number of epochs that a loop over `FlightDataset.epochs` runs.
        self._expected = 0
        # The epoch of the latest iteration.
        self._started: int | None = None
        # Whether a loop chooses its epochs in order.
        self._is_in_order = False
        self._next: NextEpoch | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the stream."""
        return {**self.__dict__, "_next": None}

    def expect(self, count: int, *, in_workers: bool) -> None:
        """Expect a loop over this many epochs. Workers may end with an epoch: their second one shows if they do not."""
        if self.epochs is not None:
            raise RuntimeError("an iterator of this dataset yields all of its epochs: omit epochs=, or loop over it")
        self._expected = 0 if in_workers else count

    def choose(self, epoch: int, following: int) -> None:
        """Note that a loop chooses an epoch, where `following` would be the next one anyway."""
        self._is_in_order = epoch == following
        self.drop_unless(epoch)

    def begin(self, epoch: int) -> bool:
        """Note that an iteration begins with this epoch; return whether it follows the one before."""
        follows = self._started is not None and epoch == self._started + 1
        self._started = epoch
        return follows

    def count_from(self, epoch: int) -> int:
        """Return the number of epochs that an iterator from this one on yields."""
        if self.epochs is None:
            return 1
        left = max(0, self.epochs.stop - epoch)
        if not left:
            warnings.warn(
                f"the dataset is at epoch {epoch}, after the last of its {len(self.epochs)}: nothing is left; call "
                f"set_epoch({self.epochs.start}) to start over, or pass a larger number as epochs",
                stacklevel=4,
            )
        return left

    def opens_after(self, epoch: int, *, follows: bool, in_worker: bool) -> bool:
        """Whether the epoch after this one is opened before the end of this one, for another iterator."""
        if self.epochs is not None:
            return False
        if epoch < self._expected and not in_worker:
            return epoch + 1 < self._expected
        return follows or self._is_in_order

    def keep(self, following: NextEpoch) -> None:
        """Keep the stream of the next epoch for the next iterator."""
        self._next = following

    def take(self, epoch: int) -> NextEpoch | None:
        """Return the stream of this epoch if it is open."""
        self.drop_unless(epoch)
        following, self._next = self._next, None
        return following

    def drop_unless(self, epoch: int | None) -> None:
        """Close the stream of the next epoch, unless it is this one."""
        following = self._next
        if following is not None and following.start.epoch != epoch:
            self._next = None
            following.close()
