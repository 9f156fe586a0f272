"""Ops with numeric results, one class per message of plan.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .op import INT64_MAX, Json, Op, json_number, present

STATS = ("MEAN", "MEDIAN", "MODE")


@dataclass(frozen=True)
class FillNull(Op):
    """Null becomes a value: given, or learned (stat)."""

    name: ClassVar[str] = "fill_null"
    value: float | None = None
    integer: int | None = None
    text: str | None = None
    stat: str | None = None
    unsigned: int | None = None
    decimal: str | None = None

    @property
    def keeps_indexes(self) -> bool:
        """A whole number is another index."""
        return self._is_exact or (self.value is not None and self.value.is_integer())

    @property
    def _is_exact(self) -> bool:
        return self.integer is not None or self.unsigned is not None

    @property
    def learns(self) -> bool:
        """A statistic is learned."""
        return self.stat is not None

    def to_dict(self) -> Json:
        """Return the one field that is set."""
        if self.value is not None:
            return {"value": json_number(self.value)}
        fields: Json = {
            "integer": self.integer,
            "unsigned": self.unsigned,
            "decimal": self.decimal,
            "text": self.text,
            "stat": self.stat,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Clip(Op):
    """Values below min become min, above max become max. A bound that is not exact in float64 is an int."""

    name: ClassVar[str] = "clip"
    min: float | None = None
    max: float | None = None

    def to_dict(self) -> Json:
        """Return the bounds that are set."""
        fields: Json = {}
        for side, bound in (("min", self.min), ("max", self.max)):
            if isinstance(bound, int):
                fields[f"{side}_unsigned" if bound > INT64_MAX else f"{side}_integer"] = bound
            elif bound is not None:
                fields[side] = json_number(bound)
        return fields


@dataclass(frozen=True)
class Log1p(Op):
    """ln(1 + x)."""

    name: ClassVar[str] = "log1p"

    def to_dict(self) -> Json:
        """Return an empty object."""
        return {}


@dataclass(frozen=True)
class Sqrt(Op):
    """The square root; NaN below 0."""

    name: ClassVar[str] = "sqrt"

    def to_dict(self) -> Json:
        """Return an empty object."""
        return {}


@dataclass(frozen=True)
class Abs(Op):
    """The absolute value."""

    name: ClassVar[str] = "abs"

    def to_dict(self) -> Json:
        """Return an empty object."""
        return {}


@dataclass(frozen=True)
class Logit(Op):
    """ln(x / (1 - x)), x clipped to [eps, 1 - eps] if eps is given."""

    name: ClassVar[str] = "logit"
    eps: float | None = None

    def to_dict(self) -> Json:
        """Return eps, if it is set."""
        return present(eps=self.eps)


@dataclass(frozen=True)
class BoxCox(Op):
    """(x^lambda - 1) / lambda; ln x if lambda is 0."""

    name: ClassVar[str] = "box_cox"
    lambda_: float = 0.0

    def to_dict(self) -> Json:
        """Return lambda."""
        return {"lambda": json_number(self.lambda_)}


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
        return present(mean=self.mean, std=self.std)


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
        return present(min=self.min, max=self.max)


@dataclass(frozen=True)
class MaxAbs(Op):
    """x / max_abs, the largest absolute value."""

    name: ClassVar[str] = "max_abs"
    max_abs: float | None = None

    @property
    def learns(self) -> bool:
        """Learned unless it is given."""
        return self.max_abs is None

    def to_dict(self) -> Json:
        """Return what is known."""
        return present(max_abs=self.max_abs)


@dataclass(frozen=True)
class Robust(Op):
    """(x - center) / scale, by default the median and the interquartile range."""

    name: ClassVar[str] = "robust"
    center: float | None = None
    scale: float | None = None

    @property
    def learns(self) -> bool:
        """Learned unless both are given."""
        return self.center is None or self.scale is None

    def to_dict(self) -> Json:
        """Return what is known."""
        return present(center=self.center, scale=self.scale)
