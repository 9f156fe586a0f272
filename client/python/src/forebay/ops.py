"""The ops of a plan, one class each, as the server's plan.proto has them.

An op knows its JSON, whether it is left to learn something, and whether what it makes is an index. Meanings are the
server's; here they are only written down and checked for what can be seen without data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

Json = dict[str, object]

STATS = ("MEAN", "MEDIAN", "MODE")
# Every integer up to this is one of float64's.
EXACT_IN_DOUBLE = 2**53
INT64_MIN, INT64_MAX, UINT64_MAX, UINT32_MAX = -(2**63), 2**63 - 1, 2**64 - 1, 2**32 - 1


class Op(ABC):
    """One step of a chain."""

    name: ClassVar[str]
    """The op's field in plan.proto."""
    indexes: ClassVar[bool] = False
    """Whether the result is an index, so that an integer dtype is meant."""

    @property
    def learns(self) -> bool:
        """Whether a fit must fill something in."""
        return False

    @abstractmethod
    def to_dict(self) -> Json:
        """Return the op's fields."""


@dataclass(frozen=True)
class FillNull(Op):
    """Null becomes a value: given, or learned (stat)."""

    name: ClassVar[str] = "fill_null"
    value: float | None = None
    integer: int | None = None
    text: str | None = None
    stat: str | None = None

    @property
    def learns(self) -> bool:
        """A statistic is learned."""
        return self.stat is not None

    def to_dict(self) -> Json:
        """Return the one field that is set."""
        if self.value is not None:
            return {"value": _spelled(self.value)}
        fields: Json = {"integer": self.integer, "text": self.text, "stat": self.stat}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Clip(Op):
    """Values below min become min, above max become max."""

    name: ClassVar[str] = "clip"
    min: float | None = None
    max: float | None = None

    def to_dict(self) -> Json:
        """Return the bounds that are set."""
        return _present(min=self.min, max=self.max)


@dataclass(frozen=True)
class Log1p(Op):
    """ln(1 + x)."""

    name: ClassVar[str] = "log1p"

    def to_dict(self) -> Json:
        """Return no field: there is none."""
        return {}


@dataclass(frozen=True)
class Standardize(Op):
    """(x - mean) / std."""

    name: ClassVar[str] = "standardize"
    mean: float | None = None
    std: float | None = None

    @property
    def learns(self) -> bool:
        """Learned unless both are given."""
        return self.mean is None or self.std is None

    def to_dict(self) -> Json:
        """Return what is known."""
        return _present(mean=self.mean, std=self.std)


@dataclass(frozen=True)
class MinMax(Op):
    """(x - min) / (max - min)."""

    name: ClassVar[str] = "min_max"
    min: float | None = None
    max: float | None = None

    @property
    def learns(self) -> bool:
        """Learned unless both are given."""
        return self.min is None or self.max is None

    def to_dict(self) -> Json:
        """Return what is known."""
        return _present(min=self.min, max=self.max)


@dataclass(frozen=True)
class Bucketize(Op):
    """The count of boundaries that are <= x."""

    name: ClassVar[str] = "bucketize"
    indexes: ClassVar[bool] = True
    boundaries: tuple[float, ...] = ()
    quantiles: int = 0

    @property
    def learns(self) -> bool:
        """Quantiles' edges are learned; given or learned boundaries are final."""
        return self.quantiles > 0 and not self.boundaries

    def to_dict(self) -> Json:
        """Return what is set."""
        fields: Json = {}
        if self.boundaries:
            fields["boundaries"] = [_spelled(edge) for edge in self.boundaries]
        if self.quantiles:
            fields["quantiles"] = self.quantiles
        return fields


