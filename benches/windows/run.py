"""Windows over an hourly panel: the seconds to the first batch, and windows a second.

The panel has --series series of --hours hours and eight columns of FLOAT32, sorted by series and time, in files of ten
million rows. The first stream of a snapshot reads two of its columns to find where series end; a restarted server finds
that under its state. Epochs in file order and shuffled read --windows windows of 192 past and 24 future hours. CPU
seconds are the server's, from /proc; the client is bare pyarrow on the same cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from harness.benches import machine
from harness.benches.bench_server import RunningServer, server_program
from harness.benches.noise import Noise
from harness.benches.panel import COLUMNS, write_panel
from harness.benches.reporting import say
from harness.serving import info

LENGTH, HORIZON, STRIDE = 192, 24, 24
PLAN = {
    "outputs": [
        {"name": "past", "parts": [{"columns": list(COLUMNS)}]},
        {"name": "future", "parts": [{"columns": ["a"]}], "part": "FUTURE"},
    ]
}
WINDOW = {"by": ["series"], "order": "ts", "length": LENGTH, "horizon": HORIZON, "stride": STRIDE}
ORDERS = {"file order": {}, "shuffled": {"shuffle": True, "window_rows": 2048}}


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=5_000, help="series (%(default)s)")
    parser.add_argument("--hours", type=int, default=17_520, help="rows of a series (%(default)s)")
    parser.add_argument("--windows", type=int, default=400_000, help="windows of an epoch to read (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each order (%(default)s)")
    parser.add_argument("--data", type=Path, help="folder of the panel, which is written if it is missing")
    parser.add_argument("--out", type=Path, help="file for the raw results, .json")
    options = parser.parse_args()
    program, noise = server_program(), Noise()
    run: dict[str, Any] = {"bench": "windows", "command": " ".join(["benches/windows/run.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "series": options.series, "hours": options.hours, "window": WINDOW}
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        data, state = options.data or Path(scratch) / "panel", Path(scratch) / "state"
        write_panel(data, options.series, options.hours)
        visits: list[dict[str, Any]] = []
        for state_of in ("no state", "kept state"):
            with RunningServer(program, {"panel": data}, state) as server, fl.connect(server.url) as client:
                visits.append({"visit": state_of, **read(server, client, {}, batches=1)})
                say(json.dumps(visits[-1]))
        with RunningServer(program, {"panel": data}, state) as server, fl.connect(server.url) as client:
            for number in range(-1, options.rounds):
                for order, fields in ORDERS.items():
                    request = {**fields, "seed": 7, "epoch": number + 1}
                    found = read(server, client, request, batches=options.windows // 512)
                    if number >= 0:
                        visits.append({"visit": order, **found})
                        say(json.dumps(visits[-1]))
    print(json.dumps(visits, indent=1))
    if options.out:
        machine.keep(options.out, run | {"visits": visits, "noise": noise.look()})


def read(server: RunningServer, client: fl.FlightClient, fields: dict[str, Any], *, batches: int) -> dict[str, Any]:
    """Read the first batches of an epoch."""
    before, start = server.cpu_seconds(), time.monotonic()
    request = {"dataset": "panel", "plan": PLAN, "window": WINDOW, "batch_size": 512, **fields}
    found = info(client, request)
    reader = client.do_get(found.endpoints[0].ticket)
    windows = 0
    first = None
    for _ in range(batches):
        try:
            windows += reader.read_chunk().data.num_rows
        except StopIteration:
            break
        first = first or time.monotonic() - start
    reader.cancel()
    wall, cpu = time.monotonic() - start, server.cpu_seconds() - before
    rate = windows / wall
    return {"windows": windows, "first_batch_s": first, "wall_s": wall, "server_cpu_s": cpu, "windows_per_s": rate}


if __name__ == "__main__":
    main()
