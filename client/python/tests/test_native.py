"""The native module: the same batches as over Flight, received into their final memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import torch

import forebay as fb
from forebay._client.connection import Connection
from forebay._client.native import NativeReader, is_built, open_native
from forebay._client.source import Source
from harness.certificates import Authority
from harness.daemon import poll
from harness.repository import package_environment
from harness.secured import OTHER, TRAINER, Secured
from harness.serving import Serve, Server
from harness.transports import PLAN, ROWS, column, reserved, run_script, table, tickets

pytestmark = pytest.mark.skipif(not is_built(), reason="the package has no native module: make build")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("native")
    pq.write_table(table(), root / "a.parquet", row_group_size=1700)
    return root


@pytest.fixture(scope="module")
def server(serve: Serve, folder: Path) -> Server:
    return serve({"t": folder})


def test_connections_that_it_does_not_make(server: Server, monkeypatch: pytest.MonkeyPatch):
    for url in ("grpc://host", "grpc+unix:///run/a.sock", "grpc://host:port"):
        connection = Connection(server.url, fb.Credentials())
        connection.url = url
        assert open_native(connection, b"ticket") is None, url
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert open_native(Connection(server.url, fb.Credentials()), b"ticket") is None


# === Memory ===


def test_memory_is_used_again_only_after_its_last_view(server: Server):
    kept: list[tuple[Any, list[int]]] = []
    stream = fb.connect(server.url).stream("t", PLAN, batch_size=64)
    addresses: list[int] = []
    for number, batch in enumerate(stream):
        assert batch.transport == "native"
        column = batch.data.column("id")
        addresses.append(column.buffers()[1].address)
        assert addresses[-1] % 64 == 0
        # A tensor, an array and an Arrow array in turn, each the only owner of its memory. Some are kept to the end.
        view: Any = torch.from_dlpack(column) if number % 3 == 0 else batch["id"] if number % 3 == 1 else column
        kept.append((view, list(range(number * 64, min(ROWS, number * 64 + 64)))))
        if number % 5:
            kept.pop(0)
        del batch, column, view
    assert len(kept) > 10
    for view, expected in kept:
        assert list(map(int, view.tolist())) == expected
    assert len(set(addresses)) < len(addresses) * 0.8


def test_kept_memory_stays_after_its_call_until_it_is_released(server: Server):
    """As a GPU's driver needs it, which has it locked in place."""
    kept: dict[int, Any] = {}
    stream = fb.connect(server.url).stream("t", PLAN, batch_size=64)
    for batch in stream:
        buffer: Any = batch.memory
        body = batch.data.column("id").buffers()[1]
        assert buffer.address <= body.address < body.address + body.size <= buffer.address + buffer.size
        assert (buffer.address % 4096, buffer.size % 4096) == (0, 0)
        buffer.keep()
        kept[buffer.number] = buffer
    assert len(kept) < ROWS / 64 / 2
    expected = ctypes.string_at(body.address, body.size)
    address, size = body.address, body.size
    del batch, body, buffer
    stream.close()
    assert poll(lambda: all(each.is_retired for each in kept.values()))
    assert ctypes.string_at(address, size) == expected
    for each in kept.values():
        each.release()
        assert not each.is_retired


# === Other servers ===


class Peer(flight.FlightServerBase):
    """A server of pyarrow's, which counts the batches that it sends."""

    def __init__(self, schema: pa.Schema, made: Any) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.sent = 0
        self._schema = schema
        self._made = made

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        def counted() -> Iterator[pa.RecordBatch]:
            for batch in self._made():
                self.sent += 1
                yield batch

        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(self._schema, counted()))

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"


@contextlib.contextmanager
def reading(peer: Peer) -> Iterator[NativeReader]:
    reader = open_native(Connection(peer.url, fb.Credentials()), b"ticket")
    assert reader is not None
    try:
        yield reader
    finally:
        reader.close()
        peer.shutdown()


def test_large_batches_dictionaries_and_empty_batches():
    words = pa.array(["red", "green", None, "blue"]).dictionary_encode()
    others = pa.array(["x", None, "y", "z"]).dictionary_encode()
    large = pa.array(np.arange(5_000_000))
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.full(5_000_000, 2, np.int32)), others.dictionary)
    sent = [
        pa.record_batch({"n": large.slice(0, 4), "w": words}),
        pa.record_batch({"n": large.slice(0, 0), "w": words.slice(0, 0)}),
        # 40 MB, and another dictionary.
        pa.record_batch({"n": large, "w": repeated}),
        pa.record_batch({"n": large.slice(7, 4), "w": others}),
    ]
    with reading(Peer(sent[0].schema, lambda: iter(sent))) as reader:
        for batch in sent:
            found = reader.read().data
            found.validate(full=True)
            assert found.to_pydict() == batch.to_pydict() if batch.num_rows < 10 else found.equals(batch)
        with pytest.raises(StopIteration):
            reader.read()


