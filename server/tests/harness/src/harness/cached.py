"""Datasets and requests for tests of the cache of finished rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from forebay.errors import translate
from harness.daemon import LOOPBACK, Daemon
from harness.epochs import (
    DICTIONARY_V1,
    DICTIONARY_V2,
    FILES,
    OUTPUTS,
    REMAINDERS,
    Data,
    every_byte,
    random_request,
    write,
)
from harness.metrics import scrape
from harness.serving import plan_of

# Chunks of the cache have up to 8,192 rows: row groups of one chunk and of several.
CACHED_FILES = {name: FILES[name] for name in ("uneven", "plain", "single")}
CACHED_FILES["chunks"] = [([18_000, 3000], DICTIONARY_V2), ([8192, 1, 2500], DICTIONARY_V1)]
FIXED = [output for output in OUTPUTS if output["name"] not in ("text", "key", "flag", "blob", "list", "struct")]
TEXT = next(output for output in OUTPUTS if output["name"] == "text")
CHUNK = 8192
Everything = list[list[tuple[bytes, bytes]]]


def started(folders: dict[str, Path], state: Path, *flags: str) -> Daemon:
    datasets = [part for name, folder in folders.items() for part in ("--dataset", f"{name}={folder}")]
    return Daemon(*LOOPBACK, "--state", str(state), *datasets, *flags)


def write_folders(folder: Path) -> dict[str, Path]:
    """Write the datasets; returns their folders."""
    for name, files in CACHED_FILES.items():
        write(folder / name, files)
    return {name: folder / name for name in CACHED_FILES}


def without_cache(folders: dict[str, Path], state: Path) -> Iterator[fl.FlightClient]:
    """Run a server without a cache; yields a client of it."""
    daemon = started(folders, state)
    with fl.connect(daemon.url) as client:
        yield client
    daemon.stop()


def starting(state: Path) -> Iterator[Callable[..., Daemon]]:
    """Yield a function that starts servers, and end them afterwards."""
    daemons: list[Daemon] = []

    def begin(folders: dict[str, Path], *flags: str) -> Daemon:
        daemons.append(started(folders, state / f"state-{len(daemons)}", *flags))
        return daemons[-1]

    yield begin
    for daemon in daemons:
        daemon.stop()


def counts(daemon: Daemon) -> tuple[int, int, int]:
    """Hits, misses and evictions so far."""
    found = scrape(daemon)
    hits, misses, evictions = (
        int(found.value(f"forebay_cache_{name}_total")) for name in ("hits", "misses", "evictions")
    )
    return hits, misses, evictions


def chunk_count(data: Data) -> int:
    return sum(-(-rows // CHUNK) for rows in data.groups)


def cached_request(data: Data, number: int) -> dict[str, Any]:
    """A random request over rows of fixed size, and sometimes over others; resumed, sampled or with row ids."""
    random = np.random.default_rng([7, number])
    request = random_request(data, REMAINDERS[number % 3], number)
    request["with_row_ids"] = bool(random.integers(2))
    names = random.permutation(len(FIXED))[: 1 + random.integers(len(FIXED))]
    request["plan"]["outputs"] = [FIXED[i] for i in sorted(names)] + [TEXT] * (number % 8 == 7)
    if number % 5 == 2:
        request["plan"]["derive"] = [{"name": "twice", "expr": "x * 2 + __row_id"}]
        request["plan"]["outputs"].append({"name": "twice", "parts": [{"columns": ["twice"]}]})
    if number % 4 == 1 and "order_version" not in request and not request.get("start_position"):
        request |= {"sample": 0.4, "sample_seed": number}
    return request


def outcome(client: fl.FlightClient, request: dict[str, Any]) -> Everything | str:
    """Every byte of a request's streams, or the error."""
    try:
        return every_byte(client, request)
    except (pa.ArrowException, fl.FlightError) as error:
        return message(error)


def message(error: BaseException) -> str:
    """The server's message, without the number of the call."""
    return re.sub(r" \[request .*", "", str(translate(error)))


def request_of(dataset: str, **changes: Any) -> dict[str, Any]:
    return {"dataset": dataset, "plan": plan_of(FIXED), "batch_size": 1000, **changes}


SHUFFLED = {"shuffle": True, "lanes": 8, "window_rows": 2000}
