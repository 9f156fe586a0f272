"""Cost of ten times as many files, row groups or columns for the same bytes.

One server has all layouts as datasets; a round visits each layout and order in turn. The clock runs from the request
for flight info to the last batch of the visit's epochs, in a bare pyarrow client.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict
from typing import Any

import pyarrow.flight as fl

from growth_data import LAYOUTS, SMALL_LAYOUTS, Layout, generate
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Goal, Measurement, Setting

GOAL_RATIO = 1.1
# A batch of 13 columns has 425,984 bytes.
BATCH_SIZE = 8192
BATCH_FLOATS = BATCH_SIZE * LAYOUTS["base"].columns
EPOCHS_A_VISIT = 3
# Visits are short and ratios close to 1, so there are more rounds than in other measurements.
ROUNDS_FACTOR = 2
ORDERS = {"file order": False, "shuffled": True}
LABELS = {"files": "files x 10", "groups": "row groups x 10", "columns": "columns x 10"}


def measure(setting: Setting) -> Found:
    """Read the layouts in turn for several rounds."""
    layouts = SMALL_LAYOUTS if setting.quick else LAYOUTS
    folders = {name: setting.data / f"growth-{'small-' if setting.quick else ''}{name}" for name in layouts}
    for name, layout in layouts.items():
        say(f"growth: data, {name}")
        generate(folders[name], layout)
    rounds = setting.rounds * ROUNDS_FACTOR
    visits: list[dict[str, Any]] = []
    with Server(setting.program, folders, setting.scratch / "growth-state") as server, server.connect() as client:
        for number in range(-1, rounds):
            for order, shuffle in ORDERS.items():
                for name, layout in layouts.items():
                    figures = visit(server, client, name, layout, shuffle, number + 1)
                    visits.append({"round": number, "layout": name, "order": order, **figures})
            say(f"growth: round {number + 1} of {rounds}")
    return report(visits, layouts)


def visit(
    server: Server, client: fl.FlightClient, name: str, layout: Layout, shuffle: bool, number: int
) -> dict[str, float]:
    """Read a few epochs; return bytes and seconds."""
    batch_size = BATCH_FLOATS // layout.columns
    request = {"dataset": name, "plan": layout.plan(), "batch_size": batch_size, "shuffle": shuffle, "seed": 7}
    *_, explained = client.do_action(fl.Action("explain", json.dumps(request).encode()))
    rows = received_bytes = 0
    cpu_before, began = server.cpu_seconds(), time.perf_counter()
    for epoch in range(number * EPOCHS_A_VISIT, (number + 1) * EPOCHS_A_VISIT):
        command = json.dumps({**request, "epoch": epoch}).encode()
        info = client.get_flight_info(fl.FlightDescriptor.for_command(command))
        for chunk in client.do_get(info.endpoints[0].ticket):
            rows += chunk.data.num_rows
            received_bytes += chunk.data.nbytes
    seconds = time.perf_counter() - began
    if rows != layout.rows * EPOCHS_A_VISIT:
        raise SystemExit(f"{name}: {rows:,} rows, not {layout.rows * EPOCHS_A_VISIT:,}")
    cpu_seconds = server.cpu_seconds() - cpu_before
    return {
        "rows": rows,
        "bytes": received_bytes,
        "seconds": seconds,
        "read_amplification": json.loads(explained.body.to_pybytes())["read_amplification"],
        "server_cpu_seconds": cpu_seconds,
    }


def report(visits: list[dict[str, Any]], layouts: dict[str, Layout]) -> Found:
    """Return ratios to the base in the same round."""
    counted = [each for each in visits if each["round"] >= 0]
    goals, rows = [], []
    for order in ORDERS:
        by_layout = {
            name: [each for each in counted if each["order"] == order and each["layout"] == name] for name in layouts
        }
        for name, each in by_layout.items():
            time_ratio, cpu_ratio = (
                statistics.median(
                    (one[key] / one["bytes"]) / (base[key] / base["bytes"])
                    for one, base in zip(each, by_layout["base"], strict=True)
                )
                for key in ("seconds", "server_cpu_seconds")
            )
            if name != "base":
                goals.append(Goal(f"time per byte / base's: {LABELS[name]}, {order}", GOAL_RATIO, time_ratio, "", 2))
            cells = [
                f"{statistics.median(v['rows'] / v['seconds'] for v in each):,.0f}",
                f"{statistics.median(v['bytes'] / v['seconds'] for v in each) / 1e6:,.0f}",
                f"{time_ratio:.2f}",
                f"{cpu_ratio:.2f}",
                f"{each[0]['read_amplification']:.2f}",
            ]
            rows.append([f"{LABELS.get(name, name)}, {order}", *cells])
    titles = ["layout", "rows/s", "MB/s", "time per byte / base's", "CPU per byte / base's", "read, times"]
    base = layouts["base"]
    text = (
        f"The base: {base.files} files of {base.groups} row groups of {base.group_rows:,} rows of {base.columns} "
        f"float32 columns, {base.rows * base.columns * 4 / 1e6:,.1f} MB. All batches have the same bytes: "
        f"{BATCH_SIZE:,} rows, a tenth of that with ten times the columns. Medians; ratios within a round. The last "
        "column is the server's read amplification: how often an epoch reads the stored bytes."
    )
    raw = {"layouts": {name: asdict(layout) for name, layout in layouts.items()}, "visits": visits}
    return Found(raw, goals, f"{text}\n\n{table(titles, rows)}")


MEASUREMENT = Measurement("growth", "Many files, row groups, columns", measure)
