"""Logs and metrics of streams: request ids, errors, seconds per stage. Observability never blocks a stream."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import resource
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, poll
from harness.serving import info, server_binary

ROWS = 60_000
PLAN = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers, and in `late` a null behind 29,999 of them."""
    root = tmp_path_factory.mktemp("observed")
    for name, values in (("data", np.arange(ROWS, dtype=np.float64)), ("late", [1.0] * 29_999 + [None])):
        (root / name).mkdir()
        pq.write_table(pa.table({"x": pa.array(values)}), root / name / "a.parquet", row_group_size=5000)
    return root


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as running:

        def begin(*flags: str) -> Daemon:
            datasets = [f"--dataset={name}={folder / name}" for name in ("data", "late")]
            daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", *datasets, *flags)
            running.callback(daemon.stop)
            return daemon

        yield begin


def request(dataset: str = "data", **more: Any) -> dict[str, Any]:
    return {"dataset": dataset, "plan": PLAN, "batch_size": 1000, **more}


def named(name: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"x-request-id", name.encode())])


def log_lines(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.lines if line.startswith("{")]


def ends_of(daemon: Daemon, name: str) -> list[dict[str, Any]]:
    lines = [line for line in log_lines(daemon) if line.get("span", {}).get("request") == name]
    return [line["fields"] for line in lines if line["fields"].get("message") == "call ended"]


