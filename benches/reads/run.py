"""Bytes read from storage by an epoch whose lanes begin and end within row groups, with and without page indexes.

One server has the same rows in three files: without an index of pages, with one of the writer's default pages, and with
one of smaller pages. An epoch of each is read by different numbers of ranks, one rank after the other, so that no rank
uses what another one has fetched; the last case is read by all ranks at once, too. Results are counts, which do not
depend on the build of the server or on the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.benches import machine
from harness.benches.bench_server import OWN_CONNECTION, RunningServer, server_program
from harness.benches.reporting import say

READ_BYTES = "forebay_storage_read_bytes_total"
GOAL = 1.1
# Options of pyarrow's writer.
FILES: dict[str, dict[str, Any]] = {
    "no index": {},
    "20,000 rows a page": {"write_page_index": True, "max_rows_per_page": 20_000},
    "8,192 rows a page": {"write_page_index": True, "max_rows_per_page": 8192},
}
# Ranks and lanes.
CASES = ((1, 16), (4, 16), (16, 16), (64, 64))
OUTPUTS = [
    {"name": "dense", "parts": [{"columns": ["x", "y"]}]},
    {"name": "word", "dtype": "AS_STORED", "parts": [{"columns": ["word"]}]},
]


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program = server_program()
    run: dict[str, Any] = {"bench": "reads", "command": " ".join(["benches/reads/run.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "row_groups": options.row_groups, "goal": GOAL}
    visits: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        datasets = {f"file{place}": Path(folder) / f"{place}.parquet" for place in range(len(FILES))}
        run["rows"] = write(options, list(datasets.values()))
        with RunningServer(program, datasets, Path(folder) / "state") as server:
            for name, file in zip(datasets, FILES, strict=True):
                for ranks, lanes in CASES:
                    request = {"dataset": name, "plan": {"outputs": OUTPUTS}, "batch_size": 4096, "shuffle": True}
                    request |= {"seed": 1, "world_size": ranks, "lanes": lanes}
                    ways = (False, True) if ranks == CASES[-1][0] else (False,)
                    for at_once in ways:
                        case = {"file": file, "ranks": ranks, "lanes": lanes, "at_once": at_once}
                        visits.append({**case, **visit(server, request, at_once=at_once, rows=run["rows"])})
                        say(json.dumps(visits[-1]))
    run["visits"] = visits
    if options.out:
        machine.keep(options.out, run)


def write(options: argparse.Namespace, paths: list[Path]) -> int:
    """Write the files, with row groups of different sizes; return the number of rows."""
    random = np.random.default_rng(7)
    sizes = random.integers(options.rows * 3 // 4, options.rows * 5 // 4, options.row_groups)
    # A reader of any page needs the dictionary: numbers that do not repeat have none.
    writers = [
        pq.ParquetWriter(path, schema(), use_dictionary=cast(Any, ["word"]), **more)
        for path, more in zip(paths, FILES.values(), strict=True)
    ]
    for rows in sizes.tolist():
        words = pa.array([f"word {value}" for value in range(500)])
        word = pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 500, rows), pa.int32()), words)
        columns = {"x": random.normal(size=rows), "y": random.normal(size=rows).astype(np.float32)}
        made = pa.table({**columns, "word": word.cast(pa.string())}, schema())
        for writer in writers:
            writer.write_table(made, row_group_size=rows)
    for writer in writers:
        writer.close()
    return int(sizes.sum())


def schema() -> pa.Schema:
    """Return the columns: numbers that do not repeat, and text that does."""
    return pa.schema([("x", pa.float64()), ("y", pa.float32()), ("word", pa.string())])


def visit(server: RunningServer, request: dict[str, Any], *, at_once: bool, rows: int) -> dict[str, Any]:
    """Read one epoch; return the bytes that the server has read, next to what it has predicted."""
    with fl.connect(server.url, generic_options=OWN_CONNECTION) as client:
        command = json.dumps(request).encode()
        # The server reads page indexes to explain, and keeps them: the epoch before reads them, too.
        (answer,) = client.do_action(fl.Action("explain", command))
        explained = json.loads(answer.body.to_pybytes())
        tickets = [end.ticket for end in client.get_flight_info(fl.FlightDescriptor.for_command(command)).endpoints]
        before = read_bytes(server)
        with ThreadPoolExecutor(len(tickets) if at_once else 1) as pool:
            counts = list(pool.map(lambda ticket: sum(chunk.data.num_rows for chunk in client.do_get(ticket)), tickets))
        read = read_bytes(server) - before
    if sum(counts) != rows:
        raise SystemExit(f"{sum(counts):,} rows, not {rows:,}")
    stored = explained["stored_bytes"]
    return {
        "read_bytes": int(read),
        "stored_bytes": stored,
        "read_per_stored_byte": round(read / stored, 4),
        "predicted_per_stored_byte": round(explained["read_amplification"], 4),
    }


def read_bytes(server: RunningServer) -> float:
    """Return the bytes that the server has read from storage."""
    with urllib.request.urlopen(server.metrics_url) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(READ_BYTES))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row-groups", type=int, default=32, help="row groups (%(default)s)")
    parser.add_argument("--rows", type=int, default=131_072, help="rows of a row group, on average (%(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
