"""Generates the load that the pictures show (server, Prometheus with prometheus.yml, clients) and draws the pictures.

    python grafana/picture_load.py --bin-dir target/release --minutes 10

All addresses are the defaults. It reads data/flights (`make demo` writes it) and data/criteo (`python -m
harness.benches.criteo` writes it), and needs `prometheus` on PATH, pyarrow and matplotlib. Four ranks of a trainer,
short epochs, exchanges, fits, and calls with an unknown dataset run throughout. After a third of the time two readers
run at full speed for a fifth of the time. From then on, streams that exceed the memory budget are requested.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import pictures

GRAFANA = Path(__file__).parent
ROOT = GRAFANA.parent
URL = "grpc://127.0.0.1:8815"
METRICS = "http://127.0.0.1:9815/metrics"
MEMORY_BYTES = 1536 << 20

CATEGORIES = [f"c{number}" for number in range(1, 27)]
TRAINING = {
    "outputs": [
        {
            "name": "dense",
            "parts": [
                {
                    "columns": [f"i{number}" for number in range(1, 14)],
                    "ops": [{"fill_null": {"value": 0}}, {"log1p": {}}],
                }
            ],
        },
        {
            "name": "cats",
            "dtype": "INT32",
            "parts": [
                {"columns": CATEGORIES, "ops": [{"hash_bucket": {"buckets": 100_003}}, {"fill_null": {"integer": 0}}]}
            ],
        },
        {"name": "label", "dtype": "UINT8", "parts": [{"columns": ["label"]}]},
    ]
}
# 16 kB per row, so that an epoch at full speed lasts a few minutes.
WIDE = {
    "outputs": [
        {"name": "hot", "parts": [{"columns": ["c2"], "ops": [{"hash_bucket": {"buckets": 4000}}, {"one_hot": {}}]}]}
    ]
}
FLIGHTS = {
    "filter": "arr_delay IS NOT NULL",
    "outputs": [{"name": "dense", "parts": [{"columns": ["dep_delay", "distance"], "ops": [{"log1p": {}}]}]}],
}
TO_FIT = {
    "outputs": [{"name": "carrier", "dtype": "INT32", "parts": [{"columns": ["carrier"], "ops": [{"vocab": {}}]}]}]
}
EXCHANGE = {"plan": {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"log1p": {}}]}]}]}}


@contextlib.contextmanager
def running(*command: str | Path) -> Generator[subprocess.Popen[bytes], None, None]:
    """Run a program until the block ends."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str) -> None:
    """Wait until a URL responds."""
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=10).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def get(client: fl.FlightClient, request: dict[str, Any]) -> None:
    """Read a stream to its end."""
    command = fl.FlightDescriptor.for_command(json.dumps(request))
    client.do_get(client.get_flight_info(command).endpoints[0].ticket).read_all()


def exchange(client: fl.FlightClient) -> None:
    """Send batches of a thousand rows and read the answers."""
    batch = pa.RecordBatch.from_pydict({"x": np.arange(1000.0)})
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(json.dumps(EXCHANGE)))
    with writer:
        writer.begin(batch.schema)
        for _ in range(10):
            writer.write_batch(batch)
            reader.read_chunk()
        writer.done_writing()


def fit(client: fl.FlightClient) -> None:
    """Fit a vocabulary."""
    list(client.do_action(fl.Action("fit", json.dumps({"dataset": "flights", "plan": TO_FIT}).encode())))


def exceed_budget(client: fl.FlightClient) -> None:
    """Request a stream that exceeds the memory budget."""
    get(client, {"dataset": "criteo", "plan": TRAINING, "batch_size": 4_000_000})


def repeat(stopped: threading.Event, every: float, call: Callable[[fl.FlightClient], None]) -> None:
    """Call `call` every `every` seconds; errors are expected."""
    with fl.connect(URL) as client:
        while not stopped.wait(every):
            with contextlib.suppress(pa.ArrowException, fl.FlightError, OSError):
                call(client)


def read(bin_dir: Path, seconds: float, dataset: str, plan: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start `forebay load`."""
    command = [str(bin_dir / "forebay"), "load", dataset, "--plan", str(plan), "--duration", f"{seconds:.0f}", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def put_load_on(bin_dir: Path, folder: Path, seconds: float) -> None:
    """Run all clients for `seconds`, and draw the pictures before they end."""
    plans = {name: folder / f"{name}.json" for name in ("criteo", "flights", "wide")}
    for name, plan in (("criteo", TRAINING), ("flights", FLIGHTS), ("wide", WIDE)):
        plans[name].write_text(json.dumps(plan))
    stopped = threading.Event()
    unknown = {"dataset": "no such dataset", "plan": FLIGHTS}
    calls: list[tuple[float, Callable[[fl.FlightClient], None]]] = [(0.5, exchange), (20, fit)]
    calls.append((7, lambda client: get(client, unknown)))
    threads = [threading.Thread(target=repeat, args=(stopped, *each)) for each in calls]
    for thread in threads:
        thread.start()
    ranks = ("--batch-size", "2048", "--shuffle", "--world-size", "4", "--clients", "4", "--rate", "1.5")
    trainer = read(bin_dir, seconds, "criteo", plans["criteo"], *ranks)
    short = read(bin_dir, seconds, "flights", plans["flights"], "--batch-size", "8192", "--rate", "4")
    time.sleep(seconds / 3)
    threads.append(threading.Thread(target=repeat, args=(stopped, 5, exceed_budget)))
    threads[-1].start()
    greedy = read(bin_dir, seconds / 5, "criteo", plans["wide"], "--batch-size", "256", "--streams", "2")
    time.sleep(2 * seconds / 3 - 20)
    # Draw while streams are open.
    pictures.draw("http://127.0.0.1:9090", minutes=(seconds - 20) / 60, rate_interval="1m")
    stopped.set()
    for thread in threads:
        thread.join()
    print("exit codes of forebay load:", trainer.wait(), short.wait(), greedy.wait())


def main() -> None:
    """Start server and Prometheus, run the load and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bin-dir", type=Path, default=ROOT / "target/release", help="folder of forebay and forebay-server"
    )
    parser.add_argument("--minutes", type=float, default=10, help="duration of the load")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        datasets = [f"--dataset={name}={ROOT / 'data' / name}" for name in ("flights", "criteo")]
        server = [arguments.bin_dir / "forebay-server", "--exit-with-stdin", "--state", f"{folder}/state"]
        stack.enter_context(running(*server, "--memory-limit-bytes", str(MEMORY_BYTES), *datasets))
        wait_for(METRICS)
        config = f"--config.file={GRAFANA / 'prometheus/prometheus.yml'}"
        stack.enter_context(running("prometheus", config, f"--storage.tsdb.path={folder}/prometheus"))
        wait_for("http://127.0.0.1:9090/-/ready")
        put_load_on(arguments.bin_dir, Path(folder), 60 * arguments.minutes)


if __name__ == "__main__":
    main()
