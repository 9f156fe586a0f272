"""The ring as a bare client uses and misuses it: `proto/forebay/v1/ring.proto` has the protocol."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import Daemon, poll
from harness.metrics import scrape
from harness.ring import ANSWER, CANCEL, MESSAGE, BareRing, ring_of

ROWS, BATCH = 20_000, 500
BATCHES = ROWS // BATCH
BODY = BATCH * 8
GET_SEALS, SEALS = 1034, 0b111
PLAN: dict[str, Any] = {"outputs": [{"name": "x", "dtype": "FLOAT64", "parts": [{"columns": ["x"]}]}]}

Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ring")
    values = np.arange(ROWS, dtype=np.float64)
    text = ["short" if row < 1000 else "long " * 900 for row in range(2000)] + [""] * (ROWS - 2000)
    pq.write_table(pa.table({"x": values, "text": text}), root / "a.parquet", row_group_size=1500)
    return root


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as running:

        def begin(*flags: str) -> Daemon:
            daemon = Daemon(
                "--listen", f"unix:{tmp_path}/s", "--metrics-listen", "127.0.0.1:0", "--dataset", f"t={folder}", *flags
            )
            running.callback(daemon.stop)
            return daemon

        yield begin


def ticket(daemon: Daemon, **more: Any) -> bytes:
    request = {"dataset": "t", "plan": PLAN, "batch_size": BATCH, **more}
    with fl.connect(daemon.url) as client:
        descriptor = fl.FlightDescriptor.for_command(json.dumps(request).encode())
        return client.get_flight_info(descriptor).endpoints[0].ticket.ticket


def reserved(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_memory_reserved_bytes")


def access_line(daemon: Daemon, request: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        for line in list(daemon.lines):
            if line.startswith("{") and f'"{request}"' in line and "call ended" in line:
                return json.loads(line)["fields"]
        return None

    found = poll(look)
    assert found, f"no line of {request}"
    return found


def test_a_whole_stream(start: Start):
    daemon = start()
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon), slots=7, headers={"x-request-id": "whole"})
        answer = ring.next()
        assert answer is not None
        assert answer.kind == ANSWER
        assert (int(ring.answer["slots"]), ring.answer["headers"]) == (7, {"x-request-id": "whole"})
        slot_bytes = int(ring.answer["slot_bytes"])
        assert slot_bytes % 4096 == 0
        assert slot_bytes >= BODY
        assert ring.file is not None
        assert fcntl.fcntl(ring.file, GET_SEALS) == SEALS
        assert os.fstat(ring.file).st_size == 7 * slot_bytes
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(ring.file, 0)
        schema = ring.next()
        assert schema is not None
        assert (schema.kind, schema.slot, schema.body) == (MESSAGE, None, b"")
        batches, end = ring.until_end()
        assert (end["code"], end["message"]) == (0, "")
        assert b"".join(batch.body[:BODY] for batch in batches) == np.arange(ROWS, dtype=np.float64).tobytes()
        assert [batch.header["step"] for batch in batches] == list(range(BATCHES))
        # Slots are used again.
        assert {batch.slot for batch in batches} <= set(range(7))
    fields = access_line(daemon, "whole")
    assert (fields["call"], fields["code"], fields["peer"]) == ("DoGet", "OK", "unix")
    assert (fields["batches"], fields["rows"], fields["position"]) == (BATCHES, ROWS, ROWS)
    assert fields["bytes"] >= ROWS * 8
    now = scrape(daemon)
    assert now.value("forebay_requests_total", call="DoGet", code="OK") == 1
    assert now.value("forebay_streams_total", status="complete") == 1
    assert now.value("forebay_rows_sent_total") == ROWS


def test_slots_wanted_are_bounded(start: Start):
    daemon = start()
    for wanted, expected in ((0, 4), (1, 4), (9, 9), (64, 64), (4_000_000_000, 64)):
        with BareRing(ring_of(daemon.url)) as ring:
            ring.hello(ticket(daemon), slots=wanted)
            ring.next()
            assert int(ring.answer["slots"]) == expected


def test_slots_that_do_not_come_back_stop_the_stream_only(start: Start):
    daemon = start()
    with BareRing(ring_of(daemon.url), seconds=2) as ring, BareRing(ring_of(daemon.url)) as other:
        ring.hello(ticket(daemon))
        taken = [ring.next() for _ in range(6)]
        assert [frame.slot for frame in taken if frame is not None] == [None, None, 0, 1, 2, 3]
        with pytest.raises(TimeoutError):
            ring.next()
        other.hello(ticket(daemon))
        assert len(other.until_end()[0]) == BATCHES
        ring.give_back(2)
        frame = ring.next()
        assert frame is not None
        assert frame.slot == 2


@pytest.mark.parametrize("wrong", ["twice", "never sent", "beyond the ring"])
def test_a_wrong_return_ends_the_stream(start: Start, wrong: str):
    daemon = start()
    returned = {"twice": (0, 0), "never sent": (63,), "beyond the ring": (64,)}[wrong]
    with BareRing(ring_of(daemon.url)) as ring:
        # More slots than batches, so that the last ones are never sent.
        ring.hello(ticket(daemon), headers={"x-request-id": "wrong"}, slots=4 if wrong == "twice" else 64)
        for _ in range(6 if wrong == "twice" else 3):
            ring.next()
        ring.give_back(*returned)
        _, end = ring.until_end(give_back=False)
    assert end["code"] == 3
    assert f"INVALID_REQUEST: ring: slot {returned[0]} was returned, but the client does not have it" in end["message"]
    assert access_line(daemon, "wrong")["reason"] == "INVALID_REQUEST"
    assert poll(lambda: reserved(daemon) == 0)


def test_bodies_larger_than_a_slot_are_in_their_frames(start: Start):
    daemon = start()
    plan = {"outputs": [{"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]}]}
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon, plan=plan))
        batches, end = ring.until_end()
    assert end["code"] == 0
    large = [batch for batch in batches if len(batch.body) > int(ring.answer["slot_bytes"])]
    assert len(large) == 2
    assert all(batch.slot is None for batch in large)
    assert all(batch.slot is not None for batch in batches if batch not in large and batch.body)


def test_memory_stays_reserved_until_the_client_closes(start: Start):
    daemon = start()
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon), slots=8, headers={"x-request-id": "kept"})
        assert ring.until_end()[1]["code"] == 0
        # The call has ended, its slots have not.
        assert access_line(daemon, "kept")["code"] == "OK"
        assert poll(lambda: reserved(daemon) == 8 * int(ring.answer["slot_bytes"]))
        assert scrape(daemon).value("forebay_connections_active") == 1
    assert poll(lambda: reserved(daemon) == 0)
    assert poll(lambda: scrape(daemon).value("forebay_connections_active") == 0)


def test_a_cancelled_call_ends_and_keeps_its_slots(start: Start):
    daemon = start()
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon), headers={"x-request-id": "cancelled"})
        ring.next()
        ring.give_back(CANCEL)
        assert access_line(daemon, "cancelled")["code"] == "CANCELLED"
        assert poll(lambda: reserved(daemon) == 4 * int(ring.answer["slot_bytes"]))
        ring.give_back(0, 1, 77)
    assert poll(lambda: reserved(daemon) == 0)


def test_a_client_that_disconnects_cancels_the_call(start: Start):
    daemon = start()
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon), headers={"x-request-id": "gone"})
        ring.next()
    assert access_line(daemon, "gone")["code"] == "CANCELLED"
    assert poll(lambda: reserved(daemon) == 0)
    assert poll(lambda: scrape(daemon).value("forebay_streams_active") == 0)


def framed(message: bytes) -> bytes:
    return b"FBR1" + struct.pack("<I", len(message)) + message


HELLOS: dict[str, tuple[bytes, int, str]] = {
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 3, "does not begin with FBR1"),
    "not a message": (framed(b"\xff\xff\xff"), 3, "INVALID_REQUEST"),
    "unknown field": (framed(b'{"version": 1, "slot": 3}'), 3, "slot"),
    "other version": (framed(b'{"version": 2}'), 12, "UNIMPLEMENTED: ring: version 2"),
    "no ticket": (framed(b'{"version": 1}'), 3, "ticket"),
    "too large": (b"FBR1\xff\xff\xff\xff", 8, "--message-bytes-max"),
    "too large for a ring": (b"FBR1\x00\x00\x10\0" + bytes(100_000), 8, "use Flight"),
    "bad header": (framed(b'{"version": 1, "headers": {"a b": ""}}'), 3, "characters that headers cannot have"),
}


@pytest.mark.parametrize("name", HELLOS)
def test_an_invalid_hello_is_refused(start: Start, name: str):
    daemon = start()
    hello, code, words = HELLOS[name]
    with BareRing(ring_of(daemon.url)) as ring:
        ring.send(hello)
        batches, end = ring.until_end()
        assert (batches, end["code"]) == ([], code)
        assert words in end["message"]


def test_refusals_are_those_of_do_get(start: Start):
    daemon = start("--streams-max", "1")
    with BareRing(ring_of(daemon.url)) as first, BareRing(ring_of(daemon.url)) as second:
        first.hello(ticket(daemon))
        first.next()
        second.hello(ticket(daemon), headers={"x-request-id": "second"})
        _, end = second.until_end()
    assert end["code"] == 8
    assert "OVERLOADED" in end["message"]
    assert "--streams-max" in end["message"]
    assert "[request second]" in end["message"]
    assert int(end["trailers"]["grpc-retry-pushback-ms"]) > 0
    assert access_line(daemon, "second")["reason"] == "OVERLOADED"


def test_a_ring_beyond_the_memory_limit_is_refused(start: Start):
    daemon = start("--memory-limit-bytes", "4MiB")
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon, batch_size=10_000), slots=64)
        _, end = ring.until_end()
    assert end["code"] == 8
    assert "--memory-limit-bytes" in end["message"]
    assert poll(lambda: reserved(daemon) == 0)


def test_clients_that_say_nothing_are_dropped(start: Start):
    daemon = start("--handshake-seconds", "1")
    with BareRing(ring_of(daemon.url)) as silent, BareRing(ring_of(daemon.url)) as slow:
        slow.send(b"FBR1\x10\0\0\0{")
        assert silent.next() is None
        assert slow.next() is None
    assert poll(lambda: scrape(daemon).value("forebay_connections_active") == 0)


def test_connections_are_limited(start: Start):
    daemon = start("--connections-max", "2")
    opened = ticket(daemon)
    with contextlib.ExitStack() as rings:
        for _ in range(2):
            ring = rings.enter_context(BareRing(ring_of(daemon.url)))
            ring.hello(opened)
            ring.next()
        over = rings.enter_context(BareRing(ring_of(daemon.url)))
        _, end = over.until_end()
        assert end["code"] == 8
        assert "--connections-max" in end["message"]


@pytest.mark.parametrize("reads", [True, False])
def test_a_drain_ends_streams_with_a_status(start: Start, reads: bool):
    daemon = start("--drain-seconds", "0")
    with BareRing(ring_of(daemon.url)) as ring, BareRing(ring_of(daemon.url)) as ended:
        ended.hello(ticket(daemon))
        ended.until_end()
        ring.hello(ticket(daemon), headers={"x-request-id": "cut"})
        for _ in range(6):
            ring.next()
        daemon.process.send_signal(signal.SIGTERM)
        if reads:
            ring.give_back(0)
        batches, end = ring.until_end(give_back=reads)
        assert len(batches) < BATCHES
        assert end["code"] == 14
        assert "SHUTTING_DOWN" in end["message"]
        assert "start_position" in end["message"]
        # Memory in use and idle connections do not delay the end.
        assert daemon.end(seconds=10) == 0
    assert not os.path.exists(ring_of(daemon.url))


def test_new_calls_are_refused_during_a_drain(start: Start):
    daemon = start("--drain-seconds", "60")
    opened = ticket(daemon)
    with BareRing(ring_of(daemon.url)) as running:
        running.hello(opened)
        running.next()
        daemon.process.send_signal(signal.SIGTERM)
        assert poll(lambda: scrape(daemon).value("forebay_ready") == 0)
        with BareRing(ring_of(daemon.url)) as late:
            late.hello(opened)
            _, end = late.until_end()
        assert end["code"] == 14
        assert "draining" in end["message"]
        assert len(running.until_end()[0]) == BATCHES
    assert daemon.end(seconds=10) == 0


def test_a_server_that_ends_leaves_the_sockets_of_its_successor(start: Start, tmp_path: Path):
    first = start()
    for path in (tmp_path / "s", tmp_path / "s.ring"):
        path.unlink()
    second = start()
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 0
    with BareRing(ring_of(second.url)) as ring:
        ring.hello(ticket(second))
        assert len(ring.until_end()[0]) == BATCHES
    second.process.send_signal(signal.SIGTERM)
    assert second.end() == 0
    assert list(tmp_path.glob("s*")) == []


def test_the_socket_is_bound_and_removed_with_the_servers(start: Start, tmp_path: Path):
    path = tmp_path / "s.ring"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    daemon = start()
    assert f"ring on {path}\n" in daemon.lines
    assert path.is_socket()
    assert path.stat().st_mode == (tmp_path / "s").stat().st_mode
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.end(seconds=10) == 0
    assert not path.exists()


def test_a_server_without_its_ring_serves_flight(start: Start, tmp_path: Path):
    path = tmp_path / "s.ring"
    path.write_text("mine")
    daemon = start()
    assert any("no ring" in line and "s.ring" in line for line in daemon.lines)
    with fl.connect(daemon.url) as client:
        assert client.do_get(fl.Ticket(ticket(daemon))).read_all().num_rows == ROWS
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.end(seconds=10) == 0
    assert path.read_text() == "mine"


def test_killing_the_server_leaves_mapped_memory_valid(start: Start):
    daemon = start()
    with BareRing(ring_of(daemon.url)) as ring:
        ring.hello(ticket(daemon))
        frames = [ring.next() for _ in range(3)]
        daemon.process.kill()
        daemon.process.wait()
        assert frames[2] is not None
        assert ring._memory is not None
        assert ring._memory[:BODY] == frames[2].body[:BODY] == np.arange(BATCH, dtype=np.float64).tobytes()
        with pytest.raises(EOFError):
            ring.until_end(give_back=False)
