"""Each op and its counterpart in Spark MLlib over the same files: equal results, and the differences."""

from __future__ import annotations

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.ml.feature import (
    Bucketizer,
    FeatureHasher,
    Imputer,
    MaxAbsScaler,
    MinMaxScaler,
    NGram,
    OneHotEncoder,
    QuantileDiscretizer,
    RobustScaler,
    StandardScaler,
    StringIndexer,
    VectorAssembler,
)
from pyspark.sql import DataFrame

import forebay as fb
from harness.ops.spark_tables import ROWS, collected, features, numbers

# Float32 has 24 binary digits; Spark computes in float64 in another order.
NEAR = {"rtol": 2e-7, "atol": 1e-7}
SCALED = ["x", "y", "negative", "single"]

Frames = dict[str, DataFrame]


def assembled(frame: DataFrame, *columns: str) -> DataFrame:
    return VectorAssembler(inputCols=list(columns), outputCol="v").transform(frame)


# === StringIndexer and OneHotEncoder: vocab and one_hot ===


@pytest.mark.parametrize("column", ["word", "ties"])
def test_string_indexer_is_vocab_less_one(client: fb.Client, frames: Frames, column: str):
    model = StringIndexer(inputCol=column, outputCol="i").fit(frames["plain"])
    theirs = numbers(model.transform(frames["plain"]), "i")
    assert np.array_equal(features(client, "plain", fb.cols(column).vocab()), theirs + 1)


def test_string_indexer_puts_kept_invalids_last_and_forebay_first(client: fb.Client, frames: Frames):
    model = StringIndexer(inputCol="word", outputCol="i", handleInvalid="keep").fit(frames["gappy"])
    theirs = numbers(model.transform(frames["gappy"]), "i")
    most = len(model.labels)
    assert (theirs == most).sum() > 20
    assert np.array_equal(features(client, "gappy", fb.cols("word").vocab()), np.where(theirs == most, 0, theirs + 1))


def test_string_indexer_breaks_ties_as_text_and_forebay_as_numbers(client: fb.Client, frames: Frames):
    frame = frames["plain"]
    model = StringIndexer(inputCol="id", outputCol="i").fit(frame)
    assert model.labels[:4] == ["0", "1", "10", "100"]
    ours = features(client, "plain", fb.cols("id").vocab())
    assert np.array_equal(ours, np.arange(ROWS) + 1)


@pytest.mark.parametrize("drop_last", [True, False])
def test_one_hot_encoder_is_one_hot_without_its_first_column(client: fb.Client, frames: Frames, drop_last: bool):
    indexed = StringIndexer(inputCol="word", outputCol="i").fit(frames["plain"]).transform(frames["plain"])
    encoder = OneHotEncoder(inputCol="i", outputCol="v", dropLast=drop_last).fit(indexed)
    theirs = numbers(encoder.transform(indexed), "v")
    ours = features(client, "plain", fb.cols("word").vocab().one_hot())
    # Column 0 is that of unseen values, of which there are none; Spark drops the rarest category instead.
    assert not ours[:, 0].any()
    kept = ours[:, 1:-1] if drop_last else ours[:, 1:]
    assert np.array_equal(kept, theirs)


def test_one_hot_encoder_puts_kept_invalids_last_and_forebay_first(client: fb.Client, frames: Frames):
    indexer = StringIndexer(inputCol="word", outputCol="i", handleInvalid="keep").fit(frames["gappy"])
    indexed = indexer.transform(frames["gappy"])
    encoder = OneHotEncoder(inputCol="i", outputCol="v", dropLast=False).fit(indexed)
    theirs = numbers(encoder.transform(indexed), "v")
    ours = features(client, "gappy", fb.cols("word").vocab().one_hot())
    assert np.array_equal(ours, np.roll(theirs, 1, axis=1))


# === VectorAssembler: parts side by side ===


def test_vector_assembler_is_an_output_of_several_columns(client: fb.Client, frames: Frames):
    columns = ["x", "count", "flag", "single", "y"]
    theirs = numbers(assembled(frames["plain"], *columns), "v")
    ours = features(client, "plain", fb.cols(*columns))
    assert np.array_equal(ours, theirs.astype(np.float32))


def test_vector_assembler_and_outputs_reject_nulls(client: fb.Client, frames: Frames):
    with pytest.raises(Py4JJavaError, match="null"):
        assembled(frames["gappy"], "x").collect()
    with pytest.raises(fb.InvalidRequest, match="null"):
        features(client, "gappy", fb.cols("x"))
    kept = VectorAssembler(inputCols=["x"], outputCol="v", handleInvalid="keep").transform(frames["gappy"])
    ours = features(client, "gappy", fb.cols("x").fill_null(float("nan")))
    assert np.array_equal(ours, numbers(kept, "v")[:, 0].astype(np.float32), equal_nan=True)


