"""Cost of GetFlightInfo over a snapshot of many row groups or files.

    FOREBAY_SERVER_BIN=target/release/forebay-server python benches/epochs/flight_info.py [--files 100] [--groups 10000]

Writes files with one row per row group to a temporary folder, starts a server on a loopback port and prints one JSON
object: per kind of request the median, minimum and maximum milliseconds of 20 warm calls and the largest ticket.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

CALLS = 20
PLAN = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}


def write(folder: Path, files: int, groups: int) -> None:
    """Write one file of `groups` row groups and copy it; a snapshot identifies files by path."""
    table = pa.table({"x": pa.array(range(groups), pa.int32())})
    first = folder / "00000.parquet"
    pq.write_table(table, first, row_group_size=1, write_statistics=False, use_dictionary=False, compression="none")
    for number in range(1, files):
        shutil.copyfile(first, folder / f"{number:05}.parquet")


def start(folder: Path, state: Path) -> tuple[subprocess.Popen[str], str, float]:
    """Start a server; return its process, its URL and the seconds until it was ready."""
    begun = time.monotonic()
    listen = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--exit-with-stdin"]
    command = [os.environ["FOREBAY_SERVER_BIN"], "--dataset", f"data={folder}", "--state", str(state), *listen]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        if match := re.search(r"listening on (grpc\S+)", line):
            return server, match[1], time.monotonic() - begun
    sys.exit("the server did not start")


def measure(client: fl.FlightClient, descriptor: fl.FlightDescriptor) -> dict[str, float]:
    """Time a first call, which may read footers, and then warm calls."""
    first = time.perf_counter()
    info = client.get_flight_info(descriptor)
    times = [time.perf_counter() - first]
    for _ in range(CALLS):
        begun = time.perf_counter()
        client.get_flight_info(descriptor)
        times.append(time.perf_counter() - begun)
    warm = [seconds * 1e3 for seconds in times[1:]]
    return {
        "first_ms": round(times[0] * 1e3, 2),
        "median_ms": round(statistics.median(warm), 2),
        "min_ms": round(min(warm), 2),
        "max_ms": round(max(warm), 2),
        "ticket_bytes_max": max(len(endpoint.ticket.ticket) for endpoint in info.endpoints),
        "endpoints": len(info.endpoints),
        "records": info.total_records,
    }


def stream(**fields: object) -> fl.FlightDescriptor:
    """Return the descriptor of a stream of the dataset."""
    request = {"dataset": "data", "plan": PLAN, **fields}
    return fl.FlightDescriptor.for_command(json.dumps(request).encode())


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024  # type: ignore[index]


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--groups", type=int, default=10_000, help="row groups per file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as temporary:
        folder, state = Path(temporary) / "data", Path(temporary) / "state"
        folder.mkdir()
        write(folder, arguments.files, arguments.groups)
        server, url, open_seconds = start(folder, state)
        try:
            with fl.connect(url) as client:
                result: dict[str, object] = {
                    "cores": os.cpu_count(),
                    "load": os.getloadavg()[0],
                    "server": os.path.relpath(os.environ["FOREBAY_SERVER_BIN"]),
                    "files": arguments.files,
                    "row_groups": arguments.files * arguments.groups,
                    "open_seconds": round(open_seconds, 2),
                    "table": measure(client, fl.FlightDescriptor.for_path("data")),
                    "unshuffled": measure(client, stream()),
                    "unshuffled_world_16": measure(client, stream(world_size=16)),
                }
                try:
                    result["shuffled_world_16"] = measure(client, stream(world_size=16, shuffle=True, seed=7))
                except (fl.FlightError, pa.ArrowException) as error:
                    result["shuffled_world_16"] = str(error).splitlines()[0]
                result["server_memory_bytes"] = memory_bytes(server.pid)
            print(json.dumps(result, indent=1))
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
