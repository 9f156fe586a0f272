"""Ops with indices as results, and ops that expand indices to columns, one class per message of plan.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, cast

import numpy as np

from .op import INT64_MAX, Json, Op, json_number


@dataclass(frozen=True)
class Bucketize(Op):
    """The number of boundaries <= x. All are ints if one is not exact in float64."""

    name: ClassVar[str] = "bucketize"
    indexes: ClassVar[bool] = True
    boundaries: tuple[float, ...] = ()
    quantiles: int = 0

    @property
    def learns(self) -> bool:
        """Edges of quantiles are learned, unless boundaries are set."""
        return self.quantiles > 0 and not self.boundaries

    def to_dict(self) -> Json:
        """Return what is set."""
        fields: Json = {}
        integers = [edge for edge in self.boundaries if isinstance(edge, int)]
        if integers:
            fields["unsigned" if max(integers) > INT64_MAX else "integers"] = integers
        elif self.boundaries:
            fields["boundaries"] = [json_number(edge) for edge in self.boundaries]
        if self.quantiles:
            fields["quantiles"] = self.quantiles
        return fields


@dataclass(frozen=True)
class Values:
    """A vocabulary's values in index order, all of one kind; decimals are strings of their digits."""

    KINDS: ClassVar[tuple[str, ...]] = ("strings", "integers", "unsigned", "floats", "decimals")
    kind: str
    items: tuple[str, ...] | tuple[int, ...] | tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[str] | Sequence[int] | Sequence[float] | Sequence[Decimal]) -> Values:
        """Infer the kind from the values."""
        plain: list[object] = [v.item() if isinstance(v, np.generic) else v for v in values]
        if all(isinstance(v, str) for v in plain):
            return cls("strings", tuple(cast(list[str], plain)))
        if all(isinstance(v, int) and not isinstance(v, bool) for v in plain):
            integers = cast(list[int], plain)
            unsigned = any(v > INT64_MAX for v in integers) or any(
                type(v) is np.uint64 for v in cast(Sequence[object], values)
            )
            return cls("unsigned" if unsigned else "integers", tuple(integers))
        if all(isinstance(v, float) for v in plain):
            return cls("floats", tuple(cast(list[float], plain)))
        if all(isinstance(v, Decimal) for v in plain):
            decimals = cast(list[Decimal], plain)
            for value in decimals:
                if not value.is_finite():
                    raise ValueError(f"vocab(values=…): {value} is not a value of a decimal column")
            return cls("decimals", tuple(f"{value:f}" for value in decimals))
        raise TypeError("vocab(values=…): the values must be all text, all integers, all floats or all Decimal")

    def to_dict(self) -> Json:
        """Return the JSON of the message."""
        return {self.kind: [json_number(value) if isinstance(value, float) else value for value in self.items]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Values:
        """Read the JSON of the message; empty lists are ignored."""
        unknown = set(fields) - set(cls.KINDS)
        if unknown:
            raise ValueError(f"vocab: values has no field {sorted(unknown)[0]!r}; it has {', '.join(cls.KINDS)}")
        filled = {kind: cast(Sequence[object], items) for kind, items in fields.items() if items}
        if len(filled) > 1:
            raise ValueError(f"vocab: values has {' and '.join(filled)}; set only one of them")
        for kind, items in filled.items():
            listed = cast(Sequence[str], items)
            if kind in ("strings", "decimals"):
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
            fields["values"] = self.values.to_dict()
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
class Cross(Op):
    """XXH3-64 (seed) of the tuple of the part's column and these, modulo buckets."""

    name: ClassVar[str] = "cross"
    indexes: ClassVar[bool] = True
    columns: tuple[str, ...] = ()
    buckets: int = 0
    seed: int = 0

    def to_dict(self) -> Json:
        """Return every field."""
        return {"columns": list(self.columns), "buckets": self.buckets, "seed": self.seed}


@dataclass(frozen=True)
class SigridHash(Op):
    """TorchArrow's hash of an id into 0..max_value-1."""

    name: ClassVar[str] = "sigrid_hash"
    indexes: ClassVar[bool] = True
    salt: int = 0
    max_value: int = 0

    def to_dict(self) -> Json:
        """Return both fields."""
        return {"salt": self.salt, "max_value": self.max_value}


@dataclass(frozen=True)
class MapId(Op):
    """ids[i] becomes values[i]; other ids become the default, or null without one."""

    name: ClassVar[str] = "map_id"
    indexes: ClassVar[bool] = True
    ids: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    default: int | None = None

    def to_dict(self) -> Json:
        """Return both lists, and the default if set."""
        kind = "unsigned" if any(value > INT64_MAX for value in self.ids) else "ids"
        fields: Json = {kind: list(self.ids), "values": list(self.values)}
        if self.default is not None:
            fields["default"] = self.default
        return fields


@dataclass(frozen=True)
class PositiveMod(Op):
    """The non-negative remainder of x by the modulus."""

    name: ClassVar[str] = "positive_mod"
    indexes: ClassVar[bool] = True
    modulus: int = 0

    def to_dict(self) -> Json:
        """Return the modulus."""
        return {"modulus": self.modulus}


@dataclass(frozen=True)
class OneHot(Op):
    """Index i becomes `size` columns with a 1 in column i."""

    name: ClassVar[str] = "one_hot"
    size: int = 0

    def to_dict(self) -> Json:
        """Return the size, unless it is that of the previous op."""
        return {"size": self.size} if self.size else {}


@dataclass(frozen=True)
class MultiHot(Op):
    """A list of indices becomes `size` columns with a 1 in the column of each."""

    name: ClassVar[str] = "multi_hot"
    size: int = 0

    def to_dict(self) -> Json:
        """Return the size, unless it is that of the previous op."""
        return {"size": self.size} if self.size else {}
