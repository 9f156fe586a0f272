"""Slow, silent, broken and hostile clients: each costs the server little, and other clients nothing."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness import http2_peer as http2
from harness.daemon import LOOPBACK, Daemon, poll
from harness.faults import (
    BATCH,
    LONG,
    NUMBERS,
    ROWS,
    Bystander,
    Rest,
    are_rows_of_long,
    resident_bytes,
    ticket,
    write_data,
)
from harness.http2_peer import Kind, Peer
from harness.metrics import scrape

MIB = 1 << 20
Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("faults") / "data")


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as running:

        def begin(*flags: str, **env: str) -> Daemon:
            # Most peers here answer no pings; only tests of keepalive override this.
            env = {"FOREBAY_KEEPALIVE_SECONDS": "600", **env}
            daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"data={folder}", *flags, env=env)
            running.callback(daemon.stop)
            return daemon

        yield begin


@pytest.fixture
def daemon(start: Start) -> Iterator[Daemon]:
    running = start()
    yield running
    assert running.process.poll() is None
    assert not any("panic" in line for line in running.said)


@pytest.fixture
def rest(daemon: Daemon) -> Rest:
    return Rest(daemon)


def ticket_bytes(daemon: Daemon, request: dict[str, Any]) -> bytes:
    with fl.connect(daemon.url) as client:
        return ticket(client, request).ticket


def read_long(reader: fl.FlightStreamReader, batches: int, start: int = 0) -> int:
    """Read so many batches of LONG, which begin at row `start`; returns the row after them."""
    for _ in range(batches):
        chunk = reader.read_chunk()
        assert json.loads(chunk.app_metadata.to_pybytes())["position"] == start
        assert are_rows_of_long(chunk.data, start)
        start += chunk.data.num_rows
    return start


def test_slow_reader_affects_no_other_stream_and_memory_stays_flat(daemon: Daemon, rest: Rest):
    with fl.connect(daemon.url) as client, Bystander(daemon.url) as other:
        reader = client.do_get(ticket(client, LONG))
        row, resident = 0, list[float]()
        for _ in range(10):
            row = read_long(reader, 2, row)
            other.wait_for_epochs(2)
            resident.append(resident_bytes(daemon))
        # It is still open, and far from its end.
        assert scrape(daemon).value("forebay_streams_active") >= 1
        assert max(resident[3:]) - resident[3] < 32 * MIB, resident
        del reader
    assert rest.is_back(), rest.left()


def test_paused_reader_keeps_its_stream_and_blocks_no_other(start: Start):
    """The client answers pings and does not read: its stream stays open."""
    daemon = start(FOREBAY_KEEPALIVE_SECONDS="1")
    rest = Rest(daemon)
    with fl.connect(daemon.url) as client:
        reader = client.do_get(ticket(client, LONG))
        row = read_long(reader, 3)

        def still() -> bool:
            before = scrape(daemon).value("forebay_batches_sent_total")
            threading.Event().wait(0.5)
            return scrape(daemon).value("forebay_batches_sent_total") == before

        assert poll(still)
        before = scrape(daemon)
        threading.Event().wait(5)
        after = scrape(daemon)
        for name in ("batches_sent_total", "memory_reserved_bytes", "storage_read_bytes_total", "streams_active"):
            assert after.value(f"forebay_{name}") == before.value(f"forebay_{name}"), name
        # Not one in ten of those seconds was worked.
        assert after.value("forebay_process_cpu_seconds_total") < before.value("forebay_process_cpu_seconds_total") + 1
        with Bystander(daemon.url):
            pass
        read_long(reader, ROWS // BATCH - 3, row)
        with pytest.raises(StopIteration):
            reader.read_chunk()
        del reader
    assert rest.is_back(), rest.left()


FIT = {"plan": {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]}]}}


def calls(stream: int, where: bytes) -> list[bytes]:
    """One call of every kind, each on a separate stream; the exchange stays open in its first message."""
    command = http2.delimited(2, json.dumps(LONG).encode())
    fit = http2.delimited(1, b"fit") + http2.delimited(2, json.dumps({"dataset": "data", **FIT}).encode())
    half = http2.message(b"x" * 1000)[:500]
    exchange = http2.frame(Kind.HEADERS, stream + 6, http2.head("DoExchange"), http2.END_HEADERS)
    return [
        http2.do_get(stream, where),
        http2.call(stream + 2, "GetFlightInfo", b"\x08\x02" + command),
        http2.call(stream + 4, "DoAction", fit),
        exchange + http2.frame(Kind.DATA, stream + 6, half),
        http2.frame(Kind.PING, payload=b"12345678"),
        http2.do_get(stream + 8, where),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_disconnects_at_random_points_free_everything(daemon: Daemon, rest: Rest, seed: int):
    dice = random.Random(seed)
    where = ticket_bytes(daemon, LONG)
    before = scrape(daemon)
    with Bystander(daemon.url), ExitStack() as left_open:
        for _ in range(40):
            peer = Peer(daemon.url, window=dice.choice([0, 1, 1000, 65_535, 8 * MIB]), hello=b"")
            hello = http2.PREFACE + http2.settings(dice.choice([0, 1, 1000, 65_535, 8 * MIB]))
            payload = hello + b"".join(dice.sample(calls(1, where), dice.randint(1, 6)))
            if dice.random() < 0.5:
                # In the midst of a frame.
                payload = payload[: dice.randrange(len(payload))]
            with suppress(OSError):
                peer.send(payload)
                peer.socket.settimeout(0.2)
                left = dice.choice([0, 1, 10, 100, 10_000, 200_000])
                while left > 0 and (piece := peer.socket.recv(left)):
                    left -= len(piece)
            how = dice.choice(["reset", "close", "half", "stream"])
            with suppress(OSError):
                if how == "stream":
                    peer.send(http2.frame(Kind.RST_STREAM, 1, struct.pack(">I", http2.CANCEL)))
                if how == "half":
                    peer.socket.shutdown(socket.SHUT_WR)
                    # The other half closes with the test.
                    left_open.callback(peer.close)
                    continue
            peer.close(reset=how == "reset")
    assert rest.is_back(), rest.left()
    after = scrape(daemon)
    names = ("complete", "cancelled", "failed")
    ended = {
        s: after.value("forebay_streams_total", status=s) - before.value("forebay_streams_total", status=s)
        for s in names
    }
    assert ended["cancelled"] > 0
    assert ended["failed"] == 0


def test_silently_lost_peers_are_disconnected(start: Start):
    """Half open: their sockets take what they are sent, and nothing ever answers."""
    daemon = start(FOREBAY_KEEPALIVE_SECONDS="1")
    rest, where = Rest(daemon), ticket_bytes(daemon, LONG)
    # They do not read, so that they cannot answer either; their descriptors stay open.
    with Peer(daemon.url), Peer(daemon.url) as streaming:
        streaming.send(http2.do_get(1, where) + http2.do_get(3, where))
        with Bystander(daemon.url):
            assert poll(lambda: scrape(daemon).value("forebay_streams_active") >= 2)
        # Pinged after a second, and disconnected 20 seconds later.
        assert rest.is_back(seconds=60), rest.left()


@pytest.mark.parametrize("window", [0, 65_535])
def test_responsive_peer_that_reads_nothing_is_kept(start: Start, window: int):
    """A window that is never opened is a reader that rests, as long as its client is there."""
    daemon = start(FOREBAY_KEEPALIVE_SECONDS="1")
    rest, where = Rest(daemon), ticket_bytes(daemon, LONG)
    with Bystander(daemon.url), Peer(daemon.url, window=window) as peer:
        peer.send(b"".join(http2.do_get(2 * n + 1, where) for n in range(20)))
        assert poll(lambda: scrape(daemon).value("forebay_streams_active") >= 20)
        assert peer.answer_pings(5)
        now = scrape(daemon)
        assert now.value("forebay_streams_active") >= 20
        assert now.value("forebay_memory_reserved_bytes") < now.value("forebay_memory_limit_bytes")
    assert rest.is_back(), rest.left()


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 MB of texts of 1 KB that are stored one by one: a file as large as what is read from it."""
    folder = tmp_path_factory.mktemp("faults") / "plain"
    folder.mkdir()
    dice = random.Random(9)
    table = pa.table({"id": range(20_000), "text": [dice.randbytes(512).hex() for _ in range(20_000)]})
    pq.write_table(table, folder / "a.parquet", use_dictionary=False, row_group_size=10_000)
    return folder