# === Scalers ===


def test_standard_scaler_uses_the_sample_deviation_and_forebay_the_populations(client: fb.Client, frames: Frames):
    frame = assembled(frames["plain"], *SCALED)
    model = StandardScaler(inputCol="v", outputCol="s", withMean=True, withStd=True).fit(frame)
    theirs = numbers(model.transform(frame), "s")
    ours = features(client, "plain", fb.cols(*SCALED).standardize())
    np.testing.assert_allclose(ours, theirs * np.sqrt(ROWS / (ROWS - 1)), **NEAR)


def test_standard_scaler_of_a_constant(client: fb.Client, frames: Frames):
    frame = assembled(frames["plain"], "constant")
    for with_mean in (True, False):
        scaler = StandardScaler(inputCol="v", outputCol="s", withMean=with_mean, withStd=True)
        assert not numbers(scaler.fit(frame).transform(frame), "s").any()
    assert not features(client, "plain", fb.cols("constant").standardize()).any()
    # A deviation of 0 multiplies by 0 there and divides by 1 here.
    assert set(features(client, "plain", fb.cols("constant").standardize(mean=0, std=0))) == {2.5}


def test_min_max_scaler_is_min_max(client: fb.Client, frames: Frames):
    frame = assembled(frames["plain"], *SCALED)
    theirs = numbers(MinMaxScaler(inputCol="v", outputCol="s").fit(frame).transform(frame), "s")
    ours = features(client, "plain", fb.cols(*SCALED).min_max())
    np.testing.assert_allclose(ours, theirs, **NEAR)
    frame = assembled(frames["plain"], "constant")
    assert set(numbers(MinMaxScaler(inputCol="v", outputCol="s").fit(frame).transform(frame), "s")[:, 0]) == {0.5}
    assert set(features(client, "plain", fb.cols("constant").min_max())) == {0.0}


def test_max_abs_scaler_is_max_abs(client: fb.Client, frames: Frames):
    frame = assembled(frames["plain"], *SCALED, "constant", "zero")
    theirs = numbers(MaxAbsScaler(inputCol="v", outputCol="s").fit(frame).transform(frame), "s")
    ours = features(client, "plain", fb.cols(*SCALED, "constant", "zero").max_abs())
    np.testing.assert_allclose(ours, theirs, **NEAR)


def test_robust_scaler_is_robust_where_quartiles_are_values(client: fb.Client, frames: Frames):
    frame = assembled(frames["plain"], *SCALED)
    scaler = RobustScaler(inputCol="v", outputCol="s", withCentering=True, relativeError=1e-6)
    theirs = numbers(scaler.fit(frame).transform(frame), "s")
    ours = features(client, "plain", fb.cols(*SCALED).robust())
    np.testing.assert_allclose(ours, theirs, **NEAR)


def test_robust_scaler_of_a_constant(client: fb.Client, frames: Frames):
    frame = assembled(frames["plain"], "constant")
    scaler = RobustScaler(inputCol="v", outputCol="s", relativeError=1e-6)
    assert set(numbers(scaler.fit(frame).transform(frame), "s")[:, 0]) == {0.0}
    assert set(features(client, "plain", fb.cols("constant").robust(center=0, scale=0))) == {2.5}


# === Imputer: fill_null ===


