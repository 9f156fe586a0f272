"""A server's memory, descriptors and threads while clients connect and disconnect for minutes.

Each of four client threads repeatedly opens a connection and reads one of four ranks of a shuffled epoch, either to its
end, or to a random step at which it cancels or closes the connection. The server's memory is sampled every second.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from harness.benches import criteo
from harness.benches.reporting import say, table
from service_server import Server
from setting import Found, Measurement, Setting

DATASET = "criteo"
CLIENTS = 4
BATCH_SIZE = 4096
SAMPLE_SECONDS = 1.0
# Shares of visits that end this way; the others read to the end.
CANCELLED, CLOSED = 0.25, 0.25
# Time for the server to notice that the last connections are closed, and for idle threads to end.
SETTLE_SECONDS = 15.0
MB = 1e6


class Crowd:
    """Client threads."""

    def __init__(self, server: Server, plan_id: str, steps: int) -> None:
        self._server, self._plan_id, self._steps = server, plan_id, steps
        self._over = threading.Event()
        self.ends: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the visits and wait for the clients."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        rng = random.Random(number)
        while not self._over.is_set():
            chance, stop_at = rng.random(), rng.randrange(self._steps)
            end = "cancelled" if chance < CANCELLED else "closed" if chance < CANCELLED + CLOSED else "whole"
            try:
                self._visit(rng, end, stop_at)
            except pa.ArrowException as error:
                self.ends[f"error: {error}"] += 1
            else:
                self.ends[end] += 1

    def _visit(self, rng: random.Random, end: str, stop_at: int) -> None:
        request = {
            "dataset": DATASET,
            "plan_id": self._plan_id,
            "batch_size": BATCH_SIZE,
            "world_size": CLIENTS,
            "shuffle": True,
            "seed": rng.randrange(2**31),
            "epoch": rng.randrange(100),
        }
        with self._server.connect() as client:
            info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request).encode()))
            stream = client.do_get(info.endpoints[rng.randrange(CLIENTS)].ticket)
            for step, _ in enumerate(stream):
                if (end != "whole" and step >= stop_at) or self._over.is_set():
                    if end == "cancelled":
                        stream.cancel()
                    return


def measure(setting: Setting) -> Found:
    """Run the clients and sample the server."""
    minutes = 0.2 if setting.quick else setting.minutes
    state = setting.scratch / "soak-state"
    with Server(setting.program, {DATASET: setting.criteo_data}, state) as server:
        plan_id = server.fit(DATASET, criteo.plan())["plan_id"]
    with Server(setting.program, {DATASET: setting.criteo_data}, state) as server:
        begin = look(server)
        samples: list[tuple[float, int]] = []
        crowd = Crowd(server, plan_id, setting.criteo_shape.rows // (BATCH_SIZE * CLIENTS))
        began = time.monotonic()
        try:
            while (passed := time.monotonic() - began) < 60 * minutes:
                samples.append((passed, server.rss_bytes()))
                if len(samples) % 30 == 0:
                    say(f"soak: {passed:,.0f} s, {samples[-1][1] / MB:,.0f} MB")
                time.sleep(SAMPLE_SECONDS)
        finally:
            crowd.stop()
        time.sleep(SETTLE_SECONDS)
        end = look(server)
    return report(samples, begin, end, crowd.ends)


def look(server: Server) -> dict[str, int]:
    """Return figures that should be the same before and after."""
    return {"rss_bytes": server.rss_bytes(), "descriptors": server.descriptors(), "threads": server.threads()}


def report(samples: list[tuple[float, int]], begin: dict[str, int], end: dict[str, int], ends: Counter[str]) -> Found:
    """Return the slope of memory over the second half."""
    seconds, rss_bytes = np.array(samples).T
    second = seconds >= seconds[-1] / 2
    slope = float(np.polyfit(seconds[second] / 3600, rss_bytes[second] / MB, 1)[0])
    raw: dict[str, Any] = {
        "seconds": float(seconds[-1]),
        "rss_mb_per_hour_in_the_second_half": slope,
        "rss_bytes_max": int(rss_bytes.max()),
        "begin": begin,
        "end": end,
        "visits": dict(ends),
        "samples": samples,
    }
    visits = ", ".join(f"{count:,} {how}" for how, count in sorted(ends.items()))
    text = (
        f"{seconds[-1] / 60:,.1f} minutes, {CLIENTS} clients, shuffled epochs; visits: {visits}. Slope of resident "
        f"memory over the second half, least squares: {slope:+,.0f} MB per hour. Maximum: {rss_bytes.max() / MB:,.0f} "
        f"MB; mean of the first half {rss_bytes[~second].mean() / MB:,.0f} MB, of the second "
        f"{rss_bytes[second].mean() / MB:,.0f} MB."
    )
    rows = [
        [name, f"{each['rss_bytes'] / MB:,.0f}", str(each["descriptors"]), str(each["threads"])]
        for name, each in (("before the first client", begin), ("after the last client", end))
    ]
    return Found(raw, [], f"{text}\n\n{table(['', 'RSS, MB', 'descriptors', 'threads'], rows)}")


MEASUREMENT = Measurement("soak", "Clients connecting and disconnecting for minutes", measure)
