"""Training jobs: streams that are read to their end, by our client and by pyarrow alone, every batch checked."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import forebay as fb
import specs
from forebay.errors import translate
from forebay.header import BatchHeader
from specs import StreamSpec
from truth import ticket
from visit import BROKEN, Follower, Load, Scene, check_epoch, connect

# Rests at a pace of 1.
BATCH_SECONDS = 0.1
SLOW_BATCH_SECONDS = 1.5
SLOW_BATCHES = 40
# How often a job stops in mid-epoch and goes on from its cursor in a client of its own.
STOP_CHANCE = 0.3
# A job without fail-over asks again after so long, and so often, before it gives up: replicas come back in seconds.
AGAIN_SECONDS, AGAIN_MAX = 0.5, 120
# What a broken connection is asked for again with; the same codes that our client goes on after.
AGAIN = BROKEN


class Job:
    """A training job with a thread for each rank, as DDP has a process: shuffled epochs, our client, fail-over."""

    name = "ranks of a shuffled epoch, our client"

    def __init__(self, scene: Scene) -> None:
        world_size = specs.SHUFFLED.world_size
        self._ids: list[list[np.ndarray[Any, Any]]] = [[] for _ in range(world_size)]
        self._all = threading.Barrier(world_size, action=self._check)
        self._ranks = [Rank(scene, rank, self) for rank in range(world_size)]
        self.loads: list[Load] = list(self._ranks)

    def meet(self, rank: int, ids: list[np.ndarray[Any, Any]]) -> None:
        """Wait for the other ranks at the epoch's end, where the whole of it is checked."""
        self._ids[rank] = ids
        with contextlib.suppress(threading.BrokenBarrierError):
            self._all.wait()

    def leave(self) -> None:
        """Let nobody wait for a rank that does not come."""
        self._all.abort()

    def _check(self) -> None:
        if all(self._ids):
            check_epoch(self._ranks[0], specs.SHUFFLED, [ids for each in self._ids for ids in each])


class Rank(Load):
    """One rank of it."""

    name = Job.name

    def __init__(self, scene: Scene, rank: int, job: Job) -> None:
        super().__init__(scene, rank)
        self._job = job
        self._epoch = 0

    def run(self) -> None:
        """Read epochs until the run is over."""
        try:
            super().run()
        finally:
            self._job.leave()

    def visit(self) -> None:
        """Read an epoch."""
        epoch = specs.SHUFFLED.epochs[self._epoch % len(specs.SHUFFLED.epochs)]
        self._epoch += 1
        follower = Follower(self, specs.SHUFFLED, epoch, self.number)
        ids: list[np.ndarray[Any, Any]] = []
        try:
            if read_through(self, specs.SHUFFLED, follower, self.any_order(), epoch=epoch, rank=self.number):
                ids = follower.ids
        finally:
            self._job.meet(self.number, ids)


class Ordered(Load):
    """File order, over connections that are cut, and now and then stopped and gone on with from a cursor."""

    name = "file order over cut connections, our client"

    def visit(self) -> None:
        """Read both ranks, one after the other."""
        ids: list[np.ndarray[Any, Any]] = []
        for rank in range(specs.ORDERED.world_size):
            follower = Follower(self, specs.ORDERED, 0, rank)
            # Every other job knows one way alone. It may be cut again before a batch has come, so often that the client
            # gives up; then it goes on from its cursor.
            one_way = self.number % 2 == 1
            urls = [self.scene.proxied] if one_way else [self.scene.proxied, *self.scene.replicas[1:]]
            stop = self.random.randrange(1, 60) if self.random.random() < STOP_CHANCE else None
            if not read_through(self, specs.ORDERED, follower, urls, rank=rank, stop=stop, again=one_way):
                return
            ids += follower.ids
        check_epoch(self, specs.ORDERED, ids)


class OverTheWeb(Load):
    """A dataset whose store fails. What it is away for too long for is gone on with from the cursor."""

    name = "a dataset whose store fails, our client"

    def visit(self) -> None:
        """Read an epoch, in either order."""
        spec = self.random.choice([specs.WEB, specs.WEB_SHUFFLED])
        epoch = self.random.choice(spec.epochs)
        follower = Follower(self, spec, epoch, 0)
        if read_through(self, spec, follower, self.any_order(), epoch=epoch, again=True):
            check_epoch(self, spec, follower.ids)


