"""StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler and PowerTransformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from forebay._plan.columns import Columns
from forebay._plan.translation.derivations import Derivations
from forebay._plan.translation.symbols import Scalar

from .matrix import Matrix, computed, note_singles
from .stage import SklearnStage

# Quantiles that the op `robust` learns.
QUARTILES = (25.0, 75.0)
INFINITE = "an infinite value passes the scalers here, and is an error in scikit-learn"


def standard_scaler(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return (x - mean) / scale."""
    with_mean, with_std = stage.flag("with_mean"), stage.flag("with_std")
    count = given.width
    if not stage.is_fitted:
        if not (with_mean and with_std):
            raise stage.refusal("is not fitted, and standardize learns both mean and deviation; fit it first")
        return _scaled(state, stage, given, lambda scalar, _: scalar.part.standardize())
    mean = stage.numbers("mean_", count) if with_mean else [0.0] * count
    scale = stage.numbers("scale_", count) if with_std else [1.0] * count
    if not with_mean and not with_std:
        return given
    return _scaled(
        state, stage, given, lambda scalar, index: scalar.part.standardize(mean=mean[index], std=scale[index])
    )


def min_max_scaler(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return the value's place between the learned bounds, in the range of the parameter."""
    low, high = (float(bound) for bound in cast("Sequence[Any]", stage.param("feature_range")))
    if not low < high:
        raise stage.refusal(f"parameter feature_range is {(low, high)}: the first must be below the second")
    if not stage.is_fitted:
        least, spans = None, [1.0] * given.width
    else:
        least = stage.numbers("data_min_", given.width)
        # scikit-learn divides by 1 instead of a range this small, for the precision that it computes in.
        too_small = 10 * float(np.finfo(_float_type(stage.learned("data_range_"))).eps)
        spans = [span if span >= too_small else 1.0 for span in stage.numbers("data_range_", given.width)]

    def scaled(scalar: Scalar, index: int) -> Columns:
        if least is None:
            placed = scalar.part.min_max()
            placed = placed if high - low == 1 else placed.standardize(mean=0.0, std=1 / (high - low))
        else:
            placed = scalar.part.standardize(mean=least[index], std=spans[index] / (high - low))
        placed = placed if low == 0 else placed.standardize(mean=-low, std=1.0)
        return placed.clip(low, high) if stage.flag("clip") else placed

    state.note(
        f"{stage.path}: divides by the range; scikit-learn multiplies by its reciprocal and adds, so doubles differ by "
        "some ulps of the range's bounds"
    )
    return _scaled(state, stage, given, scaled)


def max_abs_scaler(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return the value divided by the largest absolute value."""
    scale = stage.numbers("scale_", given.width) if stage.is_fitted else None

    def scaled(scalar: Scalar, index: int) -> Columns:
        made = scalar.part.max_abs() if scale is None else scalar.part.standardize(mean=0.0, std=scale[index])
        return made.clip(-1, 1) if stage.flag("clip") else made

    return _scaled(state, stage, given, scaled)


def robust_scaler(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return (x - median) / range of quantiles."""
    centering, scaling = stage.flag("with_centering"), stage.flag("with_scaling")
    count = given.width
    if not stage.is_fitted:
        quantiles = tuple(float(one) for one in cast("Sequence[Any]", stage.param("quantile_range")))
        if not (centering and scaling) or quantiles != QUARTILES or stage.flag("unit_variance"):
            raise stage.refusal("is not fitted, and robust learns the median and the quartiles only; fit it first")
        return _scaled(state, stage, given, lambda scalar, _: scalar.part.robust())
    center = stage.numbers("center_", count) if centering else [0.0] * count
    scale = stage.numbers("scale_", count) if scaling else [1.0] * count
    if not centering and not scaling:
        return given
    return _scaled(
        state, stage, given, lambda scalar, index: scalar.part.standardize(mean=center[index], std=scale[index])
    )


def power_transformer(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return Box-Cox transforms."""
    if stage.param("method") != "box-cox":
        raise stage.refusal(f"method {stage.param('method')!r} has no op; use method='box-cox', the op box_cox")
    lambdas = stage.numbers("lambdas_", given.width)
    after = stage.inner("standardize", getattr(stage.estimator, "_scaler", None))
    standardizes = stage.flag("standardize")
    mean = after.numbers("mean_", given.width) if standardizes else []
    scale = after.numbers("scale_", given.width) if standardizes else []

    def powered(scalar: Scalar, index: int) -> Columns:
        made = scalar.part.box_cox(lambdas[index])
        return made.standardize(mean=mean[index], std=scale[index]) if standardizes else made

    state.note(f"{stage.path}: Box-Cox of 0 and less is -inf, a number or NaN here, and an error in scikit-learn")
    state.note(f"{stage.path}: powers and logarithms differ by up to 2 ulps")
    return _scaled(state, stage, given, powered)


def _scaled(state: Derivations, stage: SklearnStage, given: Matrix, chain: Callable[[Scalar, int], Columns]) -> Matrix:
    def change(scalar: Scalar, index: int) -> Scalar:
        note_singles(state, scalar)
        if scalar.nan:
            state.note(INFINITE)
        return computed(scalar, chain(scalar, index))

    return given.mapped(stage, change)


def _float_type(values: Any) -> Any:
    kind = np.asarray(values).dtype
    return kind if kind.kind == "f" else np.dtype(np.float64)
