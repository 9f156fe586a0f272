"""Compare Forebay with its peers, from compressed Parquet to training tensors: rows/s, CPU seconds, memory, agreement.

Prints the table. A run of all contenders is kept under benches/runs/<date>-<arch>-<cores>-cores/ as peers.md and
peers.json; a partial run (--only, --skip-slow) is kept only with --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import reference
import report
from environments import NotInstalled, python_of
from harness.benches import bench_server, criteo, machine
from lineup import LINEUP, Entry
from rates import rate
from reference import Disagreement, Expected
from report import Outcome
from visit import Failed, visit

# Data of the warm-up epoch, and of the check of contenders whose epoch is stopped.
SMALL = criteo.Shape(files=2, rows_per_file=40_000, row_group_rows=16_384)


class Run:
    """Data, reference results, and visits to the contenders."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self._options, self._scratch = options, scratch
        # A copy, so that a build during the run does not change the measured program.
        self._server = shutil.copy2(options.server, scratch)
        self.shape = criteo.shape_of(options)
        small = dataclasses.replace(SMALL, seed=self.shape.seed)
        self._folders = {"whole": options.data.resolve(), "small": scratch / "small"}
        self._rows = {"whole": self.shape.rows, "small": small.rows}
        self._fitted = scratch / "fitted"
        self._fitted.mkdir()
        print(f"criteo-shaped data, {self.shape.rows:,} rows, and reference results", flush=True)
        criteo.generate(self._folders["whole"], self.shape)
        criteo.generate(self._folders["small"], small)
        statistics = reference.fit(self._folders["whole"], self._fitted)
        self._expected: dict[str, Expected] = {
            name: reference.expect(folder, self._fitted, statistics) for name, folder in self._folders.items()
        }

    def check(self, outcome: Outcome) -> None:
        """Compare a contender's output with the reference; if they differ, it is not measured."""
        entry = outcome.entry
        which = "small" if entry.bounded else "whole"
        try:
            found = visit(entry, self._job(entry, "check-small" if entry.bounded else "check"))
            first = self._folder(entry) / "first.npz"
            outcome.checks = reference.check(entry, found, first, self._expected[which])
            outcome.checked_on = f"{self._rows[which]:,} rows"
        except (Failed, NotInstalled, Disagreement) as error:
            outcome.failure = str(error)
        print(f"{entry.name}: {outcome.failure or '; '.join(outcome.checks)}", flush=True)

    def measure(self, outcome: Outcome, number: int) -> None:
        """Run a contender once."""
        for path in sorted(self._folders["whole"].glob("*.parquet")):
            # Put the data into the file cache, from which the previous contender may have evicted it.
            path.read_bytes()
        try:
            result = visit(outcome.entry, self._job(outcome.entry, "time"))
            if not result["stopped"] and not outcome.entry.bounded and result["rows"] != self.shape.rows:
                raise Failed(f"{result['rows']:,} rows received, not {self.shape.rows:,}")
        except Failed as error:
            outcome.failure = f"round {number}: {error}"
            print(f"{outcome.entry.name}: {outcome.failure}", flush=True)
            return
        outcome.rounds[number] = result
        print(f"round {number}, {outcome.entry.name}: {rate(result):,.0f} rows/s", flush=True)

    def _job(self, entry: Entry, mode: str) -> dict[str, Any]:
        data = {name: {"folder": str(folder), "rows": self._rows[name]} for name, folder in self._folders.items()}
        return {
            **data,
            "fitted": str(self._fitted),
            "scratch": str(self._folder(entry)),
            "server": str(self._server),
            "mode": mode,
            "batch_size": self._options.batch_size,
            "cores": machine.cores(),
            "seed": self._options.seed,
            "seconds_max": self._options.seconds_max if entry.bounded else 0,
        }

    def _folder(self, entry: Entry) -> Path:
        folder = self._scratch / entry.name
        folder.mkdir(exist_ok=True)
        return folder


def main() -> None:
    """Check, measure, print and write the run."""
    options = parse()
    made_on = machine.facts(options.server)
    chosen = [entry for entry in LINEUP if is_chosen(entry, options)]
    outcomes = [Outcome(entry) for entry in chosen]
    for outcome in outcomes:
        try:
            python_of(outcome.entry.environment)
        except NotInstalled as error:
            outcome.failure = str(error)
    with tempfile.TemporaryDirectory(prefix="forebay-peers-") as scratch:
        run = Run(options, Path(scratch))
        for outcome in outcomes:
            if not outcome.failure:
                run.check(outcome)
        for number in range(1, options.rounds + 1):
            for outcome in outcomes:
                if not outcome.failure:
                    run.measure(outcome, number)
    parts = report.table(outcomes, run.shape.rows), report.goals(outcomes), report.missing(outcomes)
    print("", *filter(None, parts), sep="\n\n")
    folder = options.out or (None if options.only or options.skip_slow else machine.run_folder())
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "rounds": options.rounds,
        "batch_size": options.batch_size,
        "seconds_max": options.seconds_max,
        "data": dataclasses.asdict(run.shape),
    }
    (folder / "peers.md").write_text(report.page(outcomes, made_on, settings, run.shape.rows))
    kept = {"bench": "peers", "machine": made_on, **settings, "contenders": [each.as_json() for each in outcomes]}
    machine.keep(folder / "peers.json", kept)


def is_chosen(entry: Entry, options: argparse.Namespace) -> bool:
    """Return whether the command line includes the contender."""
    if options.only:
        return entry.name in options.only
    return not (options.skip_slow and entry.slow)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [entry.name for entry in LINEUP]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--skip-slow", action="store_true", help="exclude the slowest contenders")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (%(default)s)")
    seconds = "seconds after the first batch at which epochs of slow contenders are stopped (%(default)s)"
    parser.add_argument("--seconds-max", type=float, default=20, help=seconds)
    criteo.add_options(parser)
    parser.add_argument("--batch-size", type=int, default=8192, help="rows per batch (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of shuffles (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    options.server = bench_server.server_program()
    os.environ.pop("FOREBAY_SERVER_BIN", None)
    return options


if __name__ == "__main__":
    main()
