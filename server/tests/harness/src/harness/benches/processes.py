"""CPU seconds of processes. Linux only."""

from __future__ import annotations

import os
import resource
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted from 1; see proc(5).
USER, SYSTEM = 14, 15


def process_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a running process, user and system."""
    return stat_cpu_seconds(Path(f"/proc/{pid}/stat").read_text())


def stat_cpu_seconds(stat: str) -> float:
    """Return the CPU seconds of a process or thread, user and system, from its stat file."""
    # After the name, which ends with the last parenthesis, the third field follows.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[USER - 3]) + int(fields[SYSTEM - 3])) / TICKS_PER_SECOND


def cpu_seconds(server: int) -> float:
    """Return the CPU seconds of this process, its ended children, and a server."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in own) + process_cpu_seconds(server)
