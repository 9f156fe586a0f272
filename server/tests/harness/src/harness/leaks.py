"""What a test leaves in this process: threads and descriptors. Linux only."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTLE_SECONDS = 10.0
POLL_SECONDS = 0.02


def descriptors() -> Counter[str]:
    """The open descriptors by what they are: a path, `socket`, `pipe`, `memfd:…`."""
    found: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[re.sub(r":\[\d+\]$", "", os.readlink(entry))] += 1
        except FileNotFoundError:
            continue
    return found


def threads() -> Counter[str]:
    """The Python threads by name, without their numbers."""
    return Counter(re.sub(r"[-_ ]?\d+", "", thread.name) for thread in threading.enumerate())


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail unless all threads and descriptors that the block opens are gone soon after it.

    Run the same once before: libraries keep pools and caches of their own.
    """
    gc.collect()
    before = descriptors(), threads()
    yield
    limit = time.monotonic() + SETTLE_SECONDS
    while True:
        gc.collect()
        left = descriptors() - before[0], threads() - before[1]
        if not any(left):
            return
        assert time.monotonic() < limit, f"left: descriptors {dict(left[0])}, threads {dict(left[1])}"
        time.sleep(POLL_SECONDS)
