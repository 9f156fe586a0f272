"""Clients as threads of one process, each with its own connection, with bare pyarrow.

Reads one JSON object from stdin, `{"url", "clients": [{"request", "rank", "epochs"}], "seconds"}`; connects all,
prints a line and waits for one. Then every client reads: one epoch if `epochs` is 1, else epochs until `seconds` have
passed. Prints the arrival time of each batch, by the monotonic clock, which processes share.
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
    """Run one command."""
    command = json.loads(sys.stdin.readline())
    go = threading.Event()
    connected = threading.Barrier(len(command["clients"]) + 1)
    with ThreadPoolExecutor(len(command["clients"])) as pool:
        clients = [
            pool.submit(client, command["url"], each, command["seconds"], connected, go) for each in command["clients"]
        ]
        connected.wait()
        print("connected", flush=True)
        sys.stdin.readline()
        go.set()
        print(json.dumps([each.result() for each in clients]), flush=True)


def client(
    url: str, options: dict[str, Any], seconds: float, connected: threading.Barrier, go: threading.Event
) -> dict[str, Any]:
    """Run one client; return the arrival times of its batches and its error."""
    times: list[float] = []
    rows: list[int] = []
    error = ""
    with fl.FlightClient(url, generic_options=OWN_CONNECTION) as flight:
        # Any call opens the connection.
        list(flight.list_actions())
        connected.wait()
        go.wait()
        began = time.monotonic()
        deadline = began + seconds
        epochs = range(1) if options["epochs"] == 1 else itertools.count()
        try:
            for epoch in epochs:
                read(flight, options, epoch, times, rows, deadline if options["epochs"] != 1 else None)
                if time.monotonic() >= deadline:
                    break
        except pa.ArrowException as failure:
            error = str(failure)
    return {"began": began, "times": times, "rows": rows, "error": error}


def read(
    flight: fl.FlightClient,
    options: dict[str, Any],
    epoch: int,
    times: list[float],
    rows: list[int],
    deadline: float | None,
) -> None:
    """Read an epoch to its end or the deadline, and record its batches."""
    request = json.dumps({**options["request"], "epoch": epoch}).encode()
    info = flight.get_flight_info(fl.FlightDescriptor.for_command(request))
    stream = flight.do_get(info.endpoints[options["rank"]].ticket)
    for chunk in stream:
        now = time.monotonic()
        times.append(now)
        rows.append(chunk.data.num_rows)
        if deadline is not None and now >= deadline:
            stream.cancel()
            return


if __name__ == "__main__":
    main()
