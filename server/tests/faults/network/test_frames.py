"""HTTP/2 clients that violate the protocol: each costs the server little, and other clients nothing."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness import http2_peer as http2
from harness.daemon import Daemon, poll
from harness.faults import (
    LONG,
    NUMBERS,
    ROWS,
    Bystander,
    Rest,
    resident_bytes,
    ticket,
    ticket_bytes,
)
from harness.http2_peer import Kind, Peer
from harness.metrics import scrape

MIB = 1 << 20


def reset(stream: int) -> bytes:
    return http2.frame(Kind.RST_STREAM, stream, struct.pack(">I", http2.CANCEL))


@pytest.mark.parametrize("call", ["DoGet", "GetFlightInfo", "headers alone"])
def test_rapid_resets_are_bounded(daemon: Daemon, rest: Rest, call: str):
    where = ticket_bytes(daemon, LONG)

    def call_on(stream: int) -> bytes:
        if call == "DoGet":
            return http2.do_get(stream, where)
        if call == "GetFlightInfo":
            return http2.call(stream, call, b"\x08\x02" + http2.delimited(2, json.dumps(LONG).encode()))
        return http2.frame(Kind.HEADERS, stream, http2.head("DoExchange"), http2.END_HEADERS)

    before = resident_bytes(daemon)
    with Bystander(daemon.url) as other:
        for _ in range(4):
            with Peer(daemon.url) as peer:
                for burst in range(50):
                    streams = range(burst * 400 + 1, burst * 400 + 401, 2)
                    if not peer.flood(b"".join(call_on(stream) + reset(stream) for stream in streams), 1):
                        break
            other.wait_for_epochs()
    assert rest.is_back(60), rest.left()
    assert resident_bytes(daemon) - before < 64 * MIB


def client_hello() -> bytes:
    """How a TLS client begins."""
    body = b"\x03\x03" + bytes(32) + b"\0" + struct.pack(">H", 2) + b"\x13\x01" + b"\x01\0"
    handshake = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake


HELLO = http2.PREFACE + http2.settings(65_535)
GARBAGE: dict[str, bytes] = {
    "noise": random.Random(1).randbytes(100_000),
    "zeros": bytes(100_000),
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    "a TLS client's hello": client_hello(),
    "noise after a preface": HELLO + random.Random(2).randbytes(100_000),
    "a frame of 16 MB": HELLO + b"\xff\xff\xff" + bytes([Kind.DATA, 0]) + bytes(4) + bytes(100_000),
    "data of no stream": HELLO + http2.frame(Kind.DATA, 0, b"x"),
    "data of a stream that never was": HELLO + http2.frame(Kind.DATA, 1, b"x"),
    "a call on the server's side": HELLO + http2.frame(Kind.HEADERS, 2, http2.head("DoGet"), http2.END_HEADERS),
    "headers that cannot be unpacked": HELLO + http2.frame(Kind.HEADERS, 1, b"\xff" * 100, http2.END_HEADERS),
    "a window of nothing more": HELLO + http2.frame(Kind.WINDOW_UPDATE, 0, bytes(4)),
    "a window beyond the largest": HELLO + http2.frame(Kind.WINDOW_UPDATE, 0, b"\x7f\xff\xff\xff"),
    "settings of half an entry": HELLO + http2.frame(Kind.SETTINGS, payload=b"abc"),
    "a ping of 3 bytes": HELLO + http2.frame(Kind.PING, payload=b"abc"),
    "headers that another stream's frame breaks": HELLO
    + http2.frame(Kind.HEADERS, 1, http2.head("DoGet"))
    + http2.frame(Kind.HEADERS, 3, http2.head("DoGet"), http2.END_HEADERS),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_disconnected(daemon: Daemon, rest: Rest, name: str):
    with Bystander(daemon.url):
        for _ in range(5):
            with Peer(daemon.url, hello=b"") as peer:
                with suppress(OSError):
                    peer.send(GARBAGE[name])
                assert peer.is_closed()
    assert rest.is_back(), rest.left()


def continuations() -> tuple[bytes, bytes]:
    return http2.frame(Kind.HEADERS, 1, http2.head("DoGet")), http2.frame(
        Kind.CONTINUATION, 1, http2.field("a", "b" * 100)
    )


FLOODS: dict[str, tuple[bytes, bytes]] = {
    "headers without an end": continuations(),
    "empty continuations": (continuations()[0], http2.frame(Kind.CONTINUATION, 1)),
    "pings": (b"", http2.frame(Kind.PING, payload=bytes(8))),
    "settings": (b"", http2.settings(65_535)),
    "settings of another window each": (b"", http2.settings(1) + http2.settings(8 * MIB)),
    "empty data": (
        http2.frame(Kind.HEADERS, 1, http2.head("DoExchange"), http2.END_HEADERS),
        http2.frame(Kind.DATA, 1),
    ),
    "priorities": (b"", http2.frame(Kind.PRIORITY, 1, bytes(4) + b"\x10")),
    "windows of one byte more": (b"", http2.frame(Kind.WINDOW_UPDATE, 0, b"\0\0\0\1")),
    "frames of no known type": (b"", http2.frame(0xAA, payload=bytes(8))),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frame_floods_use_no_memory_and_block_no_client(daemon: Daemon, rest: Rest, name: str):
    """The server may end the call, stop reading, or discard what it reads; it must not buffer it."""
    first, again = FLOODS[name]
    before = resident_bytes(daemon)
    with Bystander(daemon.url), Peer(daemon.url) as peer:
        peer.send(first)
        # About 100,000 frames whose responses are not read.
        peer.flood(again * 1000, 100)
        with Bystander(daemon.url):
            pass
        assert resident_bytes(daemon) - before < 64 * MIB
    assert rest.is_back(), rest.left()


def test_calls_beyond_the_connections_limit_wait_or_are_rejected(daemon: Daemon, rest: Rest):
    """Calls whose request never ends, more than the server announced that it takes."""
    with Bystander(daemon.url), Peer(daemon.url) as peer:
        half = [http2.frame(Kind.HEADERS, n, http2.head("DoGet"), http2.END_HEADERS) for n in range(1, 4001, 2)]
        before = scrape(daemon).value("forebay_runtime_tasks")
        peer.flood(b"".join(half), 1)
        with Bystander(daemon.url):
            pass
        assert scrape(daemon).value("forebay_runtime_tasks") < before + 300
    assert rest.is_back(), rest.left()


def test_oversized_request_is_rejected_at_its_header(daemon: Daemon, rest: Rest):
    """A ticket that says that it is 100 MB long is refused at its head; one that stops ends with its client."""
    with Bystander(daemon.url):
        with Peer(daemon.url) as peer:
            head = http2.frame(Kind.HEADERS, 1, http2.head("DoGet"), http2.END_HEADERS)
            peer.send(head + http2.frame(Kind.DATA, 1, b"\0" + struct.pack(">I", 500 * MIB) + b"x"))
            # Headers with the code, without a byte more of the message.
            peer.wait_for(Kind.HEADERS)
        with Peer(daemon.url) as peer:
            peer.send(head + http2.frame(Kind.DATA, 1, http2.message(bytes(1000))[:500]))
            assert peer.answer_pings(1)
    assert rest.is_back(), rest.left()


def test_truncated_request_is_not_counted_as_a_server_error(daemon: Daemon, rest: Rest):
    """An operator who is called out for INTERNAL and UNKNOWN is not called out for clients that go away."""

    def answered() -> dict[str, float]:
        now = scrape(daemon)
        labels = now.labels("forebay_requests_total")
        return {each["code"]: now.value("forebay_requests_total", **each) for each in labels if each["call"] == call}

    half = http2.message(bytes(1000))[:500]
    for call in ("DoGet", "GetFlightInfo", "DoExchange"):
        begun = http2.frame(Kind.HEADERS, 1, http2.head(call), http2.END_HEADERS) + http2.frame(Kind.DATA, 1, half)
        before = answered()
        with Peer(daemon.url) as peer:
            peer.send(begun + reset(1))
            assert peer.answer_pings(1)
        for is_reset in (True, False):
            peer = Peer(daemon.url)
            peer.send(begun)
            assert peer.answer_pings(1)
            peer.close(reset=is_reset)
        assert poll(lambda: rest.is_back(), seconds=30), rest.left()
        more = {code: count - before.get(code, 0) for code, count in answered().items()}
        assert more.get("INTERNAL", 0) == more.get("UNKNOWN", 0) == 0, (call, more)
    assert rest.is_back(), rest.left()


def test_ordinary_calls_still_work_afterwards(daemon: Daemon, rest: Rest):
    for hello in (b"", *http2.UNFINISHED_HANDSHAKES.values(), *GARBAGE.values()):
        with Peer(daemon.url, hello=hello):
            pass
    with fl.connect(daemon.url) as client:
        assert client.do_get(ticket(client, NUMBERS)).read_all().num_rows == ROWS
        with pytest.raises((fl.FlightError, pa.ArrowException)):
            client.do_get(fl.Ticket(b"nonsense"))
    assert rest.is_back(), rest.left()
