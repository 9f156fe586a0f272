"""Writes the summary of a run of check.sh, prints it as a table, and exits with 1 if a step failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

TITLES = ("step", "status", "seconds", "reason")


def table(rows: list[tuple[str, ...]]) -> str:
    """Return aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(TITLES) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main(folder: Path) -> int:
    """Summarize the steps of a folder; return the exit code."""
    listed = folder / "steps.tsv"
    steps = [dict(zip(TITLES, line.split("\t"), strict=True)) for line in listed.read_text().splitlines()]
    listed.unlink()
    (folder / "summary.jsonl").write_text(
        "".join(json.dumps({**step, "seconds": int(step["seconds"])}) + "\n" for step in steps)
    )
    text = table([TITLES, *(tuple(step.values()) for step in steps)])
    (folder / "summary.txt").write_text(text)
    for path in [*folder.glob("*.jsonl"), *folder.glob("*.log")]:
        if path.stat().st_size == 0:
            path.unlink()
    counts = {status: sum(step["status"] == status for step in steps) for status in ("ran", "skipped", "failed")}
    print(f"{text}\n{', '.join(f'{count} {status}' for status, count in counts.items())}; results: {folder}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