def test_a_slow_loop_bounds_what_is_received():
    batch = pa.record_batch({"n": pa.array(np.zeros(1 << 17))})
    peer = Peer(batch.schema, lambda: (batch for _ in range(400)))
    with reading(peer) as reader:
        reader.read()
        before, seen = -1, 0
        while seen != before:
            before = seen
            time.sleep(0.5)
            seen = peer.sent
        # A batch has 1 MiB: 2 wait, one is received, 8 are in flow control's window, the others in buffers of sockets.
        assert seen < 60
        for _ in range(399):
            assert reader.read().data.equals(batch)
        with pytest.raises(StopIteration):
            reader.read()


# === Failures ===


def test_a_drain_ends_the_stream_with_its_position(serve: Serve, tmp_path: Path):
    rows = 3_000_000
    pq.write_table(pa.table({"a": np.zeros(rows)}), tmp_path / "a.parquet")
    server = serve({"t": tmp_path}, "--drain-seconds", "0")
    request = {"dataset": "t", "plan": {"outputs": [column("a", dtype="FLOAT64")]}, "batch_size": 100_000}
    [ticket] = tickets(server, request)
    source = Source(Connection(server.url, fb.Credentials()), ticket)
    assert source.read().data.num_rows == 100_000
    # The stream is larger than what may be received ahead.
    server.process.send_signal(signal.SIGTERM)

    def to_the_end() -> None:
        while True:
            source.read()

    with pytest.raises(fb.Unavailable, match="start_position") as cut:
        to_the_end()
    assert cut.value.reason == "SHUTTING_DOWN"
    assert source.transport == "native"
    source.close()
    assert server.process.wait(20) == 0


def test_an_unreachable_server_is_reported_as_over_flight(server: Server, monkeypatch: pytest.MonkeyPatch):
    [ticket] = tickets(server, {"dataset": "t", "plan": {"outputs": [column("a")]}})
    found: list[str] = []
    for switch in ("", "off"):
        monkeypatch.setenv("FOREBAY_NATIVE", switch)
        with pytest.raises(fb.Unavailable) as failed:
            Source(Connection("grpc://127.0.0.1:9", fb.Credentials()), ticket).read()
        found.append(str(failed.value))
    assert found[0] == found[1]


# === Credentials ===


def read_all(url: str, credentials: fb.Credentials, transport: str = "native") -> list[int]:
    plan = fb.Plan(outputs={"x": fb.output(fb.cols("x"), dtype="int64")})
    with fb.connect(url, credentials=credentials, retry_seconds=0) as client:
        read = list(client.stream("numbers", plan, batch_size=64))
    assert {batch.transport for batch in read} == {transport}
    return np.concatenate([batch["x"] for batch in read]).tolist()


def test_tls_and_tokens(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path)
    trusted = fb.Credentials(token=TRAINER, ca=secured.authority.ca)
    assert read_all(secured.server.url, trusted) == list(range(1000))
    assert read_all(secured.server.url.replace("127.0.0.1", "localhost"), trusted) == list(range(1000))
    with fb.connect(secured.server.url, credentials=trusted) as client:
        stream = client.stream("numbers", fb.Plan(outputs={"x": fb.cols("x")}), batch_size=64)
        next(stream)
        source: Any = stream._source
        ticket = source._ticket
        stream.close()
    for token, given, kind in (
        ("wrong-token-wrong-token", ticket, fb.errors.Unauthenticated),
        (None, ticket, fb.errors.Unauthenticated),
        (TRAINER, flight.Ticket(ticket.ticket[:-1] + b"!"), fb.errors.PermissionDenied),
        (OTHER, ticket, fb.errors.PermissionDenied),
    ):
        refused = Source(Connection(secured.server.url, fb.Credentials(token=token, ca=secured.authority.ca)), given)
        with pytest.raises(kind) as failed:
            refused.read()
        assert failed.value.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        assert refused.transport == "native"


