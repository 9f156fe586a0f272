"""Progress of a fit or a description, as data and as a line on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

WIDTH = 30


@dataclass(frozen=True)
class FitProgress:
    """Progress of a fit or a description."""

    pass_number: int
    """Counted from 1."""
    passes: int
    rows_done: int
    rows_total: int


Progress = Callable[[FitProgress], None]


class ProgressLine:
    """Rewrites one line of stderr; `close` removes it."""

    def __init__(self, action: str) -> None:
        self._action = action
        self._length = 0

    def __call__(self, progress: FitProgress) -> None:
        """Show the progress."""
        share = min(1.0, progress.rows_done / progress.rows_total) if progress.rows_total else 1.0
        bar = ("=" * round(share * WIDTH)).ljust(WIDTH)
        line = (
            f"{self._action}, pass {progress.pass_number} of {progress.passes} [{bar}] "
            f"{progress.rows_done:,} of {progress.rows_total:,} rows"
        )
        sys.stderr.write("\r" + line.ljust(self._length))
        sys.stderr.flush()
        self._length = len(line)

    def close(self) -> None:
        """Clear the line."""
        if self._length:
            sys.stderr.write("\r" + " " * self._length + "\r")
            sys.stderr.flush()
        self._length = 0


@contextlib.contextmanager
def reporting(action: str, progress: Progress | bool | None) -> Generator[Progress]:
    """Yield where to report: the caller's function, a line on stderr if it is a terminal, or nowhere."""
    if callable(progress):
        yield progress
        return
    line = ProgressLine(action)
    try:
        yield line if line_wanted(progress) else _ignore
    finally:
        line.close()


def read_progress(fields: dict[str, Any]) -> FitProgress:
    """Read the server's report."""
    counts = [int(fields.get(name) or 0) for name in ("pass", "passes", "rows_done", "rows_total")]
    return FitProgress(*counts)


def _ignore(progress: FitProgress) -> None:
    del progress


def line_wanted(progress: bool | None) -> bool:
    """Whether to show a line: if stderr is a terminal, unless `progress` is False."""
    return progress is not False and sys.stderr.isatty()
