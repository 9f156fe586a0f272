"""Limits of requests, streams and connections: rejected immediately naming limit and flag; running streams continue."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.certificates import principal
from harness.daemon import LOOPBACK, Daemon, poll
from harness.damaged_files import as_stored
from harness.serving import server_binary
from harness.web_server import Files, WebServer

ROWS = 400_000
PLAN = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
GET, INFO = "/arrow.flight.protocol.FlightService/DoGet", "/arrow.flight.protocol.FlightService/GetFlightInfo"
Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of some megabytes: more than waits in sockets and queues."""
    root = tmp_path_factory.mktemp("limits") / "data"
    root.mkdir()
    table = pa.table({"x": np.arange(ROWS, dtype=np.float64), **{f"y{i}": np.zeros(ROWS) for i in range(8)}})
    pq.write_table(table, root / "a.parquet", row_group_size=20_000)
    return root


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[Daemon] = []

    def begin(*flags: str, dataset: str | Path = folder) -> Daemon:
        running.append(Daemon(*LOOPBACK, "--state", str(tmp_path / "state"), "--dataset", f"data={dataset}", *flags))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.stop()


def ask(**more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"dataset": "data", "plan": PLAN, **more}).encode())


def wide(**more: Any) -> dict[str, Any]:
    """A stream of more bytes than anything on the way holds."""
    parts = [{"columns": ["x", *(f"y{i}" for i in range(8))]}]
    return {"plan": {"outputs": [{"name": "x", "parts": parts}]}, "batch_size": 20_000, **more}


