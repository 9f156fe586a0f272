"""The kinds of cases an op has, named after what the tests of server/tests/ops check with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import forebay as fb

Op = Callable[[fb.Columns], fb.Columns]
Oracle = Callable[[np.ndarray], np.ndarray]

NumberCase = tuple[Op, Oracle]
"""An op, and the same sequence of operations in NumPy on the values of a chain (`domain`): all bits are equal."""

# The value that replaces null elements of lists.
FILL = 3

# Types of the elements of lists.
KINDS: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "float16": pa.float16(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "decimal": pa.decimal128(9, 2),
    "text": pa.string(),
    "bytes": pa.binary(),
}
NUMERIC = [name for name in KINDS if name not in ("text", "bytes")]

# Columns of the shuffled table for ops on numbers, which are the parts of its output "dense".
DENSE = ("float32", "float64", "int16", "uint64", "decimal_9_2", "bool", "date32")


@dataclass(frozen=True)
class Scaler:
    """An op that learns two numbers and computes (x - shift) / divisor from them, as a scaler of scikit-learn does."""

    op: Op
    sklearn: Callable[[], Any]
    expected: Callable[[Any, np.ndarray], dict[str, Any]]
    """The op's fields after a fit, from the fitted scaler and the values that it saw."""
    scale: Callable[[dict[str, float]], tuple[float, float]]
    """The shift and the divisor of these fields."""
    least_divisor: float = 10 * 2.0**-52
    """Smaller divisors are replaced by 1."""
    is_sklearns: Callable[[float, float], bool] = lambda shift, divisor: True
    """Whether scikit-learn divides by the same number."""


@dataclass(frozen=True)
class IndexCase:
    """An op that makes an index of each value."""

    takes: Callable[[pa.DataType], bool]
    """Whether the op is applied to columns of the type."""
    op: Op
    oracle: Callable[[Any, bytes], int | None]
    """The index of a value, which is also given as the bytes that are hashed; None: null. A null stays null."""


@dataclass(frozen=True)
class ListCase:
    """An op on lists of numbers, including a fill_null with FILL."""

    op: Op
    oracle: Callable[[list[np.ndarray]], np.ndarray | list[np.ndarray]]
    """From lists whose nulls are filled: a matrix, or lists."""


@dataclass(frozen=True)
class ElementCase:
    """An op of single values that does the same to the elements of lists."""

    kinds: Sequence[str]
    """Of KINDS."""
    op: Op
    is_integer: bool = False
    """Whether results are integers of the column: they are clipped first, as float32 does not hold all of them."""


State = tuple[np.ndarray, np.ndarray]
"""The values and the nulls of a column between two ops of a chain."""
Step = tuple[Op, Callable[[State], State]]


@dataclass(frozen=True)
class Drawn:
    """Random parameters, from which a step of a random chain takes what it needs."""

    low: float
    high: float
    """Greater than low."""
    whole: int
    """From 1 to 2^20."""
    edges: list[float]
    """Ascending."""
    fill: float
    """A small number or NaN."""


def on_values(op: Op, oracle: Oracle) -> Step:
    """A step that leaves nulls as they are."""
    return op, lambda state: (oracle(state[0]), state[1])


@dataclass(frozen=True)
class ShuffledCase:
    """A chain whose values must not depend on the order of rows; the chains with the same output are its parts."""

    output: str
    columns: Sequence[str]
    op: Op


@dataclass(frozen=True, kw_only=True)
class OpCases:
    """All cases of an op. The names in a table are parts of test ids; no two ops share one."""

    numbers: Mapping[str, NumberCase] = field(default_factory=dict)
    """On columns of every numeric type."""
    integers: Mapping[str, NumberCase] = field(default_factory=dict)
    """On integer columns, where results must be exact beyond 2^53."""
    indices: Mapping[str, IndexCase] = field(default_factory=dict)
    lists: Mapping[str, ListCase] = field(default_factory=dict)
    results: str = ""
    """The file in server/tests that compares results with a reference, if the four tables above are empty."""

    elements: Mapping[str, ElementCase] = field(default_factory=dict)
    scaler: Scaler | None = None
    learning: Mapping[str, ElementCase] = field(default_factory=dict)
    """What a fit learns from elements of lists is what it learns from single values."""

    step: Callable[[Drawn], Step] | None = None
    """The op as one of a random chain."""
    fits_float32: bool = False
    """Whether float32 holds the results for all integers, after rounding if they are fractions."""

    shuffled: Sequence[ShuffledCase] = ()
