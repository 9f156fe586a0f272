"""standardize, min_max and robust with `by`: learned of each group of rows, against NumPy and fits of one group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.exchange import exchange
from harness.ops.tables import features, same_bits, write
from harness.serving import Serve, Server, fit, info

Scaler = Literal["standardize", "min_max", "robust"]
SCALERS: list[Scaler] = ["standardize", "min_max", "robust"]
ROWS = 6_007
RANDOM = np.random.default_rng(11)


def gaps(values: Sequence[Any], share: float = 0.1) -> list[Any]:
    return [None if gap else value for value, gap in zip(values, RANDOM.random(len(values)) < share, strict=True)]


def make_table() -> pa.Table:
    # A group of one row, one whose values are all null, and many of any size.
    groups = (RANDOM.zipf(1.4, ROWS) % 97).tolist()
    groups[17] = 1_000
    x = RANDOM.normal([g * 5 for g in groups], [1 + g % 7 for g in groups])
    x[RANDOM.random(ROWS) < 0.05] = np.nan
    return pa.table(
        {
            "n": pa.array(np.arange(ROWS)),
            "word": pa.array(gaps([f"wörd {g}" for g in groups])),
            "coded": pa.array(gaps([f"c{g % 9}" for g in groups])).dictionary_encode(),
            "id": pa.array(gaps([(g - 50) << 50 for g in groups]), pa.int64()),
            "big": pa.array([2**64 - 1 - g for g in groups], pa.uint64()),
            "real": pa.array(gaps([g / 4 if g else float("nan") for g in groups]), pa.float32()),
            "price": pa.array(gaps([Decimal(g) * 10**17 for g in groups]), pa.decimal128(30, 2)),
            "flag": pa.array(gaps([g % 2 == 0 for g in groups]), pa.bool_()),
            "day": pa.array(gaps([g % 40 for g in groups]), pa.int32()).view(pa.date32()),
            "ts": pa.array([g * 3_600_000 for g in groups], pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "x": pa.array([None if g == 3 else value for g, value in zip(groups, gaps(x.tolist()), strict=True)]),
            "single": pa.array(x, pa.float32()),
            "whole": pa.array(gaps(RANDOM.integers(-(2**40), 2**40, ROWS).tolist()), pa.int64()),
            "same": pa.array([g * 0.1 for g in groups]),
            "list": pa.array([[1.0]] * ROWS),
        }
    )


TABLE = make_table()
KEYS = ["word", "coded", "id", "big", "real", "price", "flag", "day", "ts"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("scalers")
    write(folder / "rows", TABLE)
    pq.write_table(
        pa.table({"big": TABLE["big"].unique(), "shop": [f"s{n % 5}" for n in range(len(TABLE["big"].unique()))]}),
        folder / "shops.parquet",
    )
    return serve({"rows": folder / "rows", "shops": folder / "shops.parquet"})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def scaled(op: Scaler, values: np.ndarray) -> np.ndarray:
    """The values of a group, scaled by its own statistics."""
    seen = values[~np.isnan(values)]
    if op == "standardize":
        shift, divisor = seen.mean(), seen.std()
    elif op == "min_max":
        shift, divisor = seen.min(), np.ptp(seen)
    else:
        low, shift, high = np.quantile(seen, [0.25, 0.5, 0.75])
        divisor = high - low
    return (values - shift) / (1 if divisor < 1e-12 else divisor)


def expected(op: Scaler, column: str, by: list[str], kept: np.ndarray | None = None) -> np.ndarray:
    """Null is NaN: that of a row without a key, and of a group without values."""
    frame = TABLE.select([column, *by]).to_pandas(date_as_object=False)
    values = frame[column].astype(float).to_numpy()
    result = np.full(ROWS, np.nan)
    for _, rows in frame.groupby(by, dropna=True, observed=True).indices.items():
        learned = rows if kept is None else rows[kept[rows]]
        if np.isnan(values[learned]).all():
            continue
        of_group = values.copy()
        of_group[np.setdiff1d(rows, learned)] = np.nan
        result[rows] = scaled(op, of_group[rows])
    return result


def got(client: fb.Client, chain: fb.Columns, **plan: Any) -> np.ndarray:
    """The results, with NaN for null."""
    out = fb.output(chain.fill_null(float("nan")), dtype="float64")
    return features(client, "rows", {"out": out}, **plan)["out"].ravel()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("op", SCALERS)
def test_each_group_has_its_own_scale(client: fb.Client, op: Scaler, key: str):
    chain: Callable[..., fb.Columns] = getattr(fb.cols("x"), op)
    np.testing.assert_allclose(got(client, chain(by=key)), expected(op, "x", [key]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("op", SCALERS)
@pytest.mark.parametrize("column", ["x", "single", "whole", "same"])
def test_a_group_is_scaled_as_if_it_were_alone(client: fb.Client, op: Scaler, column: str):
    chain: Callable[..., fb.Columns] = getattr(fb.cols(column), op)
    all_rows = got(client, chain(by=["big"]))
    groups = np.array(TABLE["big"].to_pylist())
    for group in [2**64 - 1, 2**64 - 2, 2**64 - 1 - 1_000, 2**64 - 1 - 17]:
        alone = got(client, chain(), filter=f"big = {group}")
        same_bits(all_rows[groups == group], alone, (column, group))


@pytest.mark.parametrize("op", SCALERS)
@pytest.mark.parametrize("by", [["coded", "flag"], ["flag", "day", "word"]])
def test_several_columns_make_a_group(client: fb.Client, op: Scaler, by: list[str]):
    chain: Callable[..., fb.Columns] = getattr(fb.cols("whole"), op)
    np.testing.assert_allclose(got(client, chain(by=by)), expected(op, "whole", by), rtol=1e-9, atol=1e-9)


def test_ops_before_and_after_it_and_computed_keys(client: fb.Client):
    plan: dict[str, Any] = {
        "derive": {"half": "CAST(big % 2 AS BIGINT)", "twice": "x * 2"},
        "join": [fb.join("shops", on="big", columns=["shop"])],
    }
    before = got(client, fb.cols("twice").clip(-20, 60), **plan)
    chain = fb.cols("twice").clip(-20, 60).standardize(by=["shop", "half"]).clip(-1, 1).abs()
    found = got(client, chain, **plan)
    big = TABLE["big"].to_pandas()
    shops = dict(zip(TABLE["big"].unique().to_pylist(), range(10_000), strict=False))
    groups = pd.DataFrame({"shop": big.map(shops) % 5, "half": big % 2}).groupby(["shop", "half"]).indices
    want = np.full(ROWS, np.nan)
    for rows in groups.values():
        want[rows] = np.abs(np.clip(scaled("standardize", before[rows]), -1, 1))
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def test_two_scalers_in_a_chain_take_two_passes(client: fb.Client):
    once = expected("min_max", "x", ["word"])
    frame = TABLE.select(["coded"]).to_pandas()
    want = np.full(ROWS, np.nan)
    for rows in frame.groupby("coded", observed=True).indices.values():
        want[rows] = scaled("robust", once[rows])
    found = got(client, fb.cols("x").min_max(by="word").robust(by="coded"))
    np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-9)


def test_groups_that_the_fit_did_not_see_are_said(client: fb.Client):
    kept = np.array(TABLE["big"].to_pylist()) % 3 != 0
    plan = fb.Plan(filter="big % 3 != 0", outputs={"out": fb.cols("same").standardize(by="big")})
    fitted = client.fitted("rows", plan)
    with client.stream("rows", fitted, batch_size=100) as stream:
        assert sum(batch["out"].size for batch in stream) == kept.sum()
    words = r"is null; fill nulls with fill_null after standardize, which yields null for groups \(big\) that the fit"
    unseen = fitted.with_filter("true")
    with client.stream("rows", unseen, batch_size=100) as stream, pytest.raises(fb.InvalidRequest, match=words):
        list(stream)
    out = fb.output(fb.cols("same").standardize(by="big").fill_null(-9), dtype="float64")
    filled = client.fitted("rows", fb.Plan(filter="big % 3 != 0", outputs={"out": out})).with_filter("true")
    with client.stream("rows", filled, batch_size=100) as stream:
        values = np.concatenate([batch["out"].ravel() for batch in stream])
    assert (values[~kept] == -9).all()
    np.testing.assert_allclose(values[kept], expected("standardize", "same", ["big"])[kept], atol=1e-9)


def test_plain_json_learns_and_serves_its_scales(server: Server):
    ops = [{"robust": {"by": ["flag"]}}, {"fill_null": {"value": 0}}]
    plan = {"outputs": [{"name": "out", "dtype": "FLOAT64", "parts": [{"columns": ["whole"], "ops": ops}]}]}
    with fl.connect(server.url) as plain:
        result = fit(plain, "rows", plan)[-1]["result"]
        learned = result["plan"]["outputs"][0]["parts"][0]["ops"][0]["robust"]
        assert [int(key) for key in learned["scales"]["keys"][0]["integers"]] == [0, 1]
        frame = TABLE.select(["whole", "flag"]).to_pandas()
        medians = frame.groupby("flag")["whole"].median().tolist()
        np.testing.assert_allclose(learned["scales"]["shifts"], medians)
        tables = []
        for request in ({"plan_id": result["plan_id"]}, {"plan": result["plan"]}):
            found = info(plain, {"dataset": "rows", "batch_size": 500, **request})
            tables.append(plain.do_get(found.endpoints[0].ticket).read_all())
        assert tables[0].equals(tables[1])
        rows = pa.record_batch(
            {"whole": [5, None, 7], "flag": [True, False, None]},
            schema=pa.schema([("whole", pa.int64()), ("flag", pa.bool_())]),
        )
        answer = exchange(plain, {"plan_id": result["plan_id"]}, [rows])[0]["out"].to_pylist()
        scales = learned["scales"]
        assert answer == [(5 - scales["shifts"][1]) / scales["divisors"][1], 0, 0]


def test_what_it_learned_is_shown_and_can_be_stored(client: fb.Client):
    plan = fb.Plan(outputs={"out": fb.cols("x", "whole").standardize(by=["coded"])})
    fitted = client.fitted("rows", plan)
    assert "standardize  by=['coded'], scales=" in str(fitted.describe())
    again = fb.Plan.from_dict(fitted.plan.to_dict())
    assert client.fit("rows", again).plan_id == fitted.plan_id


def test_scales_turn_predictions_back(client: fb.Client):
    chain = fb.cols("whole", "x").min_max(by=["flag", "coded"]).clip(0, 1)
    fitted = client.fitted("rows", fb.Plan(outputs={"out": chain, "all": fb.cols("x").robust(by="price")}))
    scales = fitted.scales("out", "whole")
    frame = TABLE.select(["whole", "flag", "coded"]).to_pandas().dropna()
    groups = frame.groupby([frame["flag"].astype(int), "coded"], observed=True)["whole"]
    assert {key: shift for key, (shift, _) in scales.items()} == groups.min().to_dict()
    assert scales[1, "c4"][1] == groups.max()[1, "c4"] - groups.min()[1, "c4"]
    assert all(isinstance(key, (float, Decimal)) for key in fitted.scales("all", "x"))
    for wrong in (("out", "n"), ("none", "x")):
        with pytest.raises(KeyError, match="no output 'none'" if wrong[0] == "none" else "no scaler with by"):
            fitted.scales(*wrong)


def test_lags_are_scaled_by_series(tmp_path: Path, serve: Serve):
    rows = pa.table({"s": ["a"] * 50 + ["b"] * 30, "t": [*range(50), *range(30)], "x": RANDOM.normal(size=80)})
    pq.write_table(rows, tmp_path / "panel.parquet", row_group_size=7)
    server = serve({"panel": tmp_path / "panel.parquet"})
    with fb.connect(server.url) as client:
        chain = fb.cols("x").lag(2).standardize(by="s").fill_null(0)
        plan = fb.Plan(outputs={"out": fb.output(chain, dtype="float64")}, history={"by": "s", "order": "t"})
        with client.stream("panel", client.fitted("panel", plan), batch_size=9) as stream:
            found = np.concatenate([batch["out"].ravel() for batch in stream])
        lagged = rows.to_pandas().groupby("s")["x"].shift(2)
        want = lagged.groupby(rows["s"].to_pandas()).transform(lambda x: (x - x.mean()) / x.std(ddof=0)).fillna(0)
        np.testing.assert_allclose(found, want.to_numpy(), rtol=1e-9, atol=1e-12)

        windows: dict[str, Any] = {"by": ["s"], "order": "t", "length": 4, "horizon": 2, "stride": 3}
        plan = fb.Plan(outputs={"past": fb.output(fb.cols("x").min_max(by="s"), dtype="float64")})
        with client.stream("panel", client.fitted("panel", plan), batch_size=5, window=windows) as stream:
            first = next(iter(stream))["past"][0]
        head = rows["x"].to_numpy()[:50]
        np.testing.assert_allclose(first[:, 0], (head[:4] - head.min()) / np.ptp(head), rtol=1e-12)


def test_many_groups_within_little_memory(tmp_path: Path, serve: Serve):
    groups, each = 20_000, 6
    order = RANDOM.permutation(groups * each)
    key, x = np.tile(np.arange(groups), each)[order], RANDOM.normal(size=groups * each)
    texts = pa.array([f"series {group:>40}" for group in key.tolist()])
    write(tmp_path / "many", pa.table({"key": texts, "x": x}))
    server = serve({"many": tmp_path / "many"}, "--fit-memory-bytes", str(48 << 20))
    with fb.connect(server.url) as client:
        frame = pd.DataFrame({"key": key, "x": x}).groupby("key")["x"]
        for op in ("standardize", "robust"):
            chain = getattr(fb.cols("x"), op)(by="key")
            found = features(client, "many", {"out": fb.output(chain, dtype="float64")}, batch_size=9_999)[
                "out"
            ].ravel()
            if op == "standardize":
                want = (x - frame.transform("mean")) / frame.transform("std", ddof=0)
            else:
                spread = frame.transform("quantile", 0.75) - frame.transform("quantile", 0.25)
                want = (x - frame.transform("median")) / spread
            np.testing.assert_allclose(found, want.to_numpy(), rtol=1e-7, atol=1e-9)


def test_more_groups_than_a_plan_has_room_for(tmp_path: Path, serve: Serve):
    keys = pa.array([str(n) * 1_000_000 for n in range(10, 50)])
    pq.write_table(pa.table({"key": keys, "x": range(40)}), tmp_path / "long.parquet", row_group_size=5)
    server = serve({"long": tmp_path / "long.parquet"})
    plan = fb.Plan(outputs={"out": fb.cols("x").standardize(by="key")})
    with (
        fb.connect(server.url) as client,
        pytest.raises(fb.FailedPrecondition, match="more groups than a plan has room"),
    ):
        client.fitted("long", plan)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"standardize": {"by": ["word"], "mean": 0, "std": 1}}, r"standardize\.by: its numbers are those of all rows"),
        ({"min_max": {"by": ["word", "word"]}}, r"min_max\.by\[1\]: \"word\" is named twice"),
        ({"robust": {"by": ["wrod"]}}, r"robust\.by.*\"wrod\".*\"word\""),
        ({"robust": {"by": ["list"]}}, r"its column \"list\" of by must be one value per row, but is lists"),
        ({"robust": {"by": [""]}}, r"robust\.by: no column \"\""),
        ({"standardize": {"scales": {}}}, r"standardize\.scales: set by too"),
        ({"robust": {"by": ["word"], "scales": {"shifts": [1]}}}, "a key, a shift and a divisor for each group"),
        (
            {"robust": {"by": ["n"], "scales": {"keys": [{"integers": [1]}], "shifts": [1], "divisors": [0]}}},
            "greater than 0",
        ),
        (
            {"robust": {"by": ["word"], "scales": {"keys": [{"integers": [1]}], "shifts": [1], "divisors": [1]}}},
            "list of integers",
        ),
    ],
)
def test_what_does_not_fit_is_refused(server: Server, op: dict[str, Any], words: str):
    plan = {"outputs": [{"name": "out", "parts": [{"columns": ["x"], "ops": [op]}]}]}
    with fl.connect(server.url) as plain, pytest.raises((pa.ArrowException, fl.FlightError), match=words):
        fit(plain, "rows", plan)


def test_places_where_it_cannot_be(client: fb.Client):
    for chain, words in [
        (fb.cols("list").standardize(by="word"), "one value per row"),
        (fb.cols("word").standardize(by="word"), "numbers"),
        (fb.cols("big").lookup("shops", "big", ["big"]).standardize(by="word"), "use the plan's join"),
    ]:
        with pytest.raises(fb.InvalidRequest, match=words):
            client.fitted("rows", fb.Plan(outputs={"out": chain}))
    empty = fb.Plan(filter="n < 0", outputs={"out": fb.cols("x").robust(by="word")})
    with pytest.raises(fb.FailedPrecondition, match="no value to learn from by word"):
        client.fitted("rows", empty)
    with pytest.raises(TypeError, match="pass mean and std, or by to learn them of each group of rows, not both"):
        fb.cols("x").standardize(by="word", mean=0, std=1)
    with pytest.raises(TypeError, match="min_max: by must be a column or a list of columns, not 3"):
        fb.cols("x").min_max(by=3)  # pyright: ignore[reportArgumentType]


def test_json_of_a_learned_op_is_read_back():
    op = {
        "robust": {
            "by": ["a", "b"],
            "scales": {"keys": [{"strings": ["x"]}, {"integers": [1]}], "shifts": [0.5], "divisors": [2.0]},
        }
    }
    plan = {"outputs": [{"name": "out", "parts": [{"columns": ["x"], "ops": [op]}]}]}
    assert json.loads(fb.Plan.from_json(json.dumps(plan)).to_json())["outputs"][0]["parts"][0]["ops"] == [op]
