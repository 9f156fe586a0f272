"""A trainer for tests that kill it: ranks in lockstep processes, which log consumed rows and commit their position.

Started with a `Job` as JSON. Says on stdout, line by line: `rank R PID`, `reached POSITION` after a step that all
ranks have completed, `committed POSITION` once a checkpoint names it, and `finished`. Each step takes a byte of stdin,
so that the parent is never far behind. Each rank logs a line per step:
`{"position": …, "rows": […]}`. Exits with 1 as soon as a rank stops.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import forebay as fb

STEP_SECONDS_MAX = 60
CHECKPOINT = "checkpoint.json"


@dataclass(frozen=True)
class Job:
    """One start of the trainer: its data, and the position to resume from."""

    urls: list[str]
    dataset: str
    plan: dict[str, Any]
    order: dict[str, Any]
    """epoch, seed, lanes, window_rows."""
    world_size: int
    batch_size: int
    start_position: int
    snapshot: str
    """The snapshot of the checkpoint; empty at the start of the epoch."""
    commit_every: int
    """Steps between checkpoints."""
    folder: str

    @property
    def step_rows(self) -> int:
        return self.world_size * self.batch_size

    def log(self, rank: int) -> Path:
        return Path(self.folder) / f"from-{self.start_position}-rank-{rank}-of-{self.world_size}.log"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def say(*words: object) -> None:
    # One write a line, so that lines of several processes do not mix.
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def commit(job: Job, position: int, snapshot: str) -> None:
    """Replace the checkpoint as a whole or not at all."""
    path = Path(job.folder) / CHECKPOINT
    written = path.with_suffix(".new")
    written.write_text(json.dumps({"position": position, "snapshot": snapshot}))
    written.replace(path)
    say("committed", position)


def open_stream(client: fb.Client, job: Job, rank: int) -> fb.Stream:
    return client.stream(
        job.dataset,
        fb.Plan.from_dict(job.plan),
        batch_size=job.batch_size,
        world_size=job.world_size,
        rank=rank,
        shuffle=True,
        start_position=job.start_position,
        snapshot=job.snapshot or None,
        with_row_ids=True,
        **job.order,
    )


def consume(batch: fb.Batch, position: int, log: int) -> None:
    """Take part of a step: note its rows, whose values have to be those of the rows that they say they are."""
    rows = np.asarray(batch["__row_id"])
    if batch.header.position != position or not np.array_equal(np.asarray(batch["id"]), rows):
        raise AssertionError(f"expected the step at {position} with rows that are its own, got {batch.header}")
    os.write(log, (json.dumps({"position": position, "rows": rows.tolist()}) + "\n").encode())


def run_rank(job: Job, rank: int, together: Any, leave: int) -> None:
    # Each rank asks another replica first.
    at = rank % len(job.urls)
    log = os.open(job.log(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with fb.connect(job.urls[at:] + job.urls[:at]) as client, open_stream(client, job, rank) as stream:
        position, end = job.start_position, stream.info.rows
        steps = 0
        while position < end:
            batch = next(stream, None)
            if batch is not None:
                consume(batch, position, log)
            together.wait(STEP_SECONDS_MAX)
            position, steps = min(position + job.step_rows, end), steps + 1
            if rank == 0:
                say("reached", position)
                if steps % job.commit_every == 0 or position == end:
                    commit(job, position, stream.info.snapshot)
                if not os.read(leave, 1):
                    raise EOFError("the parent closed stdin")
        if next(stream, None) is not None:
            raise AssertionError(f"rank {rank} received a step after the end of the epoch")


def main() -> int:
    job = Job(**json.loads(sys.argv[1]))
    # Forked before any of them talks to a server: the packages are imported once.
    forked = multiprocessing.get_context("fork")
    together = forked.Barrier(job.world_size)
    # A forked process has its standard input closed.
    leave = os.dup(sys.stdin.fileno())
    ranks = [forked.Process(target=run_rank, args=(job, rank, together, leave)) for rank in range(job.world_size)]
    for rank, process in enumerate(ranks):
        process.start()
        say("rank", rank, process.pid)
    running = list(ranks)
    while running:
        multiprocessing.connection.wait([process.sentinel for process in running])
        for process in [process for process in running if not process.is_alive()]:
            running.remove(process)
            if process.exitcode != 0:
                for other in running:
                    other.kill()
                return 1
    say("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main())
