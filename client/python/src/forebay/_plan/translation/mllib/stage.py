"""One stage of a fitted MLlib pipeline: its class, parameters and learned values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from forebay.errors import UntranslatableStage

Doubles = npt.NDArray[np.float64]

# How Spark writes doubles that JSON has no number for.
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}


@dataclass(frozen=True)
class MllibStage:
    """A stage. `learned` has the columns of the model's data: lists, and vectors as arrays of float64."""

    uid: str
    class_name: str
    params: Mapping[str, Any]
    """Parameters that were set."""
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    learned: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def short_name(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]

    def refusal(self, problem: str) -> UntranslatableStage:
        """Return an error that names this stage."""
        return UntranslatableStage(self.uid, self.class_name, problem)

    def has(self, name: str) -> bool:
        """Whether a parameter is set, or has a default."""
        return self._param(name) is not None

    def is_set(self, name: str) -> bool:
        """Whether a parameter was set."""
        return self.params.get(name) is not None

    def text(self, name: str) -> str:
        """Return a parameter of text."""
        value = self._param(name)
        if not isinstance(value, str) or not value:
            raise self.refusal(f"parameter {name} must be text, not {value!r}")
        return value

    def choice(self, name: str, *allowed: str) -> str:
        """Return a parameter that is one of these texts; Spark ignores case."""
        value = self.text(name).lower()
        if value not in allowed:
            raise self.refusal(f"parameter {name} is {value!r}; supported are {', '.join(allowed)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a parameter of a list of texts."""
        value = self._param(name)
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in cast("list[object]", value)):
            raise self.refusal(f"parameter {name} must be a list of texts, not {value!r}")
        return tuple(cast("list[str]", value))

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        value = self._param(name)
        if not isinstance(value, bool):
            raise self.refusal(f"parameter {name} must be true or false, not {value!r}")
        return value

    def number(self, name: str) -> float:
        """Return a parameter of a number, possibly NaN or infinite."""
        return self._double(name, self._param(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a parameter of a list of numbers."""
        return self._doubles(name, self._param(name))

    def number_lists(self, name: str) -> tuple[tuple[float, ...], ...]:
        """Return a parameter of a list of lists of numbers."""
        value = self._param(name)
        if not isinstance(value, (list, tuple)):
            raise self.refusal(f"parameter {name} must be a list of lists of numbers, not {value!r}")
        return tuple(self._doubles(name, one) for one in cast("list[object]", value))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the input and output columns, from inputCols and outputCols or from inputCol and outputCol."""
        if self.is_set("inputCols"):
            read = self.texts("inputCols")
            written = self.texts("outputCols")
        else:
            read, written = (self.text("inputCol"),), (self.text("outputCol"),)
        if len(read) != len(written):
            raise self.refusal(f"has {len(read)} input columns and {len(written)} output columns")
        return list(zip(read, written, strict=True))

    def vector(self, name: str) -> Doubles:
        """Return a learned vector of finite numbers."""
        values = self.learned.get(name)
        if not isinstance(values, np.ndarray):
            raise self.refusal(f"its data has no vector {name!r}; save the model again")
        for index, value in enumerate(cast(Doubles, values)):
            if not math.isfinite(value):
                raise self.refusal(f"{name} of element {index} is {value}; fit it to rows without NaN and infinity")
        return cast(Doubles, values)

    def items(self, name: str) -> list[Any]:
        """Return a learned list."""
        values = self.learned.get(name)
        if not isinstance(values, (list, tuple)):
            raise self.refusal(f"its data has no list {name!r}; save the model again")
        return list(cast("list[Any]", values))

    def _param(self, name: str) -> Any:
        value = self.params.get(name)
        return self.defaults.get(name) if value is None else value

    def _doubles(self, name: str, value: object) -> tuple[float, ...]:
        if not isinstance(value, (list, tuple)):
            raise self.refusal(f"parameter {name} must be a list of numbers, not {value!r}")
        return tuple(self._double(name, one) for one in cast("list[object]", value))

    def _double(self, name: str, value: object) -> float:
        if isinstance(value, str) and value.lower() in NOT_FINITE:
            return NOT_FINITE[value.lower()]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refusal(f"parameter {name} must be a number, not {value!r}")
        return float(value)
