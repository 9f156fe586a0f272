"""What a developer waits for: `cargo build` of forebay-server after one changed line, in checkouts of several commits.

python changed_line.py --checkout FOLDER FILE ... --checkout FOLDER FILE ... [--out FILE]

The FILEs of a checkout are relative to it. Each checkout has a separate target folder, `target/` in it. A function is
added at the end of a file, the build is timed, and the next file follows; the files are restored at the end. Nothing
else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.benches import machine
from harness.benches.noise import Noise
from harness.benches.reporting import say
from seconds import seconds_of

COMMAND = ("cargo", "build", "--locked", "--workspace", "--bin", "forebay-server")


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", nargs="+", action="append", required=True, metavar=("FOLDER", "FILE"))
    parser.add_argument("--rounds", type=int, default=3, help="timed builds of each file (%(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw results, .json")
    given = parser.parse_args()

    checkouts = [(Path(folder), files) for folder, *files in given.checkout]
    sources = {folder / file: (folder / file).read_text() for folder, files in checkouts for file in files}
    noise = Noise()
    found: dict[Path, list[dict[str, float]]] = {source: [] for source in sources}
    try:
        for folder, _ in checkouts:
            build(folder)
        for number in range(given.rounds):
            for folder, files in checkouts:
                for file in files:
                    source = folder / file
                    added = f"\n/// Changes with each build.\npub fn changed_line() -> usize {{\n    {number}\n}}\n"
                    source.write_text(sources[source] + added)
                    found[source].append(build(folder))
                    say(f"{source}: {found[source][-1]}")
    finally:
        for source, text in sources.items():
            source.write_text(text)
    builds = [
        {"commit": commit(folder), "file": file, "builds": found[folder / file], "median": median(found[folder / file])}
        for folder, files in checkouts
        for file in files
    ]
    program = checkouts[-1][0] / "target/debug/forebay-server"
    run = {"bench": "changed_line", "command": " ".join(["benches/build/changed_line.py", *sys.argv[1:]])}
    run |= {"machine": machine.facts(program), "build": " ".join(COMMAND), "files": builds, "noise": noise.look()}
    print(json.dumps([{key: one[key] for key in ("commit", "file", "median")} for one in builds], indent=1))
    if given.out:
        machine.keep(given.out.absolute(), run)


def build(folder: Path) -> dict[str, float]:
    """Build the server; return the seconds."""
    seconds = seconds_of([*COMMAND, "--quiet", "--target-dir", "target"], cwd=folder)
    return {"wall_s": seconds["wall_s"], "cpu_s": round(seconds["user_cpu_s"] + seconds["system_cpu_s"], 1)}


def median(builds: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of the seconds."""
    return {key: statistics.median(one[key] for one in builds) for key in ("wall_s", "cpu_s")}


def commit(folder: Path) -> str:
    """Return the commit of a checkout."""
    command: list[Any] = ["git", "-C", folder, "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
