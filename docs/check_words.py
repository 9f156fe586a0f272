"""Count matches of `words.txt` in every tracked text by module; fail if a module exceeds its budget.

python docs/check_words.py            # a table: module, lines, matches, budget
python docs/check_words.py PATH ...   # every match in these files and folders, with its replacement
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LIST = ROOT / "docs/words.txt"
LINES_PER_MATCH = 1_000
SUFFIXES = {".cu", ".md", ".proto", ".py", ".rs", ".sh", ".toml", ".yml", ".yaml", ".service"}
NAMES = {"Makefile", "Dockerfile"}
# Raw results are kept as they were printed; generated code repeats the comments of its sources and of the generator.
EXCLUDED = ("benches/runs/", "kernels/tests/snapshots/", "proto/src/gen/", "docs/check_words.py")


class Phrase(NamedTuple):
    """A pattern to avoid and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


class Match(NamedTuple):
    """A phrase found in a file."""

    path: Path
    line: int
    text: str
    instead: str


def phrases() -> list[Phrase]:
    """Return the entries of `words.txt`."""
    found: list[Phrase] = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, instead = line.split(" => ")
            found.append(Phrase(re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE), instead))
    return found


def tracked(below: list[str]) -> list[Path]:
    """Return the tracked texts, or those of them that are below the given paths."""
    listed = subprocess.run(["git", "ls-files", "-z", *below], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(name) for name in listed.stdout.split("\0") if name and not name.startswith(EXCLUDED)]
    return [path for path in paths if path.suffix in SUFFIXES or path.name in NAMES]


def module_of(path: Path) -> str:
    """Return the folder that a file is counted under: the first below `src` or `tests`, else the first two."""
    folders = path.parent.parts
    roots = [n for n, name in enumerate(folders) if name in ("src", "tests")]
    return "/".join(folders[: roots[0] + 2 if roots else 2]) or "."


def matches_in(path: Path, phrases: list[Phrase]) -> list[Match]:
    """Return the matches in a file, in the order of its lines."""
    found: list[Match] = []
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        for phrase in phrases:
            found += [Match(path, number, hit[0], phrase.instead) for hit in phrase.pattern.finditer(line)]
    return found


def main(below: list[str]) -> int:
    """Print the table, and the matches below any given paths; return 1 if a module exceeds its budget."""
    listed = phrases()
    lines: Counter[str] = Counter()
    matches: Counter[str] = Counter()
    for path in tracked(below):
        found = matches_in(path, listed)
        lines[module_of(path)] += len((ROOT / path).read_text().splitlines())
        matches[module_of(path)] += len(found)
        for match in found if below else []:
            print(f"{match.path}:{match.line}: {match.text!r} => {match.instead}")
    budgets = {module: -(-count // LINES_PER_MATCH) for module, count in lines.items()}
    over = [module for module in budgets if matches[module] > budgets[module]]
    print(f"{'module':<40} {'lines':>7} {'matches':>7} {'budget':>7}")
    for module in sorted(budgets):
        row = f"{module:<40} {lines[module]:>7} {matches[module]:>7} {budgets[module]:>7}"
        print(row + ("  over" if module in over else ""))
    print(f"{'total':<40} {lines.total():>7} {matches.total():>7} {sum(budgets.values()):>7}")
    if over:
        print("see docs/words.txt; `python docs/check_words.py PATH` lists the matches", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
