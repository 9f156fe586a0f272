"""Polars in process with real vocabularies: an Enum of the vocabulary, whose physical value is the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from features import vocabulary
from polars_hash import PolarsScan, limited
from protocol import Job, serve

if TYPE_CHECKING:
    import polars as pl


class PolarsVocabulary(PolarsScan):
    """The same scan; a non-strict cast makes unknown values null, which become 0."""

    def __init__(self, job: Job) -> None:
        self._fitted = job.fitted
        super().__init__(job)

    def string(self, name: str) -> pl.Expr:
        """Return the expression that converts a string column to vocabulary indices."""
        polars = self._polars
        words = polars.Enum(polars.Series(vocabulary(self._fitted, name).to_pylist()))
        index = polars.col(name).cast(words, strict=False).to_physical().cast(polars.Int32)
        return (index + 1).fill_null(0)


if __name__ == "__main__":
    serve(lambda job: PolarsVocabulary(limited(job)), "polars")
