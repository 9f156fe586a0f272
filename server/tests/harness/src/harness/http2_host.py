"""An HTTP/2 server that answers every call with given frames, which may violate the protocol."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

from harness.http2_peer import ACK, END_HEADERS, END_STREAM, HEAD_BYTES, PREFACE, Kind, field, frame, message

WAIT_SECONDS = 20
DATA_BODY = b"\xc2\x3e"


def delimited(key: bytes, body: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    length, left = b"", len(body)
    while True:
        left, low = left >> 7, left & 0x7F
        length += bytes([low | (0x80 if left else 0)])
        if not left:
            return key + length + body


def flight_data(metadata: bytes, header: bytes = b"", body: bytes = b"") -> bytes:
    """A FlightData as a gRPC message."""
    parts = ((b"\x12", metadata), (b"\x1a", header), (DATA_BODY, body))
    return message(b"".join(delimited(key, part) for key, part in parts if part))


def headers(kind: str = "application/grpc") -> bytes:
    """The headers of a response with HTTP's status 200."""
    return frame(Kind.HEADERS, 1, b"\x88" + field("content-type", kind), END_HEADERS)


def data(payload: bytes) -> bytes:
    return frame(Kind.DATA, 1, payload)


def trailers(code: int = 0, text: str = "") -> bytes:
    fields = field("grpc-status", str(code)) + (field("grpc-message", text) if text else b"")
    return frame(Kind.HEADERS, 1, fields, END_HEADERS | END_STREAM)


def reset(code: int) -> bytes:
    return frame(Kind.RST_STREAM, 1, struct.pack(">I", code))


class Http2Host:
    """Sends `script` to each client after its request; then closes, or waits for the client if `holds`."""

    def __init__(self) -> None:
        self.script = b""
        self.holds = False
        self.has_answered = threading.Event()
        self.is_left = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Http2Host:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_SECONDS)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(WAIT_SECONDS)
                self._answer(client)
            self.is_left.set()

    def _answer(self, client: socket.socket) -> None:
        source = client.makefile("rb")
        assert source.read(len(PREFACE)) == PREFACE
        client.sendall(frame(Kind.SETTINGS))
        while head := source.read(HEAD_BYTES):
            kind, flags = head[3], head[4]
            source.read(int.from_bytes(head[:3], "big"))
            if kind == Kind.SETTINGS and not flags & ACK:
                client.sendall(frame(Kind.SETTINGS, flags=ACK))
            if kind in (Kind.HEADERS, Kind.DATA) and flags & END_STREAM:
                break
        client.sendall(self.script)
        self.has_answered.set()
        if not self.holds:
            client.shutdown(socket.SHUT_WR)
        while source.read(HEAD_BYTES):
            pass
