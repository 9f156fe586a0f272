"""`from_sklearn`: a pipeline of scikit-learn as a plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.fitted import FittedPlan
from forebay._plan.outputs import Output, output
from forebay._plan.plan import Plan
from forebay._plan.plan_digest import plan_digest
from forebay._plan.translation import Translation
from forebay._plan.translation.derivations import Derivations, needed
from forebay._plan.translation.result import FLOATS, checked_dtype

from . import compose, encoders, numeric, scalers
from .matrix import Matrix, is_text, named
from .stage import SklearnStage

VERSIONS_TESTED = ("1.7", "1.9")
DTYPES = (*FLOATS, "INT32", "INT64")

Translator = Callable[[Derivations, SklearnStage, Matrix], Matrix]

ENCODER = ("categories", "dtype", "handle_unknown", "min_frequency", "max_categories")

# Translators by class, and the parameters that they know.
TRANSLATORS: dict[str, tuple[Translator, Collection[str]]] = {
    "StandardScaler": (scalers.standard_scaler, ("copy", "with_mean", "with_std")),
    "MinMaxScaler": (scalers.min_max_scaler, ("copy", "feature_range", "clip")),
    "MaxAbsScaler": (scalers.max_abs_scaler, ("copy", "clip")),
    "RobustScaler": (
        scalers.robust_scaler,
        ("copy", "with_centering", "with_scaling", "quantile_range", "unit_variance"),
    ),
    "PowerTransformer": (scalers.power_transformer, ("copy", "method", "standardize")),
    "OneHotEncoder": (encoders.one_hot_encoder, (*ENCODER, "drop", "sparse_output", "feature_name_combiner")),
    "OrdinalEncoder": (encoders.ordinal_encoder, (*ENCODER, "unknown_value", "encoded_missing_value")),
    "SimpleImputer": (
        numeric.simple_imputer,
        ("copy", "missing_values", "strategy", "fill_value", "add_indicator", "keep_empty_features"),
    ),
    "KBinsDiscretizer": (
        numeric.k_bins_discretizer,
        ("n_bins", "encode", "strategy", "quantile_method", "dtype", "subsample", "random_state"),
    ),
    "Binarizer": (numeric.binarizer, ("copy", "threshold")),
    "FunctionTransformer": (
        numeric.function_transformer,
        (
            "func",
            "kw_args",
            "validate",
            "accept_sparse",
            "inverse_func",
            "inv_kw_args",
            "check_inverse",
            "feature_names_out",
        ),
    ),
}
COMPOSERS: dict[str, Callable[[Derivations, SklearnStage, Matrix, Translator], Matrix]] = {
    "Pipeline": compose.pipeline,
    "ColumnTransformer": compose.column_transformer,
    "FeatureUnion": compose.feature_union,
}

# What to do instead of an estimator that is not translated.
INSTEAD = {
    "Normalizer": "it divides by a norm of the row's columns: derive the quotients in SQL",
    "PolynomialFeatures": "it multiplies columns: derive the products in SQL",
    "QuantileTransformer": "it interpolates between learned quantiles: use fb.cols(…).bucketize(quantiles=n)",
    "TargetEncoder": "it has other sums for a null than for an unknown value: use fb.cols(…).target_mean(label)",
    "KNNImputer": "it searches rows: use fb.cols(…).fill_null(…)",
    "IterativeImputer": "it has a model per column: use fb.cols(…).fill_null(…)",
    "FeatureHasher": "it hashes by Murmur3: use fb.cols(…).hash_bucket(n).one_hot() and train again",
    "LabelEncoder": "it encodes labels, not features: use fb.label(column, classes=[…])",
}


def from_sklearn(
    pipeline: Any,
    *,
    columns: Sequence[str] | None = None,
    name: str = "features",
    dtype: str = "FLOAT32",
    schema: pa.Schema | None = None,
    outputs: Mapping[str, Columns | Sequence[Columns] | Output] | None = None,
) -> Translation[Plan | FittedPlan]:
    """Translate a pipeline of scikit-learn to a plan with an output that has the columns of ``pipeline.transform``.

    `pipeline` is an estimator of ``sklearn``: a Pipeline, ColumnTransformer, FeatureUnion, or a single transformer. If
    it is fitted, the result has a `FittedPlan` with the values that it learned; otherwise a `Plan` whose values a fit
    of Forebay learns. `columns` names the pipeline's input columns in order, if it was not fitted to a DataFrame.
    `schema` is that of the dataset, ``client.schema(name)``: with it, categories get the type of their column, and
    columns without NaN need no derived ones. `name` and `dtype` are those of the output; FLOAT64 keeps scikit-learn's
    doubles. `outputs` are further ones, such as the label.

    Raises `UntranslatableStage` for an estimator without an equivalent.
    """
    checked_dtype(dtype, DTYPES)
    if isinstance(pipeline, (str, bytes)) or not hasattr(pipeline, "get_params"):
        raise TypeError(f"from_sklearn expects a loaded pipeline of scikit-learn, not {pipeline!r}")
    if name in (outputs or {}):
        raise ValueError(f"outputs: {name!r} is the name of the pipeline's output; pass another name=")
    state = Derivations(schema)
    _check_version(state)
    stage = SklearnStage("" if type(pipeline).__name__ in COMPOSERS else type(pipeline).__name__, pipeline)
    made = _translated(state, stage, _input(state, stage, columns))
    for scalar in made.scalars():
        if is_text(scalar.kind) and scalar.index is None:
            raise ValueError(f"column {named(scalar)} is text, and no encoder of the pipeline makes numbers of it")
    if not made.width:
        raise ValueError("the pipeline makes no column")
    every = {name: output(made.vector(dtype).parts(), dtype=dtype)}
    every |= {one: given if isinstance(given, Output) else output(given) for one, given in (outputs or {}).items()}
    if dtype != "FLOAT64":
        state.note(f'{name}: {dtype} here, float64 in scikit-learn unless all columns are float32; see dtype="FLOAT64"')
    plan = Plan(outputs=every, derive=needed(state.derive, every))
    result = plan if plan.needs_fit or plan.has_selectors else FittedPlan(plan_digest(plan.to_dict()), plan)
    return Translation(result, tuple(state.differences), "scikit-learn")


def _check_version(state: Derivations) -> None:
    version = str(getattr(sys.modules.get("sklearn"), "__version__", "unknown"))
    if ".".join(version.split(".")[:2]) not in VERSIONS_TESTED:
        tested = " and ".join(VERSIONS_TESTED)
        state.note(f"scikit-learn is version {version}; {tested} are tested: compare the results")


def _input(state: Derivations, stage: SklearnStage, columns: Sequence[str] | None) -> Matrix:
    """Return the columns that the pipeline reads."""
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names: columns=[{columns!r}]")
    known = getattr(stage.estimator, "feature_names_in_", None)
    if columns is not None:
        names = list(columns)
        if stage.is_fitted:
            stage.check_count(int(stage.estimator.n_features_in_), len(names))
    elif known is not None:
        names = [str(one) for one in cast("Sequence[Any]", known)]
    else:
        names = _selected_first(stage.estimator)
        if not names:
            raise ValueError("the pipeline does not name its input columns: pass columns=[…], in the order of X")
    return Matrix(tuple(state.column(one, "columns: the pipeline reads") for one in names), tuple(names))


def _selected_first(estimator: Any) -> list[str]:
    """Return the names that an unfitted pipeline selects in its first step, if it reads no others."""
    kind = type(estimator).__name__
    if kind == "Pipeline":
        return _selected_first(estimator.steps[0][1])
    if kind != "ColumnTransformer" or estimator.remainder != "drop":
        return []
    return compose.selected_names(estimator)


def _translated(state: Derivations, stage: SklearnStage, given: Matrix) -> Matrix:
    composer = COMPOSERS.get(stage.short_name) if stage.is_own else None
    if composer is not None:
        return composer(state, stage, given, _translated)
    known = TRANSLATORS.get(stage.short_name) if stage.is_own else None
    if known is None:
        instead = INSTEAD.get(stage.short_name, "no op does the same: remove the step, or compute its columns before")
        raise stage.refusal(instead)
    translator, params = known
    stage.check_params(params)
    if stage.is_fitted:
        stage.check_count(int(stage.estimator.n_features_in_), given.width)
    return translator(state, stage, given)
