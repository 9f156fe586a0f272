"""Checks of the arguments of methods: each returns the value, or says what it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

# float64 represents every integer up to this exactly.
EXACT_IN_DOUBLE = 2**53
UINT32_MAX = 2**32 - 1
INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


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


def in_range(where: str, value: object, least: float, most: float = math.inf) -> float:
    """Return a finite number in the range as float; raise for anything else."""
    result = number(where, value)
    if not least <= result <= most:
        allowed = f"from {least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
        raise ValueError(f"{where} must be {allowed}, not {value!r}")
    return result


def whole_number(where: str, value: object, least: float = 0, most: float = UINT64_MAX, *, instead: str = "") -> int:
    """Return an integer in the range; raise for anything else, with what to do `instead`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where} must be a whole number, not {value!r}")
    result = int(cast(int, value))
    if not least <= result <= most:
        raise ValueError(f"{where} must be from {least} to {most}, not {result}{instead and f': {instead}'}")
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


def column_names(where: str, value: object) -> tuple[str, ...]:
    """Return the names of a column or of a list of columns; raise for anything else."""
    columns = [value] if isinstance(value, str) else value
    if not isinstance(columns, (list, tuple)):
        raise TypeError(f"{where} must be a column or a list of columns, not {value!r}")
    return tuple(column_name(where, column) for column in cast("list[object]", columns))


def choice(where: str, value: str, known: Sequence[str]) -> str:
    """Return the name of an enum's value, given in lower case."""
    if not isinstance(cast(object, value), str) or value != value.lower() or value.upper() not in known:
        raise ValueError(f"{where} must be one of {', '.join(known).lower()}, not {value!r}")
    return value.upper()


def together(op: str, given: Mapping[str, object], by: object = ()) -> None:
    """Raise unless all of the values that a fit learns are given, or none, as for groups of rows."""
    missing = [name for name, value in given.items() if value is None]
    if by and len(missing) < len(given):
        raise TypeError(f"{op}: pass {' and '.join(given)}, or by to learn them of each group of rows, not both")
    if missing and len(missing) < len(given):
        raise TypeError(f"{op}: pass both {' and '.join(given)}, or omit both to learn them")
