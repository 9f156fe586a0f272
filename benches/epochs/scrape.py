"""Time of a scrape of /metrics while many streams are open, each with its own series.

A client with just enough HTTP/2 to send requests opens streams with closed windows, so they stay open, and only the
server holds memory for them.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.benches import machine
from harness.benches.bench_server import DATASET, Server, server_program

# Largest time of a scrape with a thousand open streams.
GOAL_MS = 20.0
# About 16 MB per stream, which is more than sockets and buffers hold.
COLUMNS, ROWS, BATCH_SIZE = 20, 200_000, 1000
STREAMS_PER_CONNECTION = 100
OPEN_SECONDS = 120.0
# A server is idle below this many CPU seconds per second.
IDLE_SECONDS = 0.05

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
# Setting for the initial window of this client's streams, which is 0 bytes.
INITIAL_WINDOW_SIZE = 4


def main() -> None:
    """Open streams, scrape, and write the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="open streams (%(default)s)")
    parser.add_argument("--scrapes", type=int, default=200, help="scrapes (%(default)s)")
    out = machine.run_folder() / "scrape.json"
    parser.add_argument("--out", type=Path, default=out, help="raw numbers (%(default)s)")
    options = parser.parse_args()
    program = server_program()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        columns = {f"x{number}": np.random.default_rng(number).random(ROWS, np.float32) for number in range(COLUMNS)}
        pq.write_table(pa.table(columns), Path(folder) / "part.parquet", row_group_size=20_000)  # pyright: ignore[reportArgumentType, reportCallIssue]
        with Server(program, Path(folder), "--memory-limit-bytes", str(1 << 40)) as server:
            without = scrape(server.metrics_url, options.scrapes)
            plan = {"outputs": [{"name": "x", "parts": [{"columns": list(columns)}]}]}
            request = {"dataset": DATASET, "plan": plan, "batch_size": BATCH_SIZE}
            with fl.connect(server.url) as client:
                info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request).encode()))
            connections = open_streams(server.url, info.endpoints[0].ticket.ticket, options.streams)
            waiting_since = time.monotonic()
            while scrape(server.metrics_url, 1)["streams"] < options.streams:
                if time.monotonic() > waiting_since + OPEN_SECONDS:
                    raise SystemExit("the streams did not open in time")
                time.sleep(0.5)
            opening = scrape(server.metrics_url, options.scrapes)
            wait_until_idle(server)
            during, resident = scrape(server.metrics_url, options.scrapes), server.peak_rss_bytes()
            for connection in connections:
                connection.close()
    run = {
        "bench": "scrape",
        "machine": machine.facts(program),
        "without_streams": without,
        "while_they_make_batches": opening,
        "while_they_wait": during,
        "server_peak_rss_bytes": resident,
    }
    phases = ("without_streams", "while_they_make_batches", "while_they_wait")
    print(json.dumps({name: run[name] for name in phases}, indent=1))
    print(f"goal: {GOAL_MS} ms")
    machine.keep(options.out, run)


def wait_until_idle(server: Server) -> None:
    """Wait until the streams have computed their batches ahead."""
    before = server.cpu_seconds()
    while True:
        time.sleep(1)
        now = server.cpu_seconds()
        if now - before < IDLE_SECONDS:
            return
        before = now


def open_streams(url: str, ticket: bytes, count: int) -> list[socket.socket]:
    """Open `count` streams of a ticket with windows of 0 bytes."""
    host, _, port = url.removeprefix("grpc://").rpartition(":")
    message = b"\x0a" + varint(len(ticket)) + ticket
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    path = "/arrow.flight.protocol.FlightService/DoGet"
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "bench"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    head = b"".join(b"\x00" + text(name) + text(value) for name, value in fields.items())
    connections: list[socket.socket] = []
    for number in range(count):
        if number % STREAMS_PER_CONNECTION == 0:
            connections.append(socket.create_connection((host, int(port))))
            settings = INITIAL_WINDOW_SIZE.to_bytes(2, "big") + (0).to_bytes(4, "big")
            connections[-1].sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        stream = 2 * (number % STREAMS_PER_CONNECTION) + 1
        connections[-1].sendall(frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, END_STREAM, stream, body))
    return connections


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(value: str) -> bytes:
    """Return a string in HPACK without Huffman coding."""
    assert len(value) < 127
    return bytes([len(value)]) + value.encode()


def varint(number: int) -> bytes:
    """Return a number as a protobuf varint."""
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def scrape(url: str, count: int) -> dict[str, float]:
    """Scrape `count` times; return the page's size and number of streams, and the times."""
    seconds: list[float] = []
    page = ""
    for _ in range(count):
        start = time.perf_counter()
        with urllib.request.urlopen(url) as answer:
            page = answer.read().decode()
        seconds.append(time.perf_counter() - start)
    return {
        "streams": page.count("\nforebay_stream_rows_total{"),
        "bytes": len(page),
        "median_ms": statistics.median(seconds) * 1e3,
        "p95_ms": sorted(seconds)[int(count * 0.95)] * 1e3,
        "max_ms": max(seconds) * 1e3,
    }


if __name__ == "__main__":
    main()