@dataclass(frozen=True)
class Values:
    """A vocabulary's values in index order, all of one kind: strings, integers, unsigned or floats."""

    KINDS: ClassVar[tuple[str, ...]] = ("strings", "integers", "unsigned", "floats")
    kind: str
    items: tuple[str, ...] | tuple[int, ...] | tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[str] | Sequence[int] | Sequence[float]) -> Values:
        """Tell the kind from the values."""
        plain: list[object] = [v.item() if isinstance(v, np.generic) else v for v in values]
        if all(isinstance(v, str) for v in plain):
            return cls("strings", tuple(cast(list[str], plain)))
        if all(isinstance(v, int) and not isinstance(v, bool) for v in plain):
            whole = cast(list[int], plain)
            unsigned = any(v > INT64_MAX for v in whole) or any(
                type(v) is np.uint64 for v in cast(Sequence[object], values)
            )
            return cls("unsigned" if unsigned else "integers", tuple(whole))
        if all(isinstance(v, float) for v in plain):
            return cls("floats", tuple(cast(list[float], plain)))
        raise TypeError("vocab(values=…): the values must be all text, all integers or all floats")

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Values:
        """Read the proto's form; lists left empty are as good as absent."""
        unknown = set(fields) - set(cls.KINDS)
        if unknown:
            raise ValueError(f"vocab: values has no field {sorted(unknown)[0]!r}; it has {', '.join(cls.KINDS)}")
        filled = {kind: cast(Sequence[object], items) for kind, items in fields.items() if items}
        if len(filled) > 1:
            raise ValueError(f"vocab: values holds {' and '.join(filled)}; fill one of them")
        for kind, items in filled.items():
            listed = cast(Sequence[str], items)
            if kind == "strings":
                return cls(kind, tuple(listed))
            if kind == "floats":
                return cls(kind, tuple(float(item) for item in listed))
            return cls(kind, tuple(int(item) for item in listed))
        return cls("strings", ())


@dataclass(frozen=True)
class Vocab(Op):
    """0 for null and for a value not in the vocabulary, then 1 and up by count descending."""

    name: ClassVar[str] = "vocab"
    indexes: ClassVar[bool] = True
    min_count: int = 0
    max_size: int = 0
    oov_buckets: int = 0
    values: Values | None = None

    @property
    def learns(self) -> bool:
        """Learned unless the values are given."""
        return self.values is None

    def to_dict(self) -> Json:
        """Return what is set."""
        fields: Json = {
            "min_count": self.min_count,
            "max_size": self.max_size,
            "oov_buckets": self.oov_buckets,
        }
        fields = {name: value for name, value in fields.items() if value}
        if self.values is not None:
            items: list[object] = [_spelled(v) if isinstance(v, float) else v for v in self.values.items]
            fields["values"] = {self.values.kind: items}
        return fields


@dataclass(frozen=True)
class HashBucket(Op):
    """XXH3-64 (seed) of the value, modulo buckets."""

    name: ClassVar[str] = "hash_bucket"
    indexes: ClassVar[bool] = True
    buckets: int = 0
    seed: int = 0

    def to_dict(self) -> Json:
        """Return both fields."""
        return {"buckets": self.buckets, "seed": self.seed}


@dataclass(frozen=True)
class OneHot(Op):
    """Index i becomes `size` columns with a 1 in column i."""

    name: ClassVar[str] = "one_hot"
    size: int = 0

    def to_dict(self) -> Json:
        """Return the size, unless it is the one of the op before."""
        return {"size": self.size} if self.size else {}


def number(where: str, value: object) -> float:
    """Return a finite number as float, or say what is wanted."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{where} must be a number, not {value!r}")
    result = float(cast(float, value))
    if not math.isfinite(result):
        raise ValueError(f"{where} must be finite, not {value!r}; leave an open bound out")
    return result


def whole(where: str, value: object, *, least: int = 0, most: int = UINT64_MAX) -> int:
    """Return an integer of the range, or say what is wanted."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where} must be a whole number, not {value!r}")
    result = int(cast(int, value))
    if not least <= result <= most:
        raise ValueError(f"{where} must be from {least} to {most}, not {result}")
    return result


def _present(**fields: float | None) -> Json:
    return {name: _spelled(value) for name, value in fields.items() if value is not None}


def _spelled(value: float) -> float | str:
    """Return a number as proto3's JSON spells it: NaN and the infinities are text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
