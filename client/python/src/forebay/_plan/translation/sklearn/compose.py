"""Pipeline, ColumnTransformer and FeatureUnion: estimators in sequence and side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from forebay._plan.names import suggestion
from forebay._plan.translation.derivations import Derivations

from .matrix import Matrix, side_by_side
from .stage import SklearnStage

Inner = Callable[[Derivations, SklearnStage, Matrix], Matrix]

NESTING_MAX = 16


def pipeline(state: Derivations, stage: SklearnStage, given: Matrix, translate: Inner) -> Matrix:
    """Return the result of steps after each other; a predictor at the end is left out."""
    _check_depth(stage)
    steps = cast("Sequence[tuple[str, Any]]", stage.estimator.steps)
    for number, (name, estimator) in enumerate(steps, 1):
        if estimator is None or estimator == "passthrough":
            continue
        inner = stage.inner(name, estimator)
        if number == len(steps) and hasattr(estimator, "predict") and not hasattr(estimator, "transform"):
            state.note(f"{inner.path}: a {inner.short_name} is not part of a plan; train a model from the stream")
            continue
        given = translate(state, inner, given)
    return given


def feature_union(state: Derivations, stage: SklearnStage, given: Matrix, translate: Inner) -> Matrix:
    """Return the results of estimators on the same columns, side by side."""
    _check_depth(stage)
    _check_weights(stage)
    parts: list[Matrix] = []
    for name, estimator in cast("Sequence[tuple[str, Any]]", stage.estimator.transformer_list):
        if estimator == "drop":
            continue
        parts.append(given if estimator == "passthrough" else translate(state, stage.inner(name, estimator), given))
    return side_by_side(parts)


def column_transformer(state: Derivations, stage: SklearnStage, given: Matrix, translate: Inner) -> Matrix:
    """Return the results of estimators on selected columns, side by side."""
    _check_depth(stage)
    _check_weights(stage)
    if stage.is_fitted:
        stage.check_count(int(stage.estimator.n_features_in_), given.width)
    fitted = stage.is_fitted and hasattr(stage.estimator, "transformers_")
    listed = cast(
        "Sequence[tuple[str, Any, Any]]", stage.estimator.transformers_ if fitted else stage.estimator.transformers
    )
    parts: list[Matrix] = []
    read: set[int] = set()
    for name, estimator, selection in listed:
        inner = stage.inner(name, estimator)
        positions = _positions(inner, selection, given)
        read.update(positions)
        if not positions or _is(estimator, "drop"):
            continue
        chosen = given.selected(inner, positions)
        parts.append(chosen if _is(estimator, "passthrough") else translate(state, inner, chosen))
    if not fitted and not _is(stage.param("remainder"), "drop"):
        rest = [position for position in range(given.width) if position not in read]
        inner = stage.inner("remainder", stage.param("remainder"))
        chosen = given.selected(inner, rest)
        if rest:
            parts.append(chosen if _is(inner.estimator, "passthrough") else translate(state, inner, chosen))
    return side_by_side(parts)


def selected_names(estimator: Any) -> list[str]:
    """Return the names that an unfitted ColumnTransformer selects, in order, each once."""
    found: list[str] = []
    for _, _, selection in cast("Sequence[tuple[str, Any, Any]]", estimator.transformers):
        listed = [selection] if isinstance(selection, str) else selection
        if not isinstance(listed, (list, tuple, np.ndarray)):
            return []
        names = cast("Sequence[Any]", listed)
        if not all(isinstance(one, str) for one in names):
            return []
        found += [str(one) for one in names if one not in found]
    return found


def _is(estimator: object, word: str) -> bool:
    return isinstance(estimator, str) and estimator == word


def _check_depth(stage: SklearnStage) -> None:
    if stage.path.count(".") >= NESTING_MAX:
        raise stage.refusal(f"is nested more than {NESTING_MAX} deep")


def _check_weights(stage: SklearnStage) -> None:
    if stage.param("transformer_weights"):
        raise stage.refusal(
            "transformer_weights multiply the columns, which no op does; scale the model's input instead"
        )


def _positions(stage: SklearnStage, selection: Any, given: Matrix) -> list[int]:
    """Return the positions of the selected columns."""
    if callable(selection):
        raise stage.refusal("selects columns by a function, which needs data; fit the ColumnTransformer first")
    if isinstance(selection, slice):
        return _of_slice(stage, cast(Any, selection), given)
    listed: list[Any] = [selection] if isinstance(selection, (str, int, np.integer)) else list(selection)
    if listed and all(isinstance(one, (bool, np.bool_)) for one in listed):
        stage.check_count(len(listed), given.width)
        return [position for position, wanted in enumerate(listed) if wanted]
    return [_position(stage, one, given) for one in listed]


def _of_slice(stage: SklearnStage, selection: Any, given: Matrix) -> list[int]:
    bounds: list[int | None] = []
    for bound, is_last in ((selection.start, False), (selection.stop, True)):
        # A slice of names includes its last one, as in pandas.
        is_name = isinstance(bound, str)
        bounds.append(_position(stage, bound, given) + (is_last and is_name) if is_name else cast("int | None", bound))
    return list(range(given.width))[slice(bounds[0], bounds[1], selection.step)]


def _position(stage: SklearnStage, one: Any, given: Matrix) -> int:
    if isinstance(one, str):
        if given.names is None:
            raise stage.refusal(f"selects column {one!r} by name, and the columns before it have none; pass columns=")
        if one not in given.names:
            raise stage.refusal(
                f"selects column {one!r}, which is not among those given: {suggestion(one, given.names)}"
            )
        return given.names.index(one)
    if isinstance(one, bool) or not isinstance(one, (int, np.integer)) or not -given.width <= one < given.width:
        raise stage.refusal(f"selects column {one!r} of {given.width}; select by name or position")
    return int(cast(int, one)) % given.width
