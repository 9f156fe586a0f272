"""Requests and time of a stream whose filter keeps one folder of a partitioned dataset of many files.

    FOREBAY_SERVER_BIN=target/release/forebay-server python benches/epochs/narrowed.py [--folders 100] [--files 1000]

Writes one small file for each folder and number to a temporary folder as hard links, starts a server on a loopback
port and prints one JSON object: per step its seconds, the lists and reads of storage that it caused, and the server's
CPU seconds and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.benches.processes import process_cpu_seconds

ROWS = 10
WARM_CALLS = 10


def write(folder: Path, folders: int, files: int) -> None:
    """Write the originals, one a number because a file has few links on some systems, and a link in each folder."""
    originals = folder.with_name("originals")
    originals.mkdir()
    for number in range(files):
        table = pa.table({"id": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())})
        pq.write_table(table, originals / f"{number:05}.parquet", compression="none")
    for day in range(folders):
        (folder / f"day={day}").mkdir(parents=True)
        for number in range(files):
            os.link(originals / f"{number:05}.parquet", folder / f"day={day}/{number:05}.parquet")


class Server:
    """A server of the dataset, with the seconds until it was ready."""

    def __init__(self, folder: Path, state: Path) -> None:
        begun = time.monotonic()
        listen = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--exit-with-stdin"]
        command = [os.environ["FOREBAY_SERVER_BIN"], "--dataset", f"data={folder}", "--state", str(state), *listen]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.metrics_url = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if match := re.search(r"metrics on (\S+)", line):
                self.metrics_url = match[1]
            if match := re.search(r"listening on (grpc\S+)", line):
                self.url = match[1]
            if self.url and self.metrics_url:
                break
        else:
            sys.exit("the server did not start")
        self.ready_seconds = time.monotonic() - begun

    def requests(self) -> dict[str, int]:
        """Return the requests to storage so far, by operation."""
        text = urllib.request.urlopen(self.metrics_url).read().decode()
        found = re.findall(r'forebay_storage_requests_total\{operation="(\w+)",status="ok"\} (\d+)', text)
        return {operation: int(count) for operation, count in found if operation in ("get", "list")}

    def memory_bytes(self) -> int:
        """Return the resident memory."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0

    def cpu_seconds(self) -> float:
        """Return the CPU seconds so far."""
        return process_cpu_seconds(self.process.pid)

    def step(self, work: Callable[[], object]) -> dict[str, float]:
        """Run work and return its seconds and the requests and memory of the server."""
        before, cpu, begun = self.requests(), self.cpu_seconds(), time.perf_counter()
        work()
        seconds, cpu = time.perf_counter() - begun, self.cpu_seconds() - cpu
        after = self.requests()
        counts = {operation: after[operation] - before.get(operation, 0) for operation in after}
        times = {"seconds": round(seconds, 3), "server_cpu_seconds": round(cpu, 2)}
        return {**times, **counts, "memory_bytes": self.memory_bytes()}


def stream(**plan: object) -> fl.FlightDescriptor:
    """Return the descriptor of a stream of the dataset."""
    outputs = [{"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}]
    return fl.FlightDescriptor.for_command(
        json.dumps({"dataset": "data", "plan": {"outputs": outputs, **plan}}).encode()
    )


def measure(server: Server, rows_of_folder: int) -> dict[str, object]:
    """Time the steps of a new server: a filtered epoch first, and then one of all files."""
    with fl.connect(server.url) as client:
        one, other = stream(filter="day = 7"), stream(filter="day = 8")

        def epoch(descriptor: fl.FlightDescriptor) -> None:
            info = client.get_flight_info(descriptor)
            rows = client.do_get(info.endpoints[0].ticket).read_all().num_rows
            if rows != rows_of_folder:
                sys.exit(f"the epoch had {rows} rows, not {rows_of_folder}")

        return {
            "first_info_of_one_folder": server.step(lambda: client.get_flight_info(one)),
            "epoch_of_one_folder": server.step(lambda: epoch(one)),
            f"{WARM_CALLS}_infos": server.step(lambda: [client.get_flight_info(one) for _ in range(WARM_CALLS)]),
            "epoch_of_another_folder": server.step(lambda: epoch(other)),
            "first_info_of_all_files": server.step(lambda: client.get_flight_info(stream())),
            f"{WARM_CALLS}_infos_of_all_files": server.step(
                lambda: [client.get_flight_info(stream()) for _ in range(WARM_CALLS)]
            ),
        }


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=100)
    parser.add_argument("--files", type=int, default=1000, help="files per folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as temporary:
        folder = Path(temporary) / "data"
        write(folder, arguments.folders, arguments.files)
        server = Server(folder, Path(temporary) / "state")
        try:
            result: dict[str, object] = {
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
                "server": os.path.relpath(os.environ["FOREBAY_SERVER_BIN"]),
                "files": arguments.folders * arguments.files,
                "files_of_one_folder": arguments.files,
                "ready_seconds": round(server.ready_seconds, 3),
                "requests_until_ready": server.requests(),
                "steps": measure(server, arguments.files * ROWS),
            }
            print(json.dumps(result, indent=1))
        finally:
            server.process.kill()
            server.process.wait()


if __name__ == "__main__":
    main()
