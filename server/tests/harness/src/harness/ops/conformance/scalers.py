"""Ops that shift and scale numbers, by parameters that are given or learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from harness.ops.oracles import divided

from .cases import DENSE, NUMERIC, ElementCase, OpCases, Scaler, ShuffledCase, on_values

LEARNED_KINDS = ["int8", "date", "decimal"]


def moments(scaler: Any, seen: np.ndarray) -> dict[str, Any]:
    """The mean and the deviation, within the rounding of sums."""
    scale = float(np.ptp(seen)) or 1.0
    # sklearn's squares are 0 below 2.2e-162, the root of the smallest float; ours are exact.
    least = max(1e-15 * scale, 3e-162)
    return {
        "mean": pytest.approx(scaler.mean_[0], rel=1e-14, abs=1e-15 * scale),
        "std": pytest.approx(scaler.var_[0] ** 0.5, rel=1e-12, abs=least),
    }


def quartiles(scaler: Any, seen: np.ndarray) -> dict[str, Any]:
    """The median and the distance between the quartiles, within the rounding of an interpolation."""
    low, middle, high = np.percentile(seen, [25, 50, 75])
    rounding = 2 * np.spacing(max(abs(low), abs(high)))
    return {
        "center": pytest.approx(middle, rel=1e-15, abs=rounding),
        "scale": pytest.approx(high - low, rel=1e-15, abs=rounding),
    }


SCALERS: dict[str, OpCases] = {
    "standardize": OpCases(
        numbers={
            "standardize": (lambda c: c.standardize(mean=2013.2, std=0.3), lambda x: divided(x, 2013.2, 0.3)),
            "standardize by 0": (lambda c: c.standardize(mean=2.5, std=0), lambda x: divided(x, 2.5, 1.0)),
            "standardize by little": (lambda c: c.standardize(mean=2.5, std=1e-17), lambda x: divided(x, 2.5, 1e-17)),
        },
        elements={"standardize": ElementCase(NUMERIC, lambda c: c.standardize(mean=1.5, std=0.3))},
        scaler=Scaler(
            lambda c: c.standardize(),
            StandardScaler,
            moments,
            lambda found: (found["mean"], found["std"]),
            # sklearn treats a deviation as zero if it is rounding error relative to the mean; Forebay only an
            # exact zero.
            least_divisor=5e-324,
            is_sklearns=lambda mean, std: not 0 < std < 10 * 2.0**-52 * max(1.0, abs(mean)),
        ),
        learning={"standardize": ElementCase(LEARNED_KINDS, lambda c: c.standardize())},
        step=lambda drawn: on_values(
            lambda c: c.standardize(mean=drawn.low, std=drawn.high - drawn.low),
            lambda x: divided(x, drawn.low, drawn.high - drawn.low),
        ),
        fits_float32=True,
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.standardize(mean=2, std=7).fill_null(0))],
    ),
    "min_max": OpCases(
        numbers={
            "min_max": (lambda c: c.min_max(min=0.1, max=0.7), lambda x: divided(x, 0.1, 0.7 - 0.1)),
            "min_max of no range": (lambda c: c.min_max(min=3, max=3), lambda x: divided(x, 3.0, 1.0)),
            "min_max of hardly a range": (lambda c: c.min_max(min=0, max=2.2e-15), lambda x: divided(x, 0.0, 1.0)),
            "min_max of little a range": (lambda c: c.min_max(min=0, max=2.3e-15), lambda x: divided(x, 0.0, 2.3e-15)),
        },
        elements={"min_max": ElementCase(NUMERIC, lambda c: c.min_max(min=-1, max=7))},
        scaler=Scaler(
            lambda c: c.min_max(),
            MinMaxScaler,
            lambda scaler, seen: {"min": scaler.data_min_[0], "max": scaler.data_max_[0]},
            lambda found: (found["min"], found["max"] - found["min"]),
        ),
        learning={"min_max": ElementCase(LEARNED_KINDS, lambda c: c.min_max())},
        step=lambda drawn: on_values(
            lambda c: c.min_max(min=drawn.low, max=drawn.high),
            lambda x: divided(x, drawn.low, drawn.high - drawn.low),
        ),
        fits_float32=True,
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.min_max(min=0, max=9).fill_null(0))],
    ),
    "robust": OpCases(
        numbers={
            "robust": (lambda c: c.robust(center=-1.7, scale=11.1), lambda x: divided(x, -1.7, 11.1)),
            "robust of no scale": (lambda c: c.robust(center=1.5, scale=0), lambda x: divided(x, 1.5, 1.0)),
            "robust of hardly a scale": (lambda c: c.robust(center=1.5, scale=1e-17), lambda x: divided(x, 1.5, 1.0)),
        },
        elements={"robust": ElementCase(NUMERIC, lambda c: c.robust(center=1, scale=3))},
        scaler=Scaler(lambda c: c.robust(), RobustScaler, quartiles, lambda found: (found["center"], found["scale"])),
        learning={"robust": ElementCase(LEARNED_KINDS, lambda c: c.robust())},
        step=lambda drawn: on_values(
            lambda c: c.robust(center=drawn.high, scale=drawn.high - drawn.low),
            lambda x: divided(x, drawn.high, drawn.high - drawn.low),
        ),
        fits_float32=True,
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.robust(center=0, scale=2).fill_null(0))],
    ),
    "max_abs": OpCases(
        numbers={
            "max_abs": (lambda c: c.max_abs(max_abs=0.3), lambda x: divided(x, 0.0, 0.3)),
            "max_abs of 0": (lambda c: c.max_abs(max_abs=0), lambda x: divided(x, 0.0, 1.0)),
            "max_abs of hardly anything": (lambda c: c.max_abs(max_abs=2.2e-15), lambda x: divided(x, 0.0, 1.0)),
            "max_abs of little": (lambda c: c.max_abs(max_abs=2.3e-15), lambda x: divided(x, 0.0, 2.3e-15)),
        },
        elements={"max_abs": ElementCase(NUMERIC, lambda c: c.max_abs(max_abs=3))},
        scaler=Scaler(
            lambda c: c.max_abs(),
            MaxAbsScaler,
            lambda scaler, seen: {"max_abs": scaler.max_abs_[0]},
            lambda found: (0.0, found["max_abs"]),
        ),
        learning={"max_abs": ElementCase(LEARNED_KINDS, lambda c: c.max_abs())},
        step=lambda drawn: on_values(
            lambda c: c.max_abs(max_abs=abs(drawn.high) + 1), lambda x: divided(x, 0.0, abs(drawn.high) + 1)
        ),
        fits_float32=True,
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.max_abs(max_abs=7).fill_null(-1))],
    ),
}
