"""One DoGet over a separate connection: the source of a stream's batches until it breaks or ends.

On one machine the call goes through the server's ring, if there is one, and over TCP through the native module, if it
was built. If one of these fails before its first batch, the same call is made over Flight, whose errors are the ones
that a caller sees, unless the server itself refuses the call or the connection breaks.
"""

from __future__ import annotations

import contextlib
import logging
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow.flight as flight

from forebay.errors import BrokenStream, Cancelled, ForebayError

from . import fork
from .connection import Connection
from .message_input import Chunk
from .native import NativeReader, open_native
from .ring import SLOTS, RingReader, ring_path

if TYPE_CHECKING:
    from .message_input import Pinnable

_log = logging.getLogger(__name__)


class Source:
    """Messages of one DoGet. Owns its connection; `close` may be called from another thread."""

    def __init__(self, connection: Connection, ticket: flight.Ticket, *, slots: int = SLOTS) -> None:
        self.url = connection.url
        self._connection = connection
        self._ticket = ticket
        self._has_begun = False
        self._is_closing = False
        self._closed = False
        self._reader: flight.FlightStreamReader | None = None
        self._direct: RingReader | NativeReader | None = None
        try:
            self._direct = self._open_direct(slots)
            if self._direct is None:
                self._open_flight()
        except BaseException:
            self.close()
            raise

    @property
    def transport(self) -> str:
        """How the batches arrive: "ring", "native" or "flight"."""
        return "flight" if self._direct is None else self._direct.transport

    def read(self) -> flight.FlightStreamChunk | Chunk:
        """Wait for the next message without holding the GIL; raise StopIteration at the end."""
        direct = self._direct
        if direct is not None:
            try:
                with self._connection.translated():
                    chunk = direct.read()
            except ForebayError as error:
                if self._has_begun or self._is_closing or direct.is_final:
                    raise
                _log.info("%s: reading over Flight, not %s: %s", self.url, direct.transport, error)
                direct.close()
                self._direct = None
                self._open_flight()
            else:
                self._has_begun = True
                return chunk
        with _reading(), self._connection.translated():
            # Not in a variable: an exception keeps those of this frame, and a reader keeps gRPC running.
            return self._open_reader().read_chunk()

    def _open_reader(self) -> flight.FlightStreamReader:
        reader = self._reader
        if reader is None or self._is_closing:
            raise Cancelled("the stream is closed")
        return reader

    def close(self) -> None:
        """Cancel the call and close the connection, which also ends a pending read."""
        if self._closed:
            return
        self._is_closing = True
        direct = self._direct
        if direct is not None:
            direct.close()
        if self._reader is not None and not fork.keeps(self._reader):
            with contextlib.suppress(Exception):
                self._reader.cancel()
        self._connection.close()
        # A reader keeps gRPC running, and a fork requires it to have ended.
        self._reader = None
        # Set last, so that an interrupted close can be repeated.
        self._closed = True

    def _open_direct(self, slots: int) -> RingReader | NativeReader | None:
        path = ring_path(self.url)
        direct = open_native(self._connection, self._ticket.ticket) if path is None else self._open_ring(path, slots)
        if direct is not None:
            # It needs no channel of gRPC, which a fork would have to drop.
            self._connection.drop_if_idle()
        return direct

    def _open_ring(self, path: str, slots: int) -> RingReader | None:
        try:
            return RingReader(path, self._connection.headers, self._ticket.ticket, slots)
        except ForebayError as error:
            _log.info("%s: no ring, reading over Flight: %s", self.url, error)
            return None

    def _open_flight(self) -> None:
        with _reading():
            self._reader = self._connection.get(self._ticket)
        if self._is_closing:
            # `close` ran before the call was there to be cancelled.
            self._closed = False
            self.close()


def memory_of(chunk: flight.FlightStreamChunk | Chunk) -> Pinnable | None:
    """Return the memory that a message's batch may be in, unless it is pyarrow's."""
    return chunk.memory if isinstance(chunk, Chunk) else None


class _reading(contextlib.AbstractContextManager[None]):  # noqa: N801 (used as a function)
    """Context that turns pyarrow's errors of reading a message into `BrokenStream`; the server's errors pass."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if type(error) is ForebayError:
            raise BrokenStream(f"cannot read a message: {error}") from error
