"""Replicas and trainers are killed at random: every checkpoint has consumed exactly a prefix of the epoch.

Each schedule is drawn from a seed, which a failure reports. FOREBAY_CRASH_SEED=n runs that schedule again,
FOREBAY_CRASH_SEEDS=n runs the first n.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.epoch_order import Epoch, passing_rows
from harness.repository import package_environment
from harness.trainers.crash_trainer import CHECKPOINT, Job

pytestmark = pytest.mark.long

SEEDS_DEFAULT = 3
# The longest silence of a trainer, which may wait for a replica to restart.
SILENCE_SECONDS = 60
# Steps that a trainer may be ahead of what is done to it.
STEPS_AHEAD = 3
LANES = 8
# 128 MB an epoch, 16 MB for each of 8 ranks: more than a server, a socket and a client hold between them.
ROWS, ROW_BYTES = 4_000, 32_000
GROUP_ROWS = 230


def seeds() -> list[int]:
    if one := os.environ.get("FOREBAY_CRASH_SEED"):
        return [int(one)]
    return list(range(int(os.environ.get("FOREBAY_CRASH_SEEDS", SEEDS_DEFAULT))))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crash") / "data"
    folder.mkdir()
    texts = pa.DictionaryArray.from_arrays(np.zeros(ROWS, np.int32), ["p" * ROW_BYTES])
    table = pa.table({"id": np.arange(ROWS), "text": texts})
    for name, start, end in (("a", 0, ROWS // 3), ("b", ROWS // 3, ROWS)):
        path = folder / f"{name}.parquet"
        pq.write_table(table.slice(start, end - start), path, store_schema=False, row_group_size=GROUP_ROWS)
    return folder


@dataclass(frozen=True)
class Event:
    """What is killed once the trainer has reached a position."""

    position: int
    victim: str
    """replica: the one with the most streams. trainer: all its processes. rank: one of them."""


@dataclass
class Schedule:
    """All that a seed decides."""

    seed: int
    order: dict[str, Any] = field(init=False)
    where: str = field(init=False)
    commit_every: int = field(init=False)
    batch_sizes: dict[int, int] = field(init=False)
    events: list[Event] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        self.order = {
            "epoch": int(random.integers(10)),
            "seed": int(random.integers(2**63)),
            "lanes": LANES,
            "window_rows": int(random.choice([1, 50, 400, 16384])),
        }
        self.where = str(random.choice(["", "id % 3 <> 0"]))
        self.commit_every = int(random.integers(1, 7))
        # Lanes divides each step's rows, so any of these can resume from any other's checkpoint.
        self.batch_sizes = {world: int(random.choice([32, 48, 64, 80])) // world for world in (4, 2, 8)}
        end = len(self.passing)
        # Late in the epoch a server has sent all that there is, and its death goes unnoticed.
        replicas = [Event(int(at), "replica") for at in [end // 20, *random.integers(0, end * 2 // 3, size=4)]]
        # Two deaths of the trainer: 4 ranks, then 2, then 8 to the end.
        trainers = [
            Event(int(random.integers(low, low + end // 5)), str(random.choice(["trainer", "rank"])))
            for low in (end // 12, end // 3)
        ]
        self.events = sorted([*replicas, *trainers], key=lambda event: event.position)

    @property
    def passing(self) -> list[int]:
        return [row for row in range(ROWS) if not self.where or row % 3]

    def epoch(self) -> Epoch:
        sizes = [
            min(GROUP_ROWS, rows - start)
            for rows in (ROWS // 3, ROWS - ROWS // 3)
            for start in range(0, rows, GROUP_ROWS)
        ]
        kept = np.isin(np.arange(ROWS), self.passing)
        return Epoch(passing_rows(sizes, kept), shuffle=True, **self.order)


def active_streams(daemon: Daemon) -> int:
    match = re.search(r"^forebay_streams_active(?:\{\})? (\d+)", daemon.get("/metrics")[2], re.MULTILINE)
    assert match, "no forebay_streams_active in the metrics"
    return int(match[1])


class Replicas:
    """Two servers of the same files, each at an address that it keeps over its deaths."""

    def __init__(self, data: Path, states: Path) -> None:
        self._data, self._states = data, states
        self.listens = ["127.0.0.1:0", "127.0.0.1:0"]
        self.running: list[Daemon | None] = [None, None]
        self.kills_under_streams = 0
        for index in range(2):
            self.start(index)
            self.listens[index] = self.daemon(index).url.removeprefix("grpc://")

    @property
    def urls(self) -> list[str]:
        return [f"grpc://{address}" for address in self.listens]

    def daemon(self, index: int) -> Daemon:
        daemon = self.running[index]
        assert daemon is not None
        return daemon

    def start(self, index: int) -> None:
        if self.running[index] is None:
            flags = ("--listen", self.listens[index], *LOOPBACK[2:], "--state", str(self._states / str(index)))
            self.running[index] = Daemon(*flags, "--dataset", f"data={self._data}")

    def kill_the_busiest(self) -> None:
        """Kill -9 right after the other replica has restarted: one replica is always running."""
        active = [-1 if daemon is None else active_streams(daemon) for daemon in self.running]
        index = int(np.argmax(active))
        self.start(1 - index)
        self.kills_under_streams += active[index] > 0
        self.daemon(index).stop()
        self.running[index] = None

    def stop(self) -> None:
        for daemon in self.running:
            if daemon is not None:
                daemon.stop()


class Trainer:
    """A trainer's processes, from one start to its end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pids: dict[int, int] = {}
        self.commits: list[int] = []
        self._errors = Path(job.folder) / f"from-{job.start_position}.err"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.trainers.crash_trainer", job.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env=package_environment(),
            )
        self._let_continue(STEPS_AHEAD)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _let_continue(self, steps: int) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("." * steps)
            self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def positions(self) -> Iterator[int]:
        """Yield the positions that it reaches, until its ranks exit."""
        while (line := self._lines.get(timeout=SILENCE_SECONDS)) is not None:
            what, *numbers = line.split()
            if what == "rank":
                self.pids[int(numbers[0])] = int(numbers[1])
            elif what == "committed":
                self.commits.append(int(numbers[0]))
            elif what == "reached":
                yield int(numbers[0])
                self._let_continue(1)

    def kill(self, event: Event) -> None:
        """All of it at once, or one rank, which the others do not survive."""
        if event.victim == "rank":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[self.job.world_size - 1], signal.SIGKILL)
        else:
            self._kill_all()

    def stop(self) -> None:
        """End what still runs of it, and wait for that."""
        self._kill_all()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def errors(self) -> str:
        return self._errors.read_text()[-4000:]

    def consumed(self) -> dict[int, list[int]]:
        """The rows of all ranks by the position of their step, as far as their logs go."""
        rows: dict[int, list[int]] = {}
        for rank in range(self.job.world_size):
            path = self.job.log(rank)
            # A rank that was killed may have left half a line.
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
            for line in lines:
                if line.endswith("\n"):
                    step = json.loads(line)
                    rows.setdefault(step["position"], []).extend(step["rows"])
        return rows


