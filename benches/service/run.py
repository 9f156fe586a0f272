"""Measure Forebay as a service: start, overlap, growth, fairness, attacks, soak.

Prints tables. A complete run is kept under benches/runs/<date>-<arch>-<cores>-cores/ as service.md and service.json; a
partial run (--only) or a trial run (--quick) is kept only with --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from pathlib import Path

import attacks
import endurance
import fairness
import growth
import overlap
import report
import start
from harness.benches import bench_server, criteo, machine
from harness.benches.noise import Noise
from harness.benches.reporting import say
from setting import Found, Measurement, Setting

MEASUREMENTS = (
    start.MEASUREMENT,
    overlap.MEASUREMENT,
    growth.MEASUREMENT,
    fairness.MEASUREMENT,
    attacks.MEASUREMENT,
    endurance.MEASUREMENT,
)
DATA = machine.ROOT / "data" / "service"
# Criteo-shaped data of a trial run.
SMALL = criteo.Shape(files=2, rows_per_file=100_000, row_group_rows=25_000)


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program = bench_server.server_program()
    made_on = machine.facts(program)
    chosen = [each for each in MEASUREMENTS if not options.only or each.name in options.only]
    shape = SMALL if options.quick else criteo.Shape()
    criteo_data = DATA / "criteo-small" if options.quick else criteo.DATA
    say("data")
    criteo.generate(criteo_data, shape)
    results: list[tuple[Measurement, Found, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-service-") as scratch:
        # A copy, so that a build during the run does not change the measured program.
        copy = Path(shutil.copy2(program, scratch))
        rounds = min(options.rounds, 2) if options.quick else options.rounds
        setting = Setting(
            copy, Path(scratch), DATA, criteo_data.resolve(), shape, rounds, options.minutes, options.quick
        )
        for measurement in chosen:
            say(f"{measurement.name}: start")
            noise = Noise()
            found = measurement.measure(setting)
            results.append((measurement, found, noise.look()))
    print(report.body(results))
    folder = options.out or (None if options.only or options.quick else machine.run_folder())
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "service.md").write_text(report.page(results, made_on))
    measurements = [
        {
            "name": measurement.name,
            "noise": noise,
            "goals": [goal.as_json() for goal in found.goals],
            **found.raw,
        }
        for measurement, found, noise in results
    ]
    kept = {
        "bench": "service",
        "machine": made_on,
        "quick": options.quick,
        "data": dataclasses.asdict(shape),
        "measurements": measurements,
    }
    machine.keep(folder / "service.json", kept)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in MEASUREMENTS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; twice as many for growth (%(default)s)")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of soak (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="trial run on little data; numbers are meaningless")
    parser.add_argument("--out", type=Path, help="folder for the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
