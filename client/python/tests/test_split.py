"""Splits into training and validation rows, which share what was learned from the training rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._plan.plan_digest import plan_digest
from forebay.torch import FlightDataset
from harness.serving import Serve

ROWS = 5003


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    random = np.random.default_rng(7)
    users = [None if user == 0 else f"user {user}" for user in random.integers(0, 300, ROWS)]
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "user id": users,
            "x": random.normal(5, 2, ROWS),
            "word": [f"w{word}" for word in random.integers(0, 40, ROWS)],
        }
    )
    folder: Path = tmp_path_factory.mktemp("split")
    pq.write_table(table.slice(0, 4000), folder / "a.parquet", row_group_size=700)
    pq.write_table(table.slice(4000), folder / "b.parquet")
    return fb.local(ev=folder)


PLAN = fb.Plan(
    filter="x > 1 OR x IS NULL",
    outputs={"x": fb.cols("x").standardize(), "word": fb.cols("word").vocab(), "id": fb.cols("id").as_stored()},
)


def ids(data: FlightDataset) -> list[int]:
    return [value for batch in data for value in batch["id"].to_pylist()]


def rows_of(url: str, plan: fb.Plan | fb.FittedPlan) -> list[int]:
    with fb.connect(url) as client:
        return [value for batch in client.stream("ev", plan) for value in batch["id"].to_pylist()]


@pytest.mark.parametrize("by", ["user id", "x", None])
def test_a_split_is_disjoint_and_complete(url: str, by: str | None):
    train, val = PLAN.split(by=by, val=0.2, seed=3)
    whole, first, second = (rows_of(url, plan) for plan in (PLAN, train, val))
    assert sorted(first + second) == sorted(whole)
    assert 0.15 < len(second) / len(whole) < 0.25
    assert rows_of(url, PLAN.split(by=by, val=0.2, seed=4)[1]) != second


def test_all_rows_of_a_user_are_on_one_side(url: str):
    train, val = PLAN.split(by="user id", val=0.3)
    with fb.connect(url) as client:
        users = client.table("ev").read()["user id"].to_pylist()
    sides = [{users[row] for row in rows_of(url, plan)} for plan in (train, val)]
    assert not sides[0] & sides[1]
    assert None in sides[0] | sides[1]


def test_validation_uses_what_training_learned(url: str):
    train, val = PLAN.split(by="user id", val=0.2)
    with fb.connect(url) as client:
        fitted, other = client.fit("ev", train), client.fit("ev", val)
        alone = client.fit("ev", PLAN.with_filter(val.filter))
        assert (fitted.plan.outputs, other.plan.filter) == (other.plan.outputs, val.filter)
        assert alone.plan.outputs != fitted.plan.outputs
        assert client.fitted("ev", val) == other
        # Computed here; the server has not seen it.
        assert plan_digest(fitted.plan.to_dict()) == fitted.plan_id
        x = np.concatenate([batch["x"] for batch in client.stream("ev", val)])
        mean = fitted.plan.outputs["x"].parts[0].ops[0].to_dict()["mean"]
        stored = client.table("ev").read()["x"].to_numpy()[rows_of(url, val)]
    deviation = fitted.plan.outputs["x"].parts[0].ops[0].to_dict()["std"]
    np.testing.assert_allclose(x, (stored - mean) / deviation, rtol=1e-5, atol=1e-6)


def test_a_dataset_takes_another_filter(url: str):
    train, val = PLAN.split(by="user id", val=0.2)
    with fb.connect(url) as client:
        fitted = client.fit("ev", train)
        want = rows_of(url, val)
    for plan in (fitted, fitted.plan_id, train):
        data = FlightDataset(url, "ev", plan, filter=val.filter, batch_size=97)
        assert ids(data) == want
        assert len(data) == -(-len(want) // 97)
    assert ids(FlightDataset(url, "ev", val)) == want
    with fb.connect(url) as client:
        fitted = client.fit("ev", PLAN)
    first = FlightDataset(url, "ev", fitted, filter="id < 10", batch_size=4)
    batches = iter(first)
    begun = next(batches)["id"].to_pylist()
    resumed = FlightDataset(url, "ev", fitted, filter="id < 10", batch_size=4)
    resumed.load_state_dict(first.state_dict())
    assert begun + ids(resumed) == list(range(10))


def test_wrong_splits_are_refused():
    for wrong in (0, 1, -0.1, 1.5, float("nan"), "half"):
        with pytest.raises((TypeError, ValueError), match="split: val"):
            PLAN.split(by="x", val=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="split: by"):
        PLAN.split(by=3)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError), match="split: seed"):
        PLAN.split(by="x", seed=-1)
    with pytest.raises(TypeError, match="filter must be"):
        FlightDataset("grpc://127.0.0.1:1", "ev", PLAN, filter=3)  # type: ignore[arg-type]


def test_a_split_is_readable():
    train, val = fb.Plan(outputs={"x": fb.cols("x")}).split(by='a "b"', val=0.25, seed=9)
    assert train.filter == 'hash64("a ""b""", 9) % 1000000 >= 250000'
    assert val.filter == 'hash64("a ""b""", 9) % 1000000 < 250000'
    assert train.filter in repr(val)


