"""A crowd that asks for streams at a fixed rate and is refused: bare HTTP/2, so that it costs next to nothing.

Reads orders from stdin, `{"url", "ticket" (base64), "rate", "seconds", "how"}`, and answers each with a line of JSON.
With `how` "streams" the questions go over some connections that stay, with "clients" each over one of its own; they go
out when they are due, whether answers have come or not. An answer counts as a refusal where its first headers end the
stream, as those of a gRPC error do; what it says is looked at elsewhere (`refusal.py`), not for each.
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
# What a connection may send before the server opens the window further (RFC 9113, 6.9.2).
WINDOW_BYTES = 65_535
# Answers are awaited for so long after the last request.
GRACE_SECONDS = 5.0
STREAM_MAX = 2**31 - 1000


def main() -> None:
    """Obey until stdin ends."""
    crowd: Crowd | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if crowd is None or crowd.url != order["url"]:
            if crowd is not None:
                crowd.leave()
            crowd = Crowd(order["url"])
        print(json.dumps(crowd.come(order)), flush=True)


@dataclass
class Door:
    """A connection, and the questions on it that have no answer."""

    socket: socket.socket
    asked: dict[int, float] = field(default_factory=dict)
    """When each stream was due."""
    stream: int = 1
    window: int = WINDOW_BYTES
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Result:
    """What became of an order's requests."""

    asked: int = 0
    refused: int = 0
    let_in: int = 0
    """Those that got a stream: it is cancelled at once."""
    broken: int = 0
    """Those whose connection ended without an answer, or could not be had."""
    late: int = 0
    """Those that could not be sent when they were due, for want of a window."""
    seconds: list[float] = field(default_factory=list)
    """From when a request was due to its refusal."""


class Crowd:
    """The connections to one server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._doors: dict[int, Door] = {}
        self._poll = select.poll()
        self._result = Result()

    def come(self, order: dict[str, Any]) -> dict[str, Any]:
        """Ask at the rate for so long, and wait for the answers."""
        ticket = base64.b64decode(order["ticket"])
        self._result = result = Result()
        cpu_before, began = time.process_time(), time.monotonic()
        due, step = began, 1 / order["rate"]
        end = began + order["seconds"]
        alone = order["how"] == "clients"
        if alone:
            self.leave()
        while (now := time.monotonic()) < end:
            if now >= due:
                self._ask(ticket, due, alone)
                due += step
            else:
                self._listen(due - now, alone)
        sent_seconds = time.monotonic() - began
        while any(door.asked for door in self._doors.values()) and time.monotonic() < end + GRACE_SECONDS:
            self._listen(0.05, alone)
        result.broken += sum(len(door.asked) for door in self._doors.values())
        for door in self._doors.values():
            door.asked.clear()
        return {
            "asked": result.asked,
            "refused": result.refused,
            "let_in": result.let_in,
            "broken": result.broken,
            "late": result.late,
            "seconds": sent_seconds,
            "cpu_seconds": time.process_time() - cpu_before,
            "latency_ms": [round(each * 1e3, 3) for each in sorted(result.seconds)],
        }

    def leave(self) -> None:
        """Close all connections."""
        for door in list(self._doors.values()):
            self._drop(door)

    def _ask(self, ticket: bytes, due: float, alone: bool) -> None:
        self._result.asked += 1
        try:
            door = self._door(alone)
        except OSError:
            self._result.broken += 1
            return
        question = http2.do_get(door.stream, ticket)
        if door.window < len(question):
            self._result.late += 1
            self._result.broken += 1
            return
        door.asked[door.stream] = due
        door.window -= len(question)
        door.stream += 2
        try:
            door.socket.sendall(question)
        except OSError:
            self._drop(door)

    def _door(self, alone: bool) -> Door:
        if not alone and len(self._doors) >= CONNECTIONS:
            # The one that was used least lately; dictionaries keep the order.
            number = next(iter(self._doors))
            door = self._doors.pop(number)
            self._doors[number] = door
            if door.stream < STREAM_MAX:
                return door
            self._drop(door)
        door = Door(http2.connect(self.url))
        door.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        door.socket.sendall(http2.PREFACE + http2.settings(WINDOW_BYTES))
        door.socket.setblocking(True)
        self._doors[door.socket.fileno()] = door
        self._poll.register(door.socket, select.POLLIN)
        return door

    def _drop(self, door: Door) -> None:
        self._result.broken += len(door.asked)
        door.asked.clear()
        self._doors.pop(door.socket.fileno(), None)
        self._poll.unregister(door.socket)
        door.socket.close()

    def _listen(self, seconds: float, alone: bool) -> None:
        for number, _ in self._poll.poll(seconds * 1e3):
            door = self._doors.get(number)
            if door is None:
                continue
            try:
                piece = door.socket.recv(1 << 16)
            except OSError:
                piece = b""
            if not piece:
                self._drop(door)
                continue
            door.data += piece
            self._read(door)
            if alone and not door.asked and door.socket.fileno() in self._doors:
                self._drop(door)

    def _read(self, door: Door) -> None:
        """Look at every whole frame."""
        data, at = door.data, 0
        while len(data) - at >= http2.HEAD_BYTES:
            end = at + http2.HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            if len(data) < end:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
            payload = bytes(data[at + http2.HEAD_BYTES : end])
            at = end
            if kind == Kind.HEADERS and (due := door.asked.pop(stream, None)) is not None:
                if flags & http2.END_STREAM:
                    self._result.refused += 1
                    self._result.seconds.append(time.monotonic() - due)
                else:
                    self._result.let_in += 1
                    cancel = http2.CANCEL.to_bytes(4, "big")
                    door.socket.sendall(http2.frame(Kind.RST_STREAM, stream, cancel))
            elif kind == Kind.WINDOW_UPDATE and stream == 0:
                door.window += int.from_bytes(payload, "big")
            elif kind in (Kind.PING, Kind.SETTINGS) and not flags & http2.ACK:
                door.socket.sendall(http2.frame(kind, 0, payload if kind == Kind.PING else b"", http2.ACK))
        del data[:at]


if __name__ == "__main__":
    main()
