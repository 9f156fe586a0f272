"""Training jobs: streams read to their end with the Python package and with bare pyarrow; every batch is checked."""

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
from forebay._client.header import BatchHeader
from forebay.errors import translate
from specs import StreamSpec
from truth import ticket
from visit import BROKEN, Follower, Load, Scene, check_epoch, connect

# Pauses at a pace of 1.
BATCH_SECONDS = 0.1
SLOW_BATCH_SECONDS = 1.5
SLOW_BATCHES = 40
# Probability that a job stops in mid-epoch and resumes from its cursor in a new client.
STOP_CHANCE = 0.3
# Delay and limit of retries in a job without fail-over; replicas restart within seconds.
RETRY_SECONDS, RETRIES_MAX = 0.5, 120
# Codes that are retried, the same as in the Python package.
RETRIED_CODES = BROKEN


class Job:
    """A training job with one thread per rank: shuffled epochs, the Python package, fail-over."""

    name = "ranks of a shuffled epoch, Python package"

    def __init__(self, scene: Scene) -> None:
        world_size = specs.SHUFFLED.world_size
        self._ids: list[list[np.ndarray[Any, Any]]] = [[] for _ in range(world_size)]
        self._all = threading.Barrier(world_size, action=self._check)
        self._ranks = [Rank(scene, rank, self) for rank in range(world_size)]
        self.loads: list[Load] = list(self._ranks)

    def meet(self, rank: int, ids: list[np.ndarray[Any, Any]]) -> None:
        """Wait for the other ranks at the end of the epoch, which is then checked as a whole."""
        self._ids[rank] = ids
        with contextlib.suppress(threading.BrokenBarrierError):
            self._all.wait()

    def leave(self) -> None:
        """Release ranks that wait for one that has ended."""
        self._all.abort()

    def _check(self) -> None:
        if all(self._ids):
            check_epoch(self._ranks[0], specs.SHUFFLED, [ids for each in self._ids for ids in each])


class Rank(Load):
    """One rank of a job."""

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
    """Epochs in file order over connections that are cut; some stop and resume from a cursor."""

    name = "file order over cut connections, Python package"

    def visit(self) -> None:
        """Read both ranks, one after the other."""
        ids: list[np.ndarray[Any, Any]] = []
        for rank in range(specs.ORDERED.world_size):
            follower = Follower(self, specs.ORDERED, 0, rank)
            # Every other job has one URL only. Its connection may be cut so often without a batch in between that the
            # client gives up; the job then resumes from its cursor.
            one_url = self.number % 2 == 1
            urls = [self.scene.proxied] if one_url else [self.scene.proxied, *self.scene.replicas[1:]]
            stop = self.random.randrange(1, 60) if self.random.random() < STOP_CHANCE else None
            if not read_through(self, specs.ORDERED, follower, urls, rank=rank, stop=stop, retry=one_url):
                return
            ids += follower.ids
        check_epoch(self, specs.ORDERED, ids)


