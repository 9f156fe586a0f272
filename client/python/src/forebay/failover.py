"""Where a broken stream goes on: the replicas that can serve it, the last good one first.

Knows nothing of batches and headers (`stream` checks those), and leaves the waiting to `retry`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .errors import NotFound
from .retry import TRANSIENT, Stopped, Trouble, try_everywhere
from .source import Source

T = TypeVar("T")

# What a stream goes on from elsewhere. NOT_FOUND is a plan that a server forgot when it was started again, or that one
# replica does not know: the stream brings the plan along, where it has more of it than the id.
LEFT_BEHIND = (*TRANSIENT, NotFound)


class Failover:
    """Opens a rank's stream anew, at a position, on whichever replica can.

    `open_at` opens it on one; `urls` are the replicas, the first of them that which the stream begins on; `seconds`
    bounds the tries for one batch, 0 means none.
    """

    def __init__(self, open_at: Callable[[str, int], Source], urls: Sequence[str], *, seconds: float) -> None:
        self._open_at = open_at
        self._urls = list(dict.fromkeys(urls))
        self._seconds = seconds

    @property
    def url(self) -> str:
        """The replica that is asked first."""
        return self._urls[0]

    def go_on(
        self,
        read: Callable[[Source], T],
        position: int,
        trouble: Trouble | None,
        stopped: Stopped,
    ) -> T | None:
        """Return what `read` makes of a source that begins at the position; None once `stopped` is set.

        `trouble` is what made this necessary; None where only this process left the source before.

        A replica whose source breaks before `read` is done counts as one that does not answer. Raises `Unavailable`,
        or what a replica answered for good, where there is none.
        """
        if trouble is not None and len(self._urls) > 1 and self._urls[0] == trouble.url:
            # The one that broke is asked last.
            self._urls = [*self._urls[1:], trouble.url]

        def attempt(url: str) -> T:
            result = read(self._open_at(url, position))
            at = self._urls.index(url)
            self._urls = [*self._urls[at:], *self._urls[:at]]
            return result

        return try_everywhere(
            attempt,
            lambda: tuple(self._urls),
            seconds=self._seconds,
            stopped=stopped,
            passed_over=(NotFound,),
            before=trouble,
            then=f"; resume at start_position {position}",
        )
