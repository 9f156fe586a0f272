"""Resuming a broken stream on another replica, the last working one first.

`stream` checks the batches, and `retry` schedules the attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from forebay.errors import NotFound

from .retry import TRANSIENT, Failure, Stopped, try_everywhere
from .source import Source

T = TypeVar("T")

# Errors after which a stream resumes on another replica. NOT_FOUND is a plan that a restarted server lost or that one
# replica does not have: the stream sends the whole plan unless it has only the id.
RECOVERABLE = (*TRANSIENT, NotFound)


class Failover:
    """Reopens a rank's stream at a position, on the first replica that can serve it.

    `open_at` opens it on one replica. `urls` are the replicas, starting with the stream's first. `seconds` limits the
    retries for one batch; 0 disables them.
    """

    def __init__(self, open_at: Callable[[str, int], Source], urls: Sequence[str], *, seconds: float) -> None:
        self._open_at = open_at
        self._urls = list(dict.fromkeys(urls))
        self._seconds = seconds

    @property
    def url(self) -> str:
        """The replica that is tried first."""
        return self._urls[0]

    def resume(
        self,
        read: Callable[[Source], T],
        position: int,
        cause: Failure | None,
        stopped: Stopped,
    ) -> T | None:
        """Return the result of `read` for a source that begins at the position; None once `stopped` is set.

        `cause` is the failure that led here; None if this process itself left the previous source.

        A source that breaks during `read` is a failure of its replica. Raises `Unavailable`, or a replica's permanent
        error, if no replica succeeds.
        """
        if cause is not None and len(self._urls) > 1 and self._urls[0] == cause.url:
            # The failed replica is tried last.
            self._urls = [*self._urls[1:], cause.url]

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
            skipped=(NotFound,),
            cause=cause,
            hint=f"; resume at start_position {position}",
        )
