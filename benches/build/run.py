"""What a person waits for: `make demo` or another target in a clean clone, with empty caches of cargo and pip.

Nothing else should run on the machine. The clone is in a temporary folder, with the environment's HOME and CARGO_HOME.
The target is made a second time, when nothing has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.benches import machine
from harness.benches.noise import Noise
from harness.benches.reporting import say
from harness.repository import ROOT
from seconds import seconds_of

# Cargo's own report of a build has the seconds of each crate.
WRAPPER = """#!/bin/sh
if [ "$1" = build ]; then shift; exec cargo build --timings "$@"; fi
exec cargo "$@"
"""
PROGRAM = "forebay-server"
UNIT_SECONDS_MIN = 1


def main() -> None:
    """Measure, print and write the run."""
    parser = argparse.ArgumentParser(description="Time a target of make in a clean clone, with empty caches.")
    parser.add_argument("target", help="target of make, such as demo or build")
    parser.add_argument("--revision", default="HEAD", help="commit to build (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw results, .json")
    parser.add_argument("--log", type=Path, help="file for the output")
    given = parser.parse_args()

    noise = Noise()
    with tempfile.TemporaryDirectory(prefix="forebay-build-") as scratch:
        folder = Path(scratch)
        clone = folder / "forebay"
        git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
        git("-C", str(clone), "checkout", "--quiet", git("-C", str(ROOT), "rev-parse", given.revision))
        cold = make(given.target, clone, folder, given.log)
        built = results(clone)
        again = make(given.target, clone, folder, None)
        program = Path(built["programs"][0]["path"])
        run = {"bench": "build", "command": " ".join(["benches/build/run.py", *sys.argv[1:]])}
        facts = machine.facts(clone / program) | {"commit": git("-C", str(clone), "rev-parse", "HEAD")}
        run |= {"machine": facts, "target": given.target, "cold": cold, "again": again}
        run |= built | {"noise": noise.look()}
    print(json.dumps({key: run[key] for key in ("cold", "again", "crates", "crate_seconds", "programs")}, indent=1))
    if given.out:
        machine.keep(given.out.absolute(), run)


def make(target: str, clone: Path, folder: Path, log: Path | None) -> dict[str, float]:
    """Make a target; return the seconds."""
    cargo = folder / "cargo-timed"
    cargo.write_text(WRAPPER)
    cargo.chmod(0o755)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    rustup = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    environment = os.environ | {"HOME": str(home), "CARGO_HOME": str(home / "cargo"), "RUSTUP_HOME": rustup}
    environment |= {"PIP_NO_CACHE_DIR": "1"}
    # What this process was started with must not decide what is built.
    for name in ("CARGO_TARGET_DIR", "VIRTUAL_ENV", "MAKEFLAGS", "RUSTFLAGS"):
        environment.pop(name, None)
    command = ["make", target, f"CARGO={cargo}", f"PYTHON={sys.executable}"]
    say(f"{' '.join(command)}, in {clone}")
    with (log or Path(os.devnull)).open("w") as output:
        return seconds_of(command, cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT)


def results(clone: Path) -> dict[str, Any]:
    """Return the crates that were compiled, the slowest with their seconds, and the sizes of the programs."""
    report = (clone / "target" / "cargo-timings" / "cargo-timing.html").read_text()
    found = re.search(r"UNIT_DATA = (\[.*?\]);\n", report, re.DOTALL)
    if found is None:
        sys.exit("cargo's report has no UNIT_DATA: its format has changed")
    units = json.loads(found[1])
    slow = sorted((unit for unit in units if unit["duration"] >= UNIT_SECONDS_MIN), key=lambda unit: -unit["duration"])
    return {
        "crates": len({(unit["name"], unit["version"]) for unit in units}),
        "units": len(units),
        # Each of two that run at once counts.
        "crate_seconds": round(sum(unit["duration"] for unit in units), 1),
        "slow_units": [[unit["name"] + unit["target"], unit["start"], unit["duration"]] for unit in slow],
        "programs": [sizes(path, clone) for path in sorted((clone / "target").glob(f"*/{PROGRAM}"))],
    }


def sizes(program: Path, clone: Path) -> dict[str, Any]:
    """Return the bytes of a program, and those without symbols."""
    stripped = program.with_suffix(".stripped")
    shutil.copy(program, stripped)
    subprocess.run(["strip", str(stripped)], check=True)
    size = {"bytes": program.stat().st_size, "stripped_bytes": stripped.stat().st_size}
    stripped.unlink()
    return {"path": str(program.relative_to(clone)), **size}


def git(*arguments: str) -> str:
    """Run git and return what it prints."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
