"""Frames on the socket between a server and a process of functions: JSON, and a body of Arrow IPC.

```text
length of the JSON u32 │ length of the body u64 │ JSON │ body        (little-endian)
```

A connection has one request and one answer. Requests are ``{"describe": NAME}``, and ``{"call": NAME, "digest":
DIGEST}`` with a record batch of the arguments; answers are ``{"function": {...}}`` with a schema, ``{"ok": {...}}``
with a record batch of the result, or ``{"error": {"kind": ..., "message": ...}}``.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, cast

HEADER = struct.Struct("<IQ")
JSON_BYTES_MAX = 1 << 16
BODY_BYTES_MAX = 1 << 30
# Characters of an error's message: the end of a traceback says most.
MESSAGE_CHARACTERS_MAX = 2000

Json = dict[str, Any]


class FrameError(Exception):
    """The other end closed the connection within a frame, or sent something else."""


def send(connection: socket.socket, head: Json, body: bytes | memoryview = b"") -> None:
    """Send one frame."""
    text = json.dumps(head).encode()
    connection.sendall(HEADER.pack(len(text), len(body)) + text)
    if body:
        connection.sendall(body)


def receive(connection: socket.socket) -> tuple[Json, memoryview]:
    """Receive one frame."""
    json_bytes, body_bytes = HEADER.unpack(_exactly(connection, HEADER.size))
    if json_bytes > JSON_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        raise FrameError(f"a frame of {json_bytes} and {body_bytes} bytes exceeds the limits of the protocol")
    head = json.loads(bytes(_exactly(connection, json_bytes)))
    if not isinstance(head, dict):
        raise FrameError("the JSON of a frame is not an object")
    return cast(Json, head), _exactly(connection, body_bytes)


def error(kind: str, message: str) -> Json:
    """Return the head of an answer that is an error; a long message keeps its end."""
    if len(message) > MESSAGE_CHARACTERS_MAX:
        message = "…" + message[-MESSAGE_CHARACTERS_MAX:]
    return {"error": {"kind": kind, "message": message}}


def _exactly(connection: socket.socket, count: int) -> memoryview:
    received = bytearray(count)
    view, filled = memoryview(received), 0
    while filled < count:
        more = connection.recv_into(view[filled:])
        if not more:
            raise FrameError(f"the connection was closed {count - filled} bytes before the end of a frame")
        filled += more
    return view
