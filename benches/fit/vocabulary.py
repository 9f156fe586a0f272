"""Fits of vocabularies of tens of millions of distinct strings under a memory limit, through a real server (Linux).

The data is generated in a temporary folder: `distinct` strings of 16 hexadecimal digits in pseudorandom order, `hot` of
which occur 10 more times. The column is fitted twice: `min_count` 10 keeps exactly the hot strings, which are compared
with the written ones, and `max_size` 1000 keeps the first thousand of them. The bench measures seconds, the server's
resident memory before and at its peak, and the peak size of the spill folder.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

# The server and the machine are those of the benches of whole epochs.
from harness.benches import machine
from harness.benches.bench_server import DATASET, Server, server_program

ROWS_PER_FILE = 1_000_000
DIGITS = 16
HOT_REPEATS = 10
MAX_SIZE = 1000
SAMPLE_SECONDS = 0.2
LETTERS = np.frombuffer(b"0123456789abcdef", np.uint8)


def numbers(start: int, stop: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return distinct 64-bit numbers in pseudorandom order: the finalizer of SplitMix64, which is a bijection."""
    z = np.arange(start, stop, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def strings(start: int, stop: int) -> pa.Array:
    """Return the values of a range of indices, 16 hexadecimal digits each."""
    octets = numbers(start, stop).astype(">u8").view(np.uint8)
    letters = np.empty(octets.size * 2, np.uint8)
    letters[0::2], letters[1::2] = LETTERS[octets >> 4], LETTERS[octets & 15]
    offsets = np.arange(0, (stop - start + 1) * DIGITS, DIGITS, dtype=np.int32)
    return pa.StringArray.from_buffers(stop - start, pa.py_buffer(offsets), pa.py_buffer(letters))  # pyright: ignore[reportArgumentType]


def generate(folder: Path, distinct: int, hot: int) -> int:
    """Write the files, with the repeated hot values distributed over all of them; return the number of rows."""
    starts = range(0, distinct, ROWS_PER_FILE)
    repeats = np.tile(np.arange(hot), HOT_REPEATS)
    shares = np.array_split(repeats, len(starts))
    hot_values = strings(0, hot)
    rows = 0
    for number, (start, share) in enumerate(zip(starts, shares, strict=True)):
        own = strings(start, min(start + ROWS_PER_FILE, distinct))
        values = pa.concat_arrays([own, hot_values.take(pa.array(share))])  # pyright: ignore[reportArgumentType]
        pq.write_table(pa.table({"value": values}), folder / f"part-{number:05}.parquet", use_dictionary=False)
        rows += len(values)
    return rows


class Watch:
    """Peak size of a folder, sampled several times a second."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.peak_bytes = folder, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, folder_bytes(self._folder))


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files below a folder."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def fit(server: Server, vocab: dict[str, int]) -> tuple[dict[str, Any], list[str]]:
    """Fit one vocabulary; return the measurements and the vocabulary's values."""
    part = {"columns": ["value"], "ops": [{"vocab": vocab}]}
    plan = {"outputs": [{"name": "id", "dtype": "INT32", "parts": [part]}]}
    action = fl.Action("fit", json.dumps({"dataset": DATASET, "plan": plan}).encode())
    reset = server.reset_peak_rss()
    before = server.peak_rss_bytes()
    start = time.perf_counter()
    read_seconds, result = 0.0, None
    with fl.connect(server.url) as client, Watch(server.state / "spill") as watch:
        for update in client.do_action(action):
            fields = json.loads(update.body.to_pybytes())
            if progress := fields.get("progress"):
                if progress["rows_done"] == progress["rows_total"]:
                    read_seconds = time.perf_counter() - start
            else:
                result = fields["result"]
    seconds = time.perf_counter() - start
    assert result is not None
    values = result["plan"]["outputs"][0]["parts"][0]["ops"][0]["vocab"]["values"]["strings"]
    measured = {
        "vocab": vocab,
        "seconds": seconds,
        "seconds_until_the_last_row_was_read": read_seconds,
        "server_rss_before_bytes": before,
        "server_peak_rss_bytes": server.peak_rss_bytes(),
        "peak_rss_is_of_this_fit": reset,
        "spill_peak_bytes": watch.peak_bytes,
        "spill_left_bytes": folder_bytes(server.state / "spill"),
        "vocabulary": len(values),
    }
    return measured, values


def main() -> None:
    """Measure, check the vocabularies, and write the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--distinct", type=int, default=50_000_000)
    parser.add_argument("--hot", type=int, default=100_000)
    parser.add_argument("--fit-memory-bytes", type=int, default=1 << 30)
    parser.add_argument("--out", type=Path, default=machine.run_folder() / "fit_vocabulary.json")
    options = parser.parse_args()
    program = server_program()
    run: dict[str, Any] = {"bench": "fit_vocabulary", "machine": machine.facts(program)}
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        folder = Path(scratch)
        rows = generate(folder, options.distinct, options.hot)
        run["data"] = {
            "distinct": options.distinct,
            "hot": options.hot,
            "rows": rows,
            "value_bytes": DIGITS,
            "stored_bytes": folder_bytes(folder),
        }
        run["fit_memory_bytes"] = options.fit_memory_bytes
        run["fits"] = []
        expected = sorted(strings(0, options.hot).to_pylist())  # pyright: ignore[reportArgumentType]
        for vocab, kept in [({"min_count": HOT_REPEATS}, expected), ({"max_size": MAX_SIZE}, expected[:MAX_SIZE])]:
            with Server(program, folder, "--fit-memory-bytes", str(options.fit_memory_bytes)) as server:
                measured, values = fit(server, vocab)
            # All hot values have the same count, so they are ordered by value.
            assert values == kept, f"{vocab}: the vocabulary differs from the data"
            print(json.dumps(measured, indent=1))
            run["fits"].append(measured)
    machine.keep(options.out, run)


if __name__ == "__main__":
    main()
