"""count_encode and target_mean against pandas; the folds of a target mean by the package xxhash."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pytest
import xxhash
from sklearn.preprocessing import TargetEncoder

import forebay as fb
from forebay._plan.generated.ops import TargetMean
from harness.exchange import exchange
from harness.ops.tables import features, same_bits, write
from harness.serving import Serve, Server, fit, info, stored

ROWS = 20_011
RANDOM = np.random.default_rng(4)


def gaps(values: list[Any], share: float = 0.1) -> list[Any]:
    return [None if gap else value for value, gap in zip(values, RANDOM.random(len(values)) < share, strict=True)]


def table() -> pa.Table:
    groups = RANDOM.zipf(1.3, ROWS) % 501
    label = (groups % 7 + RANDOM.normal(size=ROWS) > 3).tolist()
    return pa.table(
        {
            "n": pa.array(np.arange(ROWS)),
            "word": pa.array(gaps([f"wörd {g}" for g in groups.tolist()])),
            "coded": pa.array(gaps([f"c{g % 9}" for g in groups.tolist()])).dictionary_encode(),
            "id": pa.array(gaps([int(g) << 50 for g in groups.tolist()]), pa.int64()),
            "big": pa.array([2**64 - 1 - int(g) for g in groups.tolist()], pa.uint64()),
            "real": pa.array(gaps([g / 4 if g else float("nan") for g in groups.tolist()])),
            "price": pa.array(gaps(groups.tolist())).cast(pa.decimal128(24, 3)),
            "y": pa.array(gaps(label), pa.bool_()),
            "z": pa.array(gaps(np.where(RANDOM.random(ROWS) < 0.1, np.nan, groups * 0.25).tolist())),
            "gone": pa.nulls(ROWS, pa.float64()),
            "days": pa.array(np.arange(ROWS), pa.int32()).view(pa.date32()),
        }
    )


TABLE = table()
COLUMNS = ["word", "coded", "id", "big", "real", "price"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("encodings")
    write(folder / "rows", TABLE)
    return serve({"rows": folder / "rows"})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def keys(column: str) -> list[Any]:
    """Values that a group is made of; None for null and NaN."""
    values = TABLE[column].to_pylist()
    return [None if value is None or value != value else value for value in values]


def folds_of(folds: int, seed: int) -> np.ndarray:
    digests = [xxhash.xxh3_64_intdigest(row.to_bytes(8, "little"), seed=seed) for row in range(ROWS)]
    return np.array([digest % folds for digest in digests])


def means(column: str, label: str, smoothing: float, kept: np.ndarray) -> tuple[dict[Any, float], float]:
    """The mean of each value over the rows that are kept, and of all of them."""
    frame = pd.DataFrame({"key": pd.Series(keys(column), dtype=object), "y": TABLE[label].to_numpy().astype(float)})
    frame = frame[kept & frame["y"].notna()]
    prior = frame["y"].mean()
    sums = frame.groupby("key")["y"].agg(["sum", "count"])
    return ((sums["sum"] + smoothing * prior) / (sums["count"] + smoothing)).to_dict(), prior


@pytest.mark.parametrize("column", COLUMNS)
def test_count_encode_is_value_counts(client: fb.Client, column: str):
    got = features(client, "rows", {"count": fb.cols(column).count_encode()}, filter="n > 700")["count"]
    values = keys(column)[701:]
    counts = pd.Series(values, dtype=object).value_counts()
    same_bits(got, np.array([counts.get(value, 0) for value in values], np.float32), column)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(("folds", "smoothing", "seed"), [(5, 20.0, 0), (3, 0.0, 9), (0, 2.5, 0), (64, 1.0, 1)])
@pytest.mark.parametrize("label", ["y", "z"])
def test_target_mean_leaves_out_the_rows_own_fold(
    client: fb.Client, column: str, folds: int, smoothing: float, seed: int, label: str
):
    chain = fb.cols(column).target_mean(label, smoothing=smoothing, folds=folds, seed=seed)
    got = features(client, "rows", {"mean": fb.output(chain, dtype="float64")})["mean"]
    of_row, values = (folds_of(folds, seed) if folds else np.zeros(ROWS)), keys(column)
    want = np.empty(ROWS)
    for fold in range(max(folds, 1)):
        mine = of_row == fold
        learned, prior = means(column, label, smoothing, ~mine if folds else mine)
        want[mine] = [learned.get(value, prior) for value, is_mine in zip(values, mine, strict=True) if is_mine]
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_one_mean_is_scikit_learns(client: fb.Client):
    chain = fb.cols("word").fill_null(text="?").target_mean("y", smoothing=10, folds=0)
    got = features(client, "rows", {"mean": chain}, filter="y IS NOT NULL")["mean"]
    frame = TABLE.select(["word", "y"]).to_pandas().dropna(subset="y").fillna({"word": "?"})
    encoder = TargetEncoder(target_type="continuous", smooth=10.0)
    encoder.fit(frame[["word"]], frame["y"].astype(float))
    np.testing.assert_allclose(got, encoder.transform(frame[["word"]])[:, 0], rtol=1e-6)


def test_a_rows_mean_does_not_depend_on_its_own_label(tmp_path_factory: pytest.TempPathFactory, serve: Serve):
    """An id per row carries nothing but its own label, which out of fold is the mean of other rows."""
    random = np.random.default_rng(1)
    rows = pa.table({"id": np.arange(4000), "y": random.integers(0, 2, 4000)})
    folder = tmp_path_factory.mktemp("leak")
    write(folder / "rows", rows)
    with fb.connect(serve({"rows": folder / "rows"}).url) as client:
        outputs = {
            "leak": fb.cols("id").target_mean("y", smoothing=0, folds=0),
            "none": fb.cols("id").target_mean("y", smoothing=0),
        }
        got = features(client, "rows", outputs)
        y = rows["y"].to_numpy()
        assert np.corrcoef(got["leak"], y)[0, 1] == pytest.approx(1)
        assert abs(np.corrcoef(got["none"], y)[0, 1]) < 0.2


def test_later_ops_learn_from_the_means_and_order_does_not_matter(client: fb.Client):
    chains = {
        "scaled": fb.cols("word").target_mean("y").standardize(),
        "bucket": fb.cols("word").target_mean("y").bucketize(quantiles=4),
        "mean": fb.output(fb.cols("word").target_mean("y"), dtype="float64"),
        "n": fb.output(fb.cols("n"), dtype="int64"),
    }
    plan = client.fitted("rows", fb.Plan(outputs=chains))
    got = features(client, "rows", chains)
    mean = got["mean"]
    np.testing.assert_allclose(got["scaled"], (mean - mean.mean()) / mean.std(), rtol=1e-4, atol=1e-5)
    assert set(got["bucket"]) == {0, 1, 2, 3}
    for options in ({"shuffle": True, "seed": 4}, {"shuffle": True, "seed": 1, "lanes": 3, "window_rows": 512}):
        batches = list(client.stream("rows", plan, batch_size=777, **options))  # type: ignore[arg-type]
        rows = {name: np.concatenate([batch[name] for batch in batches]) for name in chains}
        order = np.argsort(rows["n"])
        for name in chains:
            same_bits(rows[name][order], got[name], name)
    resumed = list(client.stream("rows", plan, batch_size=777, start_position=777 * 5))
    same_bits(resumed[0]["scaled"], got["scaled"][777 * 5 : 777 * 6], "resumed")


def read(client: fb.Client, dataset: str, plan: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and the column n of a stream."""
    batches = list(client.stream(dataset, plan, **options))
    mean, n = (np.concatenate([np.asarray(batch[name]) for batch in batches]) for name in ("mean", "n"))
    return mean, n.astype(int)


