"""CPU seconds and memory of a process and its descendants, from /proc (Linux).

A process is a member if its environment has the visit's mark or its parent is a member: some processes detach from
their parent, some overwrite their environment. Memory is the proportional set size, which counts shared pages once.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

MARK = "PEERS_VISIT"
SAMPLE_SECONDS = 0.25
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted from 1; see proc(5).
PARENT, CPU_FIRST, CPU_LAST, START = 4, 14, 17, 22


class ProcessTree:
    """The processes of one visit; created before the first of them starts."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._lock = threading.Lock()
        # By process id and start time, because ids are reused. Processes that already run are not members and are not
        # checked again.
        self._belongs = {(pid, int(fields[START - 3])): False for pid, fields in _stats().items()}
        self._peak_bytes = 0
        self._done = threading.Event()
        self._sampler: threading.Thread | None = None

    def pids(self) -> list[int]:
        """Return the ids of the running processes."""
        with self._lock:
            return [pid for pid, _ in self._members()]

    def cpu_seconds(self) -> float:
        """Return CPU seconds used so far, user and system, including children that have ended."""
        with self._lock:
            ticks = [int(each) for _, fields in self._members() for each in fields[CPU_FIRST - 3 : CPU_LAST - 2]]
        return sum(ticks) / TICKS_PER_SECOND

    def watch(self) -> None:
        """Start sampling the peak of memory."""
        self._peak_bytes = 0
        self._done.clear()
        self._sampler = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)
        self._sampler.start()

    def peak_bytes(self) -> int:
        """Stop sampling and return the peak."""
        assert self._sampler is not None
        self._done.set()
        self._sampler.join()
        return self._peak_bytes

    def end(self) -> None:
        """Kill the remaining processes."""
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _sample(self) -> None:
        while True:
            self._peak_bytes = max(self._peak_bytes, sum(_pss_bytes(pid) for pid in self.pids()))
            if self._done.wait(SAMPLE_SECONDS):
                return

    def _members(self) -> list[tuple[int, list[str]]]:
        """Return the ids of the running processes, with the fields of their stat from the third on."""
        stats = _stats()
        belongs: dict[int, bool] = {}

        def is_member(pid: int) -> bool:
            if pid not in stats:
                return False
            if pid not in belongs:
                key = pid, int(stats[pid][START - 3])
                belongs[pid] = self._belongs.get(key) is True
                # A new process has its parent's environment until exec, so only a positive result is cached.
                if key not in self._belongs:
                    marked = self._mark in _read(pid, "environ").split(b"\0")
                    belongs[pid] = marked or is_member(int(stats[pid][PARENT - 3]))
                    if belongs[pid]:
                        self._belongs[key] = True
            return belongs[pid]

        return [(pid, fields) for pid, fields in stats.items() if is_member(pid)]


def machine_cpu_seconds() -> float:
    """Return CPU seconds used by all processes of the machine, on all cores."""
    user, nice, system, _, _, irq, softirq, steal = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    return sum(int(ticks) for ticks in (user, nice, system, irq, softirq, steal)) / TICKS_PER_SECOND


def _stats() -> dict[int, list[str]]:
    """Return the ids of all processes, with the fields of their stat from the third on."""
    stats: dict[int, list[str]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (stat := _read(int(entry.name), "stat")):
            stats[int(entry.name)] = stat.rpartition(b")")[2].decode().split()
    return stats


def _pss_bytes(pid: int) -> int:
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
