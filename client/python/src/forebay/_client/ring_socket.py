"""The socket of a ring: a call's hello, the server's frames, and returned slots (`ring.proto` has the protocol).

Any thread may drop the last view of a slot and so return it, also within the garbage collector. `give_back` and
`cancel` therefore take no lock: each is one system call of four bytes, which the kernel keeps whole.
"""

from __future__ import annotations

import array
import base64
import contextlib
import itertools
import json
import os
import socket
import struct
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from forebay.errors import BrokenStream, ForebayError, Unavailable, of_status

Json = dict[str, Any]

MAGIC = b"FBR1"
VERSION = 1
CANCEL = b"\xff\xff\xff\xff"
ANSWER, MESSAGE, END = 1, 2, 3
INLINE, SLOT = 0, 1
HEAD = struct.Struct("<BBHIII")
# A frame without its body has about a kilobyte: a head, Arrow metadata and a header.
BUFFER_BYTES = 64 << 10
# More than any schema or header; guards against bytes that are not frames.
PART_BYTES_MAX = 256 << 20


class RingFrame(NamedTuple):
    """A frame of the server, without its body."""

    kind: int
    slot: int | None
    """The slot of the body; None if the body follows the frame."""
    metadata: bytes
    header: bytes
    body_bytes: int


class RingSocket:
    """A connection to a ring: one call. Closed when the last reference to it is dropped."""

    def __init__(self, path: str) -> None:
        self._process = os.getpid()
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        # The part of the buffer that is still to be read.
        self._start, self._end = 0, 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise Unavailable(f"{path}: {error.strerror or error}") from error
        _sockets[next(_numbers)] = self

    def hello(self, headers: Iterable[tuple[bytes, bytes]], ticket: bytes, slots: int) -> None:
        """Begin the call."""
        given = {name.decode(): value.decode() for name, value in headers}
        ticket_text = base64.b64encode(ticket).decode()
        message = json.dumps({"version": VERSION, "slots": slots, "headers": given, "ticket": ticket_text}).encode()
        with _translated():
            self._socket.sendall(MAGIC + struct.pack("<I", len(message)) + message)

    def first(self) -> tuple[RingFrame, int | None]:
        """Wait for the first frame; return it with its file descriptor, which the caller closes."""
        self._check_process()
        files = array.array("i")
        with _translated():
            data, control, flags, _ = self._socket.recvmsg(
                HEAD.size, socket.CMSG_SPACE(files.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
        try:
            if flags & socket.MSG_CTRUNC:
                raise BrokenStream("the ring sent more file descriptors than one")
            if not data:
                raise _ended()
            frame = self._frame(data + self._exactly(HEAD.size - len(data)))
        except BaseException:
            for file in files:
                os.close(file)
            raise
        return frame, files[0] if files else None

    def next(self) -> RingFrame:
        """Wait for the next frame without holding the GIL."""
        self._check_process()
        return self._frame(self._exactly(HEAD.size))

    def read_into(self, target: memoryview) -> None:
        """Read the body that follows a frame."""
        buffered = min(self._end - self._start, len(target))
        target[:buffered] = self._view[self._start : self._start + buffered]
        self._start += buffered
        while buffered < len(target):
            buffered += self._receive(target[buffered:])

    def give_back(self, slot: int) -> None:
        """Return a slot. Does nothing in a forked child, whose parent has the slot, and once the connection is lost."""
        self._send(struct.pack("<I", slot))

    def cancel(self) -> None:
        """End the call and a read that waits in another thread. Slots can still be returned."""
        if os.getpid() == self._process:
            self._send(CANCEL)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def end(self) -> None:
        """End the connection, without closing it: another thread may be about to use it."""
        if os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close this process's copy of the connection: a forked child must not keep its parent's open."""
        self._socket.close()

    def __del__(self) -> None:
        # Closed only here: while a reference exists, another thread may be about to return a slot.
        self._socket.close()

    def _send(self, message: bytes) -> None:
        if os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._socket.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise BrokenStream("the ring belongs to the process that this one was forked from")

    def _frame(self, head: bytes) -> RingFrame:
        kind, place, slot, *lengths = HEAD.unpack(head)
        metadata_bytes, header_bytes, body_bytes = cast("list[int]", lengths)
        if kind not in (ANSWER, MESSAGE, END) or place not in (INLINE, SLOT):
            raise BrokenStream(f"the ring sent a frame of unknown kind {kind}, {place}")
        if metadata_bytes > PART_BYTES_MAX or header_bytes > PART_BYTES_MAX:
            raise BrokenStream(f"the ring sent a frame with {max(metadata_bytes, header_bytes)} bytes of metadata")
        parts = self._exactly(metadata_bytes), self._exactly(header_bytes)
        return RingFrame(kind, slot if place == SLOT else None, *parts, body_bytes)

    def _exactly(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > BUFFER_BYTES:
            large = bytearray(size)
            self.read_into(memoryview(large))
            return bytes(large)
        while self._end - self._start < size:
            if BUFFER_BYTES - self._start < size:
                waiting = self._view[self._start : self._end].tobytes()
                self._view[: len(waiting)] = waiting
                self._start, self._end = 0, len(waiting)
            self._end += self._receive(self._view[self._end :])
        found = self._view[self._start : self._start + size].tobytes()
        self._start += size
        if self._start == self._end:
            self._start = self._end = 0
        return found

    def _receive(self, target: memoryview) -> int:
        with _translated():
            received = self._socket.recv_into(target)
        if not received:
            raise _ended()
        return received


def read_answer(frame: RingFrame) -> tuple[int, int]:
    """Return the number of slots and their bytes; raise the server's error if it refused the call."""
    message = _read_json(frame.metadata)
    if frame.kind == END:
        raise_end(frame)
    try:
        slots, slot_bytes = int(message.get("slots") or 0), int(message.get("slot_bytes") or 0)
    except (TypeError, ValueError) as error:
        raise BrokenStream(f"the ring sent an invalid answer: {error}") from error
    if frame.kind != ANSWER or slots < 0 or slot_bytes < 0 or slots >= 1 << 16:
        raise BrokenStream("the ring did not begin with an answer")
    return slots, slot_bytes


def raise_end(frame: RingFrame) -> None:
    """Raise the error of the server's last frame; return if the stream is complete."""
    end = _read_json(frame.metadata)
    code = end.get("code") or 0
    if not isinstance(code, int):
        raise BrokenStream(f"the ring ended with an invalid status: {code!r}")
    if code:
        raise of_status(code, str(end.get("message") or ""))


def _read_json(data: bytes) -> Json:
    try:
        message = json.loads(data)
    except ValueError as error:
        raise BrokenStream(f"the ring sent an invalid message: {error}") from error
    if not isinstance(message, dict):
        raise BrokenStream("the ring sent an invalid message")
    return cast(Json, message)


def _ended() -> ForebayError:
    return Unavailable("the server closed the ring before the end of the stream")


class _translated(contextlib.AbstractContextManager[None]):  # noqa: N801 (used as a function)
    """Context that turns errors of the socket into `Unavailable`; those of a signal handler have no number."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno is not None:
            raise Unavailable(f"the ring broke: {error.strerror or error}") from error


_numbers = itertools.count()
_sockets: weakref.WeakValueDictionary[int, RingSocket] = weakref.WeakValueDictionary()


def _in_child() -> None:
    # The server must notice if the parent dies, also while this process runs.
    for reference in _sockets.valuerefs():
        inherited = reference()
        if inherited is not None:
            inherited.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
