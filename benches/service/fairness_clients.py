"""Some clients as threads of a process, each with a connection of its own: bare pyarrow.

Reads one JSON object from stdin, `{"url", "clients": [{"request", "rank", "epochs"}], "seconds"}`; connects all and
says so with a line; reads a line, and then every client reads: one epoch where `epochs` is 1, else one after another
until `seconds` have passed. Says when each batch came, in seconds of the monotonic clock, which processes share.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from harness.benches.bench_server import OWN_CONNECTION


def main() -> None:
    """Obey once."""
    order = json.loads(sys.stdin.readline())
    go = threading.Event()
    connected = threading.Barrier(len(order["clients"]) + 1)
    with ThreadPoolExecutor(len(order["clients"])) as pool:
        clients = [
            pool.submit(client, order["url"], each, order["seconds"], connected, go) for each in order["clients"]
        ]
        connected.wait()
        print("connected", flush=True)
        sys.stdin.readline()
        go.set()
        print(json.dumps([each.result() for each in clients]), flush=True)


def client(
    url: str, asked: dict[str, Any], seconds: float, connected: threading.Barrier, go: threading.Event
) -> dict[str, Any]:
    """Read what one client is to read; return when its batches came, and what went wrong."""
    times: list[float] = []
    rows: list[int] = []
    error = ""
    with fl.FlightClient(url, generic_options=OWN_CONNECTION) as flight:
        # Any call makes the connection.
        list(flight.list_actions())
        connected.wait()
        go.wait()
        began = time.monotonic()
        deadline = began + seconds
        epochs = range(1) if asked["epochs"] == 1 else itertools.count()
        try:
            for epoch in epochs:
                read(flight, asked, epoch, times, rows, deadline if asked["epochs"] != 1 else None)
                if time.monotonic() >= deadline:
                    break
        except pa.ArrowException as failure:
            error = str(failure)
    return {"began": began, "times": times, "rows": rows, "error": error}


def read(
    flight: fl.FlightClient,
    asked: dict[str, Any],
    epoch: int,
    times: list[float],
    rows: list[int],
    deadline: float | None,
) -> None:
    """Read an epoch, to its end or the deadline, and note its batches."""
    command = json.dumps({**asked["request"], "epoch": epoch}).encode()
    info = flight.get_flight_info(fl.FlightDescriptor.for_command(command))
    stream = flight.do_get(info.endpoints[asked["rank"]].ticket)
    for chunk in stream:
        now = time.monotonic()
        times.append(now)
        rows.append(chunk.data.num_rows)
        if deadline is not None and now >= deadline:
            stream.cancel()
            return


if __name__ == "__main__":
    main()
