"""Decoding images: Forebay's stream next to torchvision's DataLoader, LitData and SPDL.

Every way turns the same JPEG files into uint8 batches [64, 224, 224, 3] in file order: the training form with random
crops and flips, the evaluation form with the centre. The ways:

- `stream`: a server with `decode_image`, read by one client.
- `torchvision`: a DataLoader of 2 workers over the bytes in memory; Pillow decodes.
- `litdata`: a StreamingDataLoader of 2 workers over the bytes, which `optimize` has written before; Pillow decodes.
- `spdl`: a pipeline whose decoding stage has 2 threads; Pillow decodes.

Wall seconds, and CPU seconds of this process, its children and the server. Pixels of the evaluation form are compared
with Pillow's, and the distribution of their differences is part of the run. The raw numbers are kept with --out. A
comparison needs a release build of the server, and the packages of requirements.txt.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import forebay as fb
from harness.benches import machine
from harness.benches.bench_server import server_program
from harness.benches.processes import cpu_seconds
from harness.benches.reporting import say
from harness.daemon import LOOPBACK, Daemon
from loaders import PEERS, SIZE, fitted

BATCH_ROWS = 64

Way = Callable[[], Iterator["np.ndarray[Any, Any]"]]
"""Yields batches [rows, height, width, channels]."""


def main() -> None:
    """Measure, compare, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1_000)
    parser.add_argument("--ways", nargs="+", default=["stream", *PEERS], choices=["stream", *PEERS])
    parser.add_argument("--out", type=Path, help="file for the raw numbers, JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as temporary:
        folder = Path(temporary)
        files = photographs(options.images)
        table = pa.table({"image": files})
        pq.write_table(table, folder / "images.parquet", row_group_size=BATCH_ROWS, compression="none")
        server = Daemon(*LOOPBACK, "--dataset", f"images={folder / 'images.parquet'}", "--state", str(folder / "state"))
        run: dict[str, Any] = {
            "bench": "images",
            "command": " ".join(["benches/images/run.py", *sys.argv[1:]]),
            "machine": machine.facts(server_program()),
            "load": os.getloadavg(),
            "images": len(files),
            "jpeg_bytes": sum(map(len, files)),
        }
        try:
            with fb.connect(server.url) as client:
                for form in ("training", "evaluation"):
                    named = ways(client, files, folder / form, form, options.ways)
                    run[form] = measure(form, named, len(files), server.process.pid, options.rounds)
                run["differences"] = differences(stream(client, "evaluation"), files)
        finally:
            server.stop()
    if options.out is not None:
        options.out.write_text(json.dumps(run, indent=1) + "\n")


def photographs(count: int) -> list[bytes]:
    """Make JPEG files of about 500 by 375 pixels: parts of the photographs that scikit-learn has, noisy and turned."""
    random = np.random.default_rng(1)
    sources = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    files: list[bytes] = []
    for number in range(count):
        source = sources[number % len(sources)].rotate(
            float(random.uniform(-20, 20)), Image.Resampling.BILINEAR, expand=False
        )
        width, height = int(random.integers(400, 600)), int(random.integers(320, 420))
        left, top = int(random.integers(0, 641 - width)), int(random.integers(0, 428 - height))
        pixels = np.asarray(source.crop((left, top, left + width, top + height)), np.int16)
        noisy = np.clip(pixels + random.integers(-6, 7, pixels.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "jpeg", quality=int(random.integers(80, 96)))
        files.append(file.getvalue())
    return files


def stream(client: fb.Client, form: str) -> Way:
    """Return the way of the server."""
    image = fb.cols("image")
    training = image.decode_image(SIZE, SIZE, crop="random", flip=True)
    evaluation = image.decode_image(SIZE, SIZE, crop="center")
    plan = fb.Plan(outputs={"image": training if form == "training" else evaluation})

    def read() -> Iterator[np.ndarray[Any, Any]]:
        for batch in client.stream("images", plan, batch_size=BATCH_ROWS):
            yield np.asarray(batch["image"])

    return read


def ways(client: fb.Client, files: list[bytes], folder: Path, form: str, names: list[str]) -> dict[str, Way]:
    """Return the ways by name."""
    found: dict[str, Way] = {}
    for name in names:
        found[name] = stream(client, form) if name == "stream" else PEERS[name](files, folder, form, BATCH_ROWS)
    return found


def measure(form: str, measured: dict[str, Way], images: int, server: int, rounds: int) -> dict[str, Any]:
    """Return wall and CPU seconds of each way, in rounds of all ways, after one that warms up."""
    seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in measured}
    for number in range(rounds + 1):
        for name, way in measured.items():
            wall, cpu = time.perf_counter(), cpu_seconds(server)
            rows = sum(consumed(batch) for batch in way())
            if rows != images:
                raise SystemExit(f"{name}: {rows} images instead of {images}")
            if number:
                seconds[name]["wall"].append(time.perf_counter() - wall)
                seconds[name]["cpu"].append(cpu_seconds(server) - cpu)
    for name, both in seconds.items():
        wall, cpu = (statistics.median(both[kind]) for kind in ("wall", "cpu"))
        say(f"{form:>10} {name:>12} {wall:>8.3f} s {cpu:>8.3f} CPU s {images / wall:>10,.0f} images/s")
    return seconds


def consumed(batch: np.ndarray[Any, Any]) -> int:
    """Check the form of a batch, and return its rows."""
    if batch.shape[1:] != (SIZE, SIZE, 3) or batch.dtype != np.uint8:
        raise SystemExit(f"a batch has the form {batch.shape} of {batch.dtype}")
    torch.from_numpy(batch) if batch.flags.writeable else torch.from_numpy(batch.copy())
    return len(batch)


def differences(way: Way, files: list[bytes]) -> dict[str, float]:
    """Return how far the pixels of the evaluation form are from Pillow's."""
    found = np.concatenate(list(way())).astype(np.int16)
    counts = np.zeros(256, np.int64)
    for pixels, file in zip(found, files, strict=True):
        counts += np.bincount(np.abs(pixels - np.asarray(fitted(file), np.int16)).ravel(), minlength=256)
    total = int(counts.sum())
    shares = {f"within_{bound}": float(counts[: bound + 1].sum() / total) for bound in (0, 1, 2, 3)}
    shares["largest"] = float(np.flatnonzero(counts).max())
    equal, near, largest = shares["within_0"], shares["within_1"], shares["largest"]
    say(f"pixels: {equal:.4%} equal to Pillow's, {near:.4%} within 1, largest difference {largest:.0f}")
    return shares


if __name__ == "__main__":
    main()
