"""Writes dashboards/overview.json and dashboards/streams.json; with --check says whether they are what it writes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from overview import overview
from streams import streams

FOLDER = Path(__file__).parent / "dashboards"


def texts() -> dict[Path, str]:
    """Say what each file holds."""
    made = {"overview.json": overview(), "streams.json": streams()}
    return {FOLDER / name: json.dumps(made[name], indent=2, ensure_ascii=False) + "\n" for name in made}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where a file is not up to date"
    )
    check = parser.parse_args().check
    stale = [path for path, text in texts().items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path} is not what {Path(__file__).name} writes: run it", file=sys.stderr)
        else:
            path.write_text(texts()[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
