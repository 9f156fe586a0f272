"""Shutdown, as seen by new streams, running streams and the operator."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape
from harness.serving import info

ROWS = 200_000
BATCH = 1000
# 200 MB on the wire: more than sockets and clients buffer, so that the stream of an idle client never ends.
REQUEST: dict[str, Any] = {
    "dataset": "long",
    "batch_size": BATCH,
    "plan": {
        "outputs": [
            {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
            {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
        ]
    },
}

# Messages of grpc.health.v1 in protobuf: the request for the Flight service, and both responses.
FLIGHT_HEALTH = b"\x0a\x23arrow.flight.protocol.FlightService"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
# The refusal of every new call, with a reason that programs match.
DRAINING = "SHUTTING_DOWN: draining: resume at another replica"

Start = Callable[..., Daemon]
Message = tuple[dict[str, Any], pa.RecordBatch]


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shutdown") / "long"
    folder.mkdir()
    ids = np.arange(ROWS)
    texts = [f"{i} " * 512 for i in range(4)]
    table = pa.table({"id": ids, "text": pa.DictionaryArray.from_arrays((ids % 4).astype(np.int32), texts)})
    pq.write_table(table, folder / "a.parquet", store_schema=False, row_group_size=20_000)
    return folder


@pytest.fixture
def start(long_folder: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[Daemon] = []

    def begin(*flags: str) -> Daemon:
        dataset = ("--dataset", f"long={long_folder}", "--state", f"{tmp_path}/state")
        running.append(Daemon(*LOOPBACK, *dataset, *flags))
        return running[-1]

    yield begin
    for daemon in running:
        assert daemon.stop() == ""
        assert not any("panic" in line for line in daemon.lines)


def message(chunk: fl.FlightStreamChunk) -> Message:
    return json.loads(chunk.app_metadata.to_pybytes()), chunk.data


def open_stream(client: fl.FlightClient, **changes: Any) -> fl.FlightStreamReader:
    return client.do_get(info(client, {**REQUEST, **changes}).endpoints[0].ticket)


def read_until_cut(reader: fl.FlightStreamReader) -> tuple[list[Message], str]:
    """The rows before the error, and its message."""
    got: list[Message] = []
    with pytest.raises(fl.FlightUnavailableError) as cut:
        got.extend(message(chunk) for chunk in reader)
    return got, str(cut.value)


def ids(messages: list[Message]) -> np.ndarray:
    return np.concatenate([batch["id"].to_numpy() for _, batch in messages])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_exits_immediately(start: Start, number: int):
    daemon = start()
    with fl.connect(daemon.url) as client:
        # A connection without a stream keeps nothing waiting.
        assert len(list(client.list_flights())) == 1
        daemon.process.send_signal(number)
        assert daemon.end(seconds=5) == 0


def test_closed_stdin_ends_the_server_with_the_flag(start: Start):
    daemon = start()
    assert daemon.process.stdin is not None
    daemon.process.stdin.write("words\n")
    daemon.process.stdin.flush()
    assert daemon.get("/readyz")[0] == 200
    daemon.process.stdin.close()
    assert daemon.end(seconds=5) == 0


def test_draining_rejects_new_streams_and_finishes_running_ones(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        ticket = info(client, REQUEST).endpoints[0].ticket
        reader = client.do_get(ticket)
        messages = [message(reader.read_chunk())]
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.drains()
        assert daemon.get("/healthz")[0] == 200
        assert daemon.get("/metrics")[0] == 200
        for refused in (client, fl.connect(daemon.url)):
            with pytest.raises(fl.FlightUnavailableError, match=DRAINING):
                refused.do_get(ticket).read_all()
        messages += [message(chunk) for chunk in reader]
        assert messages[-1][0]["last"]
        assert np.array_equal(ids(messages), np.arange(ROWS))
        # It waits for streams, not for the clock.
        assert daemon.end(seconds=10) == 0


def test_draining_server_refuses_every_call_of_new_and_old_connections(start: Start, tmp_path: Path):
    daemon = start("--drain-seconds", "60", "--listen", f"unix:{tmp_path}/flight")
    with contextlib.ExitStack() as stack:
        streaming, idle = (stack.enter_context(fl.connect(daemon.url)) for _ in range(2))
        ticket = info(idle, REQUEST).endpoints[0].ticket
        reader = streaming.do_get(ticket)
        messages = [message(reader.read_chunk())]
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.drains()
        new = [stack.enter_context(fl.connect(url)) for url in daemon.urls]
        assert len(new) == 2
        for client in (idle, *new):
            calls: list[Callable[[], object]] = [
                lambda client=client: list(client.list_flights()),
                lambda client=client: list(client.list_actions()),
                lambda client=client: info(client, REQUEST),
                lambda client=client: client.get_schema(fl.FlightDescriptor.for_path("long")),
                lambda client=client: client.do_get(ticket).read_all(),
                lambda client=client: list(client.do_action(fl.Action("explain", json.dumps(REQUEST).encode()))),
                lambda client=client: client.do_exchange(fl.FlightDescriptor.for_command(b"{}"))[1].read_chunk(),
            ]
            for call in calls:
                # pyarrow raises OSError from get_schema.
                with pytest.raises((fl.FlightUnavailableError, OSError), match=DRAINING):
                    call()
        # The connection without a stream and the new ones stay open, and refused calls are not running streams.
        now = scrape(daemon)
        assert now.value("forebay_connections_active") == 4
        assert now.value("forebay_streams_active") == 1
        assert now.value("forebay_requests_total", call="ListFlights", code="UNAVAILABLE") == 3
        messages += [message(chunk) for chunk in reader]
        assert np.array_equal(ids(messages), np.arange(ROWS))
        # Open connections without a stream delay the end no longer than it takes to close them.
        assert daemon.end(seconds=10) == 0


def test_health_is_not_serving_during_the_whole_drain(start: Start, tmp_path: Path):
    daemon = start("--drain-seconds", "60", "--listen", f"unix:{tmp_path}/flight")
    addresses = [url.removeprefix("grpc://").replace("grpc+unix://", "unix:") for url in daemon.urls]

    def check(service: bytes, address: str) -> bytes:
        with grpc.insecure_channel(address) as channel:
            return channel.unary_unary("/grpc.health.v1.Health/Check")(service, timeout=10)

    with fl.connect(daemon.url) as client, grpc.insecure_channel(addresses[0]) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(FLIGHT_HEALTH, timeout=60)
        assert next(watch) == SERVING
        assert check(b"", addresses[0]) == SERVING
        reader = open_stream(client)
        reader.read_chunk()
        daemon.process.send_signal(signal.SIGTERM)
        assert next(watch) == NOT_SERVING
        # Health has no shorter drain time than streams.
        over = time.monotonic() + 1.5
        assert poll(lambda: time.monotonic() > over)
        for address in addresses:
            assert [check(service, address) for service in (b"", FLIGHT_HEALTH)] == [NOT_SERVING] * 2
        reader.read_all()
        assert list(watch) == []
        assert daemon.end(seconds=10) == 0


@pytest.mark.parametrize("seconds", [0, 1])
def test_cut_stream_names_the_position_to_resume(start: Start, seconds: int):
    daemon = start("--drain-seconds", str(seconds))
    with fl.connect(daemon.url) as client:
        reader = open_stream(client)
        messages = [message(reader.read_chunk())]
        daemon.process.send_signal(signal.SIGTERM)
        # A slow client that pauses beyond the grace period and resumes before the trailers are dropped.
        over = time.monotonic() + seconds * 1.2
        assert poll(lambda: time.monotonic() > over)
        rest, words = read_until_cut(reader)
    messages += rest
    assert len(messages) < ROWS // BATCH
    assert not messages[-1][0]["last"]
    named = re.search(r"start_position (\d+)", words)
    assert named, words
    position = int(named[1])
    assert position == len(messages) * BATCH
    assert daemon.end() == 0

    with fl.connect(start().url) as client:
        messages += [message(chunk) for chunk in open_stream(client, start_position=position)]
    assert [header["position"] for header, _ in messages] == list(range(0, ROWS, BATCH))
    assert [header["last"] for header, _ in messages] == [False] * (ROWS // BATCH - 1) + [True]
    assert np.array_equal(ids(messages), np.arange(ROWS))
    assert all(batch["text"][0].as_py().startswith(f"{batch['id'][0].as_py() % 4} ") for _, batch in messages)


def test_stream_cut_before_its_first_batch_resumes_at_its_start(start: Start):
    daemon = start("--drain-seconds", "0")
    size = 50_000
    with fl.connect(daemon.url) as client:
        # A batch of 50 MB takes its time; the stream is open when do_get returns.
        reader = open_stream(client, batch_size=size, start_position=2 * size)
        daemon.process.send_signal(signal.SIGTERM)
        messages, words = read_until_cut(reader)
    named = re.search(r"start_position (\d+)", words)
    assert named, words
    assert int(named[1]) == (2 + len(messages)) * size
    assert daemon.end() == 0


def test_cut_raw_table_offers_no_resume(start: Start):
    daemon = start("--drain-seconds", "0")
    with fl.connect(daemon.url) as client:
        reader = client.do_get(client.get_flight_info(fl.FlightDescriptor.for_path("long")).endpoints[0].ticket)
        first = reader.read_chunk()
        daemon.process.send_signal(signal.SIGTERM)
        rest, words = read_until_cut(reader)
    assert first.data.num_rows + sum(batch.num_rows for _, batch in rest) < ROWS
    assert "shutting down" in words, words
    # The raw table has no start_position: its reader begins again.
    assert "start_position" not in words
    assert daemon.end() == 0


def test_client_that_does_not_read_cannot_delay_shutdown(start: Start):
    daemon = start("--drain-seconds", "1")
    with fl.connect(daemon.url) as client:
        reader = open_stream(client)
        first = message(reader.read_chunk())
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.end(seconds=10) == 0
        rest, _ = read_until_cut(reader)
    got = ids([first, *rest])
    assert np.array_equal(got, np.arange(len(got)))
    assert len(got) < ROWS


def test_idle_client_learns_how_to_resume_after_the_drain(start: Start):
    daemon = start("--drain-seconds", "0")
    # A client that makes room for little, so that the server's socket never fills up.
    small = [("grpc.http2.lookahead_bytes", 64 << 10), ("grpc.http2.bdp_probe", 0)]
    with fl.FlightClient(daemon.url, generic_options=small) as client:
        reader = open_stream(client)
        messages = [message(reader.read_chunk())]
        # The client's buffers are full: the trailers with the position wait behind unread data.
        filled = time.monotonic() + 1
        assert poll(lambda: time.monotonic() > filled)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.end(seconds=10) == 0
        rest, words = read_until_cut(reader)
    messages += rest
    assert "start_position" in words, words
    position = messages[-1][0]["position"] + BATCH

    with fl.connect(start().url) as client:
        messages += [message(chunk) for chunk in open_stream(client, start_position=position)]
    assert np.array_equal(ids(messages), np.arange(ROWS))


def test_second_signal_exits_immediately(start: Start):
    daemon = start("--drain-seconds", "600")
    with fl.connect(daemon.url) as client:
        reader = open_stream(client)
        reader.read_chunk()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.drains()
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.end(seconds=10) == 0
        read_until_cut(reader)


def test_forced_shutdown_removes_its_socket(start: Start, tmp_path: Path):
    daemon = start("--drain-seconds", "0", "--listen", f"unix:{tmp_path}/flight")
    with fl.connect(f"grpc+unix://{tmp_path}/flight") as client:
        reader = open_stream(client)
        reader.read_chunk()
        daemon.process.send_signal(signal.SIGTERM)
        # The client rests, so that the server ends before the connection does.
        assert daemon.end(seconds=10) == 0
        assert not (tmp_path / "flight").exists()
        read_until_cut(reader)
