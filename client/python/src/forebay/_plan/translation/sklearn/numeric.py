"""SimpleImputer, KBinsDiscretizer, Binarizer and FunctionTransformer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forebay._plan.chains import cols
from forebay._plan.columns import Columns
from forebay._plan.translation.derivations import Derivations, makes_nan
from forebay._plan.translation.symbols import OneHotGroup, Scalar, literal

from .matrix import Element, Matrix, check_number, computed, constant, is_text, named, note_singles
from .stage import SklearnStage

# Functions of NumPy with an op; abs and absolute are one function.
FUNCTIONS: dict[Any, Callable[[Columns], Columns]] = {
    np.log1p: Columns.log1p,
    np.sqrt: Columns.sqrt,
    np.absolute: Columns.abs,
    np.fabs: Columns.abs,
}
STATISTICS = {"mean": "mean", "median": "median", "most_frequent": "mode"}


def simple_imputer(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return columns with their missing values filled."""
    if stage.flag("add_indicator"):
        raise stage.refusal("add_indicator adds columns that no op makes; derive x IS NULL instead")
    strategy = stage.choice("strategy", *STATISTICS, "constant")
    scalars = given.scalars()
    fills: list[Any]
    if stage.is_fitted:
        fills = list(cast("Sequence[Any]", stage.learned("statistics_")))
        stage.check_count(len(fills), len(scalars))
    elif strategy == "constant":
        fills = [_constant_fill(stage, scalar) for scalar in scalars]
    else:
        fills = [None] * len(scalars)
    made: list[Element] = []
    names: list[str] = []
    for index, (scalar, fill) in enumerate(zip(scalars, fills, strict=True)):
        if _is_nan(fill):
            if stage.flag("keep_empty_features"):
                raise stage.refusal(f"saw no value of column {named(scalar)}; leave the column out")
            state.note(f"{stage.path}: column {named(scalar)} had no value, so it is left out, as in scikit-learn")
            continue
        made.append(_imputed(state, stage, scalar, fill, strategy))
        names += [] if given.names is None else [given.names[index]]
    return Matrix(tuple(made), None if given.names is None else tuple(names))


def _constant_fill(stage: SklearnStage, scalar: Scalar) -> Any:
    fill = stage.param("fill_value")
    if fill is not None:
        return fill
    if scalar.kind is None:
        raise stage.refusal("is not fitted, and its fill_value depends on the column's type; fit it, or pass schema=")
    return "missing_value" if is_text(scalar.kind) else 0


def _is_nan(value: object) -> bool:
    return isinstance(value, (float, np.floating)) and math.isnan(cast(float, value))


def _imputed(state: Derivations, stage: SklearnStage, scalar: Scalar, fill: Any, strategy: str) -> Scalar:
    missing = stage.param("missing_values")
    if not scalar.null and not scalar.nan:
        return scalar
    is_word = isinstance(fill, str)
    if missing is not None and not _is_nan(missing):
        source = _without(state, stage, scalar, missing)
    else:
        # A column whose fill is text, or that is known not to be a float, has no NaN.
        source = replace(scalar, nan=False) if is_word else _without_nan(state, stage, scalar)
    if strategy != "constant" and fill is None:
        part = source.part.fill_null(STATISTICS[strategy])
        if strategy == "most_frequent":
            state.note(f"{stage.path}: if several values are most frequent, a fit may choose another than scikit-learn")
        return replace(source, part=part, sql=None, null=False)
    if isinstance(fill, (bool, np.bool_)) or not isinstance(fill, (int, float, str, np.integer, np.floating)):
        raise stage.refusal(f"fills column {named(scalar)} with {fill!r}; supported are numbers and text")
    if is_text(scalar.kind) is not is_word and scalar.kind is not None:
        raise stage.refusal(f"fills column {named(scalar)} of type {scalar.kind} with {fill!r}; pass the right schema")
    part = source.part.fill_null(text=str(fill)) if is_word else source.part.fill_null(float(cast(float, fill)))
    kind = source.kind
    if kind is not None and pa.types.is_integer(kind) and not float(cast(float, fill)).is_integer():
        kind = pa.float64()
    return replace(source, part=part, sql=None, kind=kind, null=False)


def _without_nan(state: Derivations, stage: SklearnStage, scalar: Scalar) -> Scalar:
    """Return a column in which only null is missing."""
    made_by = makes_nan(scalar) if scalar.nan else None
    if made_by is not None:
        raise stage.refusal(f"imputes column {named(scalar)} after {made_by}, which may make NaN; impute before it")
    return state.missing_as_null(scalar)