class OverTheWeb(Load):
    """A dataset whose store fails. If an outage outlasts the retries, the job resumes from its cursor."""

    name = "a dataset whose store fails, Python package"

    def visit(self) -> None:
        """Read an epoch, shuffled or in file order."""
        spec = self.random.choice([specs.WEB, specs.WEB_SHUFFLED])
        epoch = self.random.choice(spec.epochs)
        follower = Follower(self, spec, epoch, 0)
        if read_through(self, spec, follower, self.any_order(), epoch=epoch, retry=True):
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
    retry: bool = False,
) -> bool:
    """Read a stream with the Python package; after `stop` batches, resume from the cursor in a new client.

    With `retry`, a stream that the client gives up on is resumed. Returns whether the stream was read to its end, False
    if the run is over.
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
                        # Nothing in the public API shows that the client reopened the stream.
                        if source is not None and source is not stream._source:  # pyright: ignore[reportPrivateUsage]
                            load.add("resumed by fail-over")
                        source = stream._source  # pyright: ignore[reportPrivateUsage]
                        if not load.scene.rest(BATCH_SECONDS):
                            return False
                        if stop is not None and follower.steps >= stop and not follower.is_whole:
                            break
                    else:
                        follower.finish()
                        return True
                    cursor, stop = stream.cursor().to_json(), None
                    load.add("resumed from a cursor")
        except (fb.Unavailable, fb.BrokenStream, fb.errors.DeadlineExceeded, fb.errors.Cancelled) as error:
            tries += 1
            if not retry or tries >= RETRIES_MAX:
                raise
            load.scene.tally.end(load.name, f"{error.code}, resumed")
            cursor = cursor if stream is None else stream.cursor().to_json()
            if not load.scene.rest(RETRY_SECONDS):
                return False


def connected(load: Load, urls: list[str]) -> fb.Client:
    """Connect; retry if no replica answers (one is down and the other's connections are cut)."""
    for _ in range(RETRIES_MAX):
        try:
            return fb.connect(urls)
        except fb.Unavailable:
            load.add("connects without an answer")
            if not load.scene.rest(RETRY_SECONDS):
                raise
    raise fb.Unavailable(f"no replica answered {RETRIES_MAX} attempts")


def _options(spec: StreamSpec, cursor: str | None) -> dict[str, Any]:
    """Return the request's options; a cursor includes those of the order."""
    if cursor is None:
        return spec.options
    own = ("batch_size", "world_size", "with_row_ids")
    return {name: value for name, value in spec.options.items() if name in own}


class Plain(Load):
    """Bare pyarrow: a ticket from one replica; after a failure, a request from the next position to any replica."""

    name = "shuffled and file order, bare pyarrow"

    def visit(self) -> None:
        """Read one rank to its end."""
        spec = self.random.choice([specs.SHUFFLED, specs.ORDERED])
        epoch, rank = self.random.choice(spec.epochs), self.random.randrange(spec.world_size)
        follower = Follower(self, spec, epoch, rank)
        rows = int(spec.options["batch_size"]) * spec.world_size
        for _ in range(RETRIES_MAX):
            request = spec.request(self.scene.truth.plan(spec), epoch, follower.steps * rows)
            try:
                if not self._read(request, rank, follower):
                    return
            except (pa.ArrowException, fl.FlightError, OSError) as raised:
                error = translate(raised)
                if error.code not in RETRIED_CODES:
                    raise
                self.scene.tally.end(self.name, f"{error.code}, resumed")
                if not self.scene.rest(RETRY_SECONDS):
                    return
            else:
                follower.finish()
                return
        self.unexpected(f"gave up after {RETRIES_MAX} tries")

    def _read(self, request: specs.Json, rank: int, follower: Follower) -> bool:
        with connect(self.any_replica()) as client:
            for chunk in client.do_get(ticket(client, request, rank)):
                follower.take(header_of(chunk), chunk.data)  # pyright: ignore[reportArgumentType]
                if not self.scene.rest(BATCH_SECONDS):
                    return False
        return True


class Slow(Load):
    """Slow readers of long rows that leave in mid-stream."""

    name = "slow readers, bare pyarrow"
    allowed = BROKEN

    def visit(self) -> None:
        """Read some batches."""
        follower = Follower(self, specs.LONG, 0, 0)
        with connect(self.any_replica()) as client:
            plan = self.scene.truth.plan(specs.LONG)
            reader = client.do_get(ticket(client, specs.LONG.request(plan, 0)))
            for _ in range(self.random.randrange(SLOW_BATCHES)):
                chunk = reader.read_chunk()
                follower.take(header_of(chunk), chunk.data)  # pyright: ignore[reportArgumentType]
                # Independent of the pace.
                if self.scene.over.wait(SLOW_BATCH_SECONDS * self.random.uniform(0.1, 2)):
                    break
            if self.random.random() < 0.5:
                reader.cancel()


def header_of(chunk: fl.FlightStreamChunk) -> BatchHeader:
    """Parse the header of a batch that pyarrow received."""
    return BatchHeader.of(json.loads(chunk.app_metadata.to_pybytes()))
