"""Servers with views, over two small tables."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.daemon import Daemon
from harness.metrics import scrape
from harness.prepare import MANIFEST, prepare_binary
from harness.serving import raw_table

ROWS = 20_000
JOINED = """
SELECT f.id, f.delay, p.seats, row_number() OVER (PARTITION BY f.plane ORDER BY f.id) AS nth
FROM flights f JOIN planes p ON f.plane = p.plane
WHERE f.delay IS NOT NULL
ORDER BY f.id
"""
Start = Callable[..., Daemon]
"""The type of the fixture `start`."""


def flights(rows: int = ROWS, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    delay = pa.array(random.normal(size=rows), mask=random.random(rows) < 0.1)
    return pa.table({"id": np.arange(rows), "plane": random.integers(0, 300, rows), "delay": delay})


@contextlib.contextmanager
def program(folder: Path | None) -> Iterator[None]:
    """Use the server in a folder."""
    before = os.environ.get("FOREBAY_SERVER_BIN")
    if folder:
        os.environ["FOREBAY_SERVER_BIN"] = str(folder / "forebay-server")
    try:
        yield
    finally:
        if folder and before is not None:
            os.environ["FOREBAY_SERVER_BIN"] = before
        elif folder:
            del os.environ["FOREBAY_SERVER_BIN"]


def script(folder: Path, text: str) -> None:
    """Put a forebay-prepare into a folder that does something before the real one runs."""
    path = folder / "forebay-prepare"
    path.write_text(f'#!/bin/sh\n{text}\nexec "{prepare_binary()}" "$@"\n')
    path.chmod(0o755)


def lines(daemon: Daemon, words: str) -> list[dict[str, Any]]:
    """The log lines so far with these words in their message."""
    parsed = [json.loads(line)["fields"] for line in list(daemon.lines) if line.startswith("{")]
    return [line for line in parsed if words in line["message"]]


def runs(daemon: Daemon) -> float:
    """The number of runs, including one that is running."""
    page = scrape(daemon)
    ended = [page.value("forebay_view_runs_total", status=status) for status in ("complete", "failed")]
    return sum(ended) + page.value("forebay_view_runs_active")


def results(tmp_path: Path) -> list[Path]:
    """The folders of complete results."""
    return sorted(path.parent for path in (tmp_path / "state/views").glob(f"*/*/{MANIFEST}"))


def children(daemon: Daemon) -> list[int]:
    """The process ids of running forebay-prepare programs of a server."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == daemon.process.pid and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def runs_no_more(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def attempt(daemon: Daemon, name: str) -> str:
    """Read a view; returns the error, or an empty text."""
    with fl.connect(daemon.url) as client:
        try:
            raw_table(client, name)
        # pyarrow raises FAILED_PRECONDITION as ArrowInvalid.
        except (fl.FlightError, pa.ArrowException) as error:
            return str(error)
    return ""


def expected(inputs: Mapping[str, Path], sql: str) -> pa.Table:
    """The rows of a query as DuckDB computes them."""
    with duckdb.connect() as engine:
        for name, folder in inputs.items():
            engine.register(name, pq.read_table(folder))
        return engine.sql(sql).to_arrow_table()