def read_through(
    load: Load,
    spec: StreamSpec,
    follower: Follower,
    urls: list[str],
    *,
    epoch: int = 0,
    rank: int = 0,
    stop: int | None = None,
    again: bool = False,
) -> bool:
    """Read a stream with our client; `stop` after so many batches, and go on in another client from the cursor.

    With `again` what the client gives up on is asked for once more. Returns whether the stream was read to its end,
    which it is not when the run is over.
    """
    cursor: str | None = None
    plan = load.scene.truth.plan(spec)
    tries = 0
    while True:
        stream = None
        try:
            with connected(load, urls) as client:
                stream = client.stream(
                    spec.dataset, plan, rank=rank, epoch=epoch, cursor=cursor, **_options(spec, cursor)
                )
                with stream:
                    source = None
                    for batch in stream:
                        follower.take(batch.header, batch.data)
                        # Nothing else tells that the loop's stream was opened anew: it is not to notice.
                        if source is not None and source is not stream._source:
                            load.add("went on by fail-over")
                        source = stream._source
                        if not load.scene.rest(BATCH_SECONDS):
                            return False
                        if stop is not None and follower.steps >= stop and not follower.is_whole:
                            break
                    else:
                        follower.finish()
                        return True
                    cursor, stop = stream.cursor().to_json(), None
                    load.add("went on from a cursor")
        except (fb.Unavailable, fb.BrokenStream, fb.DeadlineExceeded, fb.Cancelled) as error:
            tries += 1
            if not again or tries >= AGAIN_MAX:
                raise
            load.scene.tally.end(load.name, f"{error.code}, gone on")
            cursor = cursor if stream is None else stream.cursor().to_json()
            if not load.scene.rest(AGAIN_SECONDS):
                return False


def connected(load: Load, urls: list[str]) -> fb.Client:
    """Connect; where no replica answers (one is down and the other's connections are cut) ask again a little later."""
    for _ in range(AGAIN_MAX):
        try:
            return fb.connect(urls)
        except fb.Unavailable:
            load.add("connects that no replica answered")
            if not load.scene.rest(AGAIN_SECONDS):
                raise
    raise fb.Unavailable(f"no replica answers {AGAIN_MAX} times")


def _options(spec: StreamSpec, cursor: str | None) -> dict[str, Any]:
    """Return the request's options; a cursor brings those of the order with it."""
    if cursor is None:
        return spec.options
    own = ("batch_size", "world_size", "with_row_ids")
    return {name: value for name, value in spec.options.items() if name in own}


class Plain(Load):
    """pyarrow alone: each rank's ticket from one replica, and where it breaks the next position from any."""

    name = "shuffled and file order, pyarrow alone"

    def visit(self) -> None:
        """Read one rank to its end."""
        spec = self.random.choice([specs.SHUFFLED, specs.ORDERED])
        epoch, rank = self.random.choice(spec.epochs), self.random.randrange(spec.world_size)
        follower = Follower(self, spec, epoch, rank)
        rows = int(spec.options["batch_size"]) * spec.world_size
        for _ in range(AGAIN_MAX):
            request = spec.request(self.scene.truth.plan(spec), epoch, follower.steps * rows)
            try:
                if not self._read(request, rank, follower):
                    return
            except (pa.ArrowException, fl.FlightError, OSError) as raised:
                error = translate(raised)
                if error.code not in AGAIN:
                    raise
                self.scene.tally.end(self.name, f"{error.code}, gone on")
                if not self.scene.rest(AGAIN_SECONDS):
                    return
            else:
                follower.finish()
                return
        self.unexpected(f"gave up after {AGAIN_MAX} tries")

    def _read(self, request: specs.Json, rank: int, follower: Follower) -> bool:
        with connect(self.any_replica()) as client:
            for chunk in client.do_get(ticket(client, request, rank)):
                follower.take(header_of(chunk), chunk.data)
                if not self.scene.rest(BATCH_SECONDS):
                    return False
        return True


class Slow(Load):
    """Long rows that are taken at leisure, and left in the midst."""

    name = "slow readers, pyarrow alone"
    allowed = BROKEN

    def visit(self) -> None:
        """Read some batches."""
        follower = Follower(self, specs.LONG, 0, 0)
        with connect(self.any_replica()) as client:
            plan = self.scene.truth.plan(specs.LONG)
            reader = client.do_get(ticket(client, specs.LONG.request(plan, 0)))
            for _ in range(self.random.randrange(SLOW_BATCHES)):
                chunk = reader.read_chunk()
                follower.take(header_of(chunk), chunk.data)
                # Slow is slow, whatever the pace.
                if self.scene.over.wait(SLOW_BATCH_SECONDS * self.random.uniform(0.1, 2)):
                    break
            if self.random.random() < 0.5:
                reader.cancel()


def header_of(chunk: fl.FlightStreamChunk) -> BatchHeader:
    """Read a batch's header as pyarrow hands it over."""
    return BatchHeader.of(json.loads(chunk.app_metadata.to_pybytes()))
