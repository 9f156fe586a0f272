"""Base class of all loads, and the checks that they share."""

from __future__ import annotations

import random
import threading
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from forebay._client.header import BatchHeader
from forebay.errors import ForebayError, translate
from harness.benches.bench_server import OWN_CONNECTION
from specs import StreamSpec
from tally import Tally
from truth import Truth, digest, row_ids

# Codes that a call to a single replica may end with while replicas are killed or drained and connections are cut.
BROKEN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"})


@dataclass
class Scene:
    """State shared by the loads of a process."""

    replicas: list[str]
    """URLs; the first replica is never killed."""
    proxied: str
    """URL of the first replica's proxy, which cuts connections."""
    truth: Truth
    tally: Tally
    over: threading.Event = field(default_factory=threading.Event)
    pace: float = 1.0
    """Factor of every pause; see `pace.py`."""

    def rest(self, seconds: float) -> bool:
        """Pause for `seconds` times the pace; return whether the run continues."""
        return not self.over.wait(seconds * self.pace)


class Load(ABC):
    """A client that repeats one kind of visit, in its own thread."""

    name = ""
    rest_seconds = 0.5
    allowed: frozenset[str] = frozenset()
    """Codes other than OK that a visit may end with; none for a load with fail-over."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.scene = scene
        self.random = random.Random(f"{self.name} {number}")
        self.number = number

    @abstractmethod
    def visit(self) -> str | None:
        """Run one visit; return its code if not OK."""

    def run(self) -> None:
        """Repeat visits until the run is over."""
        while self.scene.rest(self.rest_seconds * self.random.uniform(0.5, 1.5)):
            self.once()

    def once(self) -> None:
        """Run one visit and count its result."""
        try:
            code = self.visit() or "OK"
        except (ForebayError, pa.ArrowException, fl.FlightError, OSError) as raised:
            if self.scene.over.is_set():
                return
            error = raised if isinstance(raised, ForebayError) else translate(raised)
            code = error.code
            if code not in self.allowed:
                self.unexpected(f"{code}: {type(raised).__name__}: {error}")
        except Exception:
            # A bug in the load, or an unforeseen response.
            code = "exception"
            self.unexpected(traceback.format_exc(limit=-3).replace("\n", " | "))
        self.scene.tally.end(self.name, code)

    def add(self, what: str, count: int = 1) -> None:
        """Count data or events."""
        self.scene.tally.add(self.name, what, count)

    def wrong(self, message: str) -> None:
        """Record wrong data."""
        self.scene.tally.wrong(self.name, message)

    def unexpected(self, message: str) -> None:
        """Record a result that is not allowed."""
        self.scene.tally.unexpected(self.name, message)

    def any_replica(self) -> str:
        """Return one replica, for a call without fail-over."""
        return self.random.choice(self.scene.replicas)

    def any_order(self) -> list[str]:
        """Return all replicas in random order."""
        return self.random.sample(self.scene.replicas, len(self.scene.replicas))


class Follower:
    """Checks the batches of a rank against the expected stream."""

    def __init__(self, load: Load, spec: StreamSpec, epoch: int, rank: int) -> None:
        self._load = load
        self._share = load.scene.truth.shares[spec.name, epoch, rank]
        self._where = f"{spec.name}, epoch {epoch}, rank {rank}"
        self.ids: list[np.ndarray[Any, Any]] = []
        self.steps = 0

    @property
    def is_whole(self) -> bool:
        """Whether every batch has arrived."""
        return self.steps == len(self._share.steps)

    def take(self, header: BatchHeader, data: pa.RecordBatch) -> None:
        """Check the next batch."""
        self._load.add("batches")
        self._load.add("rows", data.num_rows)
        self._load.add("bytes", data.nbytes)
        if self.is_whole:
            self._load.wrong(f"{self._where}: a batch after the last one: {header}")
            return
        want = self._share.steps[self.steps]
        if header != want.header:
            self._load.wrong(f"{self._where}: {header} instead of {want.header}")
        elif digest(data) != want.digest:
            self._load.wrong(f"{self._where}, step {header.step}: bytes differ from the expected stream")
        self.ids.append(row_ids(data))
        self.steps += 1

    def finish(self) -> None:
        """Check that no batch is missing at the end of the epoch."""
        if not self.is_whole:
            self._load.wrong(f"{self._where}: {self.steps} of {len(self._share.steps)} steps and no error")
        self._load.add("streams")


def check_epoch(load: Load, spec: StreamSpec, ids: list[np.ndarray[Any, Any]]) -> None:
    """Check that all ranks together have each row of the epoch exactly once."""
    want = load.scene.truth.row_ids(spec)
    found, counts = np.unique(np.concatenate(ids), return_counts=True)
    if repeated := int((counts - 1).sum()):
        load.wrong(f"{spec.name}: {repeated} rows repeated in an epoch")
    if lost := len(np.setdiff1d(want, found, assume_unique=True)):
        load.wrong(f"{spec.name}: {lost} rows of an epoch are missing")
    if foreign := len(np.setdiff1d(found, want, assume_unique=True)):
        load.wrong(f"{spec.name}: {foreign} rows that do not belong to the epoch")
    load.add("epochs checked row by row")


def connect(url: str) -> fl.FlightClient:
    """Return a plain Flight client with its own connection."""
    return fl.FlightClient(url, generic_options=OWN_CONNECTION)
