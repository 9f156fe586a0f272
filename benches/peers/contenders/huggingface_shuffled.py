"""Hugging Face datasets, streaming, shuffled in its buffer: row by row, so the epoch is stopped early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from huggingface import HuggingFace
from protocol import Data, Job, serve

BUFFER_ROWS = 20_000


class HuggingFaceShuffled(HuggingFace):
    """The same stream with `shuffle`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._seed, self._batch_size = job.seed, job.batch_size

    def stream(self, data: Data) -> Any:
        """Return the files as a shuffled stream of Arrow tables."""
        return super().stream(data).shuffle(seed=self._seed, buffer_size=BUFFER_ROWS)

    def tables(self, stream: Any) -> Iterator[Any]:
        """Yield one table per batch: larger ones are not faster here."""
        return stream.iter(batch_size=self._batch_size)


if __name__ == "__main__":
    serve(HuggingFaceShuffled, "datasets", "pyarrow")
