"""A process that runs loads. Reads JSON lines from stdin and writes its tally to stdout.

`{"pace": 1.5}` sets the pace; the end of stdin ends the loads. Roles: `readers` runs training jobs, `callers` all other
calls, `victim` loads that will be killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from callers import BadRequests, Damaged, Exchanges, Explains, Fits, LeftFits, RawTables, Replays
from readers import Job, Ordered, OverTheWeb, Plain, Slow
from tally import Tally
from truth import Truth
from visit import Load, Scene

REPORT_SECONDS = 2.0
JOIN_SECONDS = 20.0
# A victim is killed after a few seconds.
VICTIM_REST_SECONDS = 0.5
# Loads of each role and how many of each.
ROLES: dict[str, list[tuple[type[Load], int]]] = {
    "readers": [(Ordered, 2), (Plain, 2), (OverTheWeb, 2)],
    "callers": [
        (Fits, 1), (LeftFits, 1), (Explains, 1), (Replays, 1), (Exchanges, 2), (RawTables, 1), (Damaged, 1),
        (BadRequests, 1), (Slow, 3),
    ],
    "victim": [(Plain, 2), (Slow, 1), (Exchanges, 1), (LeftFits, 1)],
}  # fmt: skip


def main() -> None:
    """Run the loads of a role until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--replica", action="append", required=True, help="URL; may be repeated")
    parser.add_argument("--proxied", required=True, help="URL of the first replica's proxy")
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--number", type=int, default=0, help="seeds the random numbers of this process")
    options = parser.parse_args()
    scene = Scene(options.replica, options.proxied, Truth.load(options.truth), Tally())
    first = 1000 * options.number
    loads = [kind(scene, first + number) for kind, count in ROLES[options.role] for number in range(count)]
    if options.role == "victim":
        for load in loads:
            # Counted separately from loads that are not killed.
            load.name = f"{load.name}; killed"
            load.rest_seconds = min(load.rest_seconds, VICTIM_REST_SECONDS)
    if options.role == "readers":
        loads += Job(scene).loads
    threads = [threading.Thread(target=load.run, name=type(load).__name__, daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    threading.Thread(target=report, args=(scene,), daemon=True).start()
    for line in sys.stdin:
        scene.pace = float(json.loads(line)["pace"])
    scene.over.set()
    for thread in threads:
        thread.join(JOIN_SECONDS)
        if thread.is_alive():
            scene.tally.unexpected(thread.name, f"still running {JOIN_SECONDS:.0f} s after the end of the run")
    write(scene.tally)


def report(scene: Scene) -> None:
    """Write the tally every few seconds."""
    while not scene.over.wait(REPORT_SECONDS):
        write(scene.tally)


def write(tally: Tally) -> None:
    """Write the tally as a line of JSON."""
    print(json.dumps(tally.as_json()), flush=True)


if __name__ == "__main__":
    main()
