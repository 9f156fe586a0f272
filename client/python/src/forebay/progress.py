"""Progress of a fit, as data and as a line on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

WIDTH = 30


@dataclass(frozen=True)
class FitProgress:
    """Progress of a fit."""

    pass_number: int
    """Counted from 1."""
    passes: int
    rows_done: int
    rows_total: int


Progress = Callable[[FitProgress], None]


class ProgressLine:
    """Rewrites one line of stderr; `close` removes it."""

    def __init__(self) -> None:
        self._length = 0

    def __call__(self, progress: FitProgress) -> None:
        """Show the progress."""
        share = min(1.0, progress.rows_done / progress.rows_total) if progress.rows_total else 1.0
        bar = ("=" * round(share * WIDTH)).ljust(WIDTH)
        line = (
            f"fit, pass {progress.pass_number} of {progress.passes} [{bar}] "
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


def line_wanted(progress: bool | None) -> bool:
    """Whether to show a line: if stderr is a terminal, unless `progress` is False."""
    return progress is not False and sys.stderr.isatty()
