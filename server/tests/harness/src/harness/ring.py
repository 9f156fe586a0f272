"""A bare client of a server's ring, which may break the protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import mmap
import os
import socket
import struct
from typing import Any, NamedTuple

import xxhash

HEAD = struct.Struct("<BBHIII")
ANSWER, MESSAGE, END = 1, 2, 3
CANCEL = 0xFFFFFFFF


class RingFrame(NamedTuple):
    kind: int
    slot: int | None
    metadata: bytes
    header: dict[str, Any]
    body: bytes


class BareRing:
    """One connection."""

    def __init__(self, path: str, seconds: float = 30) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        self._socket.connect(path)
        self._memory: mmap.mmap | None = None
        self.answer: dict[str, Any] = {}
        self.file: int | None = None

    def __enter__(self) -> BareRing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hello(self, ticket: bytes, *, slots: int = 4, **more: Any) -> None:
        message = {"version": 1, "slots": slots, "ticket": base64.b64encode(ticket).decode(), **more}
        encoded = json.dumps(message).encode()
        self.send(b"FBR1" + struct.pack("<I", len(encoded)) + encoded)

    def give_back(self, *slots: int) -> None:
        self.send(b"".join(struct.pack("<I", slot) for slot in slots))

    def next(self) -> RingFrame | None:
        """The next frame; None if the server closed the connection."""
        if self.file is None:
            head, files, _, _ = socket.recv_fds(self._socket, HEAD.size, 1)
            self.file = files[0] if files else None
        else:
            head = self._socket.recv(HEAD.size)
        if not head:
            return None
        head += self._exactly(HEAD.size - len(head))
        kind, place, slot, metadata_bytes, header_bytes, body_bytes = HEAD.unpack(head)
        metadata, header = self._exactly(metadata_bytes), self._exactly(header_bytes)
        if kind == ANSWER:
            self.answer = json.loads(metadata)
            if self.file is not None:
                self._memory = mmap.mmap(self.file, int(self.answer["slots"]) * int(self.answer["slot_bytes"]))
        if place == 1:
            assert self._memory is not None
            start = slot * int(self.answer["slot_bytes"])
            body = self._memory[start : start + body_bytes]
        else:
            body = self._exactly(body_bytes)
        fields = json.loads(header) if header else {}
        if fields:
            assert xxhash.xxh3_64_intdigest(body) == int(fields["checksum"])
        return RingFrame(kind, slot if place == 1 else None, metadata, fields, body)

    def until_end(self, *, give_back: bool = True) -> tuple[list[RingFrame], dict[str, Any]]:
        """The batches up to the status, and the status."""
        batches: list[RingFrame] = []
        while frame := self.next():
            if frame.kind == END:
                return batches, json.loads(frame.metadata)
            if frame.header:
                batches.append(frame)
            if give_back and frame.slot is not None:
                # The server may have sent everything and ended.
                with contextlib.suppress(BrokenPipeError):
                    self.give_back(frame.slot)
        raise EOFError(f"no status after {len(batches)} batches")

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def close(self) -> None:
        self._socket.close()
        if self.file is not None:
            os.close(self.file)
            self.file = None


def ring_of(url: str) -> str:
    return url.removeprefix("grpc+unix://") + ".ring"
