"""The ring: the same batches as over Flight, in memory that a server on this machine shares."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import torch

import forebay as fb
from forebay._client import private_server
from forebay._client.connection import Connection
from forebay._client.header import read_header
from forebay._client.ring import RingReader, ring_path
from forebay._client.source import Source
from forebay.torch import FlightDataset
from harness.daemon import poll
from harness.repository import package_environment
from harness.serving import Serve, Server
from harness.transports import PLAN, ROWS, column, reserved, run_script, table, tickets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ring")
    pq.write_table(table(), root / "a.parquet", row_group_size=1700)
    return root


@pytest.fixture(scope="module")
def server(serve: Serve, folder: Path) -> Server:
    return serve({"t": folder}, unix=True)


@pytest.fixture
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def test_groups_and_replay_of_the_client_use_it(client: fb.Client):
    groups = client.groups("t", PLAN, by="kind", batch_size=500)
    read = [(key, batch.transport) for key, stream in groups for batch in stream]
    assert {transport for _, transport in read} == {"ring"}
    batch = client.replay("t", PLAN, step=1, batch_size=100).batch
    assert batch["id"].tolist() == list(range(100, 200))


def test_other_urls_have_no_ring(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FOREBAY_RING", raising=False)
    assert ring_path("grpc://127.0.0.1:1") is None
    assert ring_path("grpc+tls://a:1") is None
    assert ring_path("grpc+unix:///run/a.sock") == "/run/a.sock.ring"
    monkeypatch.setenv("FOREBAY_RING", "OFF")
    assert ring_path("grpc+unix:///run/a.sock") is None


def test_a_server_without_a_ring_is_read_over_flight(serve: Serve, folder: Path):
    server = serve({"t": folder}, unix=True)
    os.unlink(server.url.removeprefix("grpc+unix://") + ".ring")
    data = FlightDataset(server.url, "t", PLAN, batch_size=1000)
    assert sum(len(batch["id"]) for batch in data) == ROWS
    assert data.stats()["transport"] == "flight"


# === Memory ===


def test_views_keep_their_slots(client: fb.Client):
    kept: list[Any] = []
    expected: list[Any] = []
    for number, batch in enumerate(client.stream("t", PLAN, batch_size=64)):
        assert batch.transport == "ring"
        # A tensor, an array and an Arrow array in turn, each the only owner of its slot.
        tensor = torch.from_dlpack(batch.data.column("id")) if number % 3 == 0 else None
        view: Any = tensor if tensor is not None else batch["id"] if number % 3 == 1 else batch.data.column("id")
        kept = [*kept, view][-3:]
        expected = [*expected, list(range(number * 64, min(ROWS, number * 64 + 64)))][-3:]
        del batch, tensor, view
        assert [list(map(int, one.tolist())) for one in kept] == expected
    gc.collect()
    assert [list(map(int, one.tolist())) for one in kept] == expected


def test_memory_is_reserved_until_the_last_view_dies(serve: Serve, folder: Path):
    server = serve({"t": folder}, unix=True)
    client = fb.connect(server.url)
    stream = client.stream("t", PLAN, batch_size=1000)
    batch = next(stream)
    ids = batch["id"]
    assert sum(len(rest["id"]) for rest in stream) == ROWS - 1000
    stream.close()
    del stream, batch
    # The slots of the ended stream stay reserved, its other memory does not.
    body = 1000 * (8 + 2 * 4)
    assert poll(lambda: 7 * body <= reserved(server) <= 12 * body, seconds=20)
    assert ids.tolist() == list(range(1000))
    del ids
    gc.collect()
    assert poll(lambda: reserved(server) == 0, seconds=20)
    client.close()


def test_a_budget_without_room_for_the_ring_means_flight(serve: Serve, folder: Path):
    plain = serve({"t": folder}, unix=True)
    data = FlightDataset(plain.url, "t", PLAN, batch_size=4000)
    next(iter(data))
    limit = 0
    for megabytes in (1, 2, 3, 4, 6, 8):
        tight = serve({"t": folder}, "--memory-limit-bytes", str(megabytes << 20), unix=True)
        data = FlightDataset(tight.url, "t", PLAN, batch_size=4000, prefetch=60, retry_seconds=0)
        try:
            ids = torch.cat([batch["id"] for batch in data])
        except fb.ResourceExhausted:
            continue
        limit = megabytes
        assert torch.equal(ids, torch.arange(ROWS))
        break
    assert limit, "no limit admits the stream"
    # 64 slots of 64 kB and more do not fit, in addition to the stream.
    assert data.stats()["transport"] == "flight"


# === Processes ===

FORK = """
import os, sys
import forebay as fb
from forebay.torch import FlightDataset
url = sys.argv[1]
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
data = FlightDataset(url, "t", plan, batch_size=100)
batches = iter(data)
seen = [next(batches)]
child = os.fork()
if child == 0:
    # The inherited view is readable; dropping it returns nothing; a new stream works.
    ok = seen[0]["id"].tolist() == list(range(100))
    seen.clear()
    own = FlightDataset(url, "t", plan, batch_size=100)
    ok = ok and sum(len(batch["id"]) for batch in own) == 6000 and own.stats()["transport"] == "ring"
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
seen += list(batches)
rows = [int(row) for batch in seen for row in batch["id"]]
assert rows == list(range(6000)), len(rows)
assert data.stats()["transport"] == "ring"
"""


def test_a_fork_returns_no_slot_twice(server: Server):
    run_script(FORK, server.url)


WORKERS = """
import sys
from torch.utils.data import DataLoader
import forebay as fb
from forebay.torch import FlightDataset
data = FlightDataset(sys.argv[1], "t", fb.Plan(outputs={"id": fb.cols("id")}), batch_size=100)
first = next(iter(data))
for method in ("fork", "spawn"):
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=method)
    assert sum(len(batch["id"]) for batch in loader) == 6000, method
