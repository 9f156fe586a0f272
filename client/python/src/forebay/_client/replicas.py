"""A service of one or more replicas: calls go to the one in use, or to the next one that succeeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.errors import Unavailable

from .connection import Connection
from .credentials import Credentials
from .retry import try_everywhere
from .signal_safe import Latch

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

# Seconds for a replica to answer its first call when another one has failed.
FAILOVER_HELLO_SECONDS = 5.0


def greeted(url: str, credentials: Credentials) -> Connection:
    """Return a connection to a replica that answers now."""
    connection = Connection(url, credentials)
    try:
        connection.hello(seconds=FAILOVER_HELLO_SECONDS)
    except BaseException:
        connection.close()
        raise
    return connection


class Replicas:
    """The base of `Client`: URLs, the connection in use, and calls with failover."""

    def __init__(
        self, urls: Sequence[str], connection: Connection, *, retry_seconds: float, credentials: Credentials
    ) -> None:
        self._credentials = credentials
        self._urls = list(dict.fromkeys(urls))
        self._connection = connection
        self._retry_seconds = retry_seconds
        self._closed = Latch()

    def __getstate__(self) -> dict[str, Any]:
        """Drop the connection: the process that reads the pickle makes its own, for its first call."""
        return {**self.__dict__, "_connection": self.url, "_closed": self._closed.is_set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connection = Connection(state["_connection"], self._credentials)
        self._closed = Latch()
        if state["_closed"]:
            self.close()

    @property
    def url(self) -> str:
        """The replica in use."""
        return self._connection.url

    def close(self) -> None:
        """Close the connection; open streams have their own."""
        self._closed.set()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rotated(self) -> list[str]:
        """Return all URLs, the one in use first."""
        at = self._urls.index(self.url)
        return [*self._urls[at:], *self._urls[:at]]

    def _on_any(self, call: Callable[[Connection], T], *, persist: bool = False) -> T:
        """Call the replica in use, or the next one that succeeds; `persist`: retry with pauses."""

        def attempt(url: str) -> tuple[T]:
            if url == self._connection.url:
                return (call(self._connection),)
            connection = greeted(url, self._credentials)
            try:
                result = call(connection)
            except BaseException:
                connection.close()
                raise
            before, self._connection = self._connection, connection
            before.close()
            return (result,)

        urls = self._rotated()
        seconds = self._retry_seconds if persist else 0.0
        found = try_everywhere(attempt, lambda: urls, seconds=seconds, stopped=self._closed)
        if found is None:
            raise Unavailable("the client is closed")
        return found[0]
