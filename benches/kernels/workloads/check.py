"""Comparisons of results; a difference ends the bench."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def equal(name: str, result: Array, expected: Array) -> str:
    """Check that a result equals another to the bit; return a summary."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        raise SystemExit(f"{name}: {result.dtype}{result.shape}, not {expected.dtype}{expected.shape}")
    size = result.dtype.itemsize
    differing = int(np.count_nonzero(result.view(f"u{size}") != expected.view(f"u{size}")))
    if differing:
        raise SystemExit(f"{name}: {differing} of {result.size} values differ")
    return f"{name}: equal to the bit ({result.size} values)"


def close(name: str, result: Array, expected: Array, at_most: float) -> str:
    """Check the distance of a result from the exact one in float64; return a summary."""
    if result.shape != expected.shape:
        raise SystemExit(f"{name}: {result.shape}, not {expected.shape}")
    difference = float(np.max(np.abs(result.astype(np.float64) - expected)))
    if not difference <= at_most:
        raise SystemExit(f"{name}: differs by {difference:.3g}, more than {at_most:.3g}")
    return f"{name}: at most {difference:.2g} from float64 ({result.size} values)"
