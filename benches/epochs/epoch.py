"""One epoch, read concurrently by one process per rank, with its time, CPU seconds and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.benches.bench_server import Server

READER = Path(__file__).with_name("reader.py")


class Readers:
    """One reader process per rank, reused in all rounds to exclude their start."""

    def __init__(self, world_size: int) -> None:
        self._processes = [
            subprocess.Popen([sys.executable, READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(world_size)
        ]

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.communicate()

    def measure(self, server: Server, request: dict[str, Any], rows: int) -> dict[str, Any]:
        """Read the epoch and return its figures; all ranks together must receive `rows` rows.

        The clock runs from the first rank's DoGet to the last rank's end; tickets are requested before.
        """
        request = {**request, "world_size": len(self._processes)}
        for rank, process in enumerate(self._processes):
            _send(process, {"url": server.url, "request": request, "rank": rank})
        info_seconds = [_receive(process)["info_seconds"] for process in self._processes]

        peak_is_of_round = server.reset_peak_rss()
        stages_before, pool_before, cpu_before = server.stage_seconds(), server.pool_cpu_seconds(), server.cpu_seconds()
        for process in self._processes:
            _send(process, {})
        ranks = [_receive(process) for process in self._processes]
        cpu_seconds, pool_seconds = server.cpu_seconds() - cpu_before, server.pool_cpu_seconds() - pool_before
        stages = server.stage_seconds()

        received = sum(rank["rows"] for rank in ranks)
        if received != rows:
            raise SystemExit(f"the epoch of {request} had {received:,} rows, not {rows:,}")
        wall_seconds = max(rank["end"] for rank in ranks) - min(rank["begin"] for rank in ranks)
        return {
            "rows": received,
            "batches": sum(rank["batches"] for rank in ranks),
            "bytes": sum(rank["bytes"] for rank in ranks),
            "wall_seconds": wall_seconds,
            "rows_per_second": received / wall_seconds,
            "server_cpu_seconds": cpu_seconds,
            "server_cpu_seconds_per_row": cpu_seconds / received,
            "server_pool_cpu_seconds": pool_seconds,
            "server_peak_rss_bytes": server.peak_rss_bytes(),
            "peak_rss_is_of_this_round": peak_is_of_round,
            "server_stage_seconds": {stage: seconds - stages_before[stage] for stage, seconds in stages.items()},
            "reader_cpu_seconds": sum(rank["reader_cpu_seconds"] for rank in ranks),
            "info_seconds": info_seconds,
            "load_average_1min": os.getloadavg()[0],
            "ranks": ranks,
        }


def _send(process: subprocess.Popen[str], command: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(command) + "\n")
    process.stdin.flush()


def _receive(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a reader exited with {process.wait()}; see above")
    return json.loads(line)
