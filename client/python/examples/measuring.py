"""Wall and CPU seconds of work that this process and its children do, and the load of a process. Linux only."""

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Seconds:
    """Seconds of one piece of work."""

    wall: float
    cpu: float


def measured(work: Callable[[], T]) -> tuple[T, Seconds]:
    """Do the work; return its result, and the seconds of this process and its children meanwhile."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    result = work()
    return result, Seconds(time.perf_counter() - wall, cpu_seconds() - cpu)


def median(seconds: Iterable[Seconds]) -> Seconds:
    """Return the medians of several rounds."""
    rounds = list(seconds)
    return Seconds(statistics.median(one.wall for one in rounds), statistics.median(one.cpu for one in rounds))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all its descendants so far, running and ended."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name of the program, in parentheses, may contain spaces.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        # utime, stime, and the same of children that have ended.
        used[pid] = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
    return sum(seconds for pid, seconds in used.items() if _descends(pid, os.getpid(), parents))


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid != ancestor and pid in parents:
        pid = parents[pid]
    return pid == ancestor


SAMPLE_SECONDS = 0.05


class Sampler:
    """Samples the cores that another process uses, in a thread, for the duration of a block."""

    def __init__(self, pid: int) -> None:
        """Sample the process `pid`."""
        self._stat = Path(f"/proc/{pid}/stat")
        self.busy: list[tuple[float, float]] = []
        """Seconds since the start of the block, and the cores used since the time before."""

    def __enter__(self) -> "Sampler":
        """Start."""
        self.busy = []
        self._began = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, after a last sample."""
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        before = self._began
        used = self._used()
        is_over = False
        while not is_over:
            is_over = self._ended.wait(SAMPLE_SECONDS)
            now, used_now = time.perf_counter(), self._used()
            self.busy.append((now - self._began, (used_now - used) / (now - before)))
            before, used = now, used_now

    def _used(self) -> float:
        fields = self._stat.read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / _TICKS_PER_SECOND
