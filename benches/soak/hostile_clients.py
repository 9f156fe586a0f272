"""Silent, half-open, broken and hostile clients on bare sockets."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable

from harness import http2_peer as http2
from harness.http2_peer import Kind, Peer
from visit import Load, Scene

# Longest time that a silent or half-open peer is kept; a server drops it after --keepalive-seconds plus 20.
HELD_SECONDS = 45.0
HELD_MAX = 6
RESETS = 200
PREFACE = http2.PREFACE + http2.settings(65_535)


class HostileClient(Load):
    """A load whose connections the server may close at any time; the server itself must keep running."""

    def __init__(self, scene: Scene, number: int, tickets: dict[str, bytes]) -> None:
        super().__init__(scene, number)
        self.tickets = tickets
        """By dataset: the ticket of a long stream."""

    def once(self) -> None:
        """Run one visit; a closed connection is not a failure."""
        try:
            self.visit()
        except (OSError, AssertionError):
            self.scene.tally.end(self.name, "refused or cut")
        else:
            self.scene.tally.end(self.name, "done")

    def peer(self, **options: object) -> Peer:
        """Connect to any replica."""
        return Peer(self.any_replica(), **options)  # type: ignore[arg-type]


class Held(HostileClient):
    """Connections that stay open without reading or answering."""

    def __init__(self, scene: Scene, number: int, tickets: dict[str, bytes]) -> None:
        super().__init__(scene, number, tickets)
        self._held: list[tuple[float, Peer]] = []

    def run(self) -> None:
        """Keep several connections open until the run ends."""
        super().run()
        for _, peer in self._held:
            peer.close()

    def visit(self) -> None:
        """Close old connections and open a new one."""
        now = time.monotonic()
        while self._held and (len(self._held) >= HELD_MAX or self._held[0][0] < now - HELD_SECONDS):
            _, peer = self._held.pop(0)
            if peer.is_closed(0.01):
                self.add("closed by the server")
            peer.close(reset=self.random.random() < 0.5)
        self._held.append((now, self.hold()))

    def hold(self) -> Peer:
        """Open a connection."""
        raise NotImplementedError


class HalfOpen(Held):
    """Peers that request streams and then stop responding."""

    name = "half-open connections with streams"
    rest_seconds = 4.0

    def hold(self) -> Peer:
        """Request several streams."""
        peer = self.peer(window=self.random.choice([0, 1, 65_535, 8 << 20]))
        count = self.random.randrange(1, 4)
        for number in range(count):
            peer.send(http2.do_get(2 * number + 1, self.tickets["texts"]))
        self.add("streams", count)
        return peer


class Silent(Held):
    """Connections that send nothing, or an incomplete preface."""

    name = "silent connections"
    rest_seconds = 3.0

    def hold(self) -> Peer:
        """Send nothing, a partial preface, or a whole one."""
        return self.peer(hello=self.random.choice([b"", http2.PREFACE[:11], http2.PREFACE, PREFACE[:30], PREFACE]))


class ClosedWindow(HostileClient):
    """Peers that answer keepalive pings but read nothing."""

    name = "closed windows"
    rest_seconds = 5.0

    def visit(self) -> None:
        """Keep the window closed for several seconds."""
        with self.peer(window=self.random.choice([0, 65_535])) as peer:
            peer.send(b"".join(http2.do_get(2 * n + 1, self.tickets["texts"]) for n in range(3)))
            peer.answer_pings(self.random.uniform(1, 8))


class Resets(HostileClient):
    """Streams that are requested and reset immediately."""

    name = "rapid resets"
    rest_seconds = 6.0

    def visit(self) -> None:
        """Request and reset RESETS streams."""
        cancel = struct.pack(">I", http2.CANCEL)
        with self.peer() as peer:
            for first in range(1, 2 * RESETS, 100):
                requests = [
                    http2.do_get(stream, self.tickets["table"]) + http2.frame(Kind.RST_STREAM, stream, cancel)
                    for stream in range(first, first + 100, 2)
                ]
                self.add("streams", 50 * peer.flood(b"".join(requests), 1))


class Leavers(HostileClient):
    """Connections that end at any byte of a request or response."""

    name = "connections that end at any byte"
    rest_seconds = 0.7

    def visit(self) -> None:
        """Send requests, read part of the response, and disconnect in one of several ways."""
        rng = self.random
        with self.peer(hello=b"") as peer:
            sent = PREFACE + b"".join(
                http2.do_get(2 * n + 1, self.tickets[rng.choice(["table", "texts"])]) for n in range(rng.randrange(4))
            )
            if rng.random() < 0.5:
                sent = sent[: rng.randrange(len(sent))]
                self.add("disconnected in mid-request")
            peer.send(sent)
            peer.socket.settimeout(0.2)
            left = rng.choice([0, 1, 100, 10_000, 200_000])
            with contextlib.suppress(TimeoutError):
                while left > 0 and (piece := peer.socket.recv(left)):
                    left -= len(piece)
            how = rng.choice(["reset", "close", "half"])
            if how == "half":
                peer.socket.shutdown(socket.SHUT_WR)
                self.scene.over.wait(0.5)
            peer.close(reset=how == "reset")


GARBAGE: dict[str, bytes] = {
    "noise": random.Random(1).randbytes(20_000),
    "zeros": bytes(20_000),
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "noise after a valid preface": PREFACE + random.Random(2).randbytes(20_000),
    "a frame of 16 MB": PREFACE + b"\xff\xff\xff" + bytes([Kind.DATA, 0]) + bytes(4) + bytes(20_000),
    "headers that HPACK cannot decode": PREFACE + http2.frame(Kind.HEADERS, 1, b"\xff" * 100, http2.END_HEADERS),
    "a window beyond the largest": PREFACE + http2.frame(Kind.WINDOW_UPDATE, 0, b"\x7f\xff\xff\xff"),
    "a flood of pings": PREFACE + http2.frame(Kind.PING, payload=bytes(8)) * 2000,
    "a flood of settings": PREFACE + http2.settings(1000) * 2000,
}


class Garbage(HostileClient):
    """Bytes that are not HTTP/2 or violate it."""

    name = "garbage instead of HTTP/2"
    rest_seconds = 1.0

    def visit(self) -> None:
        """Send garbage and wait briefly for the server to close the connection."""
        what = self.random.choice(list(GARBAGE))
        with self.peer(hello=b"") as peer:
            with contextlib.suppress(OSError):
                peer.send(GARBAGE[what])
            if peer.is_closed(0.5):
                self.add("closed within 0.5 s")


class HalfScrapes(HostileClient):
    """Complete and incomplete requests to the metrics port."""

    name = "scrapes"
    rest_seconds = 1.0

    def __init__(self, scene: Scene, number: int, tickets: dict[str, bytes], metrics_urls: list[str]) -> None:
        super().__init__(scene, number, tickets)
        self._urls = metrics_urls

    def visit(self) -> None:
        """Send a request."""
        url = self.random.choice(self._urls)
        half = b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Slow: "
        whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        is_half = self.random.random() < 0.2
        with Peer(url, hello=half if is_half else whole) as peer:
            if is_half:
                self.scene.over.wait(3)
                self.add("incomplete")
                return
            page = b""
            while piece := peer.socket.recv(1 << 16):
                page += piece
            # Only the first replica is never killed, possibly in the middle of a page.
            if b"forebay_build_info" not in page and url == self._urls[0]:
                self.unexpected(f"a page of {len(page)} bytes without the build: {page[:100]!r}")
            self.add("pages")


def hostile_clients(scene: Scene, tickets: dict[str, bytes], metrics_urls: list[str]) -> list[Load]:
    """Return one load of each kind."""
    kinds: list[Callable[[Scene, int, dict[str, bytes]], Load]] = [
        HalfOpen,
        Silent,
        ClosedWindow,
        Resets,
        Leavers,
        Garbage,
    ]
    return [*(kind(scene, 0, tickets) for kind in kinds), HalfScrapes(scene, 0, tickets, metrics_urls)]
