"""Two principals on one server: neither keeps the other from CPU time or memory."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.certificates import principal
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape

# More bytes than sockets and clients buffer.
ROWS, COLUMNS = 120_000, 32
INFO = "/arrow.flight.protocol.FlightService/GetFlightInfo"
GREEDY, MODEST = "token-of-greedy-0123456789", "token-of-modest-0123456789"
WIDE: dict[str, Any] = {
    "dataset": "data",
    "batch_size": 2000,
    "shuffle": True,
    "seed": 3,
    "lanes": 4,
    "window_rows": 2048,
    "plan": {"outputs": [{"name": "m", "dtype": "FLOAT64", "parts": [{"columns": [f"c{i}" for i in range(COLUMNS)]}]}]},
}


def options(token: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(timeout=120, headers=[(b"authorization", f"Bearer {token}".encode())])


def ticket(client: fl.FlightClient, token: str, request: dict[str, Any]) -> fl.Ticket:
    descriptor = fl.FlightDescriptor.for_command(json.dumps(request).encode())
    return client.get_flight_info(descriptor, options(token)).endpoints[0].ticket


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two datasets: numbers, and a few long texts; two principals that may read both."""
    root = tmp_path_factory.mktemp("fairness")
    for name in ("data", "texts"):
        (root / name).mkdir()
    values = np.random.default_rng(1).random((COLUMNS, ROWS))
    numbers = pa.table({f"c{i}": column for i, column in enumerate(values)})
    pq.write_table(numbers, root / "data/a.parquet", row_group_size=4096)
    texts = pa.table({"s": [f"{i} " * 1000 for i in range(3000)]})
    pq.write_table(texts, root / "texts/a.parquet", row_group_size=500)
    known = root / "principals.toml"
    known.write_text(principal("greedy", GREEDY, "*") + principal("modest", MODEST, "*"))
    datasets = [f"--dataset={name}={root / name}" for name in ("data", "texts")]
    return [*LOOPBACK, *datasets, "--principals", str(known)]


@pytest.fixture
def start(arguments: list[str], tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as running:

        def begin(*flags: str) -> Daemon:
            daemon = Daemon(*arguments, "--state", str(tmp_path / "state"), *flags)
            running.callback(daemon.stop)
            return daemon

        yield begin


def whole(client: fl.FlightClient, token: str) -> list[str]:
    """Every batch of WIDE: its header and a digest of its values."""
    reader = client.do_get(ticket(client, token, WIDE), options(token))
    return [content(chunk) for chunk in reader]


def content(chunk: fl.FlightStreamChunk) -> str:
    values = chunk.data["m"].storage.flatten().to_numpy()
    return f"{chunk.app_metadata.to_pybytes().decode()} {hashlib.sha256(values).hexdigest()}"


def unread(daemon: Daemon, streams: ExitStack, token: str) -> fl.FlightStreamReader:
    """A stream of which one batch is read, on its own connection."""
    client = streams.enter_context(fl.connect(daemon.url))
    return client.do_get(ticket(client, token, WIDE), options(token))


def test_an_unread_stream_gives_its_memory_back_and_continues_with_the_same_bytes(start: Any):
    daemon = start("--stream-pause-seconds", "1")
    with ExitStack() as streams, fl.connect(daemon.url) as client:
        expected = whole(client, MODEST)
        reader = unread(daemon, streams, GREEDY)
        found = [content(reader.read_chunk())]
        before = scrape(daemon).value("forebay_memory_reserved_bytes")
        assert poll(lambda: scrape(daemon).value("forebay_streams_paused") == 1, seconds=60)
        assert poll(lambda: scrape(daemon).value("forebay_memory_reserved_bytes") < before / 2)
        assert scrape(daemon).value("forebay_stream_pauses_total", reason="unread") == 1
        found += [content(chunk) for chunk in reader]
        assert found == expected
        assert daemon.wait_for("(stream paused)")
        assert scrape(daemon).value("forebay_streams_paused") == 0


def test_unread_streams_of_one_client_give_way_to_another(start: Any):
    """One client has as much memory as it gets; another one needs some immediately."""
    daemon = start("--stream-pause-seconds", "0", "--memory-limit-bytes", "128MiB")
    with ExitStack() as streams, fl.connect(daemon.url) as client:
        readers, firsts = list[fl.FlightStreamReader](), list[str]()

        def fill() -> None:
            while len(readers) < 50:
                reader = unread(daemon, streams, GREEDY)
                firsts.append(content(reader.read_chunk()))
                readers.append(reader)

        with pytest.raises((fl.FlightError, pa.ArrowException), match="OVERLOADED"):
            fill()
        assert readers
        expected = whole(client, MODEST)
        assert len(expected) == ROWS / 2000
        assert scrape(daemon).value("forebay_stream_pauses_total", reason="shortage") > 0
        # All of them continue where they were.
        for first, reader in zip(firsts, readers, strict=True):
            assert [first, *(content(chunk) for chunk in reader)] == expected


def test_costly_work_of_one_client_delays_no_other_and_ends_with_it(start: Any):
    daemon = start("--cpu-threads", "2")
    texts = {"outputs": [{"name": "s", "dtype": "AS_STORED", "parts": [{"columns": ["s"]}]}]}
    narrow = {"outputs": [{"name": "x", "parts": [{"columns": ["c0"]}]}]}
    with fl.connect(daemon.url) as client, grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
        greedy = (("authorization", f"Bearer {GREEDY}"),)
        calls = list[Any]()
        for number in range(6):
            plan = {**texts, "filter": f"levenshtein(s, reverse(s)) > {number}"}
            descriptor = fl.FlightDescriptor.for_command(json.dumps({"dataset": "texts", "plan": plan}).encode())
            calls.append(channel.unary_unary(INFO).future(descriptor.serialize(), metadata=greedy))
        # More jobs than threads.
        assert poll(lambda: scrape(daemon).value("forebay_cpu_jobs_waiting") > 0)
        where = ticket(client, MODEST, {"dataset": "data", "plan": narrow})
        assert client.do_get(where, options(MODEST)).read_all().num_rows == ROWS
        # The others take minutes.
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()

        def rests() -> bool:
            before = scrape(daemon).value("forebay_cpu_busy_seconds_total")
            threading.Event().wait(0.5)
            return scrape(daemon).value("forebay_cpu_busy_seconds_total") - before < 0.1

        # Each job ends at its next slice, and counts as busy then.
        assert poll(lambda: scrape(daemon).value("forebay_cpu_jobs_waiting") == 0, seconds=60)
        assert poll(rests, seconds=60)
