"""Batches of rows of similar length: padding, and the server's CPU seconds next to those of batches of any length.

The table has --rows rows of tokens, of lognormal lengths, in row groups of --row-group-rows rows. Each round reads a
shuffled epoch of each kind, the kinds one after the other: of any length, of eight buckets, and of 16,384 tokens. The
client is bare pyarrow on the same cores. Padding is what padding each row to the longest of its batch would add, as a
share of all elements.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.benches import machine
from harness.benches.bench_server import RunningServer, server_program
from harness.benches.noise import Noise
from harness.benches.reporting import say
from harness.serving import info, stored

FILES = 4
TOKENS = 16_384
KINDS: dict[str, dict[str, Any]] = {
    "any length": {"batch_size": 64},
    "boundaries": {
        "batch_size": 64,
        "bucket_by_length": {"column": "tokens", "boundaries": [64, 128, 192, 256, 384, 512, 1024]},
    },
    "max_tokens": {"batch_size": 1024, "bucket_by_length": {"column": "tokens", "max_tokens": TOKENS}},
}


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000, help="rows (%(default)s)")
    parser.add_argument("--row-group-rows", type=int, default=10_000, help="rows of a row group (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each kind (%(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw results, .json")
    options = parser.parse_args()
    program, noise = server_program(), Noise()
    run: dict[str, Any] = {"bench": "lengths", "command": " ".join(["benches/text/lengths.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "rows": options.rows, "row_group_rows": options.row_group_rows}
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        data = Path(scratch) / "rows"
        data.mkdir()
        for number in range(FILES):
            write(data / f"{number}.parquet", options.rows // FILES, number, options.row_group_rows)
        epochs: list[dict[str, Any]] = []
        state = Path(scratch) / "state"
        with RunningServer(program, {"rows": data}, state) as server, fl.connect(server.url) as client:
            for number in range(-1, options.rounds):
                for kind, fields in KINDS.items():
                    found = read(server, client, {**fields, "epoch": number + 1})
                    if number >= 0:
                        epochs.append({"kind": kind, **found})
                        say(json.dumps(epochs[-1]))
    means = {
        kind: {name: float(np.mean([epoch[name] for epoch in epochs if epoch["kind"] == kind])) for name in NUMBERS}
        for kind in KINDS
    }
    print(json.dumps(means, indent=1))
    if options.out:
        machine.keep(options.out, run | {"means": means, "epochs": epochs, "noise": noise.look()})


NUMBERS = ("steps", "padding", "first_batch_s", "wall_s", "server_cpu_s")


def write(file: Path, rows: int, seed: int, row_group_rows: int) -> None:
    """Write rows of tokens."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(5.0, 0.8, rows).astype(np.int32), 1, 2_048)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = random.integers(0, 50_000, offsets[-1], np.int32)
    tokens = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
    pq.write_table(pa.table({"tokens": tokens}), file, row_group_size=row_group_rows, compression="zstd")


def read(server: RunningServer, client: fl.FlightClient, fields: dict[str, Any]) -> dict[str, Any]:
    """Read an epoch."""
    before, start = server.cpu_seconds(), time.monotonic()
    plan = {"outputs": stored("tokens")}
    found = info(client, {"dataset": "rows", "plan": plan, "shuffle": True, "seed": 7, **fields})
    rows = steps = elements = padded = 0
    first = 0.0
    for chunk in client.do_get(found.endpoints[0].ticket):
        first = first or time.monotonic() - start
        lengths = pc.list_value_length(chunk.data["tokens"]).to_numpy()
        rows, steps = rows + len(lengths), steps + 1
        elements, padded = elements + int(lengths.sum()), padded + len(lengths) * int(lengths.max())
    wall, cpu = time.monotonic() - start, server.cpu_seconds() - before
    return {
        "rows": rows,
        "steps": steps,
        "padding": 1 - elements / padded,
        "first_batch_s": first,
        "wall_s": wall,
        "server_cpu_s": cpu,
    }


if __name__ == "__main__":
    main()
