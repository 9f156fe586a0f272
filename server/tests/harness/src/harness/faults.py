"""Shared by the tests of faults: a table, an unaffected client, and checks that a server is idle again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from forebay.errors import translate
from harness.daemon import Daemon, poll
from harness.metrics import Scrape, scrape
from harness.serving import info

ROWS = 100_000
BATCH = 500
NUMBERS: dict[str, Any] = {
    "dataset": "data",
    "batch_size": 5000,
    "plan": {
        "outputs": [
            {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
            {"name": "m", "parts": [{"columns": ["x", "id"]}]},
        ]
    },
}
# 100 MB on the wire: more than sockets and clients buffer, so that a stream whose client rests stays open.
LONG: dict[str, Any] = {
    "dataset": "data",
    "batch_size": BATCH,
    "plan": {
        "outputs": [
            {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
            {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
        ]
    },
}
GAUGES = ("streams_active", "exchanges_active", "fits_active", "connections_active", "memory_reserved_bytes")


Start = Callable[..., Daemon]
"""The type of the fixture `start` of the tests of network faults."""


def write_data(folder: Path) -> Path:
    """Ids, numbers, and a text of 1 KB per row that depends on the id."""
    folder.mkdir(parents=True)
    ids = np.arange(ROWS)
    texts = pa.DictionaryArray.from_arrays((ids % 4).astype(np.int32), [f"{i} " * 512 for i in range(4)])
    table = pa.table({"id": ids, "x": np.sqrt(ids), "text": texts})
    pq.write_table(table, folder / "a.parquet", store_schema=False, row_group_size=10_000)
    return folder


def is_whole(table: pa.Table) -> bool:
    """Whether it is the whole of NUMBERS."""
    ids = np.arange(ROWS)
    matrix = np.concatenate([chunk.to_numpy_ndarray() for chunk in table["m"].chunks])
    want = np.stack([np.sqrt(ids), ids], axis=1).astype(np.float32)
    return np.array_equal(table["id"].to_numpy(), ids) and np.array_equal(matrix, want)


def are_rows_of_long(batch: pa.RecordBatch, start: int) -> bool:
    ids = np.arange(start, start + batch.num_rows)
    texts = batch["text"].to_pylist()
    return np.array_equal(batch["id"].to_numpy(), ids) and texts == [f"{i % 4} " * 512 for i in ids]


def ticket(client: fl.FlightClient, request: dict[str, Any]) -> fl.Ticket:
    return info(client, request).endpoints[0].ticket


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


def outcome(call: Callable[[], object]) -> tuple[str, str]:
    """Code and message of the error that the call raises, or OK and no message."""
    try:
        call()
    except (fl.FlightError, pa.ArrowException, OSError, KeyError, MemoryError) as raised:
        error = translate(raised)
        return error.code, str(error)
    return "OK", ""


class Bystander:
    """A client that reads epoch after epoch during a test."""

    def __init__(self, url: str) -> None:
        self.epochs = 0
        self._url = url
        self._stopped = threading.Event()
        self._wrong: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Bystander:
        self._thread.start()
        self.wait_for_epochs()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self.wait_for_epochs(2)
        finally:
            self._stopped.set()
            self._thread.join(60)

    def wait_for_epochs(self, count: int = 1) -> None:
        """Let it read so many more: the last of two begins now or later."""
        wanted = self.epochs + count
        assert poll(lambda: self.epochs >= wanted or self._wrong, seconds=60), "the other client's stream is stalled"
        if self._wrong:
            raise AssertionError("the other client's stream broke") from self._wrong

    def _read(self) -> None:
        try:
            with fl.connect(self._url) as client:
                where = ticket(client, NUMBERS)
                while not self._stopped.wait(0.02):
                    assert is_whole(client.do_get(where).read_all())
                    self.epochs += 1
        except BaseException as error:
            self._wrong = error


class Rest:
    """Resources of an idle server."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        with fl.connect(daemon.url) as client:
            assert is_whole(client.do_get(ticket(client, NUMBERS)).read_all())
        assert poll(lambda: self._is_idle(scrape(daemon)))
        self.tasks = scrape(daemon).value("forebay_runtime_tasks")
        self.descriptors = descriptors(daemon)

    def is_back(self, seconds: float = 15) -> bool:
        """Whether the server's resources return to these within the timeout."""
        return poll(self._looks, seconds=seconds)

    def left(self) -> dict[str, float]:
        """What it still holds."""
        now = scrape(self._daemon)
        held = {name: now.value(f"forebay_{name}") for name in GAUGES}
        return {**held, "tasks": now.value("forebay_runtime_tasks"), "descriptors": descriptors(self._daemon)}

    def _looks(self) -> bool:
        now = scrape(self._daemon)
        is_less = now.value("forebay_runtime_tasks") <= self.tasks and descriptors(self._daemon) <= self.descriptors
        return is_less and self._is_idle(now)

    @staticmethod
    def _is_idle(now: Scrape) -> bool:
        return all(now.value(f"forebay_{name}") == 0 for name in GAUGES)


def descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


def resident_bytes(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_process_resident_memory_bytes")