def test_another_filter_keeps_the_training_rows() -> None:
    train, val = fb.Plan(outputs={"x": fb.cols("x").standardize()}).split(val=0.2)
    narrowed = val.and_filter("x > 0")
    assert (narrowed.filter, narrowed.training) == (f"({val.filter}) AND (x > 0)", train)
    assert train.and_filter("x > 0").training is None
    with pytest.warns(UserWarning, match="split by '__row_id'.*and_filter"):
        replaced = val.with_filter("x > 0")
    assert (replaced.filter, replaced.training) == ("x > 0", train)


def test_replace_keeps_the_training_rows() -> None:
    train, val = fb.Plan(outputs={"x": fb.cols("x").standardize()}).split(by="user", val=0.2)
    assert replace(val, filter="x > 0").training == train
    # The parameters of new outputs are learned from the training rows too.
    outputs = {"y": fb.output(fb.cols("y").standardize())}
    assert replace(val, outputs=outputs).training == replace(train, outputs=outputs)
    assert replace(val, training_filter=None).training is None
    # A split of validation rows, into rows to tune on and rows to test on, say.
    assert [half.training for half in val.split(val=0.5)] == [train, train]
    with pytest.raises(TypeError, match="training_filter must be a string"):
        replace(val, training_filter=3)  # type: ignore[arg-type]


def test_new_outputs_of_a_validation_plan_are_fitted_to_the_training_rows(url: str) -> None:
    train, val = PLAN.split(by="user id", val=0.2)
    outputs = {"x": fb.cols("x").min_max()}
    with fb.connect(url) as client:
        learned = client.fit("ev", replace(train, outputs=outputs)).plan.outputs
        assert client.fit("ev", replace(val, outputs=outputs)).plan.outputs == learned


