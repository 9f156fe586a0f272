"""Clients that are silent, half gone, broken or hostile: bare sockets that keep no rules."""

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

# The longest that a silent or half-open peer is held; a server gives it up after --keepalive-seconds and 20 more.
HELD_SECONDS = 45.0
HELD_MAX = 6
RESETS = 200
HELLO = http2.PREFACE + http2.settings(65_535)


class HostileClient(Load):
    """A load whose server may do with it what it likes, as long as it goes on."""

    def __init__(self, scene: Scene, number: int, tickets: dict[str, bytes]) -> None:
        super().__init__(scene, number)
        self.tickets = tickets
        """By dataset, of a long stream."""

    def once(self) -> None:
        """Come once; that a connection ends is no news."""
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
    """Connections that stay: nothing is read of them and nothing is answered."""

    def __init__(self, scene: Scene, number: int, tickets: dict[str, bytes]) -> None:
        super().__init__(scene, number, tickets)
        self._held: list[tuple[float, Peer]] = []

    def run(self) -> None:
        """Hold some at any time."""
        super().run()
        for _, peer in self._held:
            peer.close()

    def visit(self) -> None:
        """Let go of those that are old, and take another."""
        now = time.monotonic()
        while self._held and (len(self._held) >= HELD_MAX or self._held[0][0] < now - HELD_SECONDS):
            _, peer = self._held.pop(0)
            if peer.is_closed(0.01):
                self.add("had been given up by the server")
            peer.close(reset=self.random.random() < 0.5)
        self._held.append((now, self.hold()))

    def hold(self) -> Peer:
        """Open another."""
        raise NotImplementedError


class HalfOpen(Held):
    """Peers that ask for streams and are gone without a word."""

    name = "half-open connections with streams"
    rest_seconds = 4.0

    def hold(self) -> Peer:
        """Ask for some streams."""
        peer = self.peer(window=self.random.choice([0, 1, 65_535, 8 << 20]))
        for number in range(self.random.randrange(1, 4)):
            peer.send(http2.do_get(2 * number + 1, self.tickets["texts"]))
        self.add("streams", number + 1)
        return peer


class Silent(Held):
    """Connections that say nothing, or half a word."""

    name = "silent connections"
    rest_seconds = 3.0

    def hold(self) -> Peer:
        """Say something that is no hello."""
        return self.peer(hello=self.random.choice([b"", http2.PREFACE[:11], http2.PREFACE, HELLO[:30], HELLO]))


class Resting(HostileClient):
    """Peers that are there, answer when they are asked, and take nothing."""

    name = "windows that stay closed"
    rest_seconds = 5.0

    def visit(self) -> None:
        """Rest for some seconds."""
        with self.peer(window=self.random.choice([0, 65_535])) as peer:
            peer.send(b"".join(http2.do_get(2 * n + 1, self.tickets["texts"]) for n in range(3)))
            peer.answer_pings(self.random.uniform(1, 8))


class Resets(HostileClient):
    """Streams that are asked for and taken back at once."""

    name = "rapid resets"
    rest_seconds = 6.0

    def visit(self) -> None:
        """Ask for some hundred."""
        cancel = struct.pack(">I", http2.CANCEL)
        with self.peer() as peer:
            for first in range(1, 2 * RESETS, 100):
                asked = [
                    http2.do_get(stream, self.tickets["table"]) + http2.frame(Kind.RST_STREAM, stream, cancel)
                    for stream in range(first, first + 100, 2)
                ]
                self.add("streams", 50 * peer.flood(b"".join(asked), 1))


class Leavers(HostileClient):
    """Connections that end at any byte of a question or of an answer."""

    name = "connections that end at any byte"
    rest_seconds = 0.7

    def visit(self) -> None:
        """Ask, read a while, and leave in one of several ways."""
        dice = self.random
        with self.peer(hello=b"") as peer:
            asked = HELLO + b"".join(
                http2.do_get(2 * n + 1, self.tickets[dice.choice(["table", "texts"])]) for n in range(dice.randrange(4))
            )
            if dice.random() < 0.5:
                asked = asked[: dice.randrange(len(asked))]
                self.add("left in the midst of a question")
            peer.send(asked)
            peer.socket.settimeout(0.2)
            left = dice.choice([0, 1, 100, 10_000, 200_000])
            with contextlib.suppress(TimeoutError):
                while left > 0 and (piece := peer.socket.recv(left)):
                    left -= len(piece)
            how = dice.choice(["reset", "close", "half"])
            if how == "half":
                peer.socket.shutdown(socket.SHUT_WR)
                self.scene.over.wait(0.5)
            peer.close(reset=how == "reset")


GARBAGE: dict[str, bytes] = {
    "noise": random.Random(1).randbytes(20_000),
    "zeros": bytes(20_000),
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "noise behind a hello": HELLO + random.Random(2).randbytes(20_000),
    "a frame of 16 MB": HELLO + b"\xff\xff\xff" + bytes([Kind.DATA, 0]) + bytes(4) + bytes(20_000),
    "headers that cannot be unpacked": HELLO + http2.frame(Kind.HEADERS, 1, b"\xff" * 100, http2.END_HEADERS),
    "a window beyond the largest": HELLO + http2.frame(Kind.WINDOW_UPDATE, 0, b"\x7f\xff\xff\xff"),
    "a flood of pings": HELLO + http2.frame(Kind.PING, payload=bytes(8)) * 2000,
    "a flood of settings": HELLO + http2.settings(1000) * 2000,
}


class Garbage(HostileClient):
    """Bytes that are no HTTP/2, or break its rules."""

    name = "garbage in the place of HTTP/2"
    rest_seconds = 1.0

    def visit(self) -> None:
        """Say some, and wait a little for the end."""
        what = self.random.choice(list(GARBAGE))
        with self.peer(hello=b"") as peer:
            with contextlib.suppress(OSError):
                peer.send(GARBAGE[what])
            if peer.is_closed(0.5):
                self.add("cut off at once")


class HalfScrapes(HostileClient):
    """Questions to the metrics' port that never end, beside whole ones."""

    name = "scrapes"
    rest_seconds = 1.0

    def __init__(self, scene: Scene, number: int, tickets: dict[str, bytes], metrics_urls: list[str]) -> None:
        super().__init__(scene, number, tickets)
        self._urls = metrics_urls

    def visit(self) -> None:
        """Ask."""
        url = self.random.choice(self._urls)
        half = b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Slow: "
        whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        is_half = self.random.random() < 0.2
        with Peer(url, hello=half if is_half else whole) as peer:
            if is_half:
                self.scene.over.wait(3)
                self.add("never asked to the end")
                return
            page = b""
            while piece := peer.socket.recv(1 << 16):
                page += piece
            # Others than the first are killed now and then, in the midst of a page too.
            if b"forebay_build_info" not in page and url == self._urls[0]:
                self.unexpected(f"a page of {len(page)} bytes without the build: {page[:100]!r}")
            self.add("pages")


def hostile_clients(scene: Scene, tickets: dict[str, bytes], metrics_urls: list[str]) -> list[Load]:
    """Return one of each."""
    kinds: list[Callable[[Scene, int, dict[str, bytes]], Load]] = [HalfOpen, Silent, Resting, Resets, Leavers, Garbage]
    return [*(kind(scene, 0, tickets) for kind in kinds), HalfScrapes(scene, 0, tickets, metrics_urls)]
