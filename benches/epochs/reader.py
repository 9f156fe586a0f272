"""A rank's reader process with bare pyarrow, without Forebay's Python package.

Each line of JSON on stdin is answered with one on stdout. `{"url", "request", "rank"}` opens a new client and requests
the flight; `{}` reads the rank's stream to its end and returns counts and times. Times are of the monotonic clock,
which the processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pyarrow.flight as fl


def main() -> None:
    """Serve epochs until stdin closes."""
    while line := sys.stdin.readline():
        command = json.loads(line)
        before = time.monotonic()
        with fl.connect(command["url"]) as client:
            info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(command["request"])))
            ticket = info.endpoints[command["rank"]].ticket
            write({"info_seconds": time.monotonic() - before})
            if not sys.stdin.readline():
                return
            write({"rank": command["rank"], **read(client, ticket)})


def read(client: fl.FlightClient, ticket: fl.Ticket) -> dict[str, Any]:
    """Read the stream to its end; the last header must be marked as such."""
    rows = batches = body_bytes = 0
    header: dict[str, Any] = {}
    cpu_before, begin = time.process_time(), time.monotonic()
    first = begin
    stream = client.do_get(ticket)
    while True:
        try:
            chunk = stream.read_chunk()
        except StopIteration:
            break
        if not batches:
            first = time.monotonic()
        header = json.loads(chunk.app_metadata.to_pybytes())
        if header["rows"] != chunk.data.num_rows:
            raise SystemExit(f"step {header['step']}: {chunk.data.num_rows} rows, but the header says {header['rows']}")
        rows, batches, body_bytes = rows + header["rows"], batches + 1, body_bytes + chunk.data.nbytes
    end = time.monotonic()
    if not header.get("last"):
        raise SystemExit("the stream ended without its last batch")
    return {
        "rows": rows,
        "batches": batches,
        "bytes": body_bytes,
        "begin": begin,
        "end": end,
        "first_batch_seconds": first - begin,
        "reader_cpu_seconds": time.process_time() - cpu_before,
    }


def write(answer: dict[str, Any]) -> None:
    """Write a line of JSON."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
