"""Ops that replace a value with a number learned about it: its count, or the mean of a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .index_ops import Values
from .op import Json, Op, json_number


@dataclass(frozen=True)
class CountEncode(Op):
    """The number of rows with the value; 0 for null and other values."""

    name: ClassVar[str] = "count_encode"
    values: Values | None = None
    counts: tuple[int, ...] = ()

    @property
    def learns(self) -> bool:
        """Learned by a fit."""
        return self.values is None

    def to_dict(self) -> Json:
        """Return what a fit learned."""
        return {} if self.values is None else {"values": self.values.to_dict(), "counts": list(self.counts)}


@dataclass(frozen=True)
class FittedRows:
    """The rows that a fit read: those of a snapshot that pass a filter and are in a sample."""

    snapshot: str
    filter: str = ""
    sample_seed: int = 0
    sample_end: int = 0

    def to_dict(self) -> Json:
        """Return what is set."""
        sample: Json = {"sample_seed": self.sample_seed, "sample_end": self.sample_end}
        named: Json = {"snapshot": self.snapshot, "filter": self.filter, **(sample if self.sample_end else {})}
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True)
class TargetMean(Op):
    """The smoothed mean of a label over the rows with the value; for rows of the fit, without their own fold."""

    name: ClassVar[str] = "target_mean"
    label: str = ""
    smoothing: float | None = None
    folds: int | None = None
    seed: int = 0
    values: Values | None = None
    means: tuple[float, ...] = ()
    rows: FittedRows | None = None

    @property
    def learns(self) -> bool:
        """Learned by a fit."""
        return self.values is None

    def to_dict(self) -> Json:
        """Return what is set, and what a fit learned."""
        fields: Json = {"label": self.label}
        if self.smoothing is not None:
            fields["smoothing"] = self.smoothing
        if self.folds is not None:
            fields["folds"] = self.folds
        if self.seed:
            fields["seed"] = self.seed
        if self.values is not None:
            fields |= {"values": self.values.to_dict(), "means": [json_number(mean) for mean in self.means]}
        if self.rows is not None:
            fields["rows"] = self.rows.to_dict()
        return fields