def wanted(rows: np.ndarray, fitted: np.ndarray, folds: int = 5) -> np.ndarray:
    """Return the means of "word": of rows of the fit without their fold, of others over all rows of the fit."""
    of_row, values = folds_of(folds, 0), keys("word")
    without = [means("word", "y", 20.0, fitted & (of_row != fold)) for fold in range(folds)]
    learned = [*without, means("word", "y", 20.0, fitted)]
    found = [learned[of_row[row] if fitted[row] else folds] for row in rows]
    return np.array([of.get(values[row], prior) for row, (of, prior) in zip(rows, found, strict=True)])


OUTPUTS = {"mean": fb.output(fb.cols("word").target_mean("y"), dtype="float64"), "n": fb.cols("n")}
TRAINING = np.arange(ROWS) % 3 > 0


@pytest.mark.parametrize("training", ["n % 3 > 0", "n % 3 > 0 -- rows to train on"])
def test_only_rows_of_the_fit_leave_out_their_fold(client: fb.Client, training: str):
    fitted = client.fit("rows", fb.Plan(outputs=OUTPUTS, filter=training))
    for other, rows in (
        (training, TRAINING),
        ("n % 3 = 0", ~TRAINING),
        ("n % 2 = 0", np.arange(ROWS) % 2 == 0),
        ("n % 3 > 0 AND n > 500", TRAINING & (np.arange(ROWS) > 500)),
        (None, np.ones(ROWS, bool)),
    ):
        for order in ({}, {"shuffle": True, "seed": 2}):
            got, n = read(client, "rows", fitted.with_filter(other), **order)
            assert sorted(n) == np.flatnonzero(rows).tolist()
            np.testing.assert_allclose(got, wanted(n, TRAINING), rtol=1e-12, err_msg=str(other))