def _without(state: Derivations, stage: SklearnStage, scalar: Scalar, missing: Any) -> Scalar:
    """Return a column in which the missing value is null."""
    if scalar.part.ops or scalar.reference is None:
        raise stage.refusal(f"imputes {missing!r} in column {named(scalar)} after other ops; impute before them")
    if not isinstance(missing, (str, int, float, np.integer, np.floating)):
        raise stage.refusal(f"missing_values {missing!r} must be a number or text")
    value = missing if isinstance(missing, str) else float(cast(float, missing))
    expr = f"CASE WHEN {scalar.reference} = {literal(value)} THEN NULL ELSE {scalar.reference} END"
    state.note(f"{stage.path}: a null in {named(scalar)} is filled as well here, and is NaN in scikit-learn")
    name = scalar.part.names[0]
    return Scalar(cols(state.derived(f"{name}_not_missing", expr)), None, scalar.kind, nan=scalar.nan)


def k_bins_discretizer(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return the bin of each value, or a column per bin."""
    encode = stage.choice("encode", "ordinal", "onehot", "onehot-dense")
    edges = _edges(stage, given.width)
    made: list[Element] = []
    for index, scalar in enumerate(given.scalars()):
        check_number(stage, scalar)
        if scalar.nan:
            state.note(f"{stage.path}: NaN is in the last bin here, and is an error in scikit-learn")
        inner = None if edges is None else edges[index]
        if inner is None:
            part = scalar.part.bucketize(quantiles=int(stage.param("n_bins")))
        elif inner:
            part = scalar.part.bucketize(inner)
        elif encode == "ordinal":
            part = constant(scalar, 0)
        else:
            made.append(OneHotGroup((constant(scalar, 1),), None))
            continue
        if encode == "ordinal":
            made.append(Scalar(part, None, pa.float64(), null=False, nan=False))
            continue
        count = int(stage.param("n_bins")) if inner is None else len(inner) + 1
        slots = tuple(part.map_id({one: int(one == bin_) for one in range(count)}) for bin_ in range(count))
        made.append(OneHotGroup(slots, part.one_hot(count)))
    return Matrix(tuple(made), given.names if encode == "ordinal" else None)


def _edges(stage: SklearnStage, count: int) -> list[list[float]] | None:
    """Return the inner edges of each column's bins; None if a fit has to learn them."""
    if stage.is_fitted:
        listed = [[float(edge) for edge in edges][1:-1] for edges in cast("Sequence[Any]", stage.learned("bin_edges_"))]
        stage.check_count(len(listed), count)
        return listed
    method = stage.param("quantile_method", "linear")
    bins = stage.param("n_bins")
    if stage.param("strategy") != "quantile" or method not in ("linear", "warn") or not isinstance(bins, int):
        raise stage.refusal(
            "is not fitted, and bucketize learns quantiles by linear interpolation only; fit it first, "
            "or set strategy='quantile', quantile_method='linear' and one n_bins"
        )
    return None


def binarizer(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return 1 for values above the threshold, and 0 for others."""
    threshold = float(stage.param("threshold"))

    def change(scalar: Scalar, _: int) -> Scalar:
        if scalar.nan:
            state.note(f"{stage.path}: NaN is above the threshold here, and is an error in scikit-learn")
        limit = float(np.float32(threshold)) if scalar.kind == pa.float32() else threshold
        above = float(np.nextafter(limit, math.inf))
        return Scalar(scalar.part.bucketize([above]), None, pa.float64(), null=False, nan=False)

    return given.mapped(stage, change)


def function_transformer(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    """Return a function of NumPy of each value."""
    function = stage.param("func")
    if function is None:
        return given
    chain = FUNCTIONS.get(function) if isinstance(function, np.ufunc) else None
    if chain is None or stage.param("kw_args"):
        name = getattr(function, "__name__", repr(function))
        raise stage.refusal(
            f"calls {name}; supported are numpy.log1p, sqrt, abs and fabs without kw_args: write it in SQL, "
            'Plan(derive={"name": "expression"})'
        )
    if function is np.log1p:
        state.note(f"{stage.path}: log1p differs from NumPy's by up to 2 ulps")

    def change(scalar: Scalar, _: int) -> Scalar:
        note_singles(state, scalar)
        made = computed(scalar, chain(scalar.part))
        # The functions return NaN for numbers below their domain.
        return made if chain is Columns.abs else replace(made, nan=True)

    return given.mapped(stage, change)
