"""State that a process shares with its DataLoader's workers, in shared memory.

torch copies the dataset to a worker once, so a persistent worker (persistent_workers) would not learn of a new epoch.
The process writes before it starts an iteration, and the worker reads when the iteration begins, so they never access
the memory at once.

Only the loop's process can observe what the loop receives: a worker reads ahead as soon as it starts. A loaded state is
consumed when the loop has its first batch, and an epoch is finished when the loop has its last one. These batches are
therefore sent as an `AckedBatch`, which records a `Mark` when it is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any, cast

import torch

from .tensors import WholeBatch

Json = dict[str, Any]

# A cursor has at most 300 bytes of JSON.
MESSAGE_BYTES_MAX = 1024
IN_WORKER, GENERATION, RESUMED, LENGTH, FINISHED, NEXT_EPOCH = range(6)


@dataclass(frozen=True)
class Mark:
    """What a batch, once the loop has it, changes for later iterations."""

    generation: int
    """Number of the latest message when the iteration began."""
    next_epoch: int | None = None
    """The epoch after the one that is finished; None if the loaded state of this generation is consumed."""


class WorkerState:
    """A message in shared memory, numbered by generation."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._numbers: torch.Tensor = torch.zeros(6, dtype=torch.int64)
        self._message: torch.Tensor = torch.zeros(MESSAGE_BYTES_MAX, dtype=torch.uint8)
        self._share()

    def __setstate__(self, state: Json) -> None:
        # A plain pickle copies the tensors, which workers would not share.
        self.__dict__.update(state)
        self._share()

    def _share(self) -> None:
        with contextlib.suppress(RuntimeError):  # Without shared memory there are no workers either.
            self._numbers.share_memory_()  # pyright: ignore[reportUnknownMemberType]
            self._message.share_memory_()  # pyright: ignore[reportUnknownMemberType]

    def is_ours(self, *, in_worker: bool) -> bool:
        """Whether this process created the state, or is a worker of the one that did. Ranks must not share it."""
        parent = multiprocessing.parent_process()
        return self._process == (parent.pid if in_worker and parent is not None else os.getpid())

    @property
    def generation(self) -> int:
        """The number of the current message; 0 if there is none."""
        return int(self._numbers[GENERATION])

    def write(self, message: Json) -> int:
        """Replace the message; return its generation."""
        text = json.dumps(message, separators=(",", ":")).encode()
        self._message[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        self._numbers[LENGTH] = len(text)
        self._numbers[GENERATION] += 1
        return self.generation

    def read(self) -> Json:
        """Return the current message."""
        length = int(self._numbers[LENGTH])
        text = bytes(cast("list[int]", self._message[:length].tolist()))  # pyright: ignore[reportUnknownMemberType]
        return cast(Json, json.loads(text or b"{}"))

    @property
    def in_worker(self) -> bool:
        """Whether the latest iteration began in a worker, or a worker's has reached a mark since."""
        return bool(self._numbers[IN_WORKER])

    @in_worker.setter
    def in_worker(self, value: bool) -> None:
        self._numbers[IN_WORKER] = int(value)

    @property
    def resumed(self) -> int:
        """The generation of the last loaded state that an iteration consumed."""
        return int(self._numbers[RESUMED])

    @resumed.setter
    def resumed(self, generation: int) -> None:
        self._numbers[RESUMED] = generation

    @property
    def next_epoch(self) -> int | None:
        """The epoch after the last one finished since the current message; None if there is none."""
        finished = int(self._numbers[FINISHED]) == self.generation + 1
        return int(self._numbers[NEXT_EPOCH]) if finished else None

    def record(self, mark: Mark) -> None:
        """Record a mark, unless a later message has replaced what it is about."""
        if mark.next_epoch is None:
            self.resumed = max(self.resumed, mark.generation)
        elif mark.generation == self.generation:
            self._numbers[NEXT_EPOCH] = max(mark.next_epoch, self.next_epoch or 0)
            # 0 means that no epoch is finished.
            self._numbers[FINISHED] = mark.generation + 1

    def retract(self, mark: Mark) -> None:
        """Undo the record of a mark, unless a later one has replaced it."""
        if mark.next_epoch is None:
            if self.resumed == mark.generation:
                self.resumed = mark.generation - 1
        elif mark.generation == self.generation and self.next_epoch == mark.next_epoch:
            self._numbers[NEXT_EPOCH] = mark.next_epoch - 1


class Ack:
    """Records a mark once the loop has a certain batch, for a loop in this process."""

    def __init__(self, worker_state: WorkerState, mark: Mark) -> None:
        self._worker_state = worker_state
        self._mark = mark
        self._is_done = False

    def wrap(self, batch: Json) -> Json:
        """Return the batch in the form to hand over."""
        return batch

    def note_later(self) -> None:
        """Record that the batch was consumed, as the one after it is requested."""
        self.acknowledge()

    def acknowledge(self) -> None:
        """Record that the batch was consumed, or that there is none."""
        if not self._is_done:
            self._worker_state.record(self._mark)
            self._is_done = True


class WorkerAck(Ack):
    """The same in a worker: the loop's process records the mark when it unpickles the batch.

    A dataset around this one, or a collate_fn, may replace the batch, which is then never pickled. The worker records
    the mark of such a batch itself: once it was deleted or, as a variable may hold it longer, once the following batch
    is requested. The latter is retracted if the batch is pickled after all. If the DataLoader reads this dataset
    directly (`is_direct`), a batch that was not deleted still waits to be pickled.
    """

    def __init__(self, worker_state: WorkerState, mark: Mark, *, is_direct: bool) -> None:
        super().__init__(worker_state, mark)
        self._is_direct = is_direct
        self._was_sent = False
        self._was_followed = False
        self._token: weakref.ref[_AckToken] | None = None
        # A thread of the worker's queue pickles batches. Reentrant: a deletion may occur anywhere.
        self._lock = threading.RLock()

    def wrap(self, batch: Json) -> Json:
        """Return the batch in a form that records the mark when it is unpickled."""
        token = _AckToken(self)
        self._token = weakref.ref(token)
        earlier = batch.tokens if isinstance(batch, AckedBatch) else ()
        return AckedBatch(batch, (*earlier, token))

    def note_later(self) -> None:
        """Record that the batch was consumed if there was none or it was replaced, as the one after it is requested."""
        with self._lock:
            self._was_followed = True
            is_lost = self._token is None or self._token() is None
            if not self._was_sent and (is_lost or not self._is_direct):
                self.acknowledge()

    def acknowledge(self) -> None:
        """Record that the batch was consumed, or that there is none."""
        self._worker_state.in_worker = True
        super().acknowledge()

    def sent(self) -> tuple[WorkerState, Mark]:
        """Return what the loop's process records; the batch is about to be pickled."""
        with self._lock:
            self._was_sent = True
            if self._is_done:
                self._worker_state.retract(self._mark)
            return self._worker_state, self._mark

    def deleted(self) -> None:
        """Record that the batch was replaced, if it was deleted without being sent."""
        with self._lock:
            if not self._was_sent and (self._was_followed or not self._is_direct):
                self.acknowledge()


class _AckToken:
    """Lives as long as an `AckedBatch`."""

    def __init__(self, ack: WorkerAck) -> None:
        self.ack = ack

    def __del__(self) -> None:
        self.ack.deleted()


class AckedBatch(WholeBatch):
    """A batch that unpickles to a plain dict and records marks."""

    def __init__(self, batch: Json, tokens: tuple[_AckToken, ...]) -> None:
        super().__init__(batch)
        self.tokens = tokens

    def __copy__(self) -> AckedBatch:
        return AckedBatch(self, self.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_acked, ([token.ack.sent() for token in self.tokens], dict(self))


def _unpickle_acked(marks: list[tuple[WorkerState, Mark]], batch: Json) -> Json:
    if not _is_discarded():
        for worker_state, mark in marks:
            worker_state.in_worker = True
            worker_state.record(mark)
    return batch


def _is_discarded() -> bool:
    """Whether a DataLoader with persistent workers is discarding the batches that an earlier loop left in its queue."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "_reset" and name.startswith(("torch.utils.data.", "torchdata.")):
            return True
        frame = frame.f_back
    return False
