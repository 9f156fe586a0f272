"""One start, measured by a new Python process that imports forebay and reads its plan before the clock starts.

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
    """Start a server, read a batch, and print the seconds of each part."""
    options = json.loads(sys.argv[1])
    fitted = fb.FittedPlan.from_json(Path(options["fitted"]))
    print(json.dumps(local(options, fitted) if options["way"] == "local" else server(options, fitted.plan_id)))


def server(options: dict[str, Any], plan_id: str) -> dict[str, float]:
    """Start a server whose state has the plan; request a stream by plan id over loopback."""
    with Server(Path(options["program"]), {DATASET: Path(options["data"])}, Path(options["state"])) as started:
        return {
            "listening": started.listened - started.begun,
            **first_batch(started.url, plan_id, options, started.listened),
        }


def local(options: dict[str, Any], fitted: fb.FittedPlan) -> dict[str, float]:
    """Start a private server with empty state on a Unix socket; the request includes the plan."""
    os.environ["FOREBAY_SERVER_BIN"] = options["program"]
    begun = time.monotonic()
    url = fb.local({DATASET: options["data"]})
    listened = time.monotonic()
    return {"listening": listened - begun, **first_batch(url, fitted, options, listened)}


def first_batch(url: str, plan: fb.FittedPlan | str, options: dict[str, Any], listened: float) -> dict[str, float]:
    """Read the first batch of an epoch."""
    with fb.connect(url) as client:
        connected = time.monotonic()
        stream_options: dict[str, Any] = {"batch_size": options["batch_size"], "shuffle": options["shuffle"], "seed": 7}
        with client.stream(DATASET, plan, **stream_options) as stream:
            informed = time.monotonic()
            next(stream)
            arrived = time.monotonic()
    return {"connection": connected - listened, "flight_info": informed - connected, "first_batch": arrived - informed}


if __name__ == "__main__":
    main()
