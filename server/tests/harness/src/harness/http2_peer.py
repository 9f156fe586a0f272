"""An HTTP/2 client that can violate the protocol: it writes frames by hand and barely parses responses."""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import time

from harness.proxy import RESET

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SERVICE = "/arrow.flight.protocol.FlightService/"
HEAD_BYTES = 9
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
WINDOW_SETTING = 0x4
CANCEL = 0x8
WAIT_SECONDS = 20


class Kind(enum.IntEnum):
    """The types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(window: int) -> bytes:
    """The client's SETTINGS: the initial window of each stream."""
    return frame(Kind.SETTINGS, payload=struct.pack(">HI", WINDOW_SETTING, window))


def field(name: str, value: str) -> bytes:
    """A literal header without indexing."""
    assert max(len(name), len(value)) < 127
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(method: str, service: str = SERVICE, **more: str) -> bytes:
    """The headers of a call, of Flight unless another service is given."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": service + method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        **more,
    }
    return b"".join(field(name, value) for name, value in fields.items())


def message(body: bytes) -> bytes:
    """A gRPC message."""
    return b"\0" + struct.pack(">I", len(body)) + body


def call(stream: int, method: str, body: bytes, **more: str) -> bytes:
    """A whole call with one message."""
    data = frame(Kind.DATA, stream, message(body), END_STREAM)
    return frame(Kind.HEADERS, stream, head(method, **more), END_HEADERS) + data


def unfinished(length: int) -> bytes:
    """The start of a gRPC message of this length, up to the zeros of its only field."""
    return b"\0" + struct.pack(">I", length) + b"\xc2\x3e" + b"\xff\xff\xff\x7f"


def delimited(field_number: int, body: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    length, left = b"", len(body)
    while True:
        left, low = left >> 7, left & 0x7F
        length += bytes([low | (0x80 if left else 0)])
        if not left:
            return bytes([field_number << 3 | 2]) + length + body


def do_get(stream: int, ticket: bytes) -> bytes:
    return call(stream, "DoGet", delimited(1, ticket))


def connect(url: str) -> socket.socket:
    host, _, port = url.rpartition("://")[2].partition("/")[0].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)


class Peer:
    """A connection after the preface, with this window per stream; it reads only on request."""

    def __init__(self, url: str, window: int = 65_535, hello: bytes | None = None) -> None:
        self.socket = connect(url)
        # The initial one, less what is sent otherwise.
        self.connection_window = 60_000
        self.send(PREFACE + settings(window) if hello is None else hello)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def flood(self, data: bytes, times: int) -> int:
        """Send until the server has had enough of it or takes no more; returns how often it was sent whole."""
        self.socket.settimeout(2)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < times:
                self.socket.sendall(data)
                sent += 1
        self.socket.settimeout(WAIT_SECONDS)
        return sent

    def read(self) -> tuple[int, int, int, bytes] | None:
        """Type, flags, stream and payload of the next frame; None where the server has closed."""
        try:
            start = self._exactly(HEAD_BYTES)
            payload = self._exactly(int.from_bytes(start[:3], "big"))
        except (ConnectionError, EOFError):
            return None
        return start[3], start[4], int.from_bytes(start[5:9], "big"), payload

    def send_in_windows(self, stream: int, data: bytes) -> int:
        """Send a body as far as the server takes it; returns the bytes it took before it reset the stream."""
        sent, room, frame_bytes = 0, self.connection_window, 16_384
        while sent < len(data):
            piece = data[sent : sent + min(frame_bytes, room)]
            if piece:
                self.send(frame(Kind.DATA, stream, piece))
                sent, room = sent + len(piece), room - len(piece)
                continue
            seen = self.read()
            if seen is None or (seen[0] == Kind.RST_STREAM and seen[2] == stream):
                break
            if seen[0] == Kind.WINDOW_UPDATE and seen[2] == 0:
                room += int.from_bytes(seen[3], "big")
        self.connection_window = room
        return sent

    def wait_for(self, kind: Kind, flags: int = 0) -> bytes:
        """The payload of the next frame of a type with these flags."""
        while (seen := self.read()) is not None:
            if seen[0] == kind and seen[1] & flags == flags:
                return seen[3]
        raise AssertionError(f"the server closed before a {kind.name} frame arrived")

    def answer_pings(self, seconds: float) -> bool:
        """Be alive for so long and nothing more; returns whether the server still is there."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while True:
                # Wait for the rest of a partial frame: pings are few and small.
                self.socket.settimeout(max(0.01, deadline - time.monotonic()))
                if (seen := self.read()) is None:
                    return False
                if seen[0] in (Kind.PING, Kind.SETTINGS) and not seen[1] & ACK:
                    self.send(frame(seen[0], payload=seen[3] if seen[0] == Kind.PING else b"", flags=ACK))
                if time.monotonic() >= deadline:
                    break
        return True

    def is_closed(self, seconds: float = WAIT_SECONDS) -> bool:
        """Whether the server closes the connection in time without any sent data, possibly after a GOAWAY."""
        self.socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while self.socket.recv(1 << 16):
                pass
            return True
        # A reset is an end too.
        return _is_gone(self.socket)

    def close(self, *, reset: bool = False) -> None:
        with contextlib.suppress(OSError):
            if reset:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


def _is_gone(connection: socket.socket) -> bool:
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    # The kernel's state CLOSE.
    return state == 7


UNFINISHED_HANDSHAKES: dict[str, bytes] = {
    "nothing": b"",
    "half a preface": PREFACE[:11],
    "no settings": PREFACE,
    "a ping and no settings": PREFACE + frame(Kind.PING, payload=bytes(8)),
    "half of the settings": PREFACE + settings(1000)[:12],
}
