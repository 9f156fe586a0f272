"""One start, seen by a fresh Python process that has imported forebay and read its plan before the clock runs.

Takes one JSON object as its argument and prints one: seconds of each part.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import forebay as fb
from service_server import Server

DATASET = "criteo"


def main() -> None:
    """Start, read a batch, say how long each took."""
    order = json.loads(sys.argv[1])
    fitted = fb.FittedPlan.from_json(Path(order["fitted"]))
    print(json.dumps(local(order, fitted) if order["way"] == "local" else server(order, fitted.plan_id)))


def server(order: dict[str, Any], plan_id: str) -> dict[str, float]:
    """Start a server whose state holds the plan; ask it by the plan's id over loopback."""
    with Server(Path(order["program"]), {DATASET: Path(order["data"])}, Path(order["state"])) as started:
        return {"listening": started.listened - started.begun, **ask(started.url, plan_id, order, started.listened)}


def local(order: dict[str, Any], fitted: fb.FittedPlan) -> dict[str, float]:
    """Start a private server, whose state is new, over a Unix socket; the plan travels from this process."""
    os.environ["FOREBAY_SERVER_BIN"] = order["program"]
    begun = time.monotonic()
    url = fb.local({DATASET: order["data"]})
    listened = time.monotonic()
    return {"listening": listened - begun, **ask(url, fitted, order, listened)}


def ask(url: str, plan: fb.FittedPlan | str, order: dict[str, Any], listened: float) -> dict[str, float]:
    """Read the first batch of an epoch."""
    with fb.connect(url) as client:
        connected = time.monotonic()
        asked = {"batch_size": order["batch_size"], "shuffle": order["shuffle"], "seed": 7}
        with client.stream(DATASET, plan, **asked) as stream:
            informed = time.monotonic()
            next(stream)
            came = time.monotonic()
    return {"connection": connected - listened, "flight_info": informed - connected, "first_batch": came - informed}


if __name__ == "__main__":
    main()