def checkpoint(folder: Path) -> tuple[int, str]:
    path = folder / CHECKPOINT
    if not path.exists():
        return 0, ""
    saved = json.loads(path.read_text())
    return saved["position"], saved["snapshot"]


@dataclass
class Run:
    """One schedule, carried out from the start of the epoch to its end."""

    schedule: Schedule
    replicas: Replicas
    folder: Path

    def __post_init__(self) -> None:
        self.events = list(self.schedule.events)
        self.rows_in_order = self.schedule.epoch().prefix(len(self.schedule.passing))
        self.worlds: list[int] = []

    def trainer(self, world_size: int) -> Trainer:
        outputs = [
            {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
            {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
        ]
        position, snapshot = checkpoint(self.folder)
        return Trainer(
            Job(
                urls=self.replicas.urls,
                dataset="data",
                plan={"filter": self.schedule.where, "outputs": outputs},
                order=self.schedule.order,
                world_size=world_size,
                batch_size=self.schedule.batch_sizes[world_size],
                start_position=position,
                snapshot=snapshot,
                commit_every=self.schedule.commit_every,
                folder=str(self.folder),
            )
        )

    def carry_out(self) -> None:
        """Train until the epoch's end, each death followed by a start at the next world size."""
        worlds = [4, 2, 8]
        while checkpoint(self.folder)[0] < len(self.rows_in_order):
            assert worlds, "the trainer died more often than the schedule says"
            trainer = self.trainer(worlds.pop(0))
            self.worlds.append(trainer.job.world_size)
            try:
                killed = self._drive(trainer)
                code = trainer.process.wait(SILENCE_SECONDS)
                assert killed or code == 0, f"the trainer failed with code {code}:\n{trainer.errors()}"
                self._check_commits(trainer)
            finally:
                trainer.stop()

    def _drive(self, trainer: Trainer) -> bool:
        """Inject the scheduled faults until it ends; returns whether it was killed."""
        killed = False
        for position in trainer.positions():
            while not killed and self.events and self.events[0].position <= position:
                event = self.events.pop(0)
                if event.victim == "replica":
                    self.replicas.kill_the_busiest()
                else:
                    trainer.kill(event)
                    killed = True
        return killed

    def _check_commits(self, trainer: Trainer) -> None:
        """Between one checkpoint and the next, all ranks together consumed just the rows between them, once each."""
        consumed, start = trainer.consumed(), trainer.job.start_position
        # A kill may happen between a checkpoint and its announcement.
        last = checkpoint(self.folder)[0]
        for position in sorted({*trainer.commits, last} - {start}):
            got = [row for step, rows in consumed.items() if start <= step < position for row in rows]
            want = self.rows_in_order[start:position]
            assert sorted(got) == sorted(want), (
                f"between checkpoints {start} and {position}, {trainer.job.world_size} ranks: {len(got)} rows for "
                f"{len(want)}; missing {sorted(set(want) - set(got))[:10]}, wrong {sorted(set(got) - set(want))[:10]}"
            )
            start = position


@pytest.mark.parametrize("seed", seeds())
def test_every_checkpoint_is_a_prefix_of_the_epoch(data: Path, tmp_path: Path, seed: int):
    schedule = Schedule(seed)
    replicas = Replicas(data, tmp_path / "state")
    try:
        run = Run(schedule, replicas, tmp_path)
        run.carry_out()
        # Ensure that the schedule was effective: it killed the trainer twice, and replicas in mid-stream.
        assert run.worlds == [4, 2, 8]
        assert replicas.kills_under_streams > 0
    except BaseException:
        print(f"again with FOREBAY_CRASH_SEED={seed}: {schedule}")
        raise
    finally:
        replicas.stop()
