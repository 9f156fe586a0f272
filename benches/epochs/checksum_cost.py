"""Cost of batch checksums: XXH3-64 over the body, relative to the server's CPU seconds per epoch.

python-xxhash hashes bodies received from the server, whose headers must match. "Hot" repeats one body; "cold" cycles
through more bodies than the caches hold. The server hashes a body that it has just written, which is in between.
However, python-xxhash may use wider vectors than the server is compiled for, and be faster, especially when hot. A copy
of the same bodies is timed for comparison.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import xxhash

from epoch import Readers
from forebay._client.checksum import body_of
from harness.benches import criteo, machine
from harness.benches.bench_server import DATASET, Server, server_program

# Largest share at which checksums stay on by default.
GOAL = 0.03
COLD_BYTES = 256 * 2**20
TRIALS = 15
TRIAL_BYTES = 512 * 2**20


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    shape, program = criteo.shape_of(options), server_program()
    made_on = machine.facts(program) | {"xxhash": f"{xxhash.VERSION} (XXH {xxhash.XXHASH_VERSION})"}
    criteo.generate(options.data, shape)
    epochs: list[dict[str, Any]] = []
    with Server(program, options.data) as server, Readers(1) as readers:
        request = {"dataset": DATASET, "plan_id": server.fit(criteo.plan()), "batch_size": options.batch_size}
        bodies = receive(server, request)
        for number in range(-options.warmup, options.rounds):
            for shuffle in (False, True):
                figures = readers.measure(server, {**request, "shuffle": shuffle, "seed": 7}, shape.rows)
                if number >= 0:
                    epochs.append({"shuffled": shuffle, **figures})
    # The server has stopped, so it does not disturb the timing of the hash.
    hashed = {
        "hot": time_each(xxhash.xxh3_64_intdigest, bodies[:1]),  # pyright: ignore[reportArgumentType]
        "cold": time_each(xxhash.xxh3_64_intdigest, bodies),  # pyright: ignore[reportArgumentType]
    }
    into = np.empty_like(bodies[0])
    copied = {
        "hot": time_each(lambda b: np.copyto(into, b), bodies[:1]),
        "cold": time_each(lambda b: np.copyto(into, b), bodies),
    }
    shares = [share_of(epochs, shuffled, hashed, bodies[0].nbytes) for shuffled in (False, True)]
    print_table(bodies[0].nbytes, hashed, copied, shares, made_on)
    run = {
        "bench": "checksum",
        "machine": made_on,
        "data": dataclasses.asdict(shape),
        "batch_size": options.batch_size,
        "body_bytes": bodies[0].nbytes,
        "cold_bodies": len(bodies),
        "hash_seconds_per_body": hashed,
        "copy_seconds_per_body": copied,
        "shares": shares,
        "epochs": epochs,
    }
    machine.keep(options.out, run)


def receive(server: Server, request: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Read whole bodies and check their checksums; repeat them as copies until they exceed the caches."""
    kept: list[pa.Buffer] = []
    with fl.connect(server.url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request)))
        stream = client.do_get(info.endpoints[0].ticket)
        for chunk in iter_chunks(stream):
            body = body_of(chunk.data)
            if body is None:
                raise SystemExit("the received buffers are not slices of one body")
            if xxhash.xxh3_64_intdigest(memoryview(body)) != json.loads(chunk.app_metadata.to_pybytes())["checksum"]:
                raise SystemExit("a header's checksum is not XXH3-64 of the body")
            # A short last batch is kept only if it is the only one.
            if not kept or body.size == kept[0].size:
                kept.append(body)
            if sum(body.size for body in kept) >= COLD_BYTES:
                break
    count = max(len(kept), -(-COLD_BYTES // kept[0].size))
    return [np.frombuffer(body, np.uint8).copy() for body in islice(cycle(kept), count)]  # pyright: ignore[reportArgumentType, reportCallIssue]


def iter_chunks(stream: fl.FlightStreamReader) -> Any:
    """Yield the chunks of a stream; cancel the stream when the caller stops."""
    try:
        yield from stream
    finally:
        stream.cancel()


def time_each(work: Callable[[np.ndarray[Any, Any]], object], bodies: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Return CPU seconds of the work per body: all trials, each over about TRIAL_BYTES, and their median."""
    count = max(1, TRIAL_BYTES // bodies[0].nbytes)
    trials: list[float] = []
    for _ in range(TRIALS):
        sequence = list(islice(cycle(bodies), count))
        before = time.process_time()
        for body in sequence:
            work(body)
        trials.append((time.process_time() - before) / count)
    return {"median": statistics.median(trials), "trials": trials}


def share_of(epochs: list[dict[str, Any]], shuffled: bool, hashed: dict[str, Any], body_bytes: int) -> dict[str, Any]:
    """Return the hash's share of the server's CPU seconds per epoch, and its ratio to fetching and sending.

    The CPU pool decodes, transforms, assembles, encodes and hashes; all other CPU time is fetching and sending.
    """
    of_order = [epoch for epoch in epochs if epoch["shuffled"] is shuffled]
    # In units of a whole body, because the last of a stream is short.
    batches = of_order[0]["bytes"] / body_bytes
    cpu_seconds = statistics.median(epoch["server_cpu_seconds"] for epoch in of_order)
    sending_seconds = statistics.median(
        epoch["server_cpu_seconds"] - epoch["server_pool_cpu_seconds"] for epoch in of_order
    )
    hash_seconds = {heat: batches * timed["median"] for heat, timed in hashed.items()}
    return {
        "shuffled": shuffled,
        "whole_batches": batches,
        "server_cpu_seconds": cpu_seconds,
        "fetch_and_send_cpu_seconds": sending_seconds,
        "hash_seconds": hash_seconds,
        "share_of_server": {heat: _share(seconds, cpu_seconds) for heat, seconds in hash_seconds.items()},
        "ratio_to_fetch_and_send": {heat: _share(seconds, sending_seconds) for heat, seconds in hash_seconds.items()},
    }


def _share(seconds: float, whole: float) -> float | None:
    """Return the share, or None if the epoch is shorter than a clock tick."""
    return seconds / whole if whole > 0 else None


def print_table(
    body_bytes: int,
    hashed: dict[str, Any],
    copied: dict[str, Any],
    shares: list[dict[str, Any]],
    made_on: dict[str, Any],
) -> None:
    """Print the rates, then the shares."""
    print(f"bodies of {body_bytes / 1e6:.2f} MB; {made_on['cores']} cores of {made_on['cpu']}")
    for name, timed in (("xxh3_64", hashed), ("copy", copied)):
        rates = [
            f"{heat} {each['median'] * 1e6:.0f} us, {body_bytes / each['median'] / 1e9:.1f} GB/s"
            for heat, each in timed.items()
        ]
        print(f"  {name}: {'; '.join(rates)}")
    print(f"hashing per epoch, hot to cold, relative to the server's CPU seconds; goal: at most {GOAL:.0%} of all")
    for share in shares:
        print(f"  {'shuffled' if share['shuffled'] else 'file order'}: {_range(share['hash_seconds'], '.3f')} s")
        print(f"    of the total, {share['server_cpu_seconds']:.2f} s: {_range(share['share_of_server'], '.2%')}")
        sending = f"{share['fetch_and_send_cpu_seconds']:.2f} s"
        print(f"    relative to fetching and sending, {sending}: {_range(share['ratio_to_fetch_and_send'], '.1%')}")


def _range(values: dict[str, float | None], form: str) -> str:
    return " to ".join("-" if value is None else format(value, form) for value in values.values())


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    criteo.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="measured epochs per order (%(default)s)")
    parser.add_argument("--warmup", type=int, default=1, help="warm-up epochs (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=8192, help="rows per batch (%(default)s)")
    out = machine.run_folder() / "checksum.json"
    parser.add_argument("--out", type=Path, default=out, help="raw numbers (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
