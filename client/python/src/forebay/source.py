"""One DoGet over a separate connection: the source of a stream's batches until it breaks or ends."""

from __future__ import annotations

import contextlib
from types import TracebackType

import pyarrow.flight as flight

from .connection import Connection
from .errors import BrokenStream, Cancelled, ForebayError


class Source:
    """Messages of one DoGet. Owns its connection; `close` may be called from another thread."""

    def __init__(self, connection: Connection, ticket: flight.Ticket) -> None:
        self.url = connection.url
        self._connection = connection
        self._closed = False
        try:
            with _reading():
                self._reader: flight.FlightStreamReader | None = connection.get(ticket)
        except BaseException:
            connection.close()
            raise

    def read(self) -> flight.FlightStreamChunk:
        """Wait for the next message without holding the GIL; raise StopIteration at the end."""
        reader = self._reader
        if reader is None:
            raise Cancelled("the stream is closed")
        with _reading(), self._connection.translated():
            return reader.read_chunk()

    def close(self) -> None:
        """Cancel the call and close the connection, which also ends a pending read."""
        if self._closed:
            return
        if self._reader is not None:
            with contextlib.suppress(Exception):
                self._reader.cancel()
        self._connection.close()
        # A reader keeps gRPC running, and a fork requires it to have ended.
        self._reader = None
        # Set last, so that an interrupted close can be repeated.
        self._closed = True


class _reading(contextlib.AbstractContextManager[None]):  # noqa: N801 (used as a function)
    """Context that turns pyarrow's errors of reading a message into `BrokenStream`; the server's errors pass."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if type(error) is ForebayError:
            raise BrokenStream(f"cannot read a message: {error}") from error
