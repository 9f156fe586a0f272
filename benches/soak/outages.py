"""Injected faults: a replica is killed or drained, trainers are killed, connections are cut, a store fails."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.benches.reporting import say
from harness.fault_proxy import Fault, FaultProxy, cut, error, stall
from harness.proxy import Proxy
from replica import Replica
from tally import Tally

HERE = Path(__file__).resolve().parent
# Seconds, each varied by ±50 %: between outages of the second replica, its downtime, between cuts of all connections
# through the proxy, between faults of the store, and until a trainer is killed.
OUTAGE_SECONDS_MAX, OUTAGES_MIN = 100.0, 6
DOWN_SECONDS = 3.0
SEVER_SECONDS = 7.0
STORE_SECONDS = 4.0
VICTIM_SECONDS = 10.0
VICTIM_START_SECONDS = 60.0
# One store fault in STORE_AWAY_ONE_IN lasts for several seconds and affects every request.
STORE_AWAY_ONE_IN, STORE_AWAY_SECONDS = 20, 8.0
DRAIN_SECONDS = 6
DRAIN_SLACK_SECONDS = 15.0
WEB_FILE = "numbers.parquet"

STORE_FAULTS: dict[str, Fault] = {
    "500": error(500, "InternalError"),
    "503": error(503, "SlowDown"),
    "429 with Retry-After": error(429, "TooManyRequests", Retry_After="1"),
    "closed before the answer": cut(-1),
    "closed in the body": cut(1000),
    "closed before the last byte": lambda answer: cut(len(answer.body) - 1)(answer),
    "stopped for 3 s before the answer": stall(-1, 3.0),
    "stopped for 3 s in the body": stall(1000, 3.0),
}


class Outages:
    """All faults; each kind runs in its own thread."""

    def __init__(
        self,
        replica: Replica,
        proxy: Proxy,
        store: FaultProxy,
        tally: Tally,
        over: threading.Event,
        minutes: float,
        start_victim: Callable[[int], Crowd],
    ) -> None:
        self._replica, self._proxy, self._store = replica, proxy, store
        self._tally, self._over = tally, over
        self._outage_seconds = min(OUTAGE_SECONDS_MAX, 60 * minutes / (OUTAGES_MIN + 1))
        self._start_victim = start_victim
        self.victims: list[Crowd] = []
        """Killed processes, kept for their tallies, and the running one."""
        self.restart_seconds: list[float] = []
        kinds = (self._end_replica, self._kill_trainers, self._sever, self._spoil_store)
        self._threads = [threading.Thread(target=self._guard, args=(kind,), daemon=True) for kind in kinds]

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the threads once the run is over; then every replica is up and the store works."""
        for thread in self._threads:
            thread.join()
        self._store.clear()

    def _guard(self, kind: Callable[[], None]) -> None:
        try:
            kind()
        except BaseException as raised:
            self._tally.unexpected("outages", f"{kind.__name__}: {type(raised).__name__}: {raised}")
            raise

    def _wait(self, seconds: float, rng: random.Random) -> bool:
        return not self._over.wait(seconds * rng.uniform(0.5, 1.5))

    def _end_replica(self) -> None:
        rng = random.Random("replica")
        how = 0
        while self._wait(self._outage_seconds, rng):
            if how % 2 == 0:
                name, want, code = "replica killed (SIGKILL)", -9, self._replica.kill()
            else:
                name, want = "replica drained (SIGTERM)", 0
                code = self._replica.drain(DRAIN_SECONDS + DRAIN_SLACK_SECONDS)
            how += 1
            self._tally.add("faults", name)
            say(f"{name}: exit code {code}")
            if code != want:
                self._tally.unexpected("outages", f"{name}: exit code {code}")
            # Restarted even if the run is over: the final checks need it.
            self._wait(DOWN_SECONDS, rng)
            self.restart_seconds.append(self._replica.start())

    def _kill_trainers(self) -> None:
        rng = random.Random("trainers")
        number = 0
        while not self._over.is_set():
            crowd = self._start_victim(number)
            self.victims.append(crowd)
            number += 1
            if not crowd.wait_for_batches(VICTIM_START_SECONDS, self._over):
                continue
            self._wait(VICTIM_SECONDS, rng)
            crowd.kill()
            self._tally.add("faults", "trainer killed (SIGKILL)")

    def _sever(self) -> None:
        rng = random.Random("cuts")
        while self._wait(SEVER_SECONDS, rng):
            # New connections are cut after a number of bytes, open ones now.
            self._proxy.cut(*(rng.choice([None, 300, 5_000, 60_000]) for _ in range(3)))
            self._proxy.sever()
            self._tally.add("faults", "all connections of a proxy cut")

    def _spoil_store(self) -> None:
        rng = random.Random("store")
        count, name, rule = 0, "", None
        while self._wait(STORE_SECONDS, rng):
            count += 1
            if rule is not None:
                self._tally.add("faults", f"store: {name}", rule.hits)
            self._store.clear()
            name, fault = rng.choice(list(STORE_FAULTS.items()))
            if count % STORE_AWAY_ONE_IN == 0:
                self._store.on(error(503, "SlowDown"), WEB_FILE, ranged=False)
                self._over.wait(STORE_AWAY_SECONDS)
                self._store.clear()
                self._tally.add("faults", f"store unavailable for {STORE_AWAY_SECONDS:.0f} s")
            # Applies to the next requests until the next fault.
            rule = self._store.on(fault, WEB_FILE, times=rng.randrange(1, 4))


class Crowd:
    """A process of crowd.py and its last tally."""

    def __init__(self, role: str, arguments: list[str]) -> None:
        self.role = role
        self.tally: dict[str, Any] | None = None
        self.stderr_lines: deque[str] = deque(maxlen=10)
        """Last lines of its stderr."""
        pipe = subprocess.PIPE
        command = [sys.executable, str(HERE / "crowd.py"), role, *arguments]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1)
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def wait_for_batches(self, seconds: float, over: threading.Event) -> bool:
        """Wait until the process has read a batch."""
        for _ in range(int(seconds * 5)):
            if any(counts.get("batches") for counts in (self.tally or {}).get("counts", {}).values()):
                return True
            if over.wait(0.2) or not self.is_alive:
                break
        self.kill()
        return False

    def pace(self, pace: float) -> None:
        """Set the pace."""
        assert self._process.stdin is not None
        # The process may just have been killed.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps({"pace": pace}) + "\n")

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._end()

    def finish(self, seconds: float) -> bool:
        """Close stdin and wait; return whether the process exited by itself with code 0."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            self._process.kill()
        self._end()
        return code == 0

    def _end(self) -> None:
        self._process.wait()
        for reader in self._readers:
            reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.tally = json.loads(line)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr_lines.append(line.rstrip()[:300])
