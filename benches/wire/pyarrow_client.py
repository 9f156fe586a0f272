"""Reads a stream to its end. Arguments: transport, address, number of batches. Prints a line of JSON.

The transport is `tcp` or `unix`, with bare pyarrow, or `ring` or `native`, with Forebay's client. Values are not
touched.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as fl

from forebay import Credentials
from forebay._client.connection import Connection
from forebay._client.native import open_native
from forebay._client.ring import RingReader


def main() -> None:
    """Read the stream and print the seconds from the call to its end."""
    transport, address, count = sys.argv[1:]
    if transport == "ring":
        measure(lambda number: through_ring(address, number), int(count))
        return
    if transport == "native":
        measure(lambda number: through_module(address, number), int(count))
        return
    url = f"grpc+unix://{address}" if transport == "unix" else f"grpc://{address}"
    # gRPC's authority of a Unix socket is invalid HTTP/2.
    options: list[tuple[str, int | str]] = [("grpc.default_authority", "localhost")] if transport == "unix" else []
    with fl.connect(url, generic_options=options) as client:
        measure(lambda number: over_flight(client, number), int(count))


def over_flight(client: fl.FlightClient, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a DoGet."""
    for chunk in client.do_get(fl.Ticket(str(count).encode())):
        assert chunk.data is not None
        yield chunk.data


def through_ring(path: str, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a ring."""
    reader = RingReader(path, [], str(count).encode())
    try:
        while True:
            yield reader.read().data
    except StopIteration:
        reader.close()


def through_module(address: str, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a call through the native module."""
    reader = open_native(Connection(f"grpc://{address}", Credentials()), str(count).encode())
    if reader is None:
        raise SystemExit("the package has no native module: make build")
    try:
        while True:
            yield reader.read().data
    except StopIteration:
        reader.close()


def measure(read: Callable[[int], Iterator[pa.RecordBatch]], count: int) -> None:
    """Read the stream and print the figures."""
    # Open the connection and its flow-control windows before the clock starts.
    assert sum(1 for _ in read(8)) == 8
    begin, cpu = time.monotonic(), cpu_seconds()
    batches = rows = 0
    offsets: set[int] = set()
    for data in read(count):
        batches, rows = batches + 1, rows + data.num_rows
        offsets.add(data.column(0).buffers()[-1].address % 64)
    seconds, cpu = time.monotonic() - begin, cpu_seconds() - cpu
    if batches != count:
        raise SystemExit(f"{batches} batches received, not {count}")
    figures = {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "address_mod_64": sorted(offsets)}
    print(json.dumps(figures))


def cpu_seconds() -> float:
    """Return CPU seconds of this process, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