def test_stream_end_is_logged_with_the_request_id(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        client.do_get(info(client, request()).endpoints[0].ticket, named("job-7.a")).read_all()
    (ended,) = poll(lambda: ends_of(daemon, "job-7.a"))
    assert (ended["code"], ended["rows"], ended["batches"]) == ("OK", ROWS, ROWS // 1000)
    assert ended["bytes"] > 4 * ROWS
    stages = [
        ended[f"{stage}_seconds"] for stage in ("fetch", "queue", "decode", "transform", "udf", "assemble", "send_wait")
    ]
    assert min(stages) >= 0
    assert 0 < ended["decode_seconds"] < ended["seconds"] + 1
    assert len([line for line in log_lines(daemon) if line.get("span", {}).get("request") == "job-7.a"]) == 1


def test_stream_error_names_its_request(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        ticket = info(client, request("late")).endpoints[0].ticket
        with pytest.raises(pa.ArrowInvalid, match=r"\[request job-8\]"):
            client.do_get(ticket, named("job-8")).read_all()
        (ended,) = poll(lambda: ends_of(daemon, "job-8"))
        assert (ended["code"], ended["reason"]) == ("INVALID_ARGUMENT", "INVALID_VALUE")
        assert "null" in ended["error"]
        # A request without an id gets one; an invalid id is ignored.
        for options in (fl.FlightCallOptions(), named('"} x'), named("a" * 65)):
            with pytest.raises(pa.ArrowInvalid, match=r"\[request [0-9a-f]+-\d+\]"):
                client.do_get(ticket, options).read_all()


def test_open_streams_have_series_and_closed_ones_none(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        # More than sockets and buffers hold: the stream stays open while unread.
        wide = {"outputs": [{"name": "x", "parts": [{"columns": ["x"] * 100}]}]}
        reader = client.do_get(info(client, request(plan=wide)).endpoints[0].ticket, named("job-9"))
        reader.read_chunk()
        series = r'forebay_stream_{}{{stream="job-9",dataset="data",epoch="0",rank="0"{}}} (\S+)'

        def value(name: str, more: str = "") -> float | None:
            found = re.search(series.format(name, more), daemon.get("/metrics")[2])
            return float(found[1]) if found else None

        assert poll(lambda: (value("rows_total") or 0) >= 1000)
        assert (value("bytes_total") or 0) >= 4000
        assert (value("position") or 0) % 1000 == 0
        assert (value("open_seconds") or 0) > 0
        assert value("stage_seconds_total", ',stage="decode"') is not None
        reader.read_all()
        assert poll(lambda: value("rows_total") is None)


def test_calls_are_counted_by_method_and_code(start: Start):
    daemon = start()

    def counted(call: str, code: str) -> float:
        found = re.search(rf'forebay_requests_total{{call="{call}",code="{code}"}} (\S+)', daemon.get("/metrics")[2])
        return float(found[1]) if found else 0.0

    with fl.connect(daemon.url) as client:
        ticket = info(client, request()).endpoints[0].ticket
        client.do_get(ticket).read_all()
        for wrong in (request("none"), {**request(), "batch_size": 0}):
            with pytest.raises((pa.ArrowException, fl.FlightError)):
                info(client, wrong)
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            client.do_get(fl.Ticket(b"nonsense")).read_all()
    assert counted("GetFlightInfo", "OK") == 1
    assert counted("GetFlightInfo", "NOT_FOUND") == 1
    assert counted("GetFlightInfo", "INVALID_ARGUMENT") == 1
    assert counted("DoGet", "OK") == 1
    assert counted("DoGet", "INVALID_ARGUMENT") == 1


def test_aged_connection_is_closed_without_disturbing_training(start: Start):
    daemon = start("--connection-age-seconds", "1", "--connection-grace-seconds", "1")
    # Some 24 MB: more than buffers hold.
    plan = fb.Plan(outputs={"x": [fb.cols("x")], "wide": [fb.cols("x")] * 100})
    with fb.connect(daemon.url) as client:
        values = []
        for batch in client.stream("data", plan, batch_size=1000):
            values.append(batch["x"].copy())
            time.sleep(0.08)
    assert np.array_equal(np.concatenate(values), np.arange(ROWS))
    # It took several connections.
    ended = poll(lambda: [line["fields"] for line in log_lines(daemon) if line["fields"].get("call") == "DoGet"])
    assert sum(fields["code"] == "CANCELLED" for fields in ended) >= 1, ended


def test_unread_log_blocks_no_stream(folder: Path, tmp_path: Path):
    command = [server_binary(), *LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"data={folder / 'data'}"]
    # Its pipe is full after some hundred lines.
    running = subprocess.Popen([*command, "--log", "trace"], stderr=subprocess.PIPE)
    try:
        assert running.stderr is not None
        url = ""
        while not url:
            if found := re.search(rb"listening on (grpc\S+)", running.stderr.readline()):
                url = found[1].decode()
        with fl.connect(url) as client:
            ticket = info(client, request()).endpoints[0].ticket
            for _ in range(40):
                assert client.do_get(ticket).read_all().num_rows == ROWS
        running.terminate()
        # A client that does not read cannot prevent its end.
        assert running.wait(20) == 0
    finally:
        running.kill()
        running.wait()
        assert running.stderr is not None
        running.stderr.close()


def test_many_scrapes_do_not_disturb_streams(start: Start):
    daemon = start()
    host, _, port = daemon.metrics_url.removeprefix("http://").partition("/")[0].rpartition(":")
    stalled = [socket.create_connection((host, int(port))) for _ in range(60)]
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                while connection.recv(1 << 16):
                    pass

    crowd = [threading.Thread(target=scrape, daemon=True) for _ in range(16)]
    try:
        for thread in crowd:
            thread.start()
        with fl.connect(daemon.url) as client:
            ticket = info(client, request()).endpoints[0].ticket
            for _ in range(5):
                assert client.do_get(ticket).read_all().num_rows == ROWS
    finally:
        done.set()
        for connection in stalled:
            connection.close()
        for thread in crowd:
            thread.join(10)
    assert daemon.get("/healthz")[0] == 200


def test_ten_thousand_simultaneous_scrapes_do_not_disturb_streams(start: Start):
    daemon = start()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000
    if limit[1] != resource.RLIM_INFINITY and limit[1] < count + 500:
        pytest.skip(f"10,000 connections need as many descriptors, and {limit[1]} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 500, limit[1]))
    try:
        host, _, port = daemon.metrics_url.removeprefix("http://").partition("/")[0].rpartition(":")
        with ThreadPoolExecutor(1) as crowd:
            pending = crowd.submit(scrapes, (host, int(port)), count)
            reads = [read_once(daemon)]
            while not pending.done():
                reads.append(read_once(daemon))
            statuses = pending.result()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    # Connections beyond the listener's queue are not served, but no client gets a partial page.
    assert set(statuses) <= {"whole", "unheard"}, statuses
    assert statuses["whole"] > 1000
    assert set(reads) == {ROWS}
    assert daemon.get("/healthz")[0] == 200


def scrapes(address: tuple[str, int], count: int) -> dict[str, int]:
    """Request this many pages at once; returns the numbers of complete pages and of timeouts."""
    pages: dict[socket.socket, bytearray] = {}
    done: dict[socket.socket, bytes] = {}
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for _ in range(count):
            asker = opened.enter_context(socket.socket())
            asker.setblocking(False)
            asker.connect_ex(address)
            selector.register(asker, selectors.EVENT_WRITE)
            pages[asker] = bytearray()
        deadline = time.monotonic() + 15
        while len(done) < count and time.monotonic() < deadline:
            for key, event in selector.select(0.1):
                asker = key.fileobj
                assert isinstance(asker, socket.socket)
                try:
                    if event & selectors.EVENT_WRITE:
                        asker.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                        selector.modify(asker, selectors.EVENT_READ)
                        continue
                    piece = asker.recv(1 << 16)
                except OSError:
                    piece, pages[asker] = b"", bytearray()
                pages[asker] += piece
                if not piece:
                    done[asker] = bytes(pages[asker])
                    selector.unregister(asker)
    return dict(collections.Counter(outcome(done.get(asker, b"")) for asker in pages))


def outcome(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    declared = re.search(rb"(?i)content-length: (\d+)", head)
    is_whole = head.startswith(b"HTTP/1.1 200") and declared is not None and int(declared[1]) == len(body)
    return "whole" if is_whole else f"torn: {answer[-200:]!r}" if answer else "unheard"


def read_once(daemon: Daemon) -> int:
    with fl.connect(daemon.url) as client:
        return client.do_get(info(client, request()).endpoints[0].ticket).read_all().num_rows


def test_metrics_can_be_off(folder: Path, tmp_path: Path):
    command = [server_binary(), "--listen", "127.0.0.1:0", "--metrics-listen", "off", "--exit-with-stdin"]
    running = subprocess.Popen(
        [*command, "--state", f"{tmp_path}/state", "--dataset", f"data={folder / 'data'}"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stderr is not None
        assert running.stdin is not None
        url = next(found[1] for line in running.stderr if (found := re.search(r"listening on (grpc\S+)", line)))
        with fl.connect(url) as client:
            assert client.do_get(info(client, request()).endpoints[0].ticket).read_all().num_rows == ROWS
        running.stdin.close()
        assert "metrics on" not in running.stderr.read()
    assert running.returncode == 0


def test_metrics_port_in_use_fails_the_start_with_a_message(start: Start, folder: Path, tmp_path: Path):
    taken = start().metrics_url.removeprefix("http://").partition("/")[0]
    command = [server_binary(), "--listen", "127.0.0.1:0", "--metrics-listen", taken, "--state", f"{tmp_path}/other"]
    ended = subprocess.run(
        [*command, "--dataset", f"data={folder / 'data'}"],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "FOREBAY_LOG": "error"},
    )
    assert ended.returncode == 1
    assert f"--metrics-listen {taken}" in ended.stderr