def test_a_split_by_times_is_reported_once(serve: Serve, tmp_path: Path) -> None:
    times = pa.array(range(1000), pa.timestamp("s"))
    columns = {"ts": times, "day": times.cast(pa.date64()), "user": pa.array(range(1000))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    plan = fb.Plan(outputs={"user": fb.output(fb.cols("user"), dtype="int64")})
    with fb.connect(serve({"t": tmp_path}).url) as client:
        for by in ("ts", "day"):
            train, val = plan.split(by=by)
            with pytest.warns(UserWarning, match=f"the split by '{by}' .* are between training rows.*by_time=\"{by}\""):
                client.stream("t", train).close()
            client.stream("t", val).close()
        client.stream("t", plan.split(by="user")[0]).close()
        first = client.stream("t", plan.and_filter("ts < '1970-01-01T00:10:00'"), batch_size=1000)
        last = client.stream("t", plan.and_filter("ts >= '1970-01-01T00:10:00'"), batch_size=1000)
        assert next(first)["user"].tolist() == list(range(600))
        assert next(last)["user"].tolist() == list(range(600, 1000))


def test_filters_are_composed_and_removed(url: str) -> None:
    train, _ = PLAN.split(by="user id", val=0.2)
    with fb.connect(url) as client:
        fitted = client.fit("ev", train)
    narrowed = fitted.and_filter("id < 500")
    assert narrowed.plan.filter == f"({train.filter}) AND (id < 500)"
    assert ids(FlightDataset(url, "ev", narrowed)) == [row for row in rows_of(url, fitted) if row < 500]
    assert fitted.and_filter(" ") is fitted
    with pytest.warns(UserWarning, match="split by 'user id'"):
        everything = fitted.with_filter(None)
    assert everything.plan.filter == ""
    assert everything == everything.with_filter("")
    with pytest.raises(TypeError, match="with_filter: filter must be a string"):
        fitted.with_filter(3)  # type: ignore[arg-type]


# Every seven hours from August to November, each tenth without a time.
TIMES = [
    None if row % 10 == 9 else datetime(2025, 8, 1) + row * timedelta(hours=7)
    for row in np.random.default_rng(5).permutation(400).tolist()
]
SINCE_1970 = [None if time is None else int(time.replace(tzinfo=timezone.utc).timestamp()) for time in TIMES]
TIME_COLUMNS = {
    "day": pa.array([None if time is None else time.date() for time in TIMES], pa.date32()),
    "day ms": pa.array([None if time is None else time.date() for time in TIMES], pa.date64()),
    **{f"in {unit}": pa.array(TIMES, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    "utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "berlin": pa.array(TIMES, pa.timestamp("ms", "Europe/Berlin")),
    'a "number"': pa.array(SINCE_1970, pa.int64()),
}


@pytest.fixture(scope="module")
def times_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("times")
    table = pa.table({"id": np.arange(len(TIMES)), **TIME_COLUMNS})
    pq.write_table(table, folder / "a.parquet", row_group_size=90)
    return fb.local(ev=folder)


TIME_PLAN = fb.Plan(outputs={"id": fb.cols("id").as_stored(), "z": fb.cols("id").standardize()})


@pytest.mark.parametrize("column", TIME_COLUMNS)
def test_a_split_by_time_divides_local_times(times_url: str, column: str) -> None:
    stored = TIME_COLUMNS[column]
    local = pc.local_timestamp(stored) if getattr(stored.type, "tz", None) else stored
    if column == 'a "number"':
        bounds = [int(datetime(2025, month, 1, tzinfo=timezone.utc).timestamp()) for month in (10, 11)]
        gap: int | str = 7 * 86_400
        local = local.cast(pa.timestamp("s"))
    else:
        bounds, gap = ["2025-10-01", "2025-11-01"], "7 days"
    local = local.cast(pa.timestamp("us")).to_pylist()
    train, val = TIME_PLAN.split(by_time=column, train_until=bounds[0], val_until=bounds[1], gap=gap)
    rows = [row for row, time in enumerate(local) if time is not None]
    want_train = [row for row in rows if local[row] < datetime(2025, 10, 1)]
    want_val = [row for row in rows if datetime(2025, 10, 8) <= local[row] < datetime(2025, 11, 1)]
    assert len(want_train) > 100
    assert len(want_val) > 70
    assert (rows_of(times_url, train), rows_of(times_url, val)) == (want_train, want_val)
    _, rest = TIME_PLAN.split(by_time=column, train_until=bounds[1])
    assert rows_of(times_url, rest) == [row for row in rows if local[row] >= datetime(2025, 11, 1)]


def test_validation_after_a_time_uses_what_training_learned(times_url: str) -> None:
    train, val = TIME_PLAN.split(by_time="in us", train_until="2025-10-01", gap="1 week")
    assert val.training == train
    with fb.connect(times_url) as client:
        assert client.fit("ev", val).plan.outputs == client.fit("ev", train).plan.outputs
    narrowed = val.and_filter("id > 10")
    assert narrowed.filter == f"({val.filter}) AND (id > 10)"
    assert rows_of(times_url, narrowed) == [row for row in rows_of(times_url, val) if row > 10]
    # A split of the training rows, and one of a plan with a filter.
    earlier, tuned = train.split(by_time="in us", train_until="2025-09-01")
    assert rows_of(times_url, earlier) + rows_of(times_url, tuned) != []
    assert sorted(rows_of(times_url, earlier) + rows_of(times_url, tuned)) == rows_of(times_url, train)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2025-10-01", "2025-10-01"),
        (" 2025-10-01T00:00 ", "2025-10-01"),
        (date(2025, 10, 1), "2025-10-01"),
        (datetime(2025, 10, 1, 12, 30), "2025-10-01T12:30:00"),
        (np.datetime64("2025-10-01T12:30"), "2025-10-01T12:30:00"),
        (np.datetime64("2025-10-01T00:00:00.000001", "ns"), "2025-10-01T00:00:00.000001"),
        (pd.Timestamp("2025-10-01T12:30:00"), "2025-10-01T12:30:00"),
        ("2025-10-01T12:30:00+02:00", "2025-10-01T12:30:00+02:00"),
        ("2025-10-01T12:30:00Z", "2025-10-01T12:30:00+00:00"),
        (datetime(2025, 10, 1, tzinfo=timezone.utc), "2025-10-01T00:00:00+00:00"),
    ],
)
def test_times_are_text_or_objects(given: object, written: str) -> None:
    train, val = TIME_PLAN.split(by_time="ts", train_until=given)  # type: ignore[arg-type]
    assert (train.filter, val.filter) == (f"\"ts\" < '{written}'", f"\"ts\" >= '{written}'")


@pytest.mark.parametrize("gap", ["36 hours", "36hour", timedelta(days=1.5), np.timedelta64(36, "h"), "2160 minutes"])
def test_gaps_are_text_or_objects(gap: object) -> None:
    _, val = TIME_PLAN.split(by_time="ts", train_until="2025-10-01", gap=gap)  # type: ignore[arg-type]
    assert val.filter == "\"ts\" >= '2025-10-02T12:00:00'"


def test_wrong_splits_by_time_are_refused() -> None:
    until = {"by_time": "ts", "train_until": "2025-10-01"}
    for wrong, message in (
        ({"by_time": "ts"}, "by_time requires train_until"),
        ({"train_until": "2025-10-01"}, "train_until, val_until and gap are those of a split by_time"),
        ({"gap": "7 days", "by": "user"}, "train_until, val_until and gap are those of a split by_time"),
        (until | {"val": 0.2}, "by_time divides them"),
        (until | {"by": "user"}, "by_time divides them"),
        (until | {"seed": 0}, "by_time divides them"),
        (until | {"by_time": 3}, "split: by_time"),
        (until | {"train_until": "October"}, "train_until must be a time such as \"2025-10-01\".*not 'October'"),
        (until | {"train_until": True}, "train_until must be a time, not True"),
        (until | {"train_until": 1.5}, "train_until must be a time, not 1.5"),
        (until | {"train_until": np.datetime64("NaT")}, "train_until must be a time"),
        (until | {"train_until": np.datetime64(1, "ns")}, "train_until must be a time in whole microseconds"),
        (until | {"gap": "a month"}, "gap must be a length of time such as"),
        (until | {"gap": timedelta(days=-1)}, "gap must be a length of time such as"),
        (until | {"train_until": np.datetime64("12000-01-01")}, "train_until must be a time .* up to year 9999"),
        (until | {"gap": np.timedelta64("NaT")}, "gap must be a length of time such as"),
        (until | {"gap": 7}, "gap must be a length of time such as"),
        (until | {"train_until": 7, "gap": "7 days"}, "gap .of times that are numbers."),
        (until | {"val_until": "2025-10-01"}, "leaves no time for validation, which starts at '2025-10-01'"),
        (until | {"val_until": "2025-10-05", "gap": "1 week"}, "leaves no time for validation"),
        (until | {"val_until": "2025-11-01T00:00:00Z"}, "must both be numbers, or times, with offsets"),
        (until | {"val_until": 5}, "must both be numbers, or times"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            TIME_PLAN.split(**wrong)  # type: ignore[arg-type]


def test_another_filter_says_that_it_undoes_a_split_by_time() -> None:
    for until, later in (("2025-10-01", "2025-11-01"), (1_000, 2_000)):
        train, val = TIME_PLAN.split(by_time="ts", train_until=until, val_until=later)
        with pytest.warns(UserWarning, match="split by 'ts'.*and_filter.*replaces_split=True"):
            replaced = train.with_filter("x > 0")
        assert replaced.filter == "x > 0"
        # The other side of the split, and a filter that a person wrote.
        assert train.with_filter(val.filter).filter == val.filter
        assert train.with_filter("x > 0", replaces_split=True) == replaced
        assert fb.Plan.from_json(train.to_json()).filter == train.filter
    own = TIME_PLAN.with_filter("ts < '2025-10-01' AND \"x\" < 5")
    assert own.with_filter("x > 0").filter == "x > 0"
