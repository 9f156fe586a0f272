"""State that a process shares with its DataLoader's workers, in shared memory.

torch copies the dataset to a worker once, so a persistent worker (persistent_workers) would not learn of a new epoch.
The process writes before it starts an iteration, and the worker reads when the iteration begins, so they never access
the memory at once.

A loaded state is consumed when the loop has its first batch, which only the loop's process can observe: a worker reads
ahead as soon as it starts. The first batch after a loaded state is therefore sent as an `AckedBatch`, which marks the
state as consumed when it is unpickled.
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

# A cursor has at most 300 bytes of JSON.
MESSAGE_BYTES_MAX = 1024
IN_WORKER, GENERATION, RESUMED, LENGTH = range(4)


class WorkerState:
    """A message in shared memory, numbered by generation."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._numbers: torch.Tensor = torch.zeros(4, dtype=torch.int64)
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
        """Whether the latest iteration began in a worker."""
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


class ResumeAck:
    """Marks a loaded state as consumed once the loop has its first batch, for a loop in this process."""

    def __init__(self, worker_state: WorkerState, generation: int) -> None:
        self._worker_state = worker_state
        self._generation = generation
        self._is_done = False

    def wrap_first(self, batch: Json) -> Json:
        """Return the first batch in the form to hand over."""
        return batch

    def note_later_batch(self) -> None:
        """Record that the first batch was consumed, as a later one is requested."""
        self.acknowledge()

    def acknowledge(self) -> None:
        """Record that the first batch was consumed, or that there is none."""
        if not self._is_done:
            self._worker_state.resumed = max(self._worker_state.resumed, self._generation)
            self._is_done = True


class WorkerResumeAck(ResumeAck):
    """The same in a worker: the loop's process marks the state when it unpickles the first batch."""

    def __init__(self, worker_state: WorkerState, generation: int) -> None:
        super().__init__(worker_state, generation)
        self.was_sent = False
        self._token: weakref.ref[_AckToken] | None = None

    def wrap_first(self, batch: Json) -> Json:
        """Return the first batch in a form that marks the state when it is unpickled."""
        token = _AckToken(self)
        self._token = weakref.ref(token)
        return AckedBatch(batch, token)

    def note_later_batch(self) -> None:
        """Acknowledge if the wrapped batch was lost, as a collate_fn may replace it."""
        if not self.was_sent and self._token is not None and self._token() is None:
            self.acknowledge()

    def reduce(self, batch: Json) -> tuple[Any, ...]:
        """Return the pickled form of the batch."""
        self.was_sent = True
        return _unpickle_acked, (self._worker_state, self._generation, batch)


class _AckToken:
    """Lives as long as an `AckedBatch`."""

    def __init__(self, ack: WorkerResumeAck) -> None:
        self.ack = ack


class AckedBatch(dict[str, Any]):
    """A batch that unpickles to a plain dict and marks the loaded state as consumed."""

    def __init__(self, batch: Json, token: _AckToken) -> None:
        super().__init__(batch)
        self._token = token

    def __copy__(self) -> AckedBatch:
        return AckedBatch(self, self._token)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._token.ack.reduce(dict(self))


def _unpickle_acked(worker_state: WorkerState, generation: int, batch: Json) -> Json:
    if not _is_discarded():
        worker_state.resumed = max(worker_state.resumed, generation)
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
