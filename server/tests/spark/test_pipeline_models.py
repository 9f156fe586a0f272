"""The example `pipeline_models` and the MLlib pipeline that it replaces: the same accuracy on the same days."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.ml import Pipeline
from pyspark.ml.classification import GBTClassifier, LogisticRegression
from pyspark.ml.feature import OneHotEncoder, StandardScaler, StringIndexer, VectorAssembler
from pyspark.sql import DataFrame, SparkSession

import forebay as fb
from harness.examples import example_module

models = example_module("pipeline_models")
flights_data = example_module("flights_data")

# MLlib's defaults, for both: the more and deeper trees of the example take Spark minutes.
TREES, DEPTH = 20, 5


def accuracy(stages: list[object], seen: DataFrame, held_out: DataFrame) -> float:
    predicted = Pipeline(stages=stages).fit(seen).transform(held_out)
    return predicted.selectExpr("avg(double(prediction = late))").first()[0]


def test_models_from_the_stream_are_as_accurate_as_mllibs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = flights_data.convert_once(tmp_path / "flights")
    flights = spark.read.parquet(str(file))
    flights = flights.selectExpr("*", f"double(arr_delay > {flights_data.LATE_MINUTES}) AS late")
    seen, held_out = (flights.where(days).cache() for days in (flights_data.TRAINING, flights_data.HELD_OUT))

    names = models.CATEGORIES
    indexed = [f"{name}_index" for name in names]
    encoded = [f"{name}_one_hot" for name in names]
    index = StringIndexer(inputCols=names, outputCols=indexed, handleInvalid="keep")
    one_hot = OneHotEncoder(inputCols=indexed, outputCols=encoded)
    numbers = VectorAssembler(inputCols=models.NUMBERS, outputCol="numbers")
    scaled = StandardScaler(inputCol="numbers", outputCol="scaled", withMean=True)
    assembled = VectorAssembler(inputCols=[*encoded, "scaled"], outputCol="features")
    features = [index, one_hot, numbers, scaled, assembled]
    regression = accuracy([*features, LogisticRegression(labelCol="late")], seen, held_out)
    trees = accuracy(
        [*features, GBTClassifier(labelCol="late", maxIter=TREES, maxDepth=DEPTH, seed=models.SEED)], seen, held_out
    )

    monkeypatch.setattr(models, "TREES", TREES)
    monkeypatch.setattr(models, "DEPTH", DEPTH)
    sgd, linear, streamed = models.from_the_stream(fb.local(flights=file.parent))
    for ours, theirs in ((sgd, regression), (linear, regression), (streamed, trees)):
        print(f"{ours.name}: {ours.accuracy:.2%}, MLlib {theirs:.2%}, noise {ours.noise:.2%}")
        assert abs(ours.accuracy - theirs) <= ours.noise
