"""Progress and tables of a bench."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Tell how far the run is."""
    print(line, file=sys.stderr, flush=True)


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, numbers to the right: all but the first column."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