def metric(daemon: Daemon, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", daemon.get("/metrics")[2], re.MULTILINE)
    assert found, name
    return float(found[1])


def refusal(call: Callable[[], object]) -> str:
    start = time.monotonic()
    with pytest.raises((pa.ArrowException, OSError), match="resource exhausted") as caught:
        call()
    assert time.monotonic() - start < 10
    return str(caught.value)


@contextlib.contextmanager
def held(url: str, count: int = 1) -> Iterator[list[fl.FlightStreamReader]]:
    """Streams that stay open."""
    with contextlib.ExitStack() as stack:
        readers = []
        for _ in range(count):
            client = stack.enter_context(fl.connect(url))
            reader = client.do_get(client.get_flight_info(ask(**wide())).endpoints[0].ticket)
            reader.read_chunk()
            stack.callback(reader.cancel)
            readers.append(reader)
        yield readers


@pytest.mark.parametrize("flag", ["--streams-max", "--streams-per-client"])
def test_streams_beyond_the_limit_are_rejected_with_a_retry_delay(start: Start, flag: str):
    daemon = start(flag, "2")
    with fl.connect(daemon.url) as client, held(daemon.url, 2):
        ticket = client.get_flight_info(ask()).endpoints[0].ticket
        words = refusal(lambda: client.do_get(ticket).read_all())
        assert flag in words
        assert "try again in" in words
        command = fl.FlightDescriptor.for_command(json.dumps({"plan": PLAN}).encode())
        assert flag in refusal(lambda: client.do_exchange(command)[1].read_all())
        with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
            call = channel.unary_stream(GET)(b"\x0a" + bytes([len(ticket.ticket)]) + ticket.ticket, timeout=10)
            with pytest.raises(grpc.RpcError):
                next(call)
            assert dict(call.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
        # Calls that are not streams are answered.
        client.get_flight_info(ask())
    assert poll(lambda: metric(daemon, "forebay_streams_active") == 0)
    with fl.connect(daemon.url) as client:
        assert client.do_get(ticket).read_all().num_rows == ROWS


def test_python_client_waits_for_a_free_stream_slot(start: Start):
    daemon = start("--streams-max", "1")
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with held(daemon.url) as (reader,), fb.connect(daemon.url) as client:
        threading.Timer(0.7, reader.cancel).start()
        assert sum(len(batch["x"]) for batch in client.stream("data", plan, batch_size=50_000)) == ROWS
    with held(daemon.url), fb.connect(daemon.url, retry_seconds=1) as client, pytest.raises(fb.errors.Overloaded):
        next(iter(client.stream("data", plan)))


def test_each_principal_has_its_own_caps(start: Start, tmp_path: Path):
    token = "token-of-the-tests-0123456789"
    file = tmp_path / "principals.toml"
    file.write_text(principal("trainer", token, "*", more="streams_max = 1\ncalls_per_second = 5"))
    daemon = start("--principals", str(file))
    known = fl.FlightCallOptions(timeout=20, headers=[(b"authorization", b"Bearer " + token.encode())])
    with fl.connect(daemon.url) as client:
        ticket = client.get_flight_info(ask(**wide()), known).endpoints[0].ticket
        first = client.do_get(ticket, known)
        first.read_chunk()
        words = refusal(lambda: client.do_get(ticket, known).read_all())
        assert "streams_max of --principals" in words
        first.cancel()

        def many() -> None:
            for _ in range(30):
                client.get_flight_info(ask(), known)

        words = refusal(many)
        assert "calls_per_second" in words
        wait = re.search(r"try again in (\d+) ms", words)
        assert wait
        time.sleep(int(wait[1]) / 1000)
        client.get_flight_info(ask(), known)


def test_connections_beyond_the_limit_are_rejected_with_a_message(start: Start):
    daemon = start("--connections-max", "3")

    def connected() -> fl.FlightClient:
        # Without it all clients of a process share one connection.
        client = fl.FlightClient(daemon.url, generic_options=[("grpc.use_local_subchannel_pool", 1)])
        list(client.list_flights())
        return client

    clients = [connected() for _ in range(3)]
    words = refusal(connected)
    assert "--connections-max" in words
    assert "try again in" in words
    list(clients[0].list_flights())
    for client in clients:
        client.close()
    assert poll(lambda: metric(daemon, "forebay_connections_active") == 0)
    connected().close()


def test_requests_beyond_a_limit_name_the_flag(start: Start):
    limits = {
        "--message-bytes-max": 20_000,
        "--plan-bytes-max": 4000,
        "--plan-columns-max": 3,
        "--plan-ops-max": 2,
        "--expression-operators-max": 4,
        "--plan-operators-max": 6,
    }
    daemon = start(*(str(word) for pair in limits.items() for word in pair))

    def plan(columns: int = 1, ops: int = 0, text: str = "") -> dict[str, Any]:
        part = {"columns": ["x"] * columns, "ops": [{"abs": {}}] * ops}
        return {"outputs": [{"name": "x", "parts": [part]}], **({"filter": text} if text else {})}

    with fl.connect(daemon.url) as client:
        for good in (plan(3), plan(1, 2), plan(text="x > 1 AND x < 5")):
            client.get_flight_info(ask(plan=good))
        for flag, wrong in {
            "--plan-columns-max": plan(4),
            "--plan-ops-max": plan(1, 3),
            "--expression-operators-max": plan(text="x > 1 AND x < 5 AND x <> 3"),
            "--plan-operators-max": plan(text="x > 1 AND x < 5")
            | {"derive": [{"name": f"d{i}", "expr": "x"} for i in range(3)]},
            "--plan-bytes-max": plan(text="x > " + "1" * 5000),
            "--message-bytes-max": plan(text="x > " + "1" * 30_000),
        }.items():
            for call in (
                lambda wrong=wrong: client.get_flight_info(ask(plan=wrong)),
                lambda wrong=wrong: list(client.do_action(body("fit", dataset="data", plan=wrong))),
                lambda wrong=wrong: list(client.do_action(body("explain", dataset="data", plan=wrong))),
            ):
                words = refusal(call)
                assert flag in words
                assert str(limits[flag]) in words
        command = fl.FlightDescriptor.for_command(json.dumps({"plan": plan()}).encode())
        writer, reader = client.do_exchange(command)
        batch = pa.record_batch({"x": np.zeros(5000)})
        writer.begin(batch.schema)

        def send() -> None:
            writer.write_batch(batch)
            reader.read_chunk()

        assert "--message-bytes-max" in refusal(send)


def body(name: str, **fields: Any) -> fl.Action:
    return fl.Action(name, json.dumps(fields).encode())


def test_malformed_messages_are_invalid_argument(start: Start):
    daemon = start()
    with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
        for name in ("GetFlightInfo", "GetSchema", "DoGet", "DoAction", "ListFlights"):
            call = channel.unary_stream(f"/arrow.flight.protocol.FlightService/{name}")
            for odd in (b"\xff\xff\xff", b"\x0a\xff", b"\x0a\x05ab"):
                with pytest.raises(grpc.RpcError) as caught:
                    list(call(odd, timeout=10))
                assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (name, odd)  # type: ignore[attr-defined]


def test_request_that_never_arrives_times_out(start: Start):
    daemon = start("--handshake-seconds", "1")
    release = threading.Event()

    def nothing() -> Iterator[bytes]:
        release.wait(20)
        yield from ()

    with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
        for call in (channel.stream_unary(INFO), channel.stream_unary(GET)):
            with pytest.raises(grpc.RpcError) as caught:
                call(nothing(), timeout=15)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
            assert "--handshake-seconds" in caught.value.details()  # type: ignore[attr-defined]
        release.set()


def test_unread_stream_releases_its_memory_and_resumes_later(start: Start):
    daemon = start("--stream-idle-seconds", "1")
    with held(daemon.url) as (reader,):
        assert metric(daemon, "forebay_memory_reserved_bytes") > 0
        assert poll(lambda: metric(daemon, "forebay_memory_reserved_bytes") == 0, seconds=20)
        with pytest.raises(fl.FlightUnavailableError, match=r"--stream-idle-seconds.*start_position \d+"):
            reader.read_all()
    plan = fb.Plan(outputs={"x": [fb.cols("x", *(f"y{i}" for i in range(8)))]})
    with fb.connect(daemon.url) as client:
        rows = []
        for batch in client.stream("data", plan, batch_size=20_000):
            rows.append(batch["x"][:, 0].copy())
            if len(rows) == 1:
                assert poll(lambda: metric(daemon, "forebay_memory_reserved_bytes") == 0, seconds=20)
        assert np.concatenate(rows).tolist() == list(range(ROWS))


def test_concurrent_store_requests_are_limited(start: Start, folder: Path):
    class Slow(Files):
        files: ClassVar[dict[str, bytes]] = {"/a.parquet": (folder / "a.parquet").read_bytes()}
        now: ClassVar[int] = 0
        most: ClassVar[int] = 0
        lock: ClassVar[threading.Lock] = threading.Lock()

        def answer(self, with_body: bool) -> None:
            with self.lock:
                Slow.now += 1
                Slow.most = max(Slow.most, Slow.now)
            time.sleep(0.05)
            # Before responding: the server may send the next request before this thread continues.
            with self.lock:
                Slow.now -= 1
            super().answer(with_body)

    with WebServer(Slow) as url:
        daemon = start("--storage-requests-max", "2", dataset=f"{url}/a.parquet")
        plan = fb.Plan(outputs={"x": fb.cols("x")})
        with fb.connect(daemon.url) as client:
            assert sum(len(batch["x"]) for batch in client.stream("data", plan, shuffle=True, lanes=16)) == ROWS
    assert Slow.most == 2


@pytest.mark.skipif("/release/" in server_binary(), reason="only builds for tests panic on request")
def test_kernel_panic_ends_only_its_stream(folder: Path, tmp_path: Path):
    common = [*LOOPBACK, "--state", str(tmp_path / "state"), "--dataset", f"data={folder}"]
    # Debug builds alone read it: computing an output of this name panics.
    daemon = Daemon(*common, env={"FOREBAY_TEST_PANIC_OUTPUT": "boom"})
    broken = {"outputs": [{"name": "boom", "parts": [{"columns": ["x"]}]}]}
    try:
        with held(daemon.url) as (reader,), fl.connect(daemon.url) as client:
            for more in ({"plan": broken}, {"plan": broken, "shuffle": True}):
                info = client.get_flight_info(ask(**more))
                with pytest.raises(fl.FlightInternalError, match="panicked"):
                    client.do_get(info.endpoints[0].ticket).read_all()
            command = fl.FlightDescriptor.for_command(json.dumps({"plan": broken}).encode())
            writer, answers = client.do_exchange(command)
            writer.begin(pa.schema([("x", pa.float64())]))
            writer.write_batch(pa.record_batch({"x": np.zeros(10)}))
            with pytest.raises(fl.FlightInternalError, match="panicked"):
                answers.read_all()
            assert client.do_get(client.get_flight_info(ask()).endpoints[0].ticket).read_all().num_rows == ROWS
            # The stream that was open all the while.
            assert reader.read_all().num_rows == ROWS - 20_000
        assert poll(lambda: metric(daemon, "forebay_memory_reserved_bytes") == 0)
        assert poll(lambda: metric(daemon, "forebay_streams_active") == 0)
    finally:
        daemon.stop()


def test_padding_and_values_under_nulls_are_zero(start: Start, tmp_path: Path):
    """Padding between buffers and values under nulls are zero in the message bytes."""
    random = np.random.default_rng(7)
    n = 1003
    gaps = random.random(n) < 0.3
    columns = {
        "number": pa.array(random.integers(1, 1 << 24, n), mask=gaps),
        "float": pa.array(random.random(n), mask=gaps),
        "narrow": pa.array(random.integers(1, 100, n).astype(np.int8), mask=gaps),
        "flag": pa.array(np.ones(n, bool), mask=gaps),
        "text": pa.array([None if gap else f"word {i}" for i, gap in enumerate(gaps)]),
        "list": pa.array([None if gap else [i, i + 1] for i, gap in enumerate(gaps)]),
        "fixed": pa.array([None if gap else b"sixteen bytes!!!" for gap in gaps], pa.binary(16)),
        "day": pa.array(np.where(gaps, None, random.integers(1, 20_000, n)).tolist(), pa.date32()),
    }
    (tmp_path / "odd").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "odd/a.parquet", row_group_size=101, use_dictionary=["text"])
    daemon = start(dataset=tmp_path / "odd")
    stored = {"outputs": [{**as_stored(name)["outputs"][0], "name": name} for name in columns]}
    dense = {
        "outputs": [{"name": "m", "parts": [{"columns": ["number", "float"], "ops": [{"fill_null": {"value": 0}}]}]}]
    }
    looked_at = 0
    with fl.connect(daemon.url) as client:
        path = fl.FlightDescriptor.for_path("data")
        for descriptor in (path, ask(plan=stored, batch_size=97), ask(plan=dense, batch_size=97)):
            ticket = client.get_flight_info(descriptor).endpoints[0].ticket
            for batch, message in messages(daemon.url, ticket):
                looked_at += 1
                assert_unused_bytes_are_zero(batch, message)
    assert looked_at > 30


def messages(url: str, ticket: fl.Ticket) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """The batches of a DoGet, and the received bytes of their bodies."""
    with grpc.insecure_channel(
        url.removeprefix("grpc://"), options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        schema: pa.Schema | None = None
        head = b"\x0a" + varint(len(ticket.ticket))
        for message in channel.unary_stream(GET)(head + ticket.ticket):
            fields = dict(protobuf_fields(message))
            header, data = fields.get(2, b""), fields.get(1000, b"")
            framed = pa.ipc.read_message(b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + data)
            if framed.type == "schema":
                schema = pa.ipc.read_schema(framed)
            elif framed.type == "record batch":
                assert schema is not None
                yield pa.ipc.read_record_batch(framed, schema), framed.body.to_pybytes()


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def protobuf_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message that has no others."""
    at = 0

    def number() -> int:
        nonlocal at
        shift, found = 0, 0
        while True:
            byte = message[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found

    while at < len(message):
        key = number()
        assert key & 7 == 2, key
        length = number()
        yield key >> 3, message[at : at + length]
        at += length


def assert_unused_bytes_are_zero(batch: pa.RecordBatch, body: bytes) -> None:
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    first = min(buffer.address for buffer in buffers)
    # Every buffer is a slice of the body, which begins with the first of them.
    used = np.zeros(len(body), bool)
    for buffer in buffers:
        place = buffer.address - first
        assert body[place : place + buffer.size] == buffer.to_pybytes()
        used[place : place + buffer.size] = True
    assert not np.frombuffer(body, np.uint8)[~used].any(), "padding that is not zero"
    for column in batch.columns:
        if column.null_count and pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type):
            width = column.type.bit_width // 8
            values = np.frombuffer(column.buffers()[1], np.uint8)[: len(column) * width].reshape(-1, width)
            assert not values[column.is_null().to_numpy(zero_copy_only=False)].any(), column.type
