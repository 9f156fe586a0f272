"""A server of damaged files, and the checks that follow each.

The same process must survive, within its memory limit, and serve the next request on a healthy dataset correctly. A
server that fails this is replaced, so that the next test is not affected.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from forebay.errors import translate
from harness.daemon import Daemon
from harness.serving import Server

MEMORY_LIMIT_BYTES = 256 << 20
# Memory of a process outside its limit: code, threads, footers, the allocator's reserve.
SLACK_BYTES = 150_000_000
CALL_SECONDS = 30

Ended = tuple[str, str]
Ways = tuple[str, ...]

# Every way that a column is read: as it is, through its dictionary, under a filter, in a fit.
ALL_WAYS = ("raw", "as stored", "shuffled", "filtered", "fit")
# Those that cost least, for what takes long where it goes wrong.
TWO_WAYS = ("raw", "shuffled")


def options(seconds: int = CALL_SECONDS) -> fl.FlightCallOptions:
    """Options with a timeout, so that a hang fails the test."""
    return fl.FlightCallOptions(timeout=seconds)


def healthy_table() -> pa.Table:
    n = np.arange(500)
    return pa.table({"id": n, "word": [f"w{i % 7}" for i in n]})


def sample_table() -> pa.Table:
    """The table that tests damage: numbers, numbers with nulls, dictionary text, plain text."""
    n = np.arange(1000)
    return pa.table(
        {
            "id": n,
            "number": pa.array(n / 7, mask=n % 5 == 0),
            "word": pa.array([None if i % 11 == 0 else f"k{i % 20}" for i in n]),
            "unique": pa.array([f"word {i}" for i in n]),
        }
    )


# Two row groups of several pages.
PAGES: dict[str, Any] = {"row_group_size": 500, "data_page_size": 500, "write_batch_size": 50}


def raw(client: fl.FlightClient, dataset: str) -> pa.Table:
    found = client.get_flight_info(fl.FlightDescriptor.for_path(dataset), options())
    return client.do_get(found.endpoints[0].ticket, options()).read_all()


def stream(client: fl.FlightClient, dataset: str, plan: Mapping[str, Any], **request: Any) -> pa.Table:
    """Every rank's batches, one after the other."""
    command = json.dumps({"dataset": dataset, "plan": plan, **request}).encode()
    found = client.get_flight_info(fl.FlightDescriptor.for_command(command), options())
    return pa.concat_tables(client.do_get(end.ticket, options()).read_all() for end in found.endpoints)


def fit(client: fl.FlightClient, dataset: str, plan: Mapping[str, Any]) -> None:
    body = json.dumps({"dataset": dataset, "plan": plan}).encode()
    list(client.do_action(fl.Action("fit", body), options()))


def as_stored(column: str) -> dict[str, Any]:
    return {"outputs": [{"name": "out", "dtype": "AS_STORED", "parts": [{"columns": [column]}]}]}


def through(column: str, *ops: Mapping[str, Any], dtype: str = "INT64") -> dict[str, Any]:
    return {"outputs": [{"name": "out", "dtype": dtype, "parts": [{"columns": [column], "ops": list(ops)}]}]}


TEXT_OPS = ({"fill_null": {"text": "none"}}, {"hash_bucket": {"buckets": 9}})
NUMBER_OPS = ({"fill_null": {"value": 0}},)


