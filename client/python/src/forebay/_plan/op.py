"""The base class of ops, and checks of their parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

Json = dict[str, object]

# float64 represents every integer up to this exactly.
EXACT_IN_DOUBLE = 2**53
ITEMS_SHOWN = 4
CHARACTERS_SHOWN = 60
UINT32_MAX = 2**32 - 1
INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class Op(ABC):
    """One step of a chain."""

    name: ClassVar[str]
    """The op's field in plan.proto."""
    indexes: ClassVar[bool] = False
    """Whether the result is an index, whose default dtype is an integer."""

    @property
    def keeps_indexes(self) -> bool:
        """Whether the op maps indices to indices."""
        return False

    @property
    def learns(self) -> bool:
        """Whether the op has parameters to learn."""
        return False

    @abstractmethod
    def to_dict(self) -> Json:
        """Return the op's fields."""

    def __str__(self) -> str:
        """Return the op as a call, with long lists shortened."""
        fields = ", ".join(f"{name}={shortened(value)}" for name, value in self.to_dict().items())
        return f"{self.name}({fields})"


def ending_in_indexes(chain: Sequence[Op]) -> Sequence[Op]:
    """Return the last op of a chain that produces indices, and the ops after it that keep them; empty if none do."""
    for index in range(len(chain) - 1, -1, -1):
        if chain[index].indexes:
            return chain[index:]
        if not chain[index].keeps_indexes:
            break
    return ()


def number(where: str, value: object) -> float:
    """Return a finite number as float; raise for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{where} must be a number, not {value!r}")
    result = float(cast(float, value))
    if not math.isfinite(result):
        raise ValueError(f"{where} must be finite, not {value!r}; omit an open bound")
    return result


def exact(where: str, value: object) -> float:
    """Return a finite number as float, or as int if it is an integer that float64 cannot represent."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        given = int(cast(int, value))
        if int(float(given)) != given:
            return whole_number(where, given, least=INT64_MIN)
    return number(where, cast(object, value))


def optional(where: str, value: float | None) -> float | None:
    """Return a finite number as float, or None."""
    return None if value is None else number(where, value)


def in_range(where: str, value: object, least: float, most: float = math.inf) -> float:
    """Return a finite number in the range as float; raise for anything else."""
    result = number(where, value)
    if not least <= result <= most:
        allowed = f"from {least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
        raise ValueError(f"{where} must be {allowed}, not {value!r}")
    return result


def whole_number(where: str, value: object, *, least: int = 0, most: int = UINT64_MAX) -> int:
    """Return an integer in the range; raise for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where} must be a whole number, not {value!r}")
    result = int(cast(int, value))
    if not least <= result <= most:
        raise ValueError(f"{where} must be from {least} to {most}, not {result}")
    return result


def fill_value(where: str, value: object) -> float:
    """Return a fill value, possibly NaN or infinite, as float; raise for anything else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{where} must be a number, not {value!r}")
    result = float(cast(float, value))
    if isinstance(value, (int, np.integer)) and int(cast(int, value)) != result:
        raise ValueError(f"{where} must be exact in float64, which {value!r} is not")
    return result


def column_name(where: str, value: object) -> str:
    """Return a column's name; raise for anything else."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{where} must be text, not {value!r}")
    return value


def present(**fields: float | None) -> Json:
    """Return the numbers that are set."""
    return {name: json_number(value) for name, value in fields.items() if value is not None}


def shortened(value: object) -> str:
    """Return a value's text; for a long list, only that of the first items."""
    if isinstance(value, dict):
        return ", ".join(shortened(one) for one in cast(Json, value).values())
    if isinstance(value, list):
        items = cast("list[object]", value)
        shown = ", ".join(map(shortened, items[:ITEMS_SHOWN]))
        more = f", … {len(items) - ITEMS_SHOWN:,} more" if len(items) > ITEMS_SHOWN else ""
        return f"[{shown}{more}]"
    if isinstance(value, str) and len(value) > CHARACTERS_SHOWN:
        return f"{value[:CHARACTERS_SHOWN]!r}…"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def json_number(value: float) -> float | str:
    """Return a number as proto3 JSON, in which NaN and infinities are strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
