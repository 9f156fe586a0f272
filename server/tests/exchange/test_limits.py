"""Large, slow and idle exchanges: each is limited separately, and the server keeps serving."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness.daemon import LOOPBACK, Daemon, poll
from harness.exchange import exchange, refused
from harness.metrics import scrape

WIDE = {"outputs": [{"name": "hot", "parts": [{"columns": ["i"], "ops": [{"one_hot": {"size": 1000}}]}]}]}
TEXT = {"outputs": [{"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]}]}

Start = Callable[..., Daemon]


def indices(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"i": np.arange(rows) % 1000})


@pytest.fixture
def start(tiny_folder: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[Daemon] = []

    def begin(*flags: str) -> Daemon:
        dataset = ("--dataset", f"tiny={tiny_folder}", "--state", f"{tmp_path}/state")
        running.append(Daemon(*LOOPBACK, *dataset, *flags))
        return running[-1]

    yield begin
    for daemon in running:
        assert daemon.stop() == ""
        assert not any("panic" in line for line in daemon.lines)


def open_exchange(
    client: fl.FlightClient, plan: dict[str, Any], schema: pa.Schema
) -> tuple[fl.FlightStreamWriter, fl.FlightStreamReader]:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(json.dumps({"plan": plan})))
    writer.begin(schema)
    assert reader.schema is not None
    return writer, reader


def at_rest(daemon: Daemon) -> bool:
    now = scrape(daemon)
    return now.value("forebay_exchanges_active") == now.value("forebay_memory_reserved_bytes") == 0


def test_rejects_an_oversized_batch_naming_the_flag(start: Start):
    daemon = start("--batch-bytes-max", "1000000")
    with fl.connect(daemon.url) as client:
        assert exchange(client, {"plan": WIDE}, [indices(250)])[0].num_rows == 250
        # The answer is too large, then the batch itself, then what it claims to be once it is decompressed.
        code, text = refused(client, {"plan": WIDE}, indices(251))
        assert (code, "--batch-bytes-max" in text) == ("RESOURCE_EXHAUSTED", True), text
        code, text = refused(client, {"plan": TEXT}, pa.RecordBatch.from_pydict({"text": ["x" * 1_000_001]}))
        assert (code, "--batch-bytes-max" in text) == ("RESOURCE_EXHAUSTED", True), text
        for codec in ("lz4", "zstd"):
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pytest.raises((pa.ArrowException, OSError), match="--batch-bytes-max"):
                exchange(client, {"plan": TEXT}, [pa.RecordBatch.from_pydict({"text": ["x" * 10_000_000]})], options)
    assert poll(lambda: at_rest(daemon))


def test_rejects_a_batch_beyond_the_memory_limit_naming_the_flag(start: Start):
    daemon = start("--memory-limit-bytes", "4000000")
    with fl.connect(daemon.url) as client:
        assert exchange(client, {"plan": WIDE}, [indices(400)])[0].num_rows == 400
        code, text = refused(client, {"plan": WIDE}, indices(600))
        assert (code, "--memory-limit-bytes" in text) == ("RESOURCE_EXHAUSTED", True), text
        # Dictionaries count while they are held.
        words = pa.DictionaryArray.from_arrays(np.zeros(1, np.int32), ["x" * 3_000_000])
        code, text = refused(client, {"plan": TEXT}, pa.RecordBatch.from_pydict({"text": words}))
        assert (code, "--memory-limit-bytes" in text) == ("RESOURCE_EXHAUSTED", True), text
    assert poll(lambda: at_rest(daemon))


def test_rejects_an_oversized_message(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        batch = pa.RecordBatch.from_pydict({"x": np.zeros(20_000_000)})
        code, text = refused(client, {"plan": {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}}, batch)
        assert code == "RESOURCE_EXHAUSTED", text
        assert "134217728 bytes" in text
        # 2^24 + 1 rows of nothing are few bytes.
        nothing = pa.RecordBatch.from_pydict({"x": pa.nulls(16_777_217)})
        plan = {"derive": [{"name": "a", "expr": "1"}], "outputs": [{"name": "a", "parts": [{"columns": ["a"]}]}]}
        code, text = refused(client, {"plan": plan}, nothing)
        assert (code, "16777216" in text) == ("INVALID_ARGUMENT", True), text


def test_slow_reader_stalls_only_its_own_exchange(start: Start):
    daemon = start("--cpu-threads", "1")
    with fl.connect(daemon.url) as slow_client, fl.connect(daemon.url) as client:
        writer, reader = open_exchange(slow_client, WIDE, indices(1).schema)
        sent = 0

        def write() -> None:
            nonlocal sent
            with contextlib.suppress(pa.ArrowException, OSError):
                for _ in range(500):
                    writer.write_batch(indices(2000))
                    sent += 1

        # 4 GB of answers, were they made.
        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        batches = "forebay_exchange_batches_total"
        assert poll(lambda: scrape(daemon).value(batches) > 0)
        for _ in range(100):
            (answer,) = exchange(client, {"plan": WIDE}, [indices(10)])
            assert answer.num_rows == 10
        now = scrape(daemon)
        # One batch's memory, and what gRPC holds on the way.
        assert now.value(batches) < 100 + 100
        assert now.value("forebay_memory_reserved_bytes") < 64 << 20
        assert now.value("forebay_exchanges_active") == 1
        assert reader.read_chunk().data.num_rows == 2000
        reader.cancel()
        thread.join(20)
        assert not thread.is_alive()
    assert poll(lambda: at_rest(daemon))


def test_exchanges_are_counted_by_outcome(start: Start):
    daemon = start()
    before = scrape(daemon)
    with fl.connect(daemon.url) as client:
        exchange(client, {"plan": WIDE}, [indices(3), indices(0), indices(4)])
        refused(client, {"plan": {}}, indices(1))
        _, reader = open_exchange(client, WIDE, indices(1).schema)
        assert scrape(daemon).value("forebay_exchanges_active") == 1
        reader.cancel()
    assert poll(lambda: at_rest(daemon))
    after = scrape(daemon)

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    ends = {status: grown("forebay_exchanges_total", status=status) for status in ("complete", "cancelled", "failed")}
    assert ends == {"complete": 1, "cancelled": 1, "failed": 1}
    assert grown("forebay_exchange_batches_total") == grown("forebay_exchange_seconds_count") == 3
    assert grown("forebay_exchange_rows_total") == 7
    assert after.types["forebay_exchange_seconds"] == "histogram"


def test_draining_ends_exchanges_with_unavailable_between_batches(start: Start):
    daemon = start("--drain-seconds", "60")
    with fl.connect(daemon.url) as client:
        idle, other = (open_exchange(client, WIDE, indices(1).schema) for _ in range(2))
        other[0].write_batch(indices(5))
        assert other[1].read_chunk().data.num_rows == 5
        daemon.process.terminate()
        for _, reader in (idle, other):
            with pytest.raises(fl.FlightUnavailableError, match="another replica"):
                reader.read_chunk()
        with pytest.raises((fl.FlightUnavailableError, fl.FlightInternalError, OSError)):
            open_exchange(client, WIDE, indices(1).schema)
    # No exchange keeps it waiting for its drain-seconds.
    assert daemon.end() == 0


def test_idle_exchange_uses_no_cpu(start: Start):
    daemon = start()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(fl.connect(daemon.url))
        held = [open_exchange(client, WIDE, indices(1).schema) for _ in range(50)]
        times = Path(f"/proc/{daemon.process.pid}/stat")

        def ticks() -> int:
            fields = times.read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        before = ticks()
        threading.Event().wait(1.0)
        # 50 of them that looked even once a millisecond would take most of a second, which is 100 ticks.
        assert ticks() - before <= 20
        assert scrape(daemon).value("forebay_memory_reserved_bytes") == 0
        for _, reader in held:
            reader.cancel()
