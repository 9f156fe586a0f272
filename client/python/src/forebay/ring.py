"""Reading a stream through a ring: batches in memory that server and client share, on one machine.

A server that listens on a Unix socket also serves a ring (`docs/src/ring.md`). `FOREBAY_RING=off` disables
it. The batches, headers and errors are those of Flight.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import pyarrow as pa

from .errors import BrokenStream
from .ring_memory import RingMemory
from .ring_socket import END, MESSAGE, RingFrame, RingSocket, raise_end, read_answer

# Slots besides those of batches that are read ahead: the batch of the loop, the one before it, the next one ahead, one
# that the server writes and one that waits in the socket.
SLOTS_BESIDES_PREFETCH = 5
# Slots of a stream with the default `prefetch` of a dataset.
SLOTS = 2 + SLOTS_BESIDES_PREFETCH

# The start of a message in an Arrow IPC stream.
CONTINUATION = b"\xff\xff\xff\xff"


class RingChunk(NamedTuple):
    """A batch and its header, like pyarrow's `FlightStreamChunk`."""

    data: pa.RecordBatch
    app_metadata: pa.Buffer
    memory: RingMemory | None
    """The memory that the batch may be in."""


def ring_path(url: str) -> str | None:
    """Return the path of the ring of the server at this URL; None if there cannot be one, or if it is disabled."""
    scheme = "grpc+unix:"
    is_off = os.environ.get("FOREBAY_RING", "").strip().lower() == "off"
    if is_off or sys.platform != "linux" or not url.startswith(scheme):
        return None
    return url.removeprefix(scheme).removeprefix("//") + ".ring"


class RingReader:
    """The batches of one call through a ring. `close` may be called from another thread."""

    def __init__(self, path: str, headers: Iterable[tuple[bytes, bytes]], ticket: bytes, slots: int = SLOTS) -> None:
        self._connection = RingSocket(path)
        self._connection.hello(headers, ticket, slots)
        self._input: _Input | None = None
        self._batches: pa.RecordBatchStreamReader | None = None

    def read(self) -> RingChunk:
        """Wait for the next batch without holding the GIL; raise StopIteration at the end."""
        try:
            if self._input is None or self._batches is None:
                self._input = _open(self._connection)
                self._batches = pa.ipc.open_stream(pa.PythonFile(cast(Any, self._input), mode="r"))
            data = self._batches.read_next_batch()
        except StopIteration:
            assert self._input is not None
            self._input.check_end()
            raise
        except (pa.ArrowException, OSError) as error:
            # pyarrow raises a plain OSError; a signal handler may raise any other.
            if isinstance(error, OSError) and type(error) is not OSError:
                raise
            if self._input is not None:
                self._input.check_end()
            raise BrokenStream(f"the ring sent an invalid message: {error}") from error
        return RingChunk(data, pa.py_buffer(self._input.header), self._input.memory)

    def close(self) -> None:
        """Cancel the call, which also ends a pending read. Batches that were read stay valid."""
        self._connection.cancel()
        memory = None if self._input is None else self._input.memory
        if memory is None:
            self._connection.end()
        else:
            memory.end()


def _open(connection: RingSocket) -> _Input:
    """Wait for the answer, and map the memory that it carries."""
    frame, file = connection.first()
    try:
        slots, slot_bytes = read_answer(frame)
        if slots and file is None:
            raise BrokenStream("the ring sent no memory")
        try:
            memory = RingMemory(connection, file, slots, slot_bytes) if slots and file is not None else None
        except (OSError, ValueError) as error:
            raise BrokenStream(f"the ring's memory cannot be mapped: {error}") from error
        return _Input(connection, memory)
    finally:
        if file is not None:
            os.close(file)


class _Input:
    """The frames of a ring as the input of pyarrow's reader of IPC streams.

    The reader reads a message in four steps: the continuation marker, the length of the metadata, the metadata, and the
    body if the metadata has one. Only `read_buffer` hands memory over without a copy.
    """

    closed = False

    def __init__(self, connection: RingSocket, memory: RingMemory | None) -> None:
        self._connection = connection
        self.memory = memory
        self.header = b""
        """Header of the latest batch."""
        self.end: RingFrame | None = None
        """The server's last frame."""
        self._parts: list[bytes | pa.Buffer] = []

    def read(self, size: int) -> bytes | pa.Buffer:
        """Return the next part of the current message, or of the next one; nothing at the end."""
        return self.read_buffer(size)

    def read_buffer(self, size: int) -> bytes | pa.Buffer:
        """Return the next part of the current message, or of the next one; nothing at the end."""
        if not self._parts and self.end is None:
            self._receive()
        if self.end is not None:
            return b""
        part = self._parts.pop()
        if len(part) != size:
            raise BrokenStream(f"the ring sent a part of {len(part)} bytes where the message needs {size}")
        return part

    def close(self) -> None:
        """Do nothing: the connection has other owners."""

    def check_end(self) -> None:
        """Raise the error that ended the stream, if there is one."""
        if self.end is not None:
            raise_end(self.end)

    def _receive(self) -> None:
        frame = self._connection.next()
        if frame.kind == END:
            self.end = frame
            return
        if frame.kind != MESSAGE or not frame.metadata:
            raise BrokenStream("the ring sent an answer in the middle of a stream")
        body = self._body(frame)
        self._parts = [] if body is None else [body]
        self._parts += [frame.metadata, struct.pack("<i", len(frame.metadata)), CONTINUATION]
        self.header = frame.header

    def _body(self, frame: RingFrame) -> pa.Buffer | None:
        if frame.slot is not None:
            if self.memory is None:
                raise BrokenStream("the ring sent a slot without memory")
            body = self.memory.body(frame.slot, frame.body_bytes)
            return body if frame.body_bytes else None
        if not frame.body_bytes:
            return None
        inline = pa.allocate_buffer(frame.body_bytes)
        self._connection.read_into(memoryview(cast(Any, inline)).cast("B"))
        return inline
