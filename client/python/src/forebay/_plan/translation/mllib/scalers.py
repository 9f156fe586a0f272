"""The models of scalers: `standardize`, `min_max`, `max_abs` and `robust` on each element of a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay._plan.columns import Columns
from forebay._plan.translation.symbols import Vector

from .frame import Frame
from .stage import Doubles, MllibStage

# Except for `standardize`, ops divide by 1 instead of a scale below this (10 * 2^-52), as scikit-learn does.
SCALE_MIN = 2.3e-15


def standard_scaler(frame: Frame, stage: MllibStage) -> None:
    """Add (x - mean) / std, without mean or std if the model does not use them."""
    with_mean, with_std = stage.flag("withMean"), stage.flag("withStd")
    mean, std = stage.vector("mean"), stage.vector("std")

    def scaled(chain: Columns, index: int) -> Columns:
        center = float(mean[index]) if with_mean else 0.0
        if not with_mean and not with_std:
            return chain
        if with_std and std[index] == 0:
            return _constant(chain, 0.0)
        return chain.standardize(mean=center, std=float(std[index]) if with_std else 1.0)

    _scale(frame, stage, (mean, std), scaled)


def min_max_scaler(frame: Frame, stage: MllibStage) -> None:
    """Add the value's place between the model's minimum and maximum, in the range of its parameters."""
    low, high = stage.number("min"), stage.number("max")
    if not low < high:
        raise stage.refusal(f"parameter min {low} must be below max {high}")
    minima, maxima = stage.vector("originalMin"), stage.vector("originalMax")

    def scaled(chain: Columns, index: int) -> Columns:
        least, most = float(minima[index]), float(maxima[index])
        width = most - least
        if width == 0:
            return _constant(chain, (low + high) * 0.5)
        if (low, high) == (0.0, 1.0) and width >= SCALE_MIN:
            return chain.min_max(min=least, max=most)
        placed = chain.standardize(mean=least, std=width / (high - low))
        return placed if low == 0 else placed.standardize(mean=-low, std=1.0)

    _scale(frame, stage, (minima, maxima), scaled)


def max_abs_scaler(frame: Frame, stage: MllibStage) -> None:
    """Add the value divided by the model's largest absolute value."""
    largest = stage.vector("maxAbs")

    def scaled(chain: Columns, index: int) -> Columns:
        scale = float(largest[index])
        if 0 < scale < SCALE_MIN:
            return chain.standardize(mean=0.0, std=scale)
        return chain.max_abs(max_abs=scale)

    _scale(frame, stage, (largest,), scaled)


def robust_scaler(frame: Frame, stage: MllibStage) -> None:
    """Add (x - median) / range, without median or range if the model does not use them."""
    with_centering, with_scaling = stage.flag("withCentering"), stage.flag("withScaling")
    medians, ranges = stage.vector("median"), stage.vector("range")

    def scaled(chain: Columns, index: int) -> Columns:
        center = float(medians[index]) if with_centering else 0.0
        scale = float(ranges[index]) if with_scaling else 1.0
        if not with_centering and not with_scaling:
            return chain
        if scale == 0:
            return _constant(chain, 0.0)
        if scale < SCALE_MIN:
            return chain.standardize(mean=center, std=scale)
        return chain.robust(center=center, scale=scale)

    _scale(frame, stage, (medians, ranges), scaled)


def _scale(
    frame: Frame, stage: MllibStage, learned: Sequence[Doubles], scaled: Callable[[Columns, int], Columns]
) -> None:
    read = stage.text("inputCol")
    slots = frame.vector(stage, read).slots()
    for values in learned:
        if len(values) != len(slots):
            raise stage.refusal(
                f"was fitted to vectors of {len(values)} elements, and column {read!r} has {len(slots)}: "
                "the stages before it have changed; fit the pipeline again"
            )
    frame.put(stage.text("outputCol"), Vector(tuple(scaled(chain, index) for index, chain in enumerate(slots))))
    frame.note(
        f"{stage.uid}: divides by the scale; Spark multiplies by its reciprocal, so doubles may differ by an ulp"
    )


def _constant(chain: Columns, value: float) -> Columns:
    """Return a chain that yields the value for every number, and NaN for NaN."""
    return chain.clip(value, value)
