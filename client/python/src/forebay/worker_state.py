"""What a process tells its DataLoader's workers, and they it: a little memory that all of them see.

torch hands a worker its copy of the dataset once; one that lives on (persistent_workers) would never hear of a new
epoch. The process writes before it starts an iteration and the worker reads when that begins, so that they never
meet.

A loaded state is used up when the loop has its first batch, which only the loop's process can see: a worker reads ahead
as soon as it is started. The first batch behind a loaded place therefore travels as an `AckedBatch`, which marks the
state as used up where it is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import weakref
from typing import Any, cast

import torch

Json = dict[str, Any]

# A cursor has at most 300 bytes.
NOTE_BYTES_MAX = 1024
IN_WORKER, GENERATION, RESUMED, LENGTH = range(4)


class WorkerState:
    """One note, numbered by generation: what is said with a higher number is newer."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._numbers: torch.Tensor = torch.zeros(4, dtype=torch.int64)
        self._note: torch.Tensor = torch.zeros(NOTE_BYTES_MAX, dtype=torch.uint8)
        self._share()

    def __setstate__(self, state: Json) -> None:
        # Of a plain pickle come copies of the tensors, which no worker would see.
        self.__dict__.update(state)
        self._share()

    def _share(self) -> None:
        with contextlib.suppress(RuntimeError):  # No shared memory here: then there can be no workers either.
            self._numbers.share_memory_()  # pyright: ignore[reportUnknownMemberType]
            self._note.share_memory_()  # pyright: ignore[reportUnknownMemberType]

    def is_ours(self, *, in_worker: bool) -> bool:
        """Whether this process made the worker_state, or is a worker of the one that did; ranks are to share none."""
        parent = multiprocessing.parent_process()
        return self._process == (parent.pid if in_worker and parent is not None else os.getpid())

    @property
    def generation(self) -> int:
        """The number of the present note; 0 where there is none."""
        return int(self._numbers[GENERATION])

    def write(self, note: Json) -> int:
        """Put a new note in the place of the present one; returns its generation."""
        text = json.dumps(note, separators=(",", ":")).encode()
        self._note[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        self._numbers[LENGTH] = len(text)
        self._numbers[GENERATION] += 1
        return self.generation

    def read(self) -> Json:
        """Return the present note."""
        length = int(self._numbers[LENGTH])
        text = bytes(cast("list[int]", self._note[:length].tolist()))  # pyright: ignore[reportUnknownMemberType]
        return cast(Json, json.loads(text or b"{}"))

    @property
    def in_worker(self) -> bool:
        """Whether the latest iteration began in a worker."""
        return bool(self._numbers[IN_WORKER])

    @in_worker.setter
    def in_worker(self, value: bool) -> None:
        self._numbers[IN_WORKER] = int(value)

    @property
    def resumed(self) -> int:
        """The generation of the loaded state that an iteration last went on from."""
        return int(self._numbers[RESUMED])

    @resumed.setter
    def resumed(self, generation: int) -> None:
        self._numbers[RESUMED] = generation


class ResumeAck:
    """Marks a loaded state as used up once the loop has its first batch; here where the loop is in this process."""

    def __init__(self, worker_state: WorkerState, generation: int) -> None:
        self._worker_state = worker_state
        self._generation = generation
        self._is_noted = False

    def first(self, batch: Json) -> Json:
        """Return the first batch as it is to be handed over."""
        return batch

    def look(self) -> None:
        """Note, at a later batch, that the first was taken."""
        self.end()

    def end(self) -> None:
        """Note that there was no batch, or that it was taken."""
        if not self._is_noted:
            self._worker_state.resumed = max(self._worker_state.resumed, self._generation)
            self._is_noted = True


class WorkerResumeAck(ResumeAck):
    """The same in a worker, which hands its batches to a DataLoader: the loop's process marks it."""

    def __init__(self, worker_state: WorkerState, generation: int) -> None:
        super().__init__(worker_state, generation)
        self.was_sent = False
        self._mark: weakref.ref[_AckToken] | None = None

    def first(self, batch: Json) -> Json:
        """Return the first batch in the form that marks the state where it arrives."""
        mark = _AckToken(self)
        self._mark = weakref.ref(mark)
        return AckedBatch(batch, mark)

    def look(self) -> None:
        """See whether that form was lost: a collate_fn may make anything of a batch."""
        if not self.was_sent and self._mark is not None and self._mark() is None:
            self.end()

    def form(self, batch: Json) -> tuple[Any, ...]:
        """Return what pickle writes of the batch."""
        self.was_sent = True
        return _unpickle_acked, (self._worker_state, self._generation, batch)


class _AckToken:
    """Is alive as long as an `AckedBatch` is."""

    def __init__(self, ack: WorkerResumeAck) -> None:
        self.ack = ack


class AckedBatch(dict[str, Any]):
    """A batch that becomes a plain dict where it is unpickled, and says there that it has come."""

    def __init__(self, batch: Json, mark: _AckToken) -> None:
        super().__init__(batch)
        self._mark = mark

    def __copy__(self) -> AckedBatch:
        return AckedBatch(self, self._mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._mark.ack.form(dict(self))


def _unpickle_acked(worker_state: WorkerState, generation: int, batch: Json) -> Json:
    if not _is_discarded():
        worker_state.resumed = max(worker_state.resumed, generation)
    return batch


def _is_discarded() -> bool:
    """Whether a DataLoader whose workers live on empties its queue of what an earlier loop did not take."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "_reset" and name.startswith(("torch.utils.data.", "torchdata.")):
            return True
        frame = frame.f_back
    return False
