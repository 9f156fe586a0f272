"""What a principal gets while another one, and clients without a credential, attack the server in every way at once.

The principal reads shuffled epochs of its dataset and asks for descriptions of it, first alone and then beside the
attacks (`harness.attacks`). The peak of resident memory is compared with the memory limit.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from typing import Any

import pyarrow.flight as fl

from harness.attacks import GOOD_TOKEN, MATRIX, Attacks, options, request, write_data
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Goal, Measurement, Setting

GOAL_SHARE = 0.8
GOAL_CALL_SECONDS = 1.0
GOAL_ABOVE_LIMIT_MB = 256.0
SECONDS = 20.0
MEMORY_LIMIT_BYTES = 512 << 20
MB = 1e6


def measure(setting: Setting) -> Found:
    """Serve the principal alone and beside the attacks, in turn, from one server a round."""
    root = setting.scratch / "attacks"
    root.mkdir()
    folders = write_data(root)
    seconds = 5.0 if setting.quick else SECONDS
    runs: list[dict[str, Any]] = []
    for number in range(setting.rounds):
        flags = ("--principals", str(root / "principals.toml"), "--memory-limit-bytes", str(MEMORY_LIMIT_BYTES))
        with Server(setting.program, folders, root / f"state-{number}", *flags) as server:
            alone = serve(server, seconds)
            with Attacks(server.url, server.metrics_url).running():
                # The attacks take a while to build up.
                time.sleep(3)
                beside = serve(server, seconds)
            peak = server.peak_rss_bytes()
        runs.append({"round": number, "alone": alone, "beside": beside, "peak_rss_bytes": peak})
        say(f"attacks: round {number + 1} of {setting.rounds}")
    return report(runs)


def serve(server: Server, seconds: float) -> dict[str, Any]:
    """Read epochs and make calls for some seconds; return rows a second and the seconds of the calls."""
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
            epoch += 1
    took = time.monotonic() - start
    stop.set()
    caller.join()
    return {"rows_per_second": rows / took, "calls": len(calls), "call_seconds_max": max(calls, default=float("inf"))}


def report(runs: list[dict[str, Any]]) -> Found:
    """Compare the medians."""
    shares = [run["beside"]["rows_per_second"] / run["alone"]["rows_per_second"] for run in runs]
    slowest = max(run["beside"]["call_seconds_max"] for run in runs)
    above = max(run["peak_rss_bytes"] for run in runs) / MB - MEMORY_LIMIT_BYTES / MB
    goals = [
        # Goals are upper limits.
        Goal("share of the rate that attacks take", 1 - GOAL_SHARE, 1 - statistics.median(shares), "", 2),
        Goal("slowest call beside the attacks", GOAL_CALL_SECONDS, slowest, "s", 2),
        Goal("peak memory above the limit", GOAL_ABOVE_LIMIT_MB, above, "MB"),
    ]
    rows = [
        [
            str(run["round"] + 1),
            f"{run['alone']['rows_per_second']:,.0f}",
            f"{run['beside']['rows_per_second']:,.0f}",
            f"{run['beside']['call_seconds_max']:.2f}",
            f"{run['peak_rss_bytes'] / MB:,.0f}",
        ]
        for run in runs
    ]
    heads = ["round", "rows/s alone", "rows/s attacked", "slowest call, s", "peak, MB"]
    return Found({"memory_limit_bytes": MEMORY_LIMIT_BYTES, "runs": runs}, goals, table(heads, rows))


MEASUREMENT = Measurement("attacks", "A principal beside attacks", measure)
