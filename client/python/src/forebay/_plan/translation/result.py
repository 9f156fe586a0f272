"""The result of a translation: a plan, and where its results differ from those of the other library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan

AnyPlan = TypeVar("AnyPlan", bound=Plan | FittedPlan, covariant=True)

FLOATS = ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")


@dataclass(frozen=True)
class Translation(Generic[AnyPlan]):
    """A plan made of another library's pipeline, and where its results differ from that library's."""

    plan: AnyPlan
    """A `FittedPlan`, or a `Plan` if parts of the pipeline have not been fitted."""
    differences: tuple[str, ...]
    library: str = "Spark"
    """The other library."""

    def __repr__(self) -> str:
        plan = self.plan
        described = plan.describe() if isinstance(plan, FittedPlan) else repr(plan)
        heading = f"differences from {self.library}:" if self.differences else f"no differences from {self.library}"
        return "\n".join([described, heading, *(f"- {line}" for line in self.differences)])


def checked_dtype(dtype: object, allowed: tuple[str, ...] = FLOATS) -> str:
    """Return a dtype that the outputs of a translation may have."""
    if dtype not in allowed:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(allowed)}")
    return str(dtype)
