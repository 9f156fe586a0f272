"""A process full of loads. Reads orders from stdin, a JSON object a line, and tells its tally on stdout.

`{"pace": 1.5}` sets the pace; the end of stdin ends the loads. The role `readers` is the training jobs, `callers` all
other calls, `victim` a job that is there to be killed.
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

TELL_SECONDS = 2.0
JOIN_SECONDS = 20.0
# A victim has not long to live.
VICTIM_REST_SECONDS = 0.5
# By role, how many of each.
CASTS: dict[str, list[tuple[type[Load], int]]] = {
    "readers": [(Ordered, 2), (Plain, 2), (OverTheWeb, 2)],
    "callers": [
        (Fits, 1), (LeftFits, 1), (Explains, 1), (Replays, 1), (Exchanges, 2), (RawTables, 1), (Damaged, 1),
        (BadRequests, 1), (Slow, 3),
    ],
    "victim": [(Plain, 2), (Slow, 1), (Exchanges, 1), (LeftFits, 1)],
}  # fmt: skip


def main() -> None:
    """Play a role until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=CASTS)
    parser.add_argument("--replica", action="append", required=True, help="URL; may be repeated")
    parser.add_argument("--proxied", required=True, help="URL of the first one's proxy")
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--number", type=int, default=0, help="tells processes of a role apart")
    options = parser.parse_args()
    scene = Scene(options.replica, options.proxied, Truth.load(options.truth), Tally())
    first = 1000 * options.number
    loads = [kind(scene, first + number) for kind, count in CASTS[options.role] for number in range(count)]
    if options.role == "victim":
        for load in loads:
            # Told apart from those that live.
            load.name = f"{load.name}; killed in the midst"
            load.rest_seconds = min(load.rest_seconds, VICTIM_REST_SECONDS)
    if options.role == "readers":
        loads += Job(scene).loads
    threads = [threading.Thread(target=load.run, name=type(load).__name__, daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    threading.Thread(target=tell, args=(scene,), daemon=True).start()
    for line in sys.stdin:
        scene.pace = float(json.loads(line)["pace"])
    scene.over.set()
    for thread in threads:
        thread.join(JOIN_SECONDS)
        if thread.is_alive():
            scene.tally.unexpected(thread.name, f"does not end within {JOIN_SECONDS:.0f} s of being told to")
    say(scene.tally)


def tell(scene: Scene) -> None:
    """Say now and then how far it is."""
    while not scene.over.wait(TELL_SECONDS):
        say(scene.tally)


def say(tally: Tally) -> None:
    """Write the tally as a line."""
    print(json.dumps(tally.as_json()), flush=True)


if __name__ == "__main__":
    main()