"""


def test_workers_read_through_it(server: Server):
    run_script("if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in WORKERS.splitlines()), server.url)


KILLED = """
import os, signal, sys
import forebay as fb
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
stream = fb.connect(sys.argv[1]).stream("t", plan, batch_size=10)
kept = [next(stream) for _ in range(4)]
assert kept[0].transport == "ring"
print("reading", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killing_the_client_frees_its_memory(serve: Serve, folder: Path):
    server = serve({"t": folder}, unix=True)
    process = subprocess.run(
        [sys.executable, "-c", KILLED, server.url],
        capture_output=True,
        text=True,
        timeout=120,
        env=package_environment(),
    )
    assert (process.returncode, process.stdout) == (-signal.SIGKILL, "reading\n")
    assert poll(lambda: reserved(server) == 0, seconds=20)
    with fb.connect(server.url) as client:
        assert sum(len(batch["id"]) for batch in client.stream("t", PLAN, batch_size=500)) == ROWS


def test_a_killed_private_server_is_reported(folder: Path):
    # Another folder name than that of other tests, so that the server is this test's.
    url = fb.local(killed=folder)
    server = next(one for one in private_server._servers.values() if one.url == url)
    with fb.connect(url, retry_seconds=0) as client:
        stream = client.stream("killed", PLAN, batch_size=10)
        next(stream)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(fb.errors.ServerEnded, match="the private forebay-server ended with -9"):
            list(stream)


def test_a_drain_ends_the_stream_with_its_position(serve: Serve, folder: Path):
    server = serve({"t": folder}, "--drain-seconds", "0", unix=True)
    [ticket] = tickets(server, {"dataset": "t", "plan": {"outputs": [column("a")]}, "batch_size": 10})
    path = ring_path(server.url)
    assert path is not None
    reader = RingReader(path, [], ticket.ticket, 4)
    read = [reader.read() for _ in range(3)]

    def to_the_end() -> None:
        while True:
            read.append(reader.read())

    # Two of the four slots are lent and the others copied, so the server waits for this loop only.
    server.process.send_signal(signal.SIGTERM)
    with pytest.raises(fb.Unavailable, match="start_position") as cut:
        to_the_end()
    assert cut.value.reason == "SHUTTING_DOWN"
    assert server.process.wait(20) == 0
    assert not os.path.exists(path)
    headers = [read_header(chunk.app_metadata).position for chunk in read]
    assert headers == list(range(0, 10 * len(read), 10))


def test_closing_ends_a_pending_read(server: Server):
    stream = fb.connect(server.url).stream("t", PLAN, batch_size=10)
    kept = [next(stream)]
    closed = threading.Timer(0.2, stream.close)
    closed.start()
    kept += list(stream)
    closed.join()
    assert len(kept) <= ROWS // 10


# === Credentials ===

PRINCIPALS = """
[trainer]
token_sha256 = "{digest}"
datasets = ["t"]
"""


def test_tokens_are_checked_as_over_flight(serve: Serve, folder: Path, tmp_path: Path):
    principals = tmp_path / "principals.toml"
    principals.write_text(PRINCIPALS.format(digest=hashlib.sha256(b"a-long-enough-token-of-trainer").hexdigest()))
    server = serve({"t": folder}, "--principals", str(principals), unix=True)
    good = fb.Credentials(token="a-long-enough-token-of-trainer")
    with fb.connect(server.url, credentials=good) as client:
        stream = client.stream("t", PLAN, batch_size=100)
        assert next(stream).transport == "ring"
        # The same ticket with another token, with none, and with a damaged signature.
        source: Any = stream._source
        ticket = source._ticket
    path = ring_path(server.url)
    assert path is not None
    for headers, given, kind in (
        ([(b"authorization", b"Bearer wrong-token-wrong-token")], ticket.ticket, fb.errors.Unauthenticated),
        ([], ticket.ticket, fb.errors.Unauthenticated),
        (good.headers(server.url), ticket.ticket[:-1] + b"!", fb.errors.PermissionDenied),
    ):
        with pytest.raises(kind) as refused:
            RingReader(path, headers, given).read()
        assert refused.value.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        # The fallback to Flight reports the same.
        bad = Connection(server.url, fb.Credentials(token=headers[0][1].decode()[7:]) if headers else fb.Credentials())
        with pytest.raises(kind):
            Source(bad, flight.Ticket(given)).read()