def test_rows_that_a_fits_sample_left_out_take_the_mean_of_all(client: fb.Client):
    fitted = client.fit("rows", fb.Plan(outputs=OUTPUTS), sample=0.25, sample_seed=9)
    digests = [xxhash.xxh3_64_intdigest(row.to_bytes(8, "little"), seed=9) for row in range(ROWS)]
    sampled = np.array(digests) < 2**62
    for share, seed in ((None, 0), (0.25, 9), (0.1, 9), (0.5, 9), (0.5, 1)):
        options = {} if share is None else {"sample": share, "sample_seed": seed}
        got, n = read(client, "rows", fitted, **options)
        np.testing.assert_allclose(got, wanted(n, sampled), rtol=1e-12, err_msg=f"{share} {seed}")


def test_rows_of_another_dataset_or_snapshot_take_the_mean_of_all(
    tmp_path_factory: pytest.TempPathFactory, serve: Serve
):
    folder = tmp_path_factory.mktemp("others")
    write(folder / "rows", TABLE)
    write(folder / "copy", TABLE)
    with fb.connect(serve({"rows": folder / "rows", "copy": folder / "copy"}).url) as client:
        fitted = client.fit("rows", fb.Plan(outputs=OUTPUTS))
        every, none = np.ones(ROWS, bool), np.zeros(ROWS, bool)
        got, n = read(client, "rows", fitted)
        np.testing.assert_allclose(got, wanted(n, every), rtol=1e-12)
        learned, prior = means("word", "y", 20.0, every)
        of_all = np.array([learned.get(value, prior) for value in keys("word")])
        np.testing.assert_allclose(read(client, "copy", fitted)[0], of_all, rtol=1e-12)
        # A file more: the numbers of rows are those of other rows.
        write(folder / "rows" / "0", TABLE.slice(0, 10))
        np.testing.assert_allclose(read(client, "rows", fitted)[0][10:], of_all, rtol=1e-12)
        # A second fit of a plan that has learned keeps what it knows of the first one's rows.
        more = fb.Plan(outputs={**fitted.plan.outputs, "z": fb.cols("z").fill_null("mean").standardize()})
        again = client.fit("copy", more)
        assert again.plan.outputs["mean"] == fitted.plan.outputs["mean"]
        np.testing.assert_allclose(read(client, "copy", again)[0], of_all, rtol=1e-12)
        assert none.sum() == 0


def test_sums_are_exact_in_any_order_and_memory(tmp_path: Path, serve: Serve):
    """Labels whose sum in float64 depends on their order; more values than a small memory holds."""
    random = np.random.default_rng(5)
    rows, values = 120_000, 30_000
    word = [f"user-{value:020d}" for value in random.permutation(rows) % values]
    label = random.normal(size=rows) * 10.0 ** random.integers(-12, 12, rows)
    shuffled = random.permutation(rows)
    table = pa.table({"word": word, "y": label, "n": np.arange(rows)})
    write(tmp_path / "rows", table)
    write(tmp_path / "shuffled", table.take(shuffled))
    chain = fb.cols("word").target_mean("y", smoothing=0, folds=0)
    folded = fb.Plan(outputs={"mean": fb.output(fb.cols("word").target_mean("y"), dtype="float64")})
    plan_ids = set()
    for memory in ("1GiB", "20MiB"):
        with fb.connect(
            serve({n: tmp_path / n for n in ("rows", "shuffled")}, "--fit-memory-bytes", memory).url
        ) as client:
            plan_ids.add(client.fit("rows", folded, refit=True).plan_id)
            of_all = [client.fit(name, fb.Plan(outputs={"mean": chain}), refit=True) for name in ("rows", "shuffled")]
            assert of_all[0].plan_id == of_all[1].plan_id
            op = of_all[0].plan.outputs["mean"].parts[0].ops[0]
            assert isinstance(op, TargetMean)
            assert op.values is not None
            sums: dict[str, list[float]] = {}
            for one, value in zip(word, label.tolist(), strict=True):
                sums.setdefault(one, []).append(value)
            want = [math.fsum(sums[str(value)]) / len(sums[str(value)]) for value in op.values.items]
            assert list(op.means[1:]) == want
    assert len(plan_ids) == 1


def test_rows_of_a_client_take_the_mean_of_all_rows(server: Server, client: fb.Client):
    chain = fb.cols("word").target_mean("y", folds=7).clip(min=0.0)
    fitted = client.fit("rows", fb.Plan(outputs={"mean": fb.output(chain, dtype="float64")}))
    learned, prior = means("word", "y", 20.0, np.ones(ROWS, bool))
    words = [*learned, None, "never seen"]
    with fl.connect(server.url) as bare:
        (answer,) = exchange(bare, {"plan_id": fitted.plan_id}, [pa.record_batch({"word": pa.array(words)})])
    np.testing.assert_allclose(answer["mean"].to_numpy(), [learned.get(word, prior) for word in words], rtol=1e-12)


