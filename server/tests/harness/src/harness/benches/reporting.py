"""Progress and tables of a bench."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; all columns except the first are right-aligned."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
