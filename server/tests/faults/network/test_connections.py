"""Unfinished handshakes, idle connections and crowds."""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow.flight as fl
import pytest

from harness import http2_peer as http2
from harness.daemon import Daemon, poll
from harness.faults import (
    BATCH,
    LONG,
    ROWS,
    Bystander,
    Rest,
    Start,
    read_long,
    resident_bytes,
    ticket,
)
from harness.http2_peer import Peer
from harness.metrics import scrape

MIB = 1 << 20
HANDSHAKE_SECONDS = 24


def test_unfinished_handshake_times_out(start: Start):
    """Those that stop, and one that says a byte a second."""
    daemon = start(FOREBAY_KEEPALIVE_SECONDS="1")
    with ExitStack() as peers:
        stopped = {
            name: peers.enter_context(Peer(daemon.url, hello=hello))
            for name, hello in http2.UNFINISHED_HANDSHAKES.items()
        }
        slow = peers.enter_context(Peer(daemon.url, hello=b""))
        left = {**stopped, "a byte a second": slow}
        for byte in http2.PREFACE[:HANDSHAKE_SECONDS]:
            with suppress(OSError):
                slow.send(bytes([byte]))
            threading.Event().wait(1)
            left = {name: peer for name, peer in left.items() if not peer.is_closed(0.02)}
            if not left:
                break
        assert not list(left)


def test_unfinished_handshakes_do_not_block_other_clients(daemon: Daemon, rest: Rest):
    before = resident_bytes(daemon)
    with Bystander(daemon.url), ExitStack() as slow:
        for n in range(1000):
            slow.enter_context(
                Peer(daemon.url, hello=list(http2.UNFINISHED_HANDSHAKES.values())[n % len(http2.UNFINISHED_HANDSHAKES)])
            )
        with Bystander(daemon.url):
            pass
        assert resident_bytes(daemon) - before < 64 * MIB
    assert rest.is_back(), rest.left()


def test_incomplete_scrape_request_times_out(daemon: Daemon):
    with Peer(daemon.metrics_url, hello=b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Slow: ") as peer:
        assert peer.is_closed(HANDSHAKE_SECONDS)


IDLE = 5000
BUSY = 64


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this user may open {hard} descriptors, and the test needs {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_5000_idle_connections_beside_64_busy_ones(many_descriptors: None, start: Start):
    daemon = start()
    rest = Rest(daemon)
    before = resident_bytes(daemon)
    settled = http2.PREFACE + http2.settings(65_535)
    with ExitStack() as idle:
        # No more at once than wait to be accepted: the next come when these are in.
        for count in range(100, IDLE + 1, 100):
            for _ in range(100):
                idle.enter_context(Peer(daemon.url, hello=settled))
            assert poll(lambda count=count: scrape(daemon).value("forebay_connections_active") >= count)
        assert resident_bytes(daemon) - before < 256 * MIB
        errors = list[BaseException]()
        done = list[int]()
        together = threading.Barrier(BUSY)

        def read(number: int) -> None:
            try:
                with fl.connect(daemon.url) as client:
                    reader = client.do_get(ticket(client, {**LONG, "start_position": ROWS - (20 + number) * BATCH}))
                    row = read_long(reader, 1, ROWS - (20 + number) * BATCH)
                    # From here on all of them are open at once.
                    together.wait(60)
                    read_long(reader, 19 + number, row)
                    done.append(number)
            except BaseException as error:
                errors.append(error)

        busy = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(BUSY)]
        for thread in busy:
            thread.start()
        for thread in busy:
            thread.join(60)
        assert not errors, errors[0]
        assert sorted(done) == list(range(BUSY))
        assert scrape(daemon).value("forebay_connections_active") >= IDLE
    assert rest.is_back(60), rest.left()


CROWD = 1000


def test_simultaneous_connections_are_accepted(daemon: Daemon):
    """As many trainers as a replica that failed may have had: while the server is busy, the kernel keeps them."""
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    host, _, port = daemon.url.removeprefix("grpc://").rpartition(":")
    daemon.process.send_signal(signal.SIGSTOP)
    with ExitStack() as crowd:
        crowd.callback(daemon.process.send_signal, signal.SIGCONT)
        waiting = select.poll()
        for _ in range(CROWD):
            one = crowd.enter_context(contextlib.closing(socket.socket()))
            one.setblocking(False)
            one.connect_ex((host, int(port)))
            waiting.register(one, select.POLLOUT)
        assert poll(lambda: len(waiting.poll(0)) >= min(CROWD, most), seconds=5)
