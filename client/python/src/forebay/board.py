"""What a process tells its DataLoader's workers, and they it: a little memory that all of them see.

torch hands a worker its copy of the dataset once; one that lives on (persistent_workers) would never hear of a new
epoch. The process writes before it starts an iteration and the worker reads when that begins, so that they never
meet.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, cast

import torch

Json = dict[str, Any]

# A cursor has at most 300 bytes.
NOTE_BYTES_MAX = 1024
IN_WORKER, GENERATION, RESUMED, LENGTH = range(4)


class Board:
    """One note, numbered by generation: what is said with a higher number is newer."""

    def __init__(self) -> None:
        self._numbers: torch.Tensor = torch.zeros(4, dtype=torch.int64)
        self._note: torch.Tensor = torch.zeros(NOTE_BYTES_MAX, dtype=torch.uint8)
        with contextlib.suppress(RuntimeError):  # No shared memory here: then there can be no workers either.
            self._numbers.share_memory_()  # pyright: ignore[reportUnknownMemberType]
            self._note.share_memory_()  # pyright: ignore[reportUnknownMemberType]

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
