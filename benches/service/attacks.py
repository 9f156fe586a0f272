"""What a principal gets while another one, and clients without a credential, attack the server in every way at once.

The principal trains on shuffled epochs of its dataset and requests descriptions of it, first alone and then during the
attacks (`harness.attacks`). Its loop takes a part of the rows that the server can send it alone, as a loop does whose
steps take time: two principals that both want all of the CPU get a half each, however fair the server is. The rate of
an unlimited reader is measured as well. The attacks run in a process of the lowest priority, which represents other
machines. The peak of resident memory is compared with the memory limit.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.flight as fl

from harness.attacks import GOOD_TOKEN, MATRIX, options, request, write_data
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Goal, Measurement, Setting

GOAL_SHARE = 0.8
GOAL_CALL_SECONDS = 1.0
GOAL_ABOVE_LIMIT_MB = 256.0
SECONDS = 20.0
# The part of the rate alone that the training loop takes.
PACE = 0.4
# The attacks take a while to build up.
SETTLE_SECONDS = 3.0
MEMORY_LIMIT_BYTES = 512 << 20
MB = 1e6


def measure(setting: Setting) -> Found:
    """Serve the principal alone and during the attacks, in turn, from one server a round."""
    root = setting.scratch / "attacks"
    root.mkdir()
    folders = write_data(root)
    seconds = 5.0 if setting.quick else SECONDS
    runs: list[dict[str, Any]] = []
    for number in range(setting.rounds):
        flags = ("--principals", str(root / "principals.toml"), "--memory-limit-bytes", str(MEMORY_LIMIT_BYTES))
        with Server(setting.program, folders, root / f"state-{number}", *flags) as server:
            unlimited = serve(server, seconds)
            pace = PACE * unlimited["rows_per_second"]
            alone = serve(server, seconds, pace)
            with attacked(server):
                attacked_rates = serve(server, seconds, pace)
                unlimited_beside = serve(server, seconds)
            peak = server.peak_rss_bytes()
        run = {"round": number, "unlimited": unlimited, "unlimited_beside": unlimited_beside, "pace": pace}
        runs.append({**run, "alone": alone, "attacked": attacked_rates, "peak_rss_bytes": peak})
        say(f"attacks: round {number + 1} of {setting.rounds}")
    return report(runs)


@contextmanager
def attacked(server: Server) -> Iterator[None]:
    """Attack the server during the block."""
    command = [sys.executable, "-m", "harness.attacks", server.url, server.metrics_url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=lambda: os.nice(19))
    try:
        time.sleep(SETTLE_SECONDS)
        assert process.poll() is None, "the attacks ended"
        yield
        assert process.poll() is None, "the attacks ended"
    finally:
        process.communicate()


def serve(server: Server, seconds: float, pace: float | None = None) -> dict[str, Any]:
    """Read epochs and make calls for some seconds; return rows a second and the seconds of the calls.

    With a `pace`, the reader waits between batches, to read at most that many rows per second.
    """
    calls: list[float] = []
    stop = threading.Event()

    def call() -> None:
        described = fl.Action("describe", json.dumps({"dataset": "numbers"}).encode())
        with server.connect() as client:
            while not stop.wait(0.2):
                start = time.monotonic()
                list(client.do_action(described, options(GOOD_TOKEN)))
                calls.append(time.monotonic() - start)

    caller = threading.Thread(target=call)
    caller.start()
    rows, epoch, start = 0, 0, time.monotonic()
    with server.connect() as client:
        while time.monotonic() - start < seconds:
            wanted = request("numbers", MATRIX, shuffle=True, lanes=2, epoch=epoch, batch_size=2048)
            info = client.get_flight_info(wanted, options(GOOD_TOKEN))
            for chunk in client.do_get(info.endpoints[0].ticket, options(GOOD_TOKEN)):
                rows += chunk.data.num_rows
                if pace is not None:
                    time.sleep(max(0.0, rows / pace - (time.monotonic() - start)))
            epoch += 1
    took = time.monotonic() - start
    stop.set()
    caller.join()
    return {"rows_per_second": rows / took, "calls": len(calls), "call_seconds_max": max(calls, default=float("inf"))}


def report(runs: list[dict[str, Any]]) -> Found:
    """Compare the medians."""
    shares = [run["attacked"]["rows_per_second"] / run["alone"]["rows_per_second"] for run in runs]
    slowest = max(run["attacked"]["call_seconds_max"] for run in runs)
    above = max(run["peak_rss_bytes"] for run in runs) / MB - MEMORY_LIMIT_BYTES / MB
    goals = [
        # Goals are upper limits.
        Goal("share of the rate that attacks take", 1 - GOAL_SHARE, 1 - statistics.median(shares), "", 2),
        Goal("slowest call during the attacks", GOAL_CALL_SECONDS, slowest, "s", 2),
        Goal("peak memory above the limit", GOAL_ABOVE_LIMIT_MB, above, "MB"),
    ]
    rows = [
        [
            str(run["round"] + 1),
            f"{run['unlimited']['rows_per_second']:,.0f}",
            f"{run['unlimited_beside']['rows_per_second']:,.0f}",
            f"{run['alone']['rows_per_second']:,.0f}",
            f"{run['attacked']['rows_per_second']:,.0f}",
            f"{run['attacked']['call_seconds_max']:.2f}",
            f"{run['peak_rss_bytes'] / MB:,.0f}",
        ]
        for run in runs
    ]
    heads = ["round", "unlimited, rows/s", "attacked", "paced, rows/s", "attacked", "slowest call, s", "peak, MB"]
    return Found({"memory_limit_bytes": MEMORY_LIMIT_BYTES, "runs": runs}, goals, table(heads, rows))


MEASUREMENT = Measurement("attacks", "A principal under attack", measure)
