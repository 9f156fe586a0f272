"""Arrow messages as the input of pyarrow's reader of IPC streams, without a copy of their bodies."""

from __future__ import annotations

import abc
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import pyarrow as pa

from forebay.errors import BrokenStream

if TYPE_CHECKING:
    from forebay import _native

    from .ring_memory import RingMemory

    # Memory that batches arrive in, and that CUDA can page-lock.
    Pinnable: TypeAlias = RingMemory | _native.BodyBuffer

# The start of a message in an Arrow IPC stream.
CONTINUATION = b"\xff\xff\xff\xff"


class Chunk(NamedTuple):
    """A batch and its header, like pyarrow's `FlightStreamChunk`."""

    data: pa.RecordBatch
    app_metadata: pa.Buffer
    memory: Pinnable | None = None
    """The memory that the batch may be in, unless it is pyarrow's."""


class Message(NamedTuple):
    """An Arrow message and the header of its batch."""

    metadata: bytes
    header: bytes
    body: pa.Buffer | None


class MessageInput(abc.ABC):
    """A file that pyarrow reads messages from.

    It reads a message in four steps: the continuation marker, the length of the metadata, the metadata, and the body if
    the metadata has one. Only `read_buffer` hands memory over without a copy.
    """

    closed = False

    def __init__(self, sender: str) -> None:
        self.sender = sender
        """What sends the messages, for an error."""
        self.header = b""
        """Header of the latest batch."""
        self._parts: list[bytes | pa.Buffer] = []
        self._is_over = False

    @abc.abstractmethod
    def receive(self) -> Message | None:
        """Wait for the next message; None at the end."""

    def read(self, size: int) -> bytes | pa.Buffer:
        """Return the next part of the current message, or of the next one; nothing at the end."""
        return self.read_buffer(size)

    def read_buffer(self, size: int) -> bytes | pa.Buffer:
        """Return the next part of the current message, or of the next one; nothing at the end."""
        if not self._parts and not self._is_over:
            message = self.receive()
            if message is None:
                self._is_over = True
            else:
                metadata = message.metadata
                self._parts = [] if message.body is None else [message.body]
                self._parts += [metadata, struct.pack("<i", len(metadata)), CONTINUATION]
                self.header = message.header
        if self._is_over:
            return b""
        part = self._parts.pop()
        if len(part) != size:
            raise BrokenStream(f"{self.sender} sent a part of {len(part)} bytes where the message needs {size}")
        return part

    def close(self) -> None:  # noqa: B027 (pyarrow calls it)
        """Do nothing: the connection has other owners."""


class BatchReader:
    """The batches of messages. The input must not reference it: Python collects no cycle through pyarrow."""

    def __init__(self, messages: MessageInput) -> None:
        self._messages = messages
        self._batches: pa.RecordBatchStreamReader | None = None

    def next(self) -> pa.RecordBatch:
        """Wait for the next batch; raise StopIteration at the end."""
        try:
            if self._batches is None:
                self._batches = pa.ipc.open_stream(pa.PythonFile(cast(Any, self._messages), mode="r"))
            return self._batches.read_next_batch()
        except (pa.ArrowException, OSError) as error:
            # pyarrow raises a plain OSError; a signal handler may raise any other.
            if isinstance(error, OSError) and type(error) is not OSError:
                raise
            raise BrokenStream(f"{self._messages.sender} sent an invalid message: {error}") from error
