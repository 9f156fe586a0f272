"""What every load of the soak shares: the replicas, the truth, a pace, and how a visit that ends is told."""

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

from forebay.errors import ForebayError, translate
from forebay.header import BatchHeader
from harness.benches.bench_server import OWN_CONNECTION
from specs import StreamSpec
from tally import Tally
from truth import Truth, digest, row_ids

# How a call may end that goes to one replica alone, while replicas are killed and drained and connections are cut.
BROKEN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"})


@dataclass
class Scene:
    """Where a process's loads take place."""

    replicas: list[str]
    """The one that lives through the whole run comes first."""
    proxied: str
    """The first one, behind a proxy that cuts connections."""
    truth: Truth
    tally: Tally
    over: threading.Event = field(default_factory=threading.Event)
    pace: float = 1.0
    """By what every rest is multiplied; see `pace.py`."""

    def rest(self, seconds: float) -> bool:
        """Wait that long at a pace of 1; returns whether the load goes on."""
        return not self.over.wait(seconds * self.pace)


class Load(ABC):
    """One client that comes again and again, in a thread of its own."""

    name = ""
    rest_seconds = 0.5
    allowed: frozenset[str] = frozenset()
    """Codes with which a visit may end beside OK; a load with fail-over has none."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.scene = scene
        self.random = random.Random(f"{self.name} {number}")
        self.number = number

    @abstractmethod
    def visit(self) -> str | None:
        """Come once; returns how it ended, where that is not OK."""

    def run(self) -> None:
        """Come until the run is over."""
        while self.scene.rest(self.rest_seconds * self.random.uniform(0.5, 1.5)):
            self.once()

    def once(self) -> None:
        """Come once, and count how it ends."""
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
            # A mistake of the load's own, or an answer that nobody thought of: told like any other.
            code = "not understood"
            self.unexpected(traceback.format_exc(limit=-3).replace("\n", " | "))
        self.scene.tally.end(self.name, code)

    def add(self, what: str, count: int = 1) -> None:
        """Count something."""
        self.scene.tally.add(self.name, what, count)

    def wrong(self, words: str) -> None:
        """Note what must never be."""
        self.scene.tally.wrong(self.name, words)

    def unexpected(self, words: str) -> None:
        """Note an end that should not have been."""
        self.scene.tally.unexpected(self.name, words)

    def any_replica(self) -> str:
        """Return one of them, for a call without fail-over."""
        return self.random.choice(self.scene.replicas)

    def any_order(self) -> list[str]:
        """Return all of them; which is asked first changes."""
        return self.random.sample(self.scene.replicas, len(self.scene.replicas))


class Follower:
    """Holds a rank's batches, as they arrive, against the true stream."""

    def __init__(self, load: Load, spec: StreamSpec, epoch: int, rank: int) -> None:
        self._load = load
        self._share = load.scene.truth.shares[spec.name, epoch, rank]
        self._where = f"{spec.name}, epoch {epoch}, rank {rank}"
        self.ids: list[np.ndarray[Any, Any]] = []
        self.steps = 0

    @property
    def is_whole(self) -> bool:
        """Whether every batch has come."""
        return self.steps == len(self._share.steps)

    def take(self, header: BatchHeader, data: pa.RecordBatch) -> None:
        """Check the next batch."""
        self._load.add("batches")
        self._load.add("rows", data.num_rows)
        self._load.add("bytes", data.nbytes)
        if self.is_whole:
            self._load.wrong(f"{self._where}: a batch behind the last one: {header}")
            return
        want = self._share.steps[self.steps]
        if header != want.header:
            self._load.wrong(f"{self._where}: {header} in the place of {want.header}")
        elif digest(data) != want.digest:
            self._load.wrong(f"{self._where}, step {header.step}: other bytes than the true stream's")
        self.ids.append(row_ids(data))
        self.steps += 1

    def finish(self) -> None:
        """Check at the end of the epoch that nothing is left out."""
        if not self.is_whole:
            self._load.wrong(f"{self._where}: {self.steps} of {len(self._share.steps)} steps, and no error")
        self._load.add("streams")


def check_epoch(load: Load, spec: StreamSpec, ids: list[np.ndarray[Any, Any]]) -> None:
    """Check that the rows of all ranks together are those of the epoch, each once."""
    want = load.scene.truth.row_ids(spec)
    found, counts = np.unique(np.concatenate(ids), return_counts=True)
    if repeated := int((counts - 1).sum()):
        load.wrong(f"{spec.name}: {repeated} rows twice in an epoch")
    if lost := len(np.setdiff1d(want, found, assume_unique=True)):
        load.wrong(f"{spec.name}: {lost} rows of an epoch are missing")
    if foreign := len(np.setdiff1d(found, want, assume_unique=True)):
        load.wrong(f"{spec.name}: {foreign} rows that are not the epoch's")
    load.add("epochs checked row by row")


def connect(url: str) -> fl.FlightClient:
    """Return a plain Flight client with a connection of its own."""
    return fl.FlightClient(url, generic_options=OWN_CONNECTION)
