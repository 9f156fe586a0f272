"""Writes dashboards/overview.json and dashboards/streams.json; with --check, reports whether they are up to date."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from overview import overview
from streams import streams

FOLDER = Path(__file__).parent / "dashboards"


def texts() -> dict[Path, str]:
    """Return the content of each file."""
    dashboards = {"overview.json": overview(), "streams.json": streams()}
    return {FOLDER / name: json.dumps(dashboards[name], indent=2, ensure_ascii=False) + "\n" for name in dashboards}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args().check
    stale = [path for path, text in texts().items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path} is out of date: run {Path(__file__).name}", file=sys.stderr)
        else:
            path.write_text(texts()[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