def test_wrong_certificates_are_reported_as_over_flight(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    secured = Secured(serve, tmp_path / "server")
    foreign = fb.Credentials(token=TRAINER, ca=Authority(tmp_path / "foreign").ca)
    found: list[str] = []
    for switch in ("", "off"):
        monkeypatch.setenv("FOREBAY_NATIVE", switch)
        with pytest.raises(fb.Unavailable) as failed:
            Source(Connection(secured.server.url, foreign), flight.Ticket(b"{}")).read()
        found.append(str(failed.value))
    assert "certificate verify failed" in found[0]
    assert found[0] == found[1]


def test_client_certificates(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path / "server")
    pair = secured.authority.issue("client", "trainer.example")
    secured.principals.write_text('[by-name]\ncertificate = "trainer.example"\ndatasets = "numbers"\n')
    server = secured.start("--tls-client-ca", str(secured.authority.ca))
    good = fb.Credentials(ca=secured.authority.ca, cert=pair.cert, key=pair.key)
    assert read_all(server.url, good) == list(range(1000))
    without = Source(Connection(server.url, fb.Credentials(ca=secured.authority.ca)), flight.Ticket(b"{}"))
    with pytest.raises(fb.Unavailable):
        without.read()


# === Processes ===


WITHOUT = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "forebay._native":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from forebay.torch import FlightDataset
import forebay as fb
data = FlightDataset(sys.argv[1], "t", fb.Plan(outputs={"id": fb.cols("id")}), batch_size=100)
print(sum(len(batch["id"]) for batch in data), data.stats()["transport"])
"""


def test_a_package_without_the_module_reads_over_flight(server: Server):
    assert run_script(WITHOUT, server.url) == f"{ROWS} flight\n"


FORK = """
import os, sys
import forebay as fb
from forebay.torch import FlightDataset
url = sys.argv[1]
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
stream = fb.connect(url).stream("t", plan, batch_size=100)
seen = [next(stream)]
child = os.fork()
if child == 0:
    # The inherited view is readable, the inherited connection is not, and a new stream works.
    ok = seen[0]["id"].tolist() == list(range(100))
    try:
        stream._source.read()
        ok = False
    except fb.BrokenStream:
        pass
    seen.clear()
    own = FlightDataset(url, "t", plan, batch_size=100)
    ok = ok and sum(len(batch["id"]) for batch in own) == 6000 and own.stats()["transport"] == "native"
    del stream
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
seen += list(stream)
rows = [int(row) for batch in seen for row in batch["id"]]
assert rows == list(range(6000)), len(rows)
assert {batch.transport for batch in seen} == {"native"}
"""


def test_a_fork_shares_no_connection(server: Server):
    run_script(FORK, server.url)


WORKERS = """
import sys
from torch.utils.data import DataLoader
import forebay as fb
from forebay.torch import FlightDataset
data = FlightDataset(sys.argv[1], "t", fb.Plan(outputs={"id": fb.cols("id")}), batch_size=100)
loop = iter(data)
first = next(loop)
for method in ("fork", "spawn"):
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=method)
    assert sum(len(batch["id"]) for batch in loader) == 6000, method
assert 100 + sum(len(batch["id"]) for batch in loop) == 6000
"""


def test_workers_read_through_it(server: Server):
    script = "if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in WORKERS.splitlines())
    run_script(script, server.url)


ORPHANED = """
import os, signal, sys, time
import forebay as fb
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
stream = fb.connect(sys.argv[1]).stream("t", plan, batch_size=1)
first = next(stream)
assert first.transport == "native"
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_server_sees_the_end_of_a_killed_parent(serve: Serve, folder: Path):
    server = serve({"t": folder})
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHANED, server.url], stdout=subprocess.PIPE, text=True, env=package_environment()
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        assert process.wait(60) == -signal.SIGKILL
        assert poll(lambda: reserved(server) == 0, seconds=20)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


LEFT_OPEN = """
import sys
import forebay as fb
from forebay.torch import FlightDataset
data = FlightDataset(sys.argv[1], "t", fb.Plan(outputs={"id": fb.cols("id")}), batch_size=1, prefetch=4000)
loop = iter(data)
first = next(loop)
fb.keeps_the_loop_to_the_end = loop
"""


def test_a_process_may_end_while_batches_arrive(server: Server):
    for _ in range(5):
        assert run_script(LEFT_OPEN, server.url) == ""


def receiving() -> set[str]:
    """The threads of this process that receive: those of earlier tests' streams may not have ended."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        # It may end between the listing and the reading.
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip() == "forebay-receive":
                found.add(task.name)
    return found


def test_threads_end_with_their_streams(server: Server):
    before = receiving()
    streams = [fb.connect(server.url).stream("t", PLAN, batch_size=10) for _ in range(3)]
    assert [next(stream).header.step for stream in streams] == [0, 0, 0]
    started = receiving() - before
    assert len(started) == 3
    for stream in streams:
        threading.Thread(target=stream.close).start()
    assert poll(lambda: not started & receiving(), seconds=20)
