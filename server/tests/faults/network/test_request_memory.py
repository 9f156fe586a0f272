"""Memory of requests that do not end and of answers that are not read: it is part of the limit, for a bounded time."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness import http2_peer as http2
from harness.certificates import principal
from harness.daemon import Daemon, poll
from harness.faults import Start, resident_bytes
from harness.http2_peer import Kind, Peer
from harness.metrics import scrape

MIB = 1 << 20
LIMIT = 64 * MIB
CONNECTIONS = 200
# What a server may take beyond its limit: code, pages of connections and calls, and messages that are being decoded.
BESIDES = 96 * MIB
TOKEN = "token-of-trainer-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}
HEALTH = "/grpc.health.v1.Health/"
PLAN: dict[str, Any] = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
RANKS = {"dataset": "data", "plan": PLAN, "world_size": 8192, "batch_size": 1}


@pytest.fixture
def secured(start: Start, tmp_path: Path) -> Daemon:
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    flags = ("--principals", f"{tmp_path}/principals.toml", "--memory-limit-bytes", str(LIMIT))
    return start(*flags, "--handshake-seconds", "3")


def reserved(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_memory_reserved_bytes")


def peak_bytes(daemon: Daemon) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def headers(stream: int, method: str, service: str = http2.SERVICE, **more: str) -> bytes:
    return http2.frame(Kind.HEADERS, stream, http2.head(method, service, **more), http2.END_HEADERS)


def test_200_connections_hold_the_limit_and_a_constant(secured: Daemon):
    """Each sends unfinished messages of 2 MB, and asks for an answer that it does not read."""
    before = resident_bytes(secured)
    info = http2.call(5, "GetFlightInfo", b"\x08\x02" + http2.delimited(2, json.dumps(RANKS).encode()), **BEARER)
    with ExitStack() as opened:
        for number in range(CONNECTIONS):
            peer = opened.enter_context(Peer(secured.url, window=0))
            peer.send(headers(1, "Check", HEALTH) + headers(3, "DoExchange", **BEARER))
            peer.send(info if number < 20 else b"")
            peer.send_in_windows(1, http2.unfinished(60 * MIB) + bytes(MIB))
            peer.send_in_windows(3, http2.unfinished(60 * MIB) + bytes(MIB - 1000))
        with fl.connect(secured.url) as client:
            known = fl.FlightCallOptions(timeout=60, headers=[(b"authorization", BEARER["authorization"].encode())])
            assert len(list(client.list_flights(b"", known))) == 1
        assert peak_bytes(secured) - before < LIMIT + BESIDES
        # The connections are open, and hold nothing: their messages were too late, and their answers were not read.
        assert poll(lambda: reserved(secured) < MIB, seconds=60)


def test_calls_without_credentials_have_small_requests_and_little_time(start: Start, tmp_path: Path):
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    daemon = start("--principals", f"{tmp_path}/principals.toml", "--handshake-seconds", "1")
    release = threading.Event()

    def nothing() -> Iterator[bytes]:
        release.wait(20)
        yield from ()

    with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
        for method in ("Check", "Watch"):
            for body, code in ((nothing(), "DEADLINE_EXCEEDED"), (iter([bytes(10_000)]), "RESOURCE_EXHAUSTED")):
                with pytest.raises(grpc.RpcError) as caught:
                    list(channel.stream_stream(HEALTH + method)(body, timeout=15))
                assert caught.value.code() == getattr(grpc.StatusCode, code)  # type: ignore[attr-defined]
        release.set()


def test_fields_that_grow_when_they_are_decoded_are_refused(start: Start):
    daemon = start("--memory-limit-bytes", "64MiB")
    # 2 bytes each: parts of a path, and outputs of a plan.
    path = b"\x08\x01" + b"\x1a\x00" * 100_000
    outputs = http2.delimited(2, b"\x1a\x00" * 500_000)
    for descriptor, words in (
        (path, "more than 1000 fields"),
        (b"\x08\x02" + http2.delimited(2, outputs), "--memory-limit-bytes"),
        (b"\x08\x02" + http2.delimited(2, b'{"plan": {"outputs": [' + b"{}," * 300_000 + b"{}]}}"), "memory-limit"),
    ):
        with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
            call = channel.unary_unary("/arrow.flight.protocol.FlightService/GetFlightInfo")
            with pytest.raises(grpc.RpcError) as caught:
                call(descriptor, timeout=30)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
            assert words in caught.value.details()  # type: ignore[attr-defined]
    assert poll(lambda: reserved(daemon) == 0)


def test_connections_without_a_call_make_room_for_callers(start: Start, tmp_path: Path):
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    common = ("--principals", f"{tmp_path}/principals.toml", "--connections-max", "16")
    daemon = start(*common, "--handshake-seconds", "1", FOREBAY_KEEPALIVE_SECONDS="1")
    known = fl.FlightCallOptions(timeout=20, headers=[(b"authorization", BEARER["authorization"].encode())])

    refusals: list[str] = []

    def is_served() -> bool:
        try:
            with fl.FlightClient(daemon.url, generic_options=[("grpc.use_local_subchannel_pool", 1)]) as client:
                return len(list(client.list_flights(b"", known))) == 1
        except pa.ArrowException as error:
            refusals.append(str(error))
            return False

    with ExitStack() as opened:
        idle = [opened.enter_context(Peer(daemon.url)) for _ in range(14)]
        assert poll(lambda: scrape(daemon).value("forebay_connections_active") >= 14)
        assert not is_served()
        # An address has 14 of 16 places.
        assert "14 connections of 127.0.0.1 are open" in refusals[0]
        # They answer pings, and health checks are not calls.
        for peer in idle:
            peer.send(headers(1, "Watch", HEALTH) + http2.frame(Kind.DATA, 1, http2.message(b""), http2.END_STREAM))
        assert all(peer.is_closed() for peer in idle)
        assert is_served()
