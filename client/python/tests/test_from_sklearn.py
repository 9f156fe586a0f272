"""Pipelines of real scikit-learn, translated; the numbers of their `transform` are expected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

import forebay as fb
from forebay._plan.translation import Translation
from forebay.errors import UntranslatableStage
from harness.serving import Serve

Doubles = npt.NDArray[np.float64]

ROWS = 400
FITTED = 250
NUMBERS = ["x", "count", "constant", "tiny"]
SPARSE = ["gap", "gap_count"]
WORDS = ["word", "gap_word"]


def table() -> pa.Table:
    """Numbers and words with nulls, NaN and constants; words and codes of the last rows are not in the first ones."""
    draw = np.random.default_rng(7)
    gap = draw.normal(size=ROWS)
    gap[::11] = np.nan
    late = np.arange(ROWS) >= FITTED + 50
    words = np.where(late & (draw.random(ROWS) < 0.3), "unseen", draw.choice(["b", "a", "ç", "zz", "a b"], ROWS))
    words[:3] = "once"
    return pa.table(
        {
            "x": draw.normal(3, 100, ROWS),
            "count": pa.array(draw.integers(-5, 40, ROWS)),
            "constant": np.full(ROWS, 2.5),
            "tiny": draw.normal(size=ROWS) * 1e-17,
            "positive": draw.random(ROWS) * 9 + 0.01,
            "single": pa.array(draw.normal(size=ROWS), pa.float32()),
            "gap": pa.array([None if row % 7 == 0 else value for row, value in enumerate(gap)]),
            "gap_count": pa.array(
                [None if row % 5 == 0 else int(v) for row, v in enumerate(draw.integers(0, 9, ROWS))]
            ),
            "word": words,
            "gap_word": pa.array([None if row % 6 == 0 else str(word) for row, word in enumerate(words)]),
            "code": pa.array(np.where(late, draw.integers(0, 9, ROWS), draw.integers(0, 5, ROWS))),
            "flag": draw.random(ROWS) < 0.5,
            "label": draw.random(ROWS) < 0.3,
        }
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.Client]:
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(table(), folder / "rows.parquet", row_group_size=90)
    with fb.connect(fb.local(rows=folder)) as opened:
        yield opened


@pytest.fixture(scope="module")
def frame(client: fb.Client) -> pd.DataFrame:
    return client.table("rows").to_pandas()


def streamed(client: fb.Client, made: Translation[Any], name: str = "features") -> Doubles:
    batches = [batch[name] for batch in client.stream("rows", made.plan, batch_size=128)]
    return np.concatenate([one.reshape(len(one), -1) for one in batches])


def expected(estimator: Any, frame: pd.DataFrame) -> Doubles:
    found = estimator.transform(frame)
    return np.asarray(found.todense() if hasattr(found, "todense") else found, np.float64)


def on(columns: list[str], estimator: Any) -> ColumnTransformer:
    return ColumnTransformer([("it", estimator, columns)])


TWICE = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())

# Pipelines whose doubles are equal to the bit.
EXACT: dict[str, Any] = {
    "standard": on(NUMBERS, StandardScaler()),
    "standard, mean": on(NUMBERS, StandardScaler(with_std=False)),
    "standard, deviation": on(NUMBERS, StandardScaler(with_mean=False)),
    "standard, neither": on(NUMBERS, StandardScaler(with_mean=False, with_std=False)),
    "standard, nulls": on(SPARSE, StandardScaler()),
    "max_abs": on(NUMBERS + SPARSE, MaxAbsScaler()),
    "robust": on(NUMBERS, RobustScaler()),
    "robust, wide": on(SPARSE, RobustScaler(quantile_range=(5, 80), with_centering=False, unit_variance=True)),
    "robust, centred": on(NUMBERS, RobustScaler(with_scaling=False)),
    "imputed mean": on(NUMBERS + SPARSE, SimpleImputer()),
    "imputed median": on(SPARSE, TWICE),
    "imputed mode": on(SPARSE, SimpleImputer(strategy="most_frequent")),
    "imputed constant": on(SPARSE, SimpleImputer(strategy="constant", fill_value=-1)),
    "imputed after": on(SPARSE, make_pipeline(StandardScaler(), SimpleImputer(), MaxAbsScaler())),
    "imputed number": on(["count"], SimpleImputer(missing_values=7)),
    "imputed word": on(
        WORDS,
        make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore")),
    ),
    "imputed word mode": on(
        WORDS,
        make_pipeline(
            SimpleImputer(strategy="most_frequent"),
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        ),
    ),
    "one_hot, ignore": on([*WORDS, "code", "flag"], OneHotEncoder(handle_unknown="ignore")),
    "one_hot, floats": on(["gap_count", "constant"], OneHotEncoder(handle_unknown="ignore")),
    "one_hot, error": on(
        ["flag", "gap_count", "count"], OneHotEncoder(categories=[[False, True], [*range(9), np.nan], range(-5, 40)])
    ),
    "one_hot, first": on([*WORDS, "code"], OneHotEncoder(handle_unknown="ignore", drop="first", sparse_output=False)),
    "one_hot, binary": on(["word", "flag", "constant"], OneHotEncoder(handle_unknown="ignore", drop="if_binary")),
    "one_hot, rare": on([*WORDS, "code"], OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=45)),
    "one_hot, few": on(WORDS, OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=3, drop="first")),
    "one_hot, scaled": on(
        WORDS, make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), StandardScaler())
    ),
    "ordinal": on([*WORDS, "code", "flag"], OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)),
    "ordinal, NaN": on([*WORDS, "gap_count"], OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)),
    "ordinal, missing": on(
        WORDS, OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
    ),
    "ordinal, rare": on(
        [*WORDS, "code"], OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=99, min_frequency=45)
    ),
    "bins, quantile": on(["x", "count"], KBinsDiscretizer(6, encode="ordinal", quantile_method="linear")),
    "bins, uniform": on(["x", "positive"], KBinsDiscretizer(4, encode="onehot", strategy="uniform")),
    "bins, kmeans": on(["x", "positive"], KBinsDiscretizer(3, encode="onehot-dense", strategy="kmeans")),
    "binary": on(["x", "count", "single"], Binarizer(threshold=0.25)),
    "functions": ColumnTransformer(
        [
            ("root", FunctionTransformer(np.sqrt), ["positive", "x"]),
            ("size", FunctionTransformer(np.abs), ["x", "count", "gap"]),
            ("same", FunctionTransformer(), ["count"]),
        ]
    ),
    "rest": ColumnTransformer(
        [("out", "drop", [*WORDS, "flag", "label", "single"]), ("in", "passthrough", ["code"])],
        remainder=MaxAbsScaler(),
    ),
    "union": on(
        NUMBERS, FeatureUnion([("a", StandardScaler()), ("b", "drop"), ("c", "passthrough"), ("d", RobustScaler())])
    ),
    "by type": ColumnTransformer([("floats", MaxAbsScaler(), make_column_selector(dtype_include=np.float64))]),
    "by slice": ColumnTransformer(
        [
            ("some", StandardScaler(), slice("x", "constant")),
            ("last", MaxAbsScaler(), slice(3, 5)),
            ("one", MaxAbsScaler(), [-7]),
        ]
    ),
    "by mask": ColumnTransformer([("some", StandardScaler(), [True, False] + [True] * 2 + [False] * 9)]),
}

# Pipelines with a tolerance relative to the largest value, in units of 2^-52.
NEAR: dict[str, tuple[Any, float]] = {
    "min_max": (on(["x", "count", "constant"], MinMaxScaler()), 4),
    "min_max, range": (on(["x", "count", "constant", "gap"], MinMaxScaler((-3, 5), clip=True)), 4),
    "box_cox": (on(["positive"], PowerTransformer("box-cox", standardize=False)), 4),
    "box_cox, scaled": (on(["positive"], PowerTransformer("box-cox")), 8),
    "log1p": (on(["positive", "single"], FunctionTransformer(np.log1p)), 4),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize("case", list(EXACT))
def test_doubles_are_those_of_scikit_learn(client: fb.Client, frame: pd.DataFrame, case: str, with_schema: bool):
    fitted = EXACT[case].fit(frame[:FITTED], frame["label"][:FITTED])
    if not with_schema and case in NEEDS_SCHEMA:
        pytest.skip("its categories are of a column of integers with nulls")
    made = fb.from_sklearn(fitted, dtype="FLOAT64", schema=client.schema("rows") if with_schema else None)
    assert isinstance(made.plan, fb.FittedPlan)
    found, wanted = streamed(client, made), expected(fitted, frame)
    assert found.shape == wanted.shape == (ROWS, found.shape[1])
    np.testing.assert_array_equal(found, wanted)


# pandas reads integers with nulls as floats, so the categories do not tell the column's type.
NEEDS_SCHEMA = {"one_hot, floats", "one_hot, error", "ordinal, NaN"}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("case", list(NEAR))
def test_other_doubles_differ_by_ulps(client: fb.Client, frame: pd.DataFrame, case: str):
    estimator, ulps = NEAR[case]
    fitted = estimator.fit(frame[:FITTED])
    made = fb.from_sklearn(fitted, dtype="FLOAT64", schema=client.schema("rows"))
    found, wanted = streamed(client, made), expected(fitted, frame)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    atol = ulps * 2.0**-52 * np.nanmax(np.abs(wanted))
    single = 2.0**-23 if "log1p" in case else 0
    np.testing.assert_allclose(found, wanted, rtol=single, atol=atol)
    assert "ulps" in "\n".join(made.differences)


def whole() -> Pipeline:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    prepared = ColumnTransformer([("numbers", numbers, NUMBERS + SPARSE), ("words", words, WORDS)])
    return Pipeline([("prepare", prepared), ("model", LogisticRegression())])


def test_a_whole_pipeline_with_its_label(client: fb.Client, frame: pd.DataFrame):
    pipeline = whole().fit(frame[:FITTED], frame["label"][:FITTED])
    made = fb.from_sklearn(pipeline, schema=client.schema("rows"), outputs={"label": fb.label("label")})
    wanted = expected(pipeline[:-1], frame).astype(np.float32)
    np.testing.assert_array_equal(streamed(client, made), wanted)
    np.testing.assert_array_equal(streamed(client, made, "label").ravel(), frame["label"])
    text = repr(made)
    assert "model: a LogisticRegression is not part of a plan; train a model from the stream" in made.differences
    assert "differences from scikit-learn:\n- " in text
    assert fb.FittedPlan.from_json(made.plan.to_json()).plan_id == made.plan.plan_id


def test_an_unfitted_pipeline_learns_here(client: fb.Client, frame: pd.DataFrame):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    pipeline = ColumnTransformer(
        [
            ("numbers", numbers, NUMBERS[:2] + SPARSE),
            ("robust", RobustScaler(), ["x"]),
            ("unit", MinMaxScaler((-1, 1)), ["count"]),
            ("largest", MaxAbsScaler(), ["x", "gap"]),
            ("bins", KBinsDiscretizer(4, encode="onehot-dense", quantile_method="linear"), ["x"]),
            ("words", OneHotEncoder(categories=[["b", "a"]], handle_unknown="ignore"), ["word"]),
        ]
    )
    made = fb.from_sklearn(pipeline, dtype="FLOAT64", schema=client.schema("rows"))
    assert isinstance(made.plan, fb.Plan)
    assert made.plan.needs_fit
    np.testing.assert_allclose(streamed(client, made), expected(pipeline.fit(frame), frame), rtol=1e-12, atol=1e-14)


def test_an_array_has_no_names(client: fb.Client, frame: pd.DataFrame):
    values = frame[NUMBERS].to_numpy()
    scaler = StandardScaler().fit(values)
    made = fb.from_sklearn(scaler, columns=NUMBERS, dtype="FLOAT64", name="dense")
    np.testing.assert_array_equal(streamed(client, made, "dense"), scaler.transform(values))
    with pytest.raises(ValueError, match=r"pass columns=\[…\], in the order of X"):
        fb.from_sklearn(scaler)
    with pytest.raises(UntranslatableStage, match="was fitted to 4 columns and reads 2"):
        fb.from_sklearn(scaler, columns=["x", "count"])
    with pytest.raises(TypeError, match="columns must be a list of names"):
        fb.from_sklearn(scaler, columns="x")


def test_unknown_values_are_errors_where_they_are_in_scikit_learn(client: fb.Client, frame: pd.DataFrame):
    known = frame[:FITTED]
    fitted = OneHotEncoder(drop="first").fit(known[["word"]])
    with pytest.raises(ValueError, match="Found unknown categories"):
        fitted.transform(frame[["word"]])
    with pytest.raises(fb.InvalidRequest, match='"word": row .* is null'):
        streamed(client, fb.from_sklearn(fitted))
    with client.exchange(fb.from_sklearn(fitted).plan) as exchange:
        found = exchange({"word": known["word"].tolist()})["features"]
    np.testing.assert_array_equal(found, fitted.transform(known[["word"]]).todense())


def test_codes_may_be_integers(client: fb.Client, frame: pd.DataFrame):
    fitted = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=99).fit(frame[:FITTED][["word", "code"]])
    made = fb.from_sklearn(fitted, dtype="INT32")
    found = streamed(client, made)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, fitted.transform(frame[["word", "code"]]))


def test_a_column_without_values_is_left_out(client: fb.Client, frame: pd.DataFrame):
    # Row 0 is a null of gap, and so is every seventh.
    nulls = frame[["x", "gap"]][::7]
    fitted = SimpleImputer().fit(nulls)
    with pytest.warns(UserWarning, match="Skipping features"):
        wanted = fitted.transform(frame[["x", "gap"]])
    made = fb.from_sklearn(fitted, dtype="FLOAT64")
    np.testing.assert_array_equal(streamed(client, made), wanted)
    assert any("'gap' had no value" in line for line in made.differences)


class Doubled(TransformerMixin, BaseEstimator):
    def fit(self, x: Any, y: Any = None) -> Doubled:
        return self

    def transform(self, x: Any) -> Any:
        return 2 * x


class OwnScaler(StandardScaler):
    pass


def floored(x: Any) -> Any:
    return np.floor(x)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (Normalizer(), r"stage it \(Normalizer\): it divides by a norm of the row's columns: derive"),
        (PolynomialFeatures(), "derive the products in SQL"),
        (QuantileTransformer(n_quantiles=10), r"bucketize\(quantiles=n\)"),
        (TargetEncoder(), r"use fb\.cols\(…\)\.target_mean\(label\)"),
        (Doubled(), r"\(Doubled\): no op does the same: remove the step"),
        (OwnScaler(), r"\(OwnScaler\): no op does the same"),
        (PowerTransformer(), "method 'yeo-johnson' has no op; use method='box-cox'"),
        (FunctionTransformer(floored), "calls floored; supported are numpy.log1p, sqrt, abs and fabs"),
        (FunctionTransformer(np.log1p, kw_args={"where": True}), "calls log1p; supported are"),
        (SimpleImputer(add_indicator=True), "add_indicator adds columns that no op makes"),
        (
            make_pipeline(FunctionTransformer(np.log1p), SimpleImputer()),
            r"stage it\.simpleimputer .* after log1p, which may make NaN",
        ),
        (make_pipeline(StandardScaler(), Doubled()), r"stage it\.doubled"),
        (FeatureUnion([("a", StandardScaler())], transformer_weights={"a": 2}), "transformer_weights multiply"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_estimators_without_an_equivalent_are_refused(frame: pd.DataFrame, estimator: Any, words: str):
    fitted = on(["gap"], estimator) if "Imputer" in repr(estimator) else on(["x"], estimator)
    with pytest.raises(UntranslatableStage, match=words) as caught:
        fb.from_sklearn(fitted.fit(frame, frame["label"]))
    assert caught.value.uid.startswith("it")
    assert caught.value.class_name.endswith(str(caught.value).partition("(")[2].partition(")")[0])


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (StandardScaler(with_mean=False), "is not fitted, and standardize learns both"),
        (RobustScaler(quantile_range=(10, 90)), "the median and the quartiles only; fit it first"),
        (OneHotEncoder(), "orders categories by count, not by value; fit it first, or set categories="),
        (OneHotEncoder(categories=[[1.0]], drop="first"), "dropped categories are not known"),
        (OrdinalEncoder(categories=[[1.0]], min_frequency=2), "infrequent categories are not known"),
        (KBinsDiscretizer(3, strategy="uniform"), "learns quantiles by linear interpolation only"),
        (PowerTransformer("box-cox"), "has no lambdas_; fit it first"),
        (SimpleImputer(strategy="constant"), "its fill_value depends on the column's type"),
    ],
)
def test_estimators_that_a_fit_cannot_learn_are_refused(estimator: Any, words: str):
    with pytest.raises(UntranslatableStage, match=words):
        fb.from_sklearn(on(["x"], estimator))


def test_selections_that_need_data_are_refused(frame: pd.DataFrame):
    selector = ColumnTransformer([("it", StandardScaler(), make_column_selector(pattern="x"))])
    with pytest.raises(UntranslatableStage, match="by a function, which needs data; fit the ColumnTransformer"):
        fb.from_sklearn(selector, columns=["x"])
    with pytest.raises(UntranslatableStage, match=r"selects column 'xx', which is not among .*: did you mean x\?"):
        fb.from_sklearn(on(["xx"], StandardScaler()), columns=["x"])
    encoder = on(["word"], OneHotEncoder(sparse_output=False))
    after = make_pipeline(encoder, ColumnTransformer([("one", StandardScaler(), [0])]))
    with pytest.raises(UntranslatableStage, match="selects among the columns of an encoder"):
        fb.from_sklearn(after.fit(frame[["word"]]))


def test_columns_must_have_the_types_of_the_pipeline(client: fb.Client, frame: pd.DataFrame):
    schema = client.schema("rows")
    fitted = on(["word"], OneHotEncoder()).fit(frame)

    def typed(kind: pa.DataType) -> pa.Schema:
        return schema.set(schema.get_field_index("word"), pa.field("word", kind))

    with pytest.raises(UntranslatableStage, match="has categories of text for column 'word' of type int64"):
        fb.from_sklearn(fitted, schema=typed(pa.int64()))
    with pytest.raises(ValueError, match="reads 'word', which the schema does not have: did you mean words"):
        fb.from_sklearn(OneHotEncoder().fit(frame[["word"]]), schema=pa.schema([("words", pa.string())]))
    with pytest.raises(ValueError, match="'word' is text, and no encoder"):
        fb.from_sklearn(ColumnTransformer([("a", "passthrough", ["word"])]).fit(frame[["word"]]), schema=schema)
    with pytest.raises(UntranslatableStage, match="reads column 'word' of type string as numbers"):
        fb.from_sklearn(on(["word"], StandardScaler()), schema=schema)


def test_bad_arguments_are_errors(frame: pd.DataFrame):
    with pytest.raises(TypeError, match="expects a loaded pipeline of scikit-learn, not 'model.pkl'"):
        fb.from_sklearn("model.pkl")
    scaler = StandardScaler().fit(frame[["x"]])
    with pytest.raises(ValueError, match="dtype 'UINT8' is not one of FLOAT32"):
        fb.from_sklearn(scaler, dtype="UINT8")
    with pytest.raises(ValueError, match="'features' is the name of the pipeline's output"):
        fb.from_sklearn(scaler, outputs={"features": fb.cols("label")})
    scaler.scale_[0] = np.inf
    with pytest.raises(UntranslatableStage, match="scale_ of column 0 is inf"):
        fb.from_sklearn(scaler)


def test_what_differs_is_listed(client: fb.Client, frame: pd.DataFrame):
    fitted = ColumnTransformer(
        [("a", OrdinalEncoder(), ["gap_word"]), ("b", StandardScaler(), ["single"]), ("c", OneHotEncoder(), ["word"])]
    ).fit(frame)
    lines = "\n".join(fb.from_sklearn(fitted, schema=client.schema("rows")).differences)
    assert "a: an unknown value of 'gap_word' is NaN here, and is an error in scikit-learn" in lines
    assert "'single' is float32: computed in double precision" in lines
    assert "c: dense columns here, sparse ones in scikit-learn" in lines
    assert "an infinite value passes the scalers here, and is an error in scikit-learn" in lines
    assert "features: FLOAT32 here, float64 in scikit-learn" in lines
    exact = fb.from_sklearn(MaxAbsScaler().fit(frame[["count"]]), dtype="FLOAT64", schema=client.schema("rows"))
    assert exact.differences == ()
    assert "no differences from scikit-learn" in repr(exact)


@pytest.mark.parametrize("missing", [np.nan, -5])
def test_none_is_a_category_of_an_encoder(tmp_path: Path, serve: Serve, missing: float):
    pq.write_table(pa.table({"flag": [True, None, False, True]}), tmp_path / "a.parquet")
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=missing)
    with fb.connect(serve({"t": tmp_path}).url) as client:
        frame = client.table("t").read().to_pandas()
        fitted = ColumnTransformer([("o", encoder, ["flag"])]).fit(frame)
        made = fb.from_sklearn(fitted, dtype="FLOAT64", schema=client.schema("t"))
        found = next(client.stream("t", made.plan))["features"]
    assert np.array_equal(np.ravel(found), np.ravel(fitted.transform(frame)).astype(float), equal_nan=True)


def test_an_imputer_that_keeps_none_is_listed(tmp_path: Path):
    frame = pd.DataFrame({"flag": np.array([True, None, False], object)})
    imputed = make_pipeline(SimpleImputer(strategy="constant", fill_value=0), OrdinalEncoder())
    fitted = ColumnTransformer([("o", imputed, ["flag"])]).fit(frame)
    made = fb.from_sklearn(fitted, schema=pa.schema([("flag", pa.bool_())]))
    assert any("None in column 'flag' is a value for scikit-learn" in line for line in made.differences)
