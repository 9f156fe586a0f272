"""A random walk through the Python client: loops that stop, break, fail and resume, checked row by row.

Everything is drawn from a seed. Ranks of one job run together in this process. Invariant: the batches taken since the
last load or start are exactly the epoch's continuation from that position, `state_dict` is the position after them, and
the end of an epoch is reported exactly when no row is left. A new iterator after the end is the next epoch.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
from harness.daemon import poll
from harness.epoch_order import Epoch, passing_rows
from harness.restartable import Restartable
from harness.trainers.interrupts import Interrupted, Interruption, first_of

GROUPS = (70, 1, 33, 96, 40, 57)
ROWS = sum(GROUPS)
LANES = 8
# The lanes divide the rows of a step, so that a shuffled place may be continued at any of these world sizes.
WORLDS = {1: 24, 2: 12, 4: 6}
EPOCHS = 3
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
PATIENT_SECONDS, HASTY_SECONDS = 60.0, 0.2

Place = tuple[int, int]


def write_rows(folder: Any) -> None:
    """The dataset, whose ids are its row ids."""
    folder.mkdir()
    start = 0
    for number, rows in enumerate(GROUPS):
        pq.write_table(pa.table({"id": np.arange(start, start + rows)}), folder / f"{number}.parquet")
        start += rows


@dataclass
class Saved:
    """A state, and the place that it must be."""

    state: dict[str, Any]
    place: Place


@dataclass
class Driver:
    """One walk."""

    seed: int
    server: Restartable
    with_workers: bool = True
    steps: list[str] = field(default_factory=list)
    """What was done, for the report of a failure."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.shuffle = self.random.random() < 0.6
        self.order: dict[str, Any] = {"seed": self.random.randrange(2**40), "shuffle": self.shuffle}
        if self.shuffle:
            self.order |= {"lanes": LANES, "window_rows": self.random.choice([1, 7, 16384])}
        self.world = self.random.choice(list(WORLDS))
        self.epoch = 0
        self.place: Place = (0, 0)
        self.resume: Place | None = None
        self.saved: Saved | None = None
        self.loops: list[Iterator[Any]] | None = None
        self.ranks = self._datasets()

    def run(self, count: int) -> None:
        """Take so many steps; an AssertionError names the seed and the steps."""
        # A step and how often it comes.
        kinds = {
            self.take: 10, self.interrupt: 6, self.leave: 3, self.peek: 3, self.save: 5, self.load: 6, self.pickle: 2,
            self.choose_epoch: 3, self.close: 2, self.finish: 2, self.stream: 2, self.restart: 1, self.outage: 1,
        }  # fmt: skip
        if self.with_workers:
            kinds[self.workers] = 1
        try:
            for _ in range(count):
                step = self.random.choices(list(kinds), list(kinds.values()))[0]
                self.steps.append(step.__name__)
                step()
                self.look()
        except Exception as error:
            raise AssertionError(f"seed {self.seed}: {error!r} after {' '.join(self.steps)}") from error
        finally:
            self.leave()

    # === Steps ===

    def take(self) -> None:
        """Some batches of every rank."""
        for _ in range(self.random.randint(1, 4)):
            self._step(first_of)

    def finish(self) -> None:
        """All that is left of the epoch."""
        for _ in range(ROWS):
            if self._step(first_of):
                return
        raise AssertionError("the epoch does not end")

    def interrupt(self) -> None:
        """A batch of every rank, with an exception somewhere in `next`."""
        for _ in range(self.random.randint(1, 3)):
            self._step(self._interrupted)

    def leave(self) -> None:
        """Drop the iterators."""
        self.loops = None

    def peek(self) -> None:
        """Make iterators and drop them before their first batch."""
        self._begin()
        self.loops = None

    def close(self) -> None:
        """End the iterators: no end of the epoch."""
        for loop in self.loops or ():
            if hasattr(loop, "close"):
                loop.close()
                assert list(loop) == []
        self.loops = None

    def choose_epoch(self) -> None:
        """Another epoch, or the same."""
        epoch = self.random.randrange(EPOCHS)
        for data in self.ranks:
            data.set_epoch(epoch)
        if epoch != self.place[0]:
            self.epoch, self.resume, self.place, self.loops = epoch, None, (epoch, 0), None

    def save(self) -> None:
        """Keep a state, as a checkpoint would."""
        self.saved = self._state()

    def load(self) -> None:
        """Load what was saved: into the same objects, into new ones, or at another world size."""
        if self.saved is None:
            return
        worlds = list(WORLDS) if self.shuffle or self.saved.place[1] == 0 else [self.world]
        fresh = self.random.choice([False, True])
        if self.random.random() < 0.3 and fresh:
            self.world = self.random.choice(worlds)
        if fresh:
            self.ranks = self._datasets()
        if self.saved.place[1] and not self.shuffle and self.saved.state["world_size"] != self.world:
            # In file order a place in the middle of an epoch belongs to its world size.
            self.world = self.saved.state["world_size"]
            self.ranks = self._datasets()
        self._load(self.saved)

    def pickle(self) -> None:
        """Carry the datasets elsewhere."""
        self.ranks = pickle.loads(pickle.dumps(self.ranks))
        self.loops = None

    def restart(self) -> None:
        """Kill the server and start it again: a loop that runs does not see it."""
        self.server.kill()
        self.server.start()

    def outage(self) -> None:
        """Try to continue while the server is down, then where it is up again."""
        saved = self._state()
        self.ranks = self._datasets(HASTY_SECONDS)
        self._load(saved)
        self.server.kill()
        try:
            for data in self.ranks:
                try:
                    first_of(iter(self._loader(data)))
                except fb.Unavailable:
                    continue
                raise AssertionError("a server that is down has answered")
            self.look()
        finally:
            self.server.start()

        def answers() -> bool:
            try:
                self._begin()
            except fb.Unavailable:
                return False
            return True

        assert poll(answers, seconds=30)
        self._step(first_of)
        saved = self._state()
        self.ranks = self._datasets()
        self._load(saved)

    def stream(self) -> None:
        """The same place by `Client.stream`, with interrupts."""
        saved = self._state()
        epoch, position = saved.place
        rank = self.random.randrange(self.world)
        batch_size = WORLDS[self.world]
        with fb.connect(self.server.url, retry_seconds=PATIENT_SECONDS) as client:
            options: dict[str, Any] = {"rank": rank, "world_size": self.world, "batch_size": batch_size}
            with client.stream("rows", IDS, cursor=json.dumps(saved.state), **options) as stream:
                for _ in range(self.random.randint(1, 4)):
                    at = self.random.randint(1, 60)
                    try:
                        batch = Interruption(at).first_of(stream)
                    except Interrupted:
                        cursor = stream.cursor()
                        assert (cursor.epoch, cursor.position) == (epoch, position)
                        batch = _next(stream)
                    except EOFError:
                        batch = None
                    wanted = self._rows(rank, (epoch, position))
                    assert ([] if batch is None else batch["id"].tolist()) == wanted
                    if batch is None:
                        return
                    epoch, position = self._behind((epoch, position))
                    cursor = stream.cursor()
                    assert (cursor.epoch, cursor.position) == (epoch, position)
                    if position == 0:
                        return

    def workers(self) -> None:
        """The present place through a DataLoader's worker, dropped unused once before."""
        saved = self._state()
        self.ranks = self._datasets()
        self._load(saved)
        persistent, steps = self.random.random() < 0.5, self.random.randint(1, 4)
        for rank, data in enumerate(self.ranks[:1]):
            options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "forkserver"}
            loader = DataLoader(data, batch_size=None, persistent_workers=persistent, **options)
            iter(loader)
            loop, place = iter(loader), saved.place
            for _ in range(steps):
                batch = _next(loop)
                wanted = self._rows(rank, place) if place[0] == saved.place[0] else []
                assert ([] if batch is None else batch["id"].tolist()) == wanted
                if batch is None:
                    break
                place = self._behind(place)
            del loop
            # The state is used up: the whole epoch from its start, or the next one.
            first = _next(iter(loader))
            assert first is not None
            assert first["id"].tolist() == self._rows(rank, (place[0], 0))
        self.ranks = self._datasets()
        self._load(saved)

    # === What must be ===

    def look(self) -> None:
        """Compare every rank's state with the place that it must be."""
        for rank, data in enumerate(self.ranks):
            state = data.state_dict()
            assert (state["epoch"], state["position"]) == self.place, f"rank {rank} says {state}, not {self.place}"

    def _rows(self, rank: int, place: Place) -> list[int]:
        """The rows of a rank's next batch."""
        epoch = Epoch(
            passing_rows(GROUPS), batch_size=WORLDS[self.world], world_size=self.world, epoch=place[0], **self.order
        )
        ids = epoch.ids(rank, place[1])
        return ids[0] if ids else []

    def _behind(self, place: Place) -> Place:
        position = place[1] + WORLDS[self.world] * self.world
        return (place[0] + 1, 0) if position // self.world >= -(-ROWS // self.world) else (place[0], position)

    # === How ===

    def _datasets(self, retry_seconds: float = PATIENT_SECONDS) -> list[FlightDataset]:
        self.loops = None
        made = [
            FlightDataset(
                self.server.url,
                "rows",
                IDS,
                batch_size=WORLDS[self.world],
                world_size=self.world,
                rank=rank,
                epoch=self.epoch,
                prefetch=self.random.randint(1, 3),
                retry_seconds=retry_seconds,
                **self.order,
            )
            for rank in range(self.world)
        ]
        self.place, self.resume = (self.epoch, 0), None
        return made

    def _loader(self, data: FlightDataset) -> Any:
        kind = self.random.randrange(4)
        if kind == 0:
            return DataLoader(data, batch_size=None)
        if kind == 1:
            return FlightLoader(data)
        return StatefulDataLoader(data, batch_size=None) if kind == 2 else data

    def _state(self) -> Saved:
        states = [data.state_dict() for data in self.ranks]
        places = {(state["epoch"], state["position"]) for state in states}
        assert places == {self.place}, f"ranks say {places}, not {self.place}"
        return Saved(json.loads(json.dumps(states[0])), self.place)

    def _load(self, saved: Saved) -> None:
        for data in self.ranks:
            data.load_state_dict(saved.state)
        self.epoch, self.place, self.resume, self.loops = saved.place[0], saved.place, saved.place, None

    def _begin(self) -> list[Iterator[Any]]:
        self.loops = None
        # The epoch after a finished one.
        self.epoch = self.place[0]
        # An interrupt's batch is only safe where nothing stands between the iterator and the loop.
        self.loops = loops = [iter(data if self.random.random() < 0.5 else self._loader(data)) for data in self.ranks]
        self.place = (self.epoch, 0) if self.resume is None else self.resume
        return loops

    def _step(self, read: Any) -> bool:
        """Take a batch of every rank; returns whether it was the epoch's last, or the end after it."""
        loops = self.loops or self._begin()
        before = self.place
        if before[0] != self.epoch:
            # The epoch is over: an exhausted iterator stays exhausted, and a new one starts the next epoch.
            for loop in loops:
                assert _next(loop) is None
            self.loops = None
            return True
        for rank, loop in enumerate(loops):
            is_plain = type(loop).__module__.startswith("forebay")
            try:
                batch = (read if is_plain else first_of)(loop)
            except EOFError:
                batch = None
            wanted = self._rows(rank, before)
            got = [] if batch is None else batch["id"].tolist()
            assert got == wanted, f"rank {rank} at {before}: {got}, not {wanted}"
        self.place, self.resume = self._behind(before), None
        return self.place[0] != self.epoch

    def _interrupted(self, loop: Iterator[Any]) -> Any:
        rank = next(at for at, known in enumerate(self.loops or ()) if known is loop)
        before = self.ranks[rank].state_dict()
        try:
            return Interruption(self.random.randint(1, 40)).first_of(loop)
        except Interrupted:
            assert self.ranks[rank].state_dict() == before
            return first_of(loop)


def _next(loop: Iterator[Any]) -> Any:
    """The next batch; None at the end."""
    try:
        return first_of(loop)
    except EOFError:
        return None