class Patient:
    """The server and the folders of its two datasets: `well`, and `ill`, whose one file tests replace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = healthy_table()
        for name in ("well", "ill"):
            (root / name).mkdir()
        pq.write_table(self.table, root / "well/a.parquet", row_group_size=200)
        self.server = self._start()

    def _start(self) -> Server:
        limit = str(MEMORY_LIMIT_BYTES)
        fit_limit = str(MEMORY_LIMIT_BYTES // 4)
        datasets = {"well": self.root / "well", "ill": self.root / "ill"}
        return Server(datasets, "--memory-limit-bytes", limit, "--fit-memory-bytes", fit_limit)

    def stop(self) -> None:
        self.server.stop()

    def put(self, data: bytes, name: str = "a.parquet") -> None:
        """Replace the file atomically, as a writer would."""
        (self.root / "new").write_bytes(data)
        (self.root / "new").rename(self.root / "ill" / name)

    def clear(self) -> None:
        # Everything that a test created, including deep folders.
        subprocess.run(["rm", "-rf", self.root / "ill"], check=True)
        (self.root / "ill").mkdir()

    @contextmanager
    def aftermath(self) -> Iterator[fl.FlightClient]:
        """A connection for the hostile requests; checks the server afterwards."""
        server = self.server
        pid = server.process.pid
        try:
            with fl.connect(server.url) as client:
                yield client
            assert server.alive, "the server exited:\n" + "".join(list(server.log)[-5:])
            assert server.process.pid == pid
            with fl.connect(server.url) as client:
                assert raw(client, "well").equals(self.table)
                got = stream(client, "well", as_stored("word"), batch_size=64)
                assert got["out"].combine_chunks().equals(self.table["word"].combine_chunks())
            peak = resident_bytes_max(server)
            assert peak < MEMORY_LIMIT_BYTES + SLACK_BYTES, f"{peak / 1e6:.0f} MB resident"
        except BaseException:
            server.stop()
            # The file that did it may keep the next server from starting.
            self.clear()
            self.server = self._start()
            raise

    def refuses(
        self, data: bytes, *words: str, column: str = "word", ways: Ways = ALL_WAYS, code: str = "DATA_LOSS"
    ) -> None:
        """Every way of reading the column fails with the code and these words."""
        self.put(data)
        with self.aftermath() as client:
            ends = self.ends(client, column, ways=ways)
        for way, (found, text) in ends.items():
            assert found == code, f"{way}: {found}: {text[:400]}"
            for word in words:
                # The raw table reads several columns at once: the decoder does not say which of them it was.
                if not (way == "raw" and word.startswith("column ")):
                    assert word in text, f"{way}: {word!r} is not in: {text[:400]}"
            assert_readable(text)

    def refuses_or_serves(self, data: bytes, table: pa.Table, column: str = "word") -> set[str]:
        """Every way gives correct data or DATA_LOSS, for damage that is not necessarily read. Returns the codes."""
        self.put(data)
        with self.aftermath() as client:
            ends = self.ends(client, column, table)
        for way, (found, text) in ends.items():
            assert found in ("OK", "DATA_LOSS"), f"{way}: {found}: {text[:400]}"
            assert_readable(text)
        return {found for found, _ in ends.values()}

    def serves(self, data: bytes, table: pa.Table, column: str = "word") -> None:
        assert self.refuses_or_serves(data, table, column) == {"OK"}

    def ends(
        self, client: fl.FlightClient, column: str, table: pa.Table | None = None, ways: Ways = ALL_WAYS
    ) -> dict[str, Ended]:
        """How every way to read the column ends; where it ends well, the values must be the table's."""
        numbers = column not in ("word", "unique")
        ops = NUMBER_OPS if numbers else TEXT_OPS
        plan = through(column, *ops, dtype="FLOAT32" if numbers else "INT64")
        literal = "3.5" if numbers else "'k3'"
        learned = through(column, *ops, {"standardize": {}}) if numbers else through(column, {"vocab": {}})
        learned["outputs"][0]["dtype"] = "FLOAT32" if numbers else "INT64"

        def check_raw() -> None:
            got = raw(client, "ill")
            got.validate(full=True)
            assert table is None or got.equals(table)

        def check_stored() -> None:
            got = stream(client, "ill", as_stored(column), world_size=2, batch_size=100)["out"].combine_chunks()
            got.validate(full=True)
            assert table is None or got.equals(table[column].combine_chunks())

        def check_filtered() -> None:
            stream(client, "ill", {"filter": f"{column} <> {literal}", **plan}, batch_size=100)

        calls: dict[str, Callable[[], object]] = {
            "raw": check_raw,
            "as stored": check_stored,
            "shuffled": lambda: stream(client, "ill", plan, shuffle=True, seed=3),
            "filtered": check_filtered,
            "fit": lambda: fit(client, "ill", learned),
        }
        return {way: ended(calls[way]) for way in ways}


def ended(call: Callable[[], object]) -> Ended:
    """The code that a call ends with, OK where it ends well, and the server's sentence."""
    try:
        call()
    except (pa.ArrowException, fl.FlightError) as raised:
        error = translate(raised)
        return error.code, str(error)
    return "OK", ""


def assert_readable(text: str) -> None:
    """A sentence that may go to a terminal and a log as it is."""
    assert "panic" not in text
    assert not [letter for letter in text if ord(letter) < 32 or 127 <= ord(letter) < 160], repr(text)
    assert len(text) < 5000


def resident_bytes_max(server: Server | Daemon) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
