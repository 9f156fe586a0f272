"""Reading a stream through a ring: batches in memory that server and client share, on one machine.

A server that listens on a Unix socket also serves a ring (`docs/src/concepts/ring.md`). `FOREBAY_RING=off` disables
it. The batches, headers and errors are those of Flight.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, cast

import pyarrow as pa

from forebay.errors import BrokenStream

from .message_input import BatchReader, Chunk, Message, MessageInput
from .ring_memory import RingMemory
from .ring_socket import END, MESSAGE, RingFrame, RingSocket, raise_end, read_answer

# Slots besides those of batches that are read ahead: the batch of the loop, the one before it, the next one ahead, one
# that the server writes and one that waits in the socket.
SLOTS_BESIDES_PREFETCH = 5
# Slots of a stream with the default `prefetch` of a dataset.
SLOTS = 2 + SLOTS_BESIDES_PREFETCH


def ring_path(url: str) -> str | None:
    """Return the path of the ring of the server at this URL; None if there cannot be one, or if it is disabled."""
    scheme = "grpc+unix:"
    is_off = os.environ.get("FOREBAY_RING", "").strip().lower() == "off"
    if is_off or sys.platform != "linux" or not url.startswith(scheme):
        return None
    return url.removeprefix(scheme).removeprefix("//") + ".ring"


class RingReader:
    """The batches of one call through a ring. `close` may be called from another thread."""

    transport = "ring"
    is_final = False
    """Whether an error would be the same over Flight. It may be, but that is not known."""

    def __init__(self, path: str, headers: Iterable[tuple[bytes, bytes]], ticket: bytes, slots: int = SLOTS) -> None:
        self._connection = RingSocket(path)
        self._connection.hello(headers, ticket, slots)
        self._input: _RingInput | None = None
        self._batches: BatchReader | None = None

    def read(self) -> Chunk:
        """Wait for the next batch without holding the GIL; raise StopIteration at the end."""
        if self._input is None or self._batches is None:
            self._input = _open(self._connection)
            self._batches = BatchReader(self._input)
        data = self._batches.next()
        return Chunk(data, pa.py_buffer(self._input.header), self._input.memory)

    def close(self) -> None:
        """Cancel the call, which also ends a pending read. Batches that were read stay valid."""
        self._connection.cancel()
        memory = None if self._input is None else self._input.memory
        if memory is None:
            self._connection.end()
        else:
            memory.end()


def _open(connection: RingSocket) -> _RingInput:
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
        return _RingInput(connection, memory)
    finally:
        if file is not None:
            os.close(file)


class _RingInput(MessageInput):
    """The messages of a ring."""

    def __init__(self, connection: RingSocket, memory: RingMemory | None) -> None:
        super().__init__("the ring")
        self._connection = connection
        self.memory = memory

    def receive(self) -> Message | None:
        """Wait for the next message; None at the end, or raise the error that ended the stream."""
        frame = self._connection.next()
        if frame.kind == END:
            raise_end(frame)
            return None
        if frame.kind != MESSAGE or not frame.metadata:
            raise BrokenStream("the ring sent an answer in the middle of a stream")
        return Message(frame.metadata, frame.header, self._body(frame))

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
