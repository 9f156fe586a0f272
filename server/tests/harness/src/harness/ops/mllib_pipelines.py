"""MLlib pipelines that real Spark fits, saves and applies, and the committed files of both.

`client/python/tests/data/mllib` has the rows, and per pipeline the saved model and the shards that its `transform`
wrote. FOREBAY_REGENERATE=1 with `make test-spark` writes them again. `mllib-3.5` has the models of Spark 3.5.7.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.base import Estimator, Transformer
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import (
    Bucketizer,
    FeatureHasher,
    Imputer,
    IndexToString,
    MaxAbsScaler,
    MinMaxScaler,
    NGram,
    OneHotEncoder,
    QuantileDiscretizer,
    RobustScaler,
    SQLTransformer,
    StandardScaler,
    StringIndexer,
    Tokenizer,
    VectorAssembler,
)
from pyspark.ml.util import Identifiable
from pyspark.sql import DataFrame

from harness.repository import ROOT

DATA = ROOT / "client/python/tests/data/mllib"
ROWS = 48
INFINITY = float("inf")

Stage = Estimator | Transformer


def rows() -> pa.Table:
    """The rows that pipelines are fitted to: numbers with gaps and NaN, text with ties, and indices."""
    random = np.random.default_rng(5)
    x = random.normal(3, 2, ROWS).round(6)
    gaps = random.random(ROWS) < 0.15
    words = ["b", "a", "c", "a", "é", " ", "b c", "it's"]
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS)),
            "x": pa.array(x),
            "gap": pa.array(np.where(random.random(ROWS) < 0.1, np.nan, x), mask=gaps),
            "count": pa.array(random.integers(0, 9, ROWS), mask=random.random(ROWS) < 0.2),
            "single": pa.array(random.normal(0, 1, ROWS).astype(np.float32)),
            "constant": pa.array(np.full(ROWS, 2.5)),
            "code": pa.array(random.integers(0, 4, ROWS)),
            "level": pa.array(random.choice([0.5, 1.0, 1e-7, 12345678.5], ROWS)),
            "flag": pa.array(random.random(ROWS) < 0.4),
            "word": pa.array([words[i] for i in random.choice(len(words), ROWS)]),
            "rare": pa.array([None if random.random() < 0.15 else words[i] for i in random.choice(4, ROWS)]),
            "day": pa.array([date(2024, 1 + i % 12, 1 + i % 28) for i in range(ROWS)]),
            "label": pa.array(random.choice(["no", "yes"], ROWS, p=[0.6, 0.4]).tolist()),
        }
    )


def textbook() -> list[Stage]:
    """Index, one-hot, impute, assemble, scale, and a model that predicts."""
    return [
        StringIndexer(inputCol="label", outputCol="target"),
        StringIndexer(inputCols=["word", "rare"], outputCols=["word_i", "rare_i"], handleInvalid="keep"),
        OneHotEncoder(inputCols=["word_i", "rare_i"], outputCols=["word_v", "rare_v"]),
        Imputer(inputCols=["gap", "count"], outputCols=["gap_f", "count_f"]),
        VectorAssembler(inputCols=["x", "gap_f", "count_f", "single", "word_v", "rare_v", "flag"], outputCol="raw"),
        StandardScaler(inputCol="raw", outputCol="features", withMean=True),
        LogisticRegression(featuresCol="features", labelCol="target", maxIter=2),
        IndexToString(inputCol="prediction", outputCol="predicted", labels=["no", "yes"]),
    ]


def scalers() -> list[Stage]:
    """Each scaler over columns, a constant and a one-hot column."""
    return [
        StringIndexer(inputCol="word", outputCol="word_i", stringOrderType="alphabetDesc"),
        OneHotEncoder(inputCol="word_i", outputCol="word_v", dropLast=False),
        VectorAssembler(inputCols=["x", "constant", "word_v", "single"], outputCol="plain"),
        StandardScaler(inputCol="plain", outputCol="standard"),
        StandardScaler(inputCol="plain", outputCol="centred", withMean=True, withStd=False),
        MinMaxScaler(inputCol="plain", outputCol="unit"),
        MinMaxScaler(inputCol="plain", outputCol="placed", min=-1.0, max=3.0),
        MaxAbsScaler(inputCol="plain", outputCol="largest"),
        RobustScaler(inputCol="plain", outputCol="robust"),
        RobustScaler(inputCol="standard", outputCol="twice", withCentering=True, lower=0.1, upper=0.9),
    ]


def buckets() -> list[Stage]:
    """Buckets with open and closed ends, of NaN, of quantiles, and one-hot columns of buckets."""
    return [
        Bucketizer(splits=[-INFINITY, 1.0, 2.5, 4.0, INFINITY], inputCol="x", outputCol="open"),
        Bucketizer(splits=[-10.0, 2.5, 3.0], inputCol="constant", outputCol="at_split"),
        Bucketizer(splits=[0.0, 1.5, 2.5], inputCol="constant", outputCol="last"),
        Imputer(inputCol="gap", outputCol="gap_f", missingValue=2.5, strategy="median"),
        Bucketizer(
            splitsArray=[[-INFINITY, 2.0, INFINITY], [-9.0, 0.0, 9.0]],
            inputCols=["gap_f", "single"],
            outputCols=["with_nan", "closed"],
            handleInvalid="keep",
        ),
        QuantileDiscretizer(inputCol="x", outputCol="quantile", numBuckets=3),
        OneHotEncoder(inputCols=["open", "with_nan"], outputCols=["open_v", "with_nan_v"], handleInvalid="keep"),
        StringIndexer(inputCol="quantile", outputCol="frequent"),
        VectorAssembler(inputCols=["open_v", "with_nan_v", "quantile", "frequent"], outputCol="features"),
    ]


def skips() -> list[Stage]:
    """Stages that drop rows."""
    return [
        StringIndexer(inputCol="rare", outputCol="rare_i", handleInvalid="skip"),
        Bucketizer(splits=[-INFINITY, 3.0, INFINITY], inputCol="gap", outputCol="gap_b", handleInvalid="skip"),
        VectorAssembler(inputCols=["count", "gap", "rare_i"], outputCol="features", handleInvalid="skip"),
    ]


def sql() -> list[Stage]:
    """Expressions, and stages that read them."""
    return [
        SQLTransformer(
            statement="SELECT *, x * 2 + code AS twice, code / 3 AS third, CASE WHEN word = \"it's\" THEN 'x' "
            "ELSE upper(word) END AS `upper word`, year(day) * 12 + month(day) AS months, log(x) AS logged, "
            "count IS NULL OR NOT flag AS odd FROM __THIS__ WHERE code <> 3 AND x BETWEEN -2 AND 9"
        ),
        StringIndexer(inputCol="upper word", outputCol="upper_i"),
        Imputer(inputCol="logged", outputCol="logged_f"),
        SQLTransformer(statement="SELECT id, upper_i, months, twice - third AS d, logged_f, odd FROM __THIS__"),
        VectorAssembler(inputCols=["d", "logged_f", "upper_i", "months", "odd"], outputCol="features"),
    ]


def numbers() -> list[Stage]:
    """Categories that are numbers, and nulls that stay NaN."""
    return [
        StringIndexer(inputCols=["code", "level", "single"], outputCols=["code_i", "level_i", "single_i"]),
        OneHotEncoder(inputCol="code", outputCol="code_v", dropLast=False),
        OneHotEncoder(inputCols=["code_i", "level_i"], outputCols=["code_w", "level_w"], handleInvalid="keep"),
        Imputer(inputCol="count", outputCol="count_f", strategy="mode"),
        VectorAssembler(
            inputCols=["code_v", "code_w", "level_w", "single_i", "count_f", "gap"],
            outputCol="features",
            handleInvalid="keep",
        ),
    ]


# Pipelines, and the columns of their shards.
PIPELINES: dict[str, tuple[Callable[[], list[Stage]], list[str]]] = {
    "textbook": (textbook, ["features", "target"]),
    "scalers": (scalers, ["centred", "unit", "placed", "largest", "robust", "twice"]),
    "buckets": (buckets, ["at_split", "last", "closed", "features"]),
    "skips": (skips, ["gap_b", "features"]),
    "sql": (sql, ["features"]),
    "numbers": (numbers, ["features"]),
}
# Pipelines that are not translated.
REFUSED: dict[str, Callable[[], list[Stage]]] = {
    "hashed": lambda: [FeatureHasher(inputCols=["word", "x"], outputCol="v", numFeatures=16)],
    "grams": lambda: [Tokenizer(inputCol="word", outputCol="t"), NGram(inputCol="t", outputCol="g")],
}


def fitted(stages: Callable[[], list[Stage]], frame: DataFrame) -> PipelineModel:
    """Fit a pipeline; its uids count its stages, so that they are the same every time."""
    made: dict[str, int] = {}

    def named(kind: type) -> str:
        made[kind.__name__] = made.get(kind.__name__, 0) + 1
        return f"{kind.__name__}_{made[kind.__name__]}"

    with patch.object(Identifiable, "_randomUID", classmethod(named)):
        return Pipeline(stages=stages()).fit(frame)


def write(model: PipelineModel, frame: DataFrame, columns: list[str], folder: Path) -> None:
    """Save a model, and in two shards what it makes of the rows, in their order."""
    shutil.rmtree(folder, ignore_errors=True)
    model.write().save(str(folder / "model"))
    if columns:
        made = model.transform(frame).select("id", *columns)
        made.repartitionByRange(2, "id").sortWithinPartitions("id").write.parquet(str(folder / "shards"))


def write_rows(folder: Path) -> None:
    """Write the rows that pipelines are fitted to."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(), folder / "rows.parquet", row_group_size=20)
