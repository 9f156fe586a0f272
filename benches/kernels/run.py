"""Compare Forebay's kernels with other programs in one run on one core: times, ratios, and equality of results.

Prints the tables. A complete run is kept under benches/runs/<date>-<arch>-<cores>-cores/ as kernels.json,
kernels.md and kernels-curve.svg; a partial run (--only) is kept only with --out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import one_core  # isort: skip
import duckdb
import numexpr
import polars

import curve
import report
from harness.benches import machine
from rounds import Workload, measure
from runner import Runner
from workloads.assemble import assemble
from workloads.dense import dense
from workloads.hashes import hash_int64, hash_strings
from workloads.index import bucketize, one_hot
from workloads.standardize import standardize
from workloads.vocab import vocab_dictionary, vocab_plain

WORKLOADS: dict[str, Callable[[Runner, int], Workload]] = {
    "standardize": standardize,
    "dense": dense,
    "vocab-dictionary": vocab_dictionary,
    "vocab-plain": vocab_plain,
    "hash-int64": hash_int64,
    "hash-strings": hash_strings,
    "assemble": assemble,
    "one-hot": one_hot,
    "bucketize": bucketize,
}
CURVE = "curve"


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    # Before pinning, because the folder's name includes the number of cores.
    made_on, folder = facts(options.program), options.out or machine.run_folder()
    settings = {"core": one_core.pin(options.core), "rounds": options.rounds, "seed": options.seed}
    outcomes: list[report.Outcome] = []
    points: list[curve.Point] | None = None
    for key in options.only or [*WORKLOADS, CURVE]:
        # A new process and folder for each workload, so that none reuses memory of the previous one.
        with scratch(options.keep, key) as data, Runner(options.program, Path(data)) as runner:
            if key == CURVE:
                points = curve.trace(runner, options.seed, options.rounds)
                print(curve.table(points), end="\n\n", flush=True)
                continue
            workload = WORKLOADS[key](runner, options.seed)
            outcomes.append(report.Outcome(workload, measure(workload, options.rounds)))
            print(report.table(outcomes[-1]), end="\n\n", flush=True)
    if outcomes:
        print(report.goals(outcomes))
    if options.only and not options.out:
        return
    folder.mkdir(parents=True, exist_ok=True)
    page = report.page(outcomes, made_on, settings, curve.table(points) if points else None)
    (folder / "kernels.md").write_text(page)
    if points:
        curve.draw(points, folder / "kernels-curve.svg")
    run: dict[str, Any] = {
        "bench": "kernels",
        "machine": made_on,
        **settings,
        "workloads": [outcome.as_json() for outcome in outcomes],
        "curve": [point.as_json() for point in points or []],
    }
    (folder / "kernels.json").write_text(json.dumps(run, indent=1) + "\n")
    print(f"\nresults: {folder.relative_to(machine.ROOT) if folder.is_relative_to(machine.ROOT) else folder}")


def scratch(keep: Path | None, key: str) -> Any:
    """Return a context manager of a folder, temporary unless `keep` is given."""
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="forebay-kernels-")
    (keep / key).mkdir(parents=True, exist_ok=True)
    return _Kept(keep / key)


class _Kept:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Path:
        return self._folder

    def __exit__(self, *_: object) -> None:
        """Keep the folder."""


def facts(program: Path) -> dict[str, Any]:
    """Return facts about the machine, and the peers' versions."""
    found = machine.facts(program)
    for key in [key for key in found if key.startswith("server")]:
        found[key.replace("server", "kernels")] = found.pop(key)
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    versions = {"polars": polars.__version__, "duckdb": duckdb.__version__, "numexpr": numexpr.__version__}
    return {**found, **versions, "huge_pages": pages.read_text().strip() if pages.exists() else "unknown"}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*WORKLOADS, CURVE]
    parser.add_argument("--only", nargs="+", choices=names, metavar="WORKLOAD", help=f"some of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=9, help="rounds per workload (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the data (%(default)s)")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--keep", type=Path, help="folder for the columns and the kernels' requests")
    target = Path(os.environ.get("CARGO_TARGET_DIR", machine.ROOT / "target"))
    program = target / "release" / "kernel_runner"
    parser.add_argument("--program", type=Path, default=program, help="program that runs the kernels (%(default)s)")
    options = parser.parse_args()
    options.program = options.program.resolve()
    if not options.program.exists():
        build = "cargo build --release -p forebay-benches --bin kernel_runner"
        parser.error(f"{options.program} does not exist; build it: {build}")
    return options


if __name__ == "__main__":
    main()
