"""One DoGet on a connection of its own: where a stream's batches come from until it breaks or ends."""

from __future__ import annotations

import contextlib
from types import TracebackType

import pyarrow.flight as flight

from .connection import Connection
from .errors import BrokenStream, ForebayError


class Source:
    """The messages of one DoGet. It owns its connection; `close` may be called from another thread."""

    def __init__(self, connection: Connection, ticket: flight.Ticket) -> None:
        self.url = connection.url
        self._connection = connection
        self._closed = False
        try:
            with _received():
                self._reader = connection.get(ticket)
        except BaseException:
            connection.close()
            raise

    def read(self) -> flight.FlightStreamChunk:
        """Wait for the next message, without the interpreter's lock; raises StopIteration at the end."""
        with _received(), self._connection.translated():
            return self._reader.read_chunk()

    def close(self) -> None:
        """End the call and the connection, which also ends a read that waits."""
        if self._closed:
            return
        with contextlib.suppress(Exception):
            self._reader.cancel()
        self._connection.close()
        # Last, so that a close that was interrupted can be repeated.
        self._closed = True


class _received(contextlib.AbstractContextManager[None]):  # noqa: N801 (reads as a word)
    """Context in which what no server said, but pyarrow when it could not read a message, is a broken stream."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if type(error) is ForebayError:
            raise BrokenStream(f"a message could not be read: {error}") from error
