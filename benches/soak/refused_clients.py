"""Clients that request streams at a fixed rate and are refused: bare HTTP/2, to keep their own cost low.

Reads commands from stdin, `{"url", "ticket" (base64), "rate", "seconds", "how"}`, and answers each with a line of JSON.
With `how` "streams" the requests share a few long-lived connections; with "clients" each opens a new one. They are sent
on schedule, whether or not earlier ones have been answered. A response is a refusal if its first headers end the
stream, as those of a gRPC error do; `refusal.py` checks the contents of one refusal.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from harness import http2_peer as http2
from harness.http2_peer import Kind

CONNECTIONS = 8
# Initial flow-control window of a connection (RFC 9113, 6.9.2).
WINDOW_BYTES = 65_535
# Time to wait for responses after the last request.
GRACE_SECONDS = 5.0
STREAM_MAX = 2**31 - 1000


def main() -> None:
    """Execute commands until stdin ends."""
    clients: Clients | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if clients is None or clients.url != command["url"]:
            if clients is not None:
                clients.close()
            clients = Clients(command["url"])
        print(json.dumps(clients.run(command)), flush=True)


@dataclass
class Connection:
    """A connection and its unanswered requests."""

    socket: socket.socket
    sent: dict[int, float] = field(default_factory=dict)
    """Scheduled time by stream id."""
    stream: int = 1
    window: int = WINDOW_BYTES
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Result:
    """Outcome of the requests of one command."""

    sent: int = 0
    refused: int = 0
    admitted: int = 0
    """Requests that got a stream, which is cancelled immediately."""
    broken: int = 0
    """Requests whose connection failed or closed without a response."""
    late: int = 0
    """Requests that could not be sent on time because the window was exhausted."""
    seconds: list[float] = field(default_factory=list)
    """Seconds from the scheduled time of each request to its refusal."""


class Clients:
    """The connections to one server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connections: dict[int, Connection] = {}
        self._poll = select.poll()
        self._result = Result()

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send requests at the rate for the given seconds, and wait for the responses."""
        ticket = base64.b64decode(command["ticket"])
        self._result = result = Result()
        cpu_before, began = time.process_time(), time.monotonic()
        due, step = began, 1 / command["rate"]
        end = began + command["seconds"]
        separate = command["how"] == "clients"
        if separate:
            self.close()
        while (now := time.monotonic()) < end:
            if now >= due:
                self._send(ticket, due, separate)
                due += step
            else:
                self._receive(due - now, separate)
        sent_seconds = time.monotonic() - began
        while (
            any(connection.sent for connection in self._connections.values()) and time.monotonic() < end + GRACE_SECONDS
        ):
            self._receive(0.05, separate)
        result.broken += sum(len(connection.sent) for connection in self._connections.values())
        for connection in self._connections.values():
            connection.sent.clear()
        return {
            "sent": result.sent,
            "refused": result.refused,
            "admitted": result.admitted,
            "broken": result.broken,
            "late": result.late,
            "seconds": sent_seconds,
            "cpu_seconds": time.process_time() - cpu_before,
            "latency_ms": [round(each * 1e3, 3) for each in sorted(result.seconds)],
        }

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections.values()):
            self._drop(connection)

    def _send(self, ticket: bytes, due: float, separate: bool) -> None:
        self._result.sent += 1
        try:
            connection = self._connection(separate)
        except OSError:
            self._result.broken += 1
            return
        request = http2.do_get(connection.stream, ticket)
        if connection.window < len(request):
            self._result.late += 1
            self._result.broken += 1
            return
        connection.sent[connection.stream] = due
        connection.window -= len(request)
        connection.stream += 2
        try:
            connection.socket.sendall(request)
        except OSError:
            self._drop(connection)

    def _connection(self, separate: bool) -> Connection:
        if not separate and len(self._connections) >= CONNECTIONS:
            # The least recently used one; dictionaries keep insertion order.
            number = next(iter(self._connections))
            connection = self._connections.pop(number)
            self._connections[number] = connection
            if connection.stream < STREAM_MAX:
                return connection
            self._drop(connection)
        connection = Connection(http2.connect(self.url))
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.socket.sendall(http2.PREFACE + http2.settings(WINDOW_BYTES))
        connection.socket.setblocking(True)
        self._connections[connection.socket.fileno()] = connection
        self._poll.register(connection.socket, select.POLLIN)
        return connection

    def _drop(self, connection: Connection) -> None:
        self._result.broken += len(connection.sent)
        connection.sent.clear()
        self._connections.pop(connection.socket.fileno(), None)
        self._poll.unregister(connection.socket)
        connection.socket.close()

    def _receive(self, seconds: float, separate: bool) -> None:
        for number, _ in self._poll.poll(seconds * 1e3):
            connection = self._connections.get(number)
            if connection is None:
                continue
            try:
                chunk = connection.socket.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                self._drop(connection)
                continue
            connection.data += chunk
            self._read(connection)
            if separate and not connection.sent and connection.socket.fileno() in self._connections:
                self._drop(connection)

    def _read(self, connection: Connection) -> None:
        """Process every complete frame."""
        data, at = connection.data, 0
        while len(data) - at >= http2.HEAD_BYTES:
            end = at + http2.HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            if len(data) < end:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
            payload = bytes(data[at + http2.HEAD_BYTES : end])
            at = end
            if kind == Kind.HEADERS and (due := connection.sent.pop(stream, None)) is not None:
                if flags & http2.END_STREAM:
                    self._result.refused += 1
                    self._result.seconds.append(time.monotonic() - due)
                else:
                    self._result.admitted += 1
                    cancel = http2.CANCEL.to_bytes(4, "big")
                    connection.socket.sendall(http2.frame(Kind.RST_STREAM, stream, cancel))
            elif kind == Kind.WINDOW_UPDATE and stream == 0:
                connection.window += int.from_bytes(payload, "big")
            elif kind in (Kind.PING, Kind.SETTINGS) and not flags & http2.ACK:
                connection.socket.sendall(http2.frame(kind, 0, payload if kind == Kind.PING else b"", http2.ACK))
        del data[:at]


if __name__ == "__main__":
    main()
