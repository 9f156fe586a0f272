"""Samples the servers every few seconds and sets the pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import fields

from harness.benches.reporting import say
from pace import Governor
from replica import Replica, Sample

# Keeps the JSON file at about 200 KB.
SAMPLES_MAX = 600
SAMPLE_SECONDS_MIN = 2.0
# The pace is adjusted in this first part of the run, then kept.
STEERED_PART = 0.2
COLUMNS = ["seconds", "starts", *(field.name for field in fields(Sample))]
MIB = 1 << 20


class Watch:
    """Samples of each server and of the CPU use of the whole soak."""

    def __init__(
        self, replicas: list[Replica], governor: Governor, minutes: float, set_pace: Callable[[float], None]
    ) -> None:
        self.replicas = replicas
        self.samples: dict[str, list[list[float]]] = {replica.name: [] for replica in replicas}
        """By replica: rows of COLUMNS, none while it is down."""
        self.cores: list[list[float]] = []
        """Seconds, cores used by the soak, pace."""
        self._governor = governor
        self._seconds = 60 * minutes
        self.every = max(SAMPLE_SECONDS_MIN, self._seconds / SAMPLES_MAX)
        self._set_pace = set_pace

    def run(self, over: threading.Event) -> None:
        """Sample until the minutes have passed or the run is interrupted."""
        began = last = time.monotonic()
        while not over.wait(self.every) and (now := time.monotonic()) < began + self._seconds:
            passed = now - began
            for replica in self.replicas:
                if (sample := replica.sample()) is not None:
                    row = [getattr(sample, field.name) for field in fields(Sample)]
                    self.samples[replica.name].append([round(passed, 1), replica.starts, *row])
            busy = self._governor.measure(now - last, steer=passed < STEERED_PART * self._seconds)
            last = now
            self.cores.append([round(passed, 1), round(busy, 3), round(self._governor.pace, 3)])
            self._set_pace(self._governor.pace)
            if len(self.cores) % 10 == 0:
                self._say(passed, busy)

    def _say(self, passed: float, busy: float) -> None:
        held = [
            f"{name} {rows[-1][COLUMNS.index('rss_bytes')] / MIB:,.0f} MiB, "
            f"{rows[-1][COLUMNS.index('streams_active')]} streams"
            for name, rows in self.samples.items()
            if rows
        ]
        say(f"{passed:6,.0f} s: {'; '.join(held)}; {busy:.2f} cores, pace {self._governor.pace:.2f}")


def settle(replica: Replica, enough: Callable[[Sample], bool], seconds: float) -> tuple[Sample | None, float]:
    """Sample until `enough` is true or the time is over; return the last sample and the seconds it took."""
    began = time.monotonic()
    while True:
        sample = replica.sample()
        passed = time.monotonic() - began
        if (sample is not None and enough(sample)) or passed > seconds:
            return sample, passed
        time.sleep(0.5)