@pytest.mark.parametrize("strategy", ["mean", "median", "mode"])
@pytest.mark.parametrize("column", ["x", "count"])
def test_imputer_is_fill_null(client: fb.Client, frames: Frames, strategy: str, column: str):
    imputer = Imputer(inputCol=column, outputCol="o", strategy=strategy, relativeError=1e-6)
    model = imputer.fit(frames["gappy"])
    ours = features(client, "gappy", fb.cols(column).fill_null(strategy))
    theirs = numbers(model.transform(frames["gappy"]), "o")
    present = [value for value in collected(frames["gappy"], column) if value is not None]
    gaps = np.array([value is None for value in collected(frames["gappy"], column)])
    assert np.array_equal(ours[~gaps], theirs[~gaps].astype(np.float32))
    filled = {"mean": np.mean, "median": np.median, "mode": lambda v: min(set(v), key=lambda e: (-v.count(e), e))}
    np.testing.assert_allclose(ours[gaps], filled[strategy](present), rtol=1e-6)
    if strategy == "median" and len(present) % 2 == 0:
        # For an even number of values, Spark takes the lower of the two in the middle; we take their mean.
        middle = sorted(present)[len(present) // 2 - 1 : len(present) // 2 + 1]
        assert middle[0] <= theirs[gaps][0] <= middle[1]
    elif column == "count" and strategy == "mean":
        # Spark keeps the column's type: the mean of integers is cut to one.
        assert set(theirs[gaps]) == {float(int(np.mean(present)))}
    else:
        np.testing.assert_allclose(ours[gaps], theirs[gaps], rtol=1e-6)


def test_imputer_fills_nan_and_forebay_does_not(client: fb.Client, frames: Frames):
    model = Imputer(inputCol="nan", outputCol="o").fit(frames["gappy"])
    theirs = numbers(model.transform(frames["gappy"]), "o")
    ours = features(client, "gappy", fb.cols("nan").fill_null("mean"))
    gone = np.isnan(ours)
    assert gone.sum() > 20
    assert not np.isnan(theirs).any()
    assert np.array_equal(ours[~gone], theirs[~gone].astype(np.float32))


# === Bucketizer, QuantileDiscretizer: bucketize ===


def test_bucketizer_is_bucketize_with_the_inner_splits(client: fb.Client, frames: Frames):
    splits = [float("-inf"), -1.0, 0.0, 2.5, 5.0, float("inf")]
    for column in ("x", "single", "constant", "zero"):
        theirs = numbers(Bucketizer(splits=splits, inputCol=column, outputCol="b").transform(frames["plain"]), "b")
        assert np.array_equal(features(client, "plain", fb.cols(column).bucketize(splits[1:-1])), theirs), column


def test_bucketizers_last_split_is_inclusive_and_forebays_exclusive(client: fb.Client, frames: Frames):
    splits = [0.0, 1.0, 2.5]
    theirs = numbers(Bucketizer(splits=splits, inputCol="constant", outputCol="b").transform(frames["plain"]), "b")
    assert set(theirs) == {1.0}
    assert set(features(client, "plain", fb.cols("constant").bucketize(splits))) == {3}


def test_bucketizer_gives_nan_its_own_bucket_and_forebay_the_last(client: fb.Client, frames: Frames):
    splits = [float("-inf"), 0.0, 5.0, float("inf")]
    bucketizer = Bucketizer(splits=splits, inputCol="nan", outputCol="b", handleInvalid="keep")
    theirs = numbers(bucketizer.transform(frames["gappy"]), "b")
    assert np.array_equal(features(client, "gappy", fb.cols("nan").bucketize(splits[1:-1])), np.minimum(theirs, 2))
    assert (theirs == 3).sum() > 20


@pytest.mark.parametrize("column", ["x", "y", "negative"])
def test_quantile_discretizer_is_bucketize_by_quantiles_where_they_are_values(
    client: fb.Client, frames: Frames, column: str
):
    discretizer = QuantileDiscretizer(numBuckets=4, inputCol=column, outputCol="b", relativeError=1e-6)
    theirs = numbers(discretizer.fit(frames["plain"]).transform(frames["plain"]), "b")
    ours = features(client, "plain", fb.cols(column).bucketize(quantiles=4))
    assert np.array_equal(ours, theirs)
    assert np.bincount(ours).tolist() == [100, 100, 100, 101]


# === Hashes: equal values have equal indices on both sides, though the hash functions are others ===


def same_partition(ours: list[object], theirs: list[object]) -> None:
    """What is equal here is equal there, and what differs differs."""
    assert len(set(ours)) == len(set(theirs)) == len(set(zip(ours, theirs, strict=True)))


def test_feature_hasher_is_hash_bucket_and_one_hot(client: fb.Client, frames: Frames):
    size = 4096
    hasher = FeatureHasher(inputCols=["word"], outputCol="v", numFeatures=size)
    theirs = numbers(hasher.transform(frames["plain"]), "v")
    ours = features(client, "plain", fb.cols("word").hash_bucket(size).one_hot())
    assert ours.shape == theirs.shape
    assert set(ours.sum(axis=1)) == set(theirs.sum(axis=1)) == {1.0}
    same_partition(ours.argmax(axis=1).tolist(), theirs.argmax(axis=1).tolist())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ngram_is_ngram_hashed(client: fb.Client, frames: Frames, n: int):
    theirs = collected(NGram(n=n, inputCol="words", outputCol="g").transform(frames["lists"]), "g")
    chain = fb.cols("words").ngram(n, buckets=2**60)
    ours = features(client, "lists", fb.output(chain, dtype="int64"))
    assert [len(row) for row in ours] == [len(row) for row in theirs]
    same_partition([index for row in ours for index in row.tolist()], [gram for row in theirs for gram in row])
