"""Ops in NumPy over the types of a chain (int64, uint64, float32, float64), bit-exact."""

from __future__ import annotations

import math

import numpy as np


def real(values: np.ndarray) -> np.ndarray:
    """Where an op computes fractions: float32 stays, all else is float64."""
    return values if values.dtype == np.float32 else values.astype(np.float64)


def divided(values: np.ndarray, shift: float, divisor: float) -> np.ndarray:
    """In float64; what is float32 is rounded to it once."""
    result = (values.astype(np.float64) - shift) / divisor
    return result.astype(np.float32) if values.dtype == np.float32 else result


def clipped(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """numpy.clip with bounds of the column's own type, which keeps a -0.0 where a bound is 0."""
    low, high = values.dtype.type(low), values.dtype.type(high)
    result = np.where(values < low, low, np.where(values > high, high, values))
    assert np.array_equal(result, np.clip(values, low, high), equal_nan=values.dtype.kind == "f")
    return result


def bounded(values: np.ndarray, low: float, high: float) -> np.ndarray:
    unsigned = values.dtype == np.uint64 and high < 0
    if values.dtype.kind == "f" or unsigned or not (low.is_integer() and high.is_integer()):
        return clipped(real(values), low, high)
    return clipped(values, max(int(low), np.iinfo(values.dtype).min), int(high))


def digitized(values: np.ndarray, edges: list[float]) -> np.ndarray:
    """numpy.digitize, in which integers meet the edges exactly, as Python compares them, and not as floats."""
    if values.dtype.kind == "f":
        return np.digitize(values.astype(np.float64), edges).astype(np.int64)
    info = np.iinfo(values.dtype)
    reached = [max(math.ceil(edge), info.min) for edge in edges if edge <= info.max]
    return np.searchsorted(np.array(reached, values.dtype), values, side="right").astype(np.int64)


def filled(values: np.ndarray, gaps: np.ndarray, value: float) -> np.ndarray:
    """Nulls become the value; a fraction, or a number that the integers cannot hold, takes them to float64."""
    if values.dtype.kind != "f":
        info = np.iinfo(values.dtype)
        if not (float(value).is_integer() and info.min <= value <= info.max):
            values = values.astype(np.float64)
    return np.where(gaps, values.dtype.type(value), values)


def first_of(rows: list[np.ndarray], n: int, value: float) -> np.ndarray:
    """The first n elements of each list, shorter lists padded at the end, in float64 unless all are whole."""
    kind = rows[0].dtype
    if kind.kind != "f" and not float(value).is_integer():
        kind = np.dtype(np.float64)
    matrix = np.full((len(rows), n), value).astype(kind) if kind.kind == "f" else np.full((len(rows), n), value, kind)
    for i, row in enumerate(rows):
        taken = row[:n]
        matrix[i, : len(taken)] = taken
    return matrix


def last_of(rows: list[np.ndarray], n: int, value: float) -> np.ndarray:
    """The last n elements of each list, shorter lists padded at the start."""
    return first_of([row[::-1] for row in rows], n, value)[:, ::-1]
