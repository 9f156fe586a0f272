"""Equality and distance of numbers, under the rules of the book's page "Leaving Spark"."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]

# Distance of values that no number of ulps separates: NaN and a number, an infinity and a finite number, two integers.
UNMEASURABLE = np.uint64(2**64 - 1)
# Formats by name, with the unsigned and signed integers of their width.
BITS: dict[str, tuple[type[np.unsignedinteger[Any]], type[np.signedinteger[Any]]]] = {
    "float16": (np.uint16, np.int16),
    "bfloat16": (np.uint16, np.int16),
    "float32": (np.uint32, np.int32),
    "float64": (np.uint64, np.int64),
}
WIDTHS = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}


class Distances(NamedTuple):
    """Element by element: whether two arrays are equal, and the distance where they are not."""

    equal: Mask
    ulps: Counts
    apart: Doubles
    """The absolute difference; infinite where `ulps` is not measurable."""


def distances(left: Numbers, right: Numbers, formats: tuple[str, str]) -> Distances:
    """Compare two arrays of numbers; `formats` are their formats or dtypes; a bfloat16 is passed as a float32."""
    are_floats = [name in BITS for name in formats]
    if all(are_floats):
        return _floats(left, right, common_format(*formats))
    if not any(are_floats):
        return _exact(_equal_integers(left, right))
    whole, real = (right, left) if are_floats[0] else (left, right)
    return _exact(_equals_integer(whole, real.astype(np.float64)))


def common_format(left: str, right: str) -> str:
    """Return the format in which floats of two formats are compared: the narrower one."""
    if {left, right} == {"float16", "bfloat16"}:
        # Each has values that the other lacks; float32 has both.
        return "float32"
    return min(left, right, key=WIDTHS.__getitem__)


def rounded(values: Numbers, form: str) -> Numbers:
    """Return floats rounded to a format, to nearest with ties to even; a bfloat16 as a float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        if form != "bfloat16":
            return values.astype(form)
        bits = _bits(values.astype(np.float32), np.uint32)
        near = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), np.float32(np.nan), _bits(near, np.float32))


def _floats(left: Numbers, right: Numbers, form: str) -> Distances:
    left, right = rounded(left, form), rounded(right, form)
    equal = (left == right) | (np.isnan(left) & np.isnan(right))
    first, second = _ordered(left, form), _ordered(right, form)
    # Wrapping subtraction of the larger and the smaller is the distance, also above 2^63.
    ulps = np.maximum(first, second).astype(np.uint64) - np.minimum(first, second).astype(np.uint64)
    measurable = np.isfinite(left) & np.isfinite(right)
    ulps = np.where(equal, np.uint64(0), np.where(measurable, ulps, UNMEASURABLE))
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return Distances(equal, ulps, np.where(equal, 0.0, np.where(measurable, apart, np.inf)))


def _ordered(values: Numbers, form: str) -> npt.NDArray[np.int64]:
    """Return integers in the order of the floats, one apart for neighbours; both zeros are 0."""
    unsigned, signed = BITS[form]
    if form == "bfloat16":
        halves = (_bits(values, np.uint32) >> np.uint32(16)).astype(unsigned)
        bits = _bits(halves, signed)
    else:
        bits = _bits(values, signed)
    least = -(1 << (8 * np.dtype(signed).itemsize - 1))
    wide = bits.astype(np.int64)
    return np.where(wide < 0, np.subtract(least, wide), wide)


def _bits(values: Numbers, kind: type[np.generic]) -> Numbers:
    """Return the bits of numbers as numbers of another type of their width."""
    return cast(Any, values).view(kind)


def _exact(equal: Mask) -> Distances:
    return Distances(equal, np.where(equal, np.uint64(0), UNMEASURABLE), np.where(equal, 0.0, np.inf))


def _equal_integers(left: Numbers, right: Numbers) -> Mask:
    if left.dtype.kind == right.dtype.kind or np.uint64 not in (left.dtype, right.dtype):
        return np.asarray(left == right)
    # int64 and uint64 have no common integer type.
    signed, unsigned = (left, right) if left.dtype.kind == "i" else (right, left)
    return (signed >= 0) & (signed.astype(np.uint64) == unsigned)


def _equals_integer(whole: Numbers, real: Numbers) -> Mask:
    """Whether floats are exactly these integers."""
    if whole.dtype.kind == "b":
        whole = whole.astype(np.uint8)
    low, high = (0.0, 2.0**64) if whole.dtype == np.uint64 else (-(2.0**63), 2.0**63)
    in_range = (real >= low) & (real < high)
    kind = np.uint64 if whole.dtype == np.uint64 else np.int64
    as_whole = np.where(in_range, real, 0.0).astype(kind)
    return in_range & (as_whole == whole.astype(kind)) & (as_whole.astype(np.float64) == real)