def test_a_fitted_plan_can_be_saved_and_described(client: fb.Client):
    plan = fb.Plan(outputs={"x": [fb.cols("word").target_mean("y"), fb.cols("coded").count_encode()]})
    fitted = client.fit("rows", plan)
    assert fb.Plan.from_json(fitted.plan.to_json()) == fitted.plan
    assert fb.FittedPlan.from_json(fitted.to_json()).plan_id == fitted.plan_id
    text = str(fitted.describe())
    assert "target_mean" in text
    assert "9 values" in text
    frame = fitted.to_frame()
    assert len(frame) > 1
    # Folds and smoothing are part of the plan even where the client names none.
    op = json.loads(fitted.plan.to_json())["outputs"][0]["parts"][0]["ops"][0]["target_mean"]
    assert (op["folds"], op["smoothing"]) == (5, 20.0)
    assert len(op["means"]) == 6 * (1 + len(op["values"]["strings"]))


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"target_mean": {}}, r"target_mean.label: missing"),
        ({"target_mean": {"label": "yy"}}, r'target_mean.label: .*"yy".*y'),
        ({"target_mean": {"label": "word"}}, r'target_mean.label: column "word" is .*: the mean of a label'),
        ({"target_mean": {"label": "y", "folds": 1}}, r"target_mean.folds: 1 fold: set 2 or more, or 0"),
        ({"target_mean": {"label": "y", "folds": 65}}, r"target_mean.folds: must be from 0 to 64, not 65"),
        ({"target_mean": {"label": "y", "smoothing": -1}}, r"smoothing: must be 0 or more, and finite, not -1"),
        ({"target_mean": {"label": "y", "smoothing": "NaN"}}, r"smoothing: must be 0 or more, and finite, not NaN"),
        ({"target_mean": {"label": "gone"}}, r'label "gone" has no value'),
        ({"target_mean": {"label": "y", "values": {"strings": ["a"]}, "means": [1, 2]}}, r"are not a multiple of 6"),
        ({"target_mean": {"label": "y", "values": {"strings": ["a"]}, "means": [1] * 6}}, r"6 numbers for 1 values"),
        ({"count_encode": {"values": {"strings": ["a", "b"]}, "counts": [1]}}, r"2 numbers for 2 values"),
        ({"count_encode": {"values": {"strings": ["a", "a"]}, "counts": [1, 1]}}, r'"a" .*twice'),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(server: Server, op: dict[str, Any], words: str):
    plan = {"outputs": [{"name": "x", "parts": [{"columns": ["word"], "ops": [op]}]}]}
    with fl.connect(server.url) as bare, pytest.raises((pa.ArrowInvalid, fl.FlightError), match=words):
        fit(bare, "rows", plan)


def test_wrong_places_are_refused(server: Server):
    def refused(part: dict[str, Any], words: str, **plan: Any) -> None:
        with fl.connect(server.url) as bare, pytest.raises((pa.ArrowInvalid, fl.FlightError), match=words):
            fit(bare, "rows", {"outputs": [{"name": "x", "parts": [part]}], **plan})

    refused(
        {"columns": ["word"], "ops": [{"vocab": {}}, {"one_hot": {"size": 600}}, {"count_encode": {}}]},
        "yields columns",
    )
    cross = {"cross": {"columns": ["id"], "buckets": 10}}
    refused({"columns": ["word"], "ops": [{"count_encode": {}}, cross]}, "count_encode cannot be followed by cross")
    with fl.connect(server.url) as bare, pytest.raises(pa.ArrowInvalid, match="NOT_FITTED"):
        info(
            bare,
            {
                "dataset": "rows",
                "plan": {"outputs": [{"name": "x", "parts": [{"columns": ["word"], "ops": [{"count_encode": {}}]}]}]},
            },
        )
    with fl.connect(server.url) as bare:
        assert info(bare, {"dataset": "rows", "plan": {"outputs": stored("n")}}).total_records == ROWS


def test_python_checks_the_arguments():
    column = fb.cols("word")
    for call, words in (
        (lambda: column.target_mean("y", folds=1), "folds must be 2 or more"),
        (lambda: column.target_mean("y", folds=65), "folds must be from 0 to 64"),
        (lambda: column.target_mean("y", smoothing=-1), "smoothing must be 0 or more"),
        (lambda: column.target_mean(3), "label must be text"),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
