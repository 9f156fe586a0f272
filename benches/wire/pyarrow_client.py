"""Reads a stream to its end with bare pyarrow. Arguments: address, number of batches. Prints a line of JSON."""

from __future__ import annotations

import json
import sys
import time

import pyarrow.flight as fl


def main() -> None:
    """Read the stream and print the seconds from the call to its end."""
    address, count = sys.argv[1:]
    with fl.connect(f"grpc://{address}") as client:
        # Open the connection and its flow-control windows before the clock starts.
        client.do_get(fl.Ticket(b"8")).read_all()
        begin = time.monotonic()
        reader = client.do_get(fl.Ticket(count.encode()))
        batches = rows = 0
        offsets: set[int] = set()
        for chunk in reader:
            batches, rows = batches + 1, rows + chunk.data.num_rows
            offsets.add(chunk.data.column(0).buffers()[-1].address % 64)
        seconds = time.monotonic() - begin
    if batches != int(count):
        raise SystemExit(f"{batches} batches received, not {count}")
    print(json.dumps({"rows": rows, "seconds": seconds, "address_mod_64": sorted(offsets)}))


if __name__ == "__main__":
    main()
