"""Streams at full speed with bare pyarrow, each over its own connection.

Reads one JSON line from stdin, `{"url", "requests": [StreamRequest, …]}`, opens all streams and prints a line. Then
answers every line with each stream's rows and batches so far, the time, and this process's CPU seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as fl

from harness.benches.bench_server import OWN_CONNECTION


@dataclass
class Reader:
    """Progress of one stream."""

    rows: int = 0
    batches: int = 0
    ended: str = ""


def main() -> None:
    """Read until stdin ends."""
    order = json.loads(sys.stdin.readline())
    readers = [Reader() for _ in order["requests"]]
    begun = threading.Barrier(len(readers) + 1)
    for reader, request in zip(readers, order["requests"], strict=True):
        threading.Thread(target=read, args=(order["url"], request, reader, begun), daemon=True).start()
    begun.wait()
    print("running", flush=True)
    for _ in sys.stdin:
        answer = {
            "time": time.monotonic(),
            "cpu_seconds": time.process_time(),
            "rows": [reader.rows for reader in readers],
            "batches": [reader.batches for reader in readers],
            "ended": [reader.ended for reader in readers if reader.ended],
        }
        print(json.dumps(answer), flush=True)


def read(url: str, request: dict[str, object], reader: Reader, begun: threading.Barrier) -> None:
    """Read batches. A stream that ends is not reopened and is reported as a failure."""
    try:
        with fl.FlightClient(url, generic_options=OWN_CONNECTION) as client:
            info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request).encode()))
            stream = client.do_get(info.endpoints[0].ticket)
            reader.rows += stream.read_chunk().data.num_rows
            begun.wait()
            for chunk in stream:
                reader.rows += chunk.data.num_rows
                reader.batches += 1
        reader.ended = "read to its end"
    except (pa.ArrowException, OSError) as error:
        reader.ended = str(error)[:500]
        begun.abort()


if __name__ == "__main__":
    main()
