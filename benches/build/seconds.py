"""Seconds of a command, of the clock and of the CPU."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Sequence
from typing import Any


def seconds_of(command: Sequence[str], **options: Any) -> dict[str, float]:
    """Run a command with options of `subprocess.run`; return the seconds that it and its children took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, **options)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return {"wall_s": round(wall, 1), "user_cpu_s": round(user, 1), "system_cpu_s": round(system, 1)}
