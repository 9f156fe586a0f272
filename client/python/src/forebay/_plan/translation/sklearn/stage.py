"""One estimator of a scikit-learn pipeline: its place, parameters and learned attributes. Imports no scikit-learn."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from forebay.errors import UntranslatableStage


@dataclass(frozen=True)
class SklearnStage:
    """An estimator, and the names of the steps that lead to it."""

    path: str
    estimator: Any

    @property
    def short_name(self) -> str:
        """The class without its module."""
        return type(self.estimator).__name__

    @property
    def class_name(self) -> str:
        """The class with its module."""
        return f"{type(self.estimator).__module__}.{self.short_name}"

    @property
    def is_own(self) -> bool:
        """Whether the class is one of scikit-learn itself, not derived from one."""
        return self.class_name.startswith("sklearn.")

    @property
    def is_fitted(self) -> bool:
        """Whether the estimator has seen data."""
        return hasattr(self.estimator, "n_features_in_")

    def refusal(self, problem: str) -> UntranslatableStage:
        """Return an error that names this stage."""
        return UntranslatableStage(self.path or self.short_name, self.class_name, problem)

    def inner(self, name: str, estimator: Any) -> SklearnStage:
        """Return a step of this stage."""
        return SklearnStage(f"{self.path}.{name}" if self.path else name, estimator)

    def check_params(self, known: Collection[str]) -> None:
        """Refuse parameters that are unknown here and do not have their defaults."""
        defaults = inspect.signature(cast(Any, type(self.estimator))).parameters
        for name, value in cast("dict[str, Any]", self.estimator.get_params(deep=False)).items():
            if name in known or value is defaults[name].default:
                continue
            raise self.refusal(f"parameter {name} = {value!r} is unknown, and may change the result; leave it out")

    def param(self, name: str, default: Any = None) -> Any:
        """Return a parameter; the default if this version of scikit-learn does not have it."""
        return getattr(self.estimator, name, default)

    def choice(self, name: str, *allowed: str) -> str:
        """Return a parameter that is one of these texts."""
        value = self.param(name)
        if value not in allowed:
            raise self.refusal(f"parameter {name} is {value!r}; supported are {', '.join(allowed)}")
        return str(value)

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return bool(self.param(name, False))

    def learned(self, name: str) -> Any:
        """Return a learned attribute."""
        value = getattr(self.estimator, name, None)
        if value is None:
            raise self.refusal(f"has no {name}; fit it first")
        return value

    def numbers(self, name: str, count: int) -> list[float]:
        """Return a learned attribute of finite numbers, one per column."""
        values = [float(value) for value in cast("Sequence[Any]", self.learned(name))]
        self.check_count(len(values), count)
        for index, value in enumerate(values):
            if not math.isfinite(value):
                raise self.refusal(f"{name} of column {index} is {value}; fit it to finite numbers")
        return values

    def check_count(self, fitted: int, given: int) -> None:
        """Refuse a stage that was fitted to another number of columns."""
        if fitted != given:
            raise self.refusal(
                f"was fitted to {fitted} columns and reads {given}: the steps before it have changed; "
                "fit the pipeline again"
            )
