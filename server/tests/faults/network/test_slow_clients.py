"""Slow, paused and lost clients: each costs the server little, and other clients nothing."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
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
    ticket_bytes,
)
from harness.http2_peer import Kind, Peer
from harness.metrics import scrape

pytestmark = pytest.mark.long

MIB = 1 << 20


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