@pytest.mark.parametrize("dataset", ["plain", "data"])
def test_never_opened_windows_cost_only_the_reserved_memory(start: Start, plain_folder: Path, dataset: str):
    """Streams reserve what they may hold: those that fit hold no more, and others are refused with a limit."""
    limit = 192 * MIB
    daemon = start("--memory-limit-bytes", str(limit), "--dataset", f"plain={plain_folder}")
    rest, where = Rest(daemon), ticket_bytes(daemon, {**LONG, "dataset": dataset})
    before = resident_bytes(daemon)

    def refused() -> float:
        labels = {"call": "DoGet", "code": "RESOURCE_EXHAUSTED"}
        return scrape(daemon).value("forebay_requests_total", **labels)

    def still() -> bool:
        one = scrape(daemon).value("forebay_storage_read_bytes_total")
        threading.Event().wait(0.5)
        return scrape(daemon).value("forebay_storage_read_bytes_total") == one

    with ExitStack() as peers:
        while not refused():
            peer = peers.enter_context(Peer(daemon.url, window=0))
            peer.send(b"".join(http2.do_get(2 * n + 1, where) for n in range(10)))
            assert poll(still, seconds=30)
        now = scrape(daemon)
        reserved = now.value("forebay_memory_reserved_bytes")
        assert limit / 2 < reserved <= limit
        grown = now.value("forebay_process_resident_memory_bytes") - before
        # Plus the allocator's reserve.
        assert grown < reserved + 128 * MIB, (grown, reserved)
    assert rest.is_back(), rest.left()
    with Bystander(daemon.url):
        pass


HANDSHAKES: dict[str, bytes] = {
    "nothing": b"",
    "half a preface": http2.PREFACE[:11],
    "no settings": http2.PREFACE,
    "a ping and no settings": http2.PREFACE + http2.frame(Kind.PING, payload=bytes(8)),
    "half of the settings": http2.PREFACE + http2.settings(1000)[:12],
}
HANDSHAKE_SECONDS = 24


def test_unfinished_handshake_times_out(start: Start):
    """Those that stop, and one that says a byte a second."""
    daemon = start(FOREBAY_KEEPALIVE_SECONDS="1")
    with ExitStack() as peers:
        stopped = {name: peers.enter_context(Peer(daemon.url, hello=said)) for name, said in HANDSHAKES.items()}
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
            slow.enter_context(Peer(daemon.url, hello=list(HANDSHAKES.values())[n % len(HANDSHAKES)]))
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
    """The server ends it, or takes no more, or reads on: what it may not do is to keep it."""
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
    for hello in (b"", *HANDSHAKES.values(), *GARBAGE.values()):
        with Peer(daemon.url, hello=hello):
            pass
    with fl.connect(daemon.url) as client:
        assert client.do_get(ticket(client, NUMBERS)).read_all().num_rows == ROWS
        with pytest.raises((fl.FlightError, pa.ArrowException)):
            client.do_get(fl.Ticket(b"nonsense"))
    assert rest.is_back(), rest.left()
