"""Values of earlier rows of a series, in any files, order, ranks and after every resume; against pandas."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.cut_files import write
from harness.exchange import exchange
from harness.serving import Serve, Server, fit, info, read, stored

Json = dict[str, Any]

RANDOM = np.random.default_rng(7)
# A long series over several files, series of one row, and many of any length.
LENGTHS = [1, 500, 12, 2, *RANDOM.integers(1, 40, 30).tolist(), 1]
ROWS = sum(LENGTHS)
HISTORY: Json = {"by": ["series"], "order": "ts"}


def make_table() -> pa.Table:
    series = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    step = np.concatenate([np.arange(length) for length in LENGTHS])
    numbers = RANDOM.normal(scale=100, size=ROWS)
    numbers[RANDOM.random(ROWS) < 0.1] = np.nan
    whole = RANDOM.integers(-1_000, 1_000, ROWS).tolist()
    gaps = RANDOM.integers(1, 90, ROWS).cumsum()
    return pa.table(
        {
            # Series are together, but not sorted.
            "series": pa.array([f"s{number}" for number in (series * 7_919) % 101]).dictionary_encode(),
            "ts": pa.array(pd.Timestamp("2024-03-30 22:00", tz="UTC") + pd.to_timedelta(gaps, unit="min")),
            "step": pa.array(step, pa.int64()),
            "x": pa.array(
                [None if row % 11 == 3 else value for row, value in enumerate(numbers.tolist())], pa.float64()
            ),
            "y": pa.array([None if row % 13 == 5 else value for row, value in enumerate(whole)], pa.int32()),
            "price": pa.array([Decimal(value) / 100 for value in whole], pa.decimal128(9, 2)),
            "name": pa.array([f"name {row % 17}" for row in range(ROWS)]).dictionary_encode(),
            "list": pa.array([[row] for row in range(ROWS)], pa.list_(pa.int64())),
        }
    )


TABLE = make_table()
FRAME = TABLE.to_pandas().astype({"series": str, "price": float, "y": "Int64"})
GROUPS = FRAME.groupby(FRAME["series"].ne(FRAME["series"].shift()).cumsum(), sort=False)


def chain(name: str, column: str, *ops: Json, dtype: str = "AS_STORED") -> Json:
    return {"name": name, "dtype": dtype, "parts": [{"columns": [column], "ops": list(ops)}]}


def rolling(stat: str, length: int) -> Json:
    return {"rolling": {"stat": stat, "length": length}}


LARGE: list[Json] = [{"name": "large", "expr": "9223372036854775000 + step"}]
STATS = ("mean", "std", "min", "max", "sum", "count")
LENGTHS_OF_WINDOWS = (1, 2, 7, 100, 1_000)
PLAN: Json = {
    "outputs": [
        *(
            chain(f"lag {column} {n}", column, {"lag": {"n": n}})
            for column in ("x", "y", "name", "ts")
            for n in (1, 30)
        ),
        *(
            chain(f"diff {column} {n}", column, {"diff": {"n": n}})
            for column in ("x", "y", "price", "ts")
            for n in (1, 9)
        ),
        *(
            chain(f"{stat} {column} {length}", column, rolling(stat.upper(), length))
            for stat in STATS
            for column in ("x", "y")
            for length in LENGTHS_OF_WINDOWS
        ),
        chain(
            "filled", "y", {"fill_null": {"value": 0}}, {"lag": {"n": 1}}, {"fill_null": {"value": -1}}, dtype="INT64"
        ),
        chain("twice", "x", {"abs": {}}, {"diff": {"n": 1}}, {"abs": {}}, rolling("MAX", 5)),
        chain(
            "indices",
            "name",
            {"lag": {"n": 1}},
            {"fill_null": {"text": ""}},
            {"hash_bucket": {"buckets": 50}},
            dtype="INT32",
        ),
    ],
    "history": HISTORY,
}


def pandas_rolling(column: str, length: int, stat: str) -> pd.Series:
    numbers = FRAME[column].astype(float).groupby(GROUPS.ngroup(), sort=False)
    least = 0 if stat == "count" else 1
    found = getattr(numbers.rolling(length, min_periods=least), stat)()
    return found.reset_index(level=0, drop=True).sort_index()


def expected() -> dict[str, list[Any]]:
    """The outputs of all rows, in file order."""
    found: dict[str, list[Any]] = {}
    for column, n in itertools.product(("x", "y", "name", "ts"), (1, 30)):
        found[f"lag {column} {n}"] = GROUPS[column].shift(n).tolist()
    for n in (1, 9):
        for column in ("x", "y", "price"):
            found[f"diff {column} {n}"] = (FRAME[column] - GROUPS[column].shift(n)).tolist()
        found[f"diff ts {n}"] = (FRAME["ts"] - GROUPS["ts"].shift(n)).dt.total_seconds().tolist()
    for stat, column, length in itertools.product(STATS, ("x", "y"), LENGTHS_OF_WINDOWS):
        found[f"{stat} {column} {length}"] = pandas_rolling(column, length, stat).tolist()
    filled = FRAME["y"].fillna(0).groupby(GROUPS.ngroup()).shift(1).fillna(-1)
    found["filled"] = filled.tolist()
    steps = (FRAME["x"].abs() - FRAME["x"].abs().groupby(GROUPS.ngroup()).shift(1)).abs()
    found["twice"] = (
        steps.groupby(GROUPS.ngroup()).rolling(5, min_periods=1).max().reset_index(level=0, drop=True).tolist()
    )
    return found


EXPECTED = expected()


def check(table: pa.Table, rows: list[int]) -> None:
    """Compare outputs with those of these rows."""
    for name, of_all in EXPECTED.items():
        if name not in table.column_names:
            continue
        values, wanted = table[name].to_pylist(), [of_all[row] for row in rows]
        assert len(values) == len(wanted)
        for place, (value, want) in enumerate(zip(values, wanted, strict=True)):
            is_missing = value is None or value != value
            where = f"{name}, row {rows[place]}: {value} {want}"
            assert is_missing == pd.isna(want), where
            if is_missing:
                continue
            if isinstance(value, (int, float)):
                assert abs(float(value) - float(want)) <= 1e-9 * max(1.0, abs(float(want))), where
            else:
                assert value == want, where


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("history")
    write(root / "panel", TABLE, cuts=[133, 400, 400, 700], row_group_size=97)
    write(root / "rows_alone", TABLE.slice(0, ROWS_OF["rows_alone"]), cuts=[], row_group_size=1)
    write(root / "whole", TABLE, cuts=[], row_group_size=100_000)
    (root / "days").mkdir()
    for number in range(4):
        place = root / "days" / f"day={number}"
        place.mkdir()
        start = number * ROWS // 4
        part = TABLE.slice(start, (number + 1) * ROWS // 4 - start)
        pq.write_table(part, place / "part.parquet", row_group_size=60)
    names = pa.table(
        {"name": [f"name {number}" for number in range(17)], "weight": [float(number) for number in range(17)]}
    )
    (root / "names").mkdir()
    pq.write_table(names, root / "names" / "0.parquet")
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def flight(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


# Row groups of one row are read again for each row that looks back on them.
FEW = ("lag x 1", "lag name 1", "diff y 9", "mean x 7", "max y 2", "count y 7", "filled", "twice", "indices")
SHORT: Json = {**PLAN, "outputs": [output for output in PLAN["outputs"] if output["name"] in FEW]}


ROWS_OF = {"panel": ROWS, "whole": ROWS, "days": ROWS, "rows_alone": 560}


def rows_of(flight: fl.FlightClient, request: Json) -> pa.Table:
    """The rows of all ranks, one after another."""
    plan = SHORT if request.get("dataset") == "rows_alone" else PLAN
    found = info(flight, {"plan": plan, "batch_size": 64, "with_row_ids": True, **request})
    return pa.concat_tables([flight.do_get(endpoint.ticket).read_all() for endpoint in found.endpoints])


@pytest.mark.parametrize("dataset", ["panel", "rows_alone", "whole", "days"])
def test_values_are_those_of_pandas(flight: fl.FlightClient, dataset: str) -> None:
    table = rows_of(flight, {"dataset": dataset})
    assert table["__row_id"].to_pylist() == list(range(ROWS_OF[dataset]))
    check(table, list(range(ROWS_OF[dataset])))
    if dataset == "rows_alone":
        return
    types = {name: str(table.schema.field(name).type) for name in ("lag name 1", "lag ts 1", "min y 7", "diff price 1")}
    assert types == {
        "lag name 1": "string",
        "lag ts 1": "timestamp[us, tz=UTC]" if "us" in str(TABLE.schema.field("ts").type) else "timestamp[ns, tz=UTC]",
        "min y 7": "int32",
        "diff price 1": "double",
    }


@pytest.mark.parametrize("dataset", ["panel", "rows_alone", "whole", "days"])
@pytest.mark.parametrize("condition", ["y > 0", "step >= 20", "hash64(__row_id, 3) % 7 = 0"])
def test_rows_that_do_not_pass_are_history(flight: fl.FlightClient, dataset: str, condition: str) -> None:
    plan = SHORT if dataset == "rows_alone" else PLAN
    table = rows_of(flight, {"dataset": dataset, "plan": {**plan, "filter": condition}})
    rows = table["__row_id"].to_pylist()
    assert 0 < len(rows) < ROWS
    if "__row_id" not in condition:
        assert rows == FRAME[: ROWS_OF[dataset]].query(condition).index.tolist()
    check(table, rows)


def test_files_that_a_filter_leaves_out_are_history(flight: fl.FlightClient) -> None:
    plan = {**PLAN, "filter": "day = 2"}
    found = info(flight, {"dataset": "days", "plan": plan, "batch_size": 64})
    table = flight.do_get(found.endpoints[0].ticket).read_all()
    check(table, list(range(2 * ROWS // 4, 3 * ROWS // 4)))


@pytest.mark.parametrize("dataset", ["panel", "rows_alone", "whole"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_shuffled_rows_keep_their_history(flight: fl.FlightClient, dataset: str, world_size: int) -> None:
    request = {"dataset": dataset, "shuffle": True, "seed": 5, "world_size": world_size, "remainder": "KEEP"}
    table = rows_of(flight, request)
    rows = table["__row_id"].to_pylist()
    assert sorted(rows) == list(range(ROWS_OF[dataset]))
    assert rows != sorted(rows)
    check(table, rows)
    resumed = rows_of(flight, {**request, "world_size": 1, "start_position": 192})
    whole = rows_of(flight, {**request, "world_size": 1})
    assert resumed.to_pandas().equals(whole.slice(192).to_pandas())


def test_a_sample_and_a_group_have_the_history_of_all_rows(flight: fl.FlightClient) -> None:
    table = rows_of(flight, {"dataset": "panel", "sample": 0.3, "sample_seed": 2})
    check(table, table["__row_id"].to_pylist())
    found = info(flight, {"dataset": "panel", "plan": PLAN, "batch_size": 64, "with_row_ids": True, "group_by": "name"})
    for endpoint in found.endpoints[:3]:
        table = flight.do_get(endpoint.ticket).read_all()
        assert table.num_rows > 0
        check(table, table["__row_id"].to_pylist())


def test_rows_are_taken_with_their_history(server: Server) -> None:
    plan = fb.Plan.from_dict(SHORT)
    rows = [0, 1, 499, 500, 501, 1, 250, 559]
    with fb.connect(server.url) as client:
        for dataset in ("panel", "rows_alone", "whole"):
            batch = client.take(dataset, plan, rows)
            for name in EXPECTED.keys() & batch.keys():
                values = batch[name]
                listed = values.to_pylist() if isinstance(values, (pa.Array, pa.ChunkedArray)) else values.tolist()
                check(pa.table({name: listed}), rows)


@pytest.mark.parametrize("dataset", ["panel", "whole"])
def test_cached_rows_are_equal(serve: Serve, tmp_path: Path, dataset: str) -> None:
    write(tmp_path / "panel", TABLE, cuts=[133, 400, 400, 700], row_group_size=97)
    write(tmp_path / "whole", TABLE, cuts=[], row_group_size=100_000)
    server = serve({name: tmp_path / name for name in ("panel", "whole")}, "--cache-bytes", "64MiB")
    outputs = [{**output, "dtype": "FLOAT64"} for output in PLAN["outputs"] if "lag name" not in output["name"]]
    outputs = [output for output in outputs if "count" in output["name"] or "filled" in output["name"]]
    plan = {"outputs": outputs, "history": HISTORY, "filter": "step >= 3"}
    with fl.connect(server.url) as flight:
        tables = [
            rows_of(flight, {"dataset": dataset, "plan": plan, "shuffle": shuffle, "seed": 4, "epoch": epoch})
            for epoch, shuffle in itertools.product(range(3), (False, True))
        ]
    for table in tables:
        check(table, table["__row_id"].to_pylist())


def test_ops_learn_from_history(flight: fl.FlightClient) -> None:
    outputs = [
        chain("scaled", "x", {"lag": {"n": 1}}, {"standardize": {}}, {"fill_null": {"value": 0}}, dtype="FLOAT64"),
        chain("known", "name", {"lag": {"n": 2}}, {"vocab": {}}, dtype="INT32"),
    ]
    result = fit(flight, "panel", {"outputs": outputs, "history": HISTORY, "filter": "step >= 5"})[-1]["result"]
    ops = [part["ops"] for output in result["plan"]["outputs"] for part in output["parts"]]
    passing = FRAME["step"] >= 5
    lagged = GROUPS["x"].shift(1)[passing]
    assert ops[0][1]["standardize"]["mean"] == pytest.approx(lagged.mean(), rel=1e-12)
    assert ops[0][1]["standardize"]["std"] == pytest.approx(lagged.std(ddof=0), rel=1e-12)
    assert set(ops[1][1]["vocab"]["values"]["strings"]) == set(GROUPS["name"].shift(2)[passing].dropna())
    assert result["plan"]["history"] == HISTORY
    found = info(flight, {"dataset": "panel", "plan_id": result["plan_id"], "batch_size": 64, "with_row_ids": True})
    table = flight.do_get(found.endpoints[0].ticket).read_all()
    mean, deviation = lagged.mean(), lagged.std(ddof=0)
    wanted = ((lagged - mean) / deviation).fillna(0)
    scaled = np.nan_to_num(table["scaled"].to_numpy())
    assert np.allclose(scaled, wanted.to_numpy(), rtol=1e-9)


def test_the_history_may_be_that_of_the_request(flight: fl.FlightClient) -> None:
    outputs = [chain("lag x 1", "x", {"lag": {"n": 1}})]
    of_request = {"dataset": "panel", "plan": {"outputs": outputs}, "history": HISTORY}
    check(rows_of(flight, of_request), list(range(ROWS)))
    of_plan = {"dataset": "panel", "plan": {"outputs": outputs, "history": HISTORY}}
    described = [
        json.loads(info(flight, {**request, "batch_size": 8}).app_metadata) for request in (of_request, of_plan)
    ]
    assert described[0]["plan_id"] == described[1]["plan_id"]
    with pytest.raises(pa.ArrowInvalid, match="history: the plan has another one"):
        rows_of(flight, {**of_plan, "history": {"by": [], "order": "ts"}})


def test_series_are_told_apart_by_any_columns(flight: fl.FlightClient) -> None:
    outputs = [chain("lag x 1", "x", {"lag": {"n": 1}})]
    derived = {"outputs": outputs, "derive": [{"name": "key", "expr": "concat('a', series)"}]}
    check(
        rows_of(flight, {"dataset": "panel", "plan": {**derived, "history": {"by": ["key"], "order": "step"}}}),
        [*range(ROWS)],
    )
    table = rows_of(flight, {"dataset": "panel", "plan": {"outputs": outputs, "history": {"order": "ts"}}})
    assert table["lag x 1"].to_pandas()[1:].reset_index(drop=True).equals(FRAME["x"][:-1])


def test_joined_and_derived_columns_have_a_history(flight: fl.FlightClient) -> None:
    plan = {
        "join": [{"table": "names", "on": "name", "columns": ["weight"]}],
        "derive": [{"name": "double", "expr": "2 * weight"}],
        "outputs": [chain("last", "double", {"lag": {"n": 1}}), *stored("weight")],
        "history": HISTORY,
        "filter": "weight < 5",
    }
    table = rows_of(flight, {"dataset": "panel", "plan": plan})
    weights = FRAME["name"].str.slice(5).astype(float)
    before = (2 * weights).groupby(GROUPS.ngroup()).shift(1)
    rows = table["__row_id"].to_pylist()
    assert rows == FRAME.index[weights < 5].tolist()
    assert table["last"].to_pylist() == [None if pd.isna(before[row]) else before[row] for row in rows]


@pytest.mark.parametrize(
    "expression", ["step % 7 + 1", "concat(label, '!')", "upper(label)", "CAST(label = 'b' AS INT)"]
)
def test_derived_columns_that_only_a_history_reads_take_dictionaries(
    tmp_path: Path, serve: Serve, expression: str
) -> None:
    """The writer encodes both columns by dictionaries, which readers keep where no expression reads them."""
    labels = ["abc"[row % 3] for row in range(2_000)]
    (tmp_path / "encoded").mkdir()
    table = pa.table({"step": list(range(2_000)), "label": labels, "few": [row % 5 for row in range(2_000)]})
    pq.write_table(table, tmp_path / "encoded" / "0.parquet", row_group_size=600)
    server = serve({"encoded": tmp_path / "encoded"})
    derive = [{"name": "made", "expr": expression}, {"name": "key", "expr": "few - few"}]
    history = {"by": ["key"], "order": "step"}
    plan = {"outputs": [chain("before", "made", {"lag": {"n": 1}})], "derive": derive, "history": history}
    plain = {"outputs": stored("made"), "derive": derive}
    with fl.connect(server.url) as flight:
        made = rows_of(flight, {"dataset": "encoded", "plan": plain})["made"].to_pylist()
        for filters in ({}, {"filter": "label <> 'c'"}):
            table = rows_of(flight, {"dataset": "encoded", "plan": {**plan, **filters}})
            rows = table["__row_id"].to_pylist()
            assert table["before"].to_pylist() == [made[row - 1] if row else None for row in rows]


def test_windows_and_mixtures_are_made_of_such_rows(flight: fl.FlightClient) -> None:
    plan = {"outputs": [chain("sums", "y", rolling("COUNT", 7), dtype="INT64")], "history": HISTORY}
    window = {"by": ["series"], "order": "ts", "length": 4}
    table = rows_of(flight, {"dataset": "panel", "plan": plan, "window": window})
    sums = table["sums"].combine_chunks().storage.flatten().to_pylist()
    counts = EXPECTED["count y 7"]
    ends = table["__row_id"].to_pylist()
    assert sums == [int(counts[row]) for end in ends for row in range(end - 3, end + 1)]
    sources = [{"dataset": "panel", "weight": 1}, {"dataset": "whole", "weight": 1}]
    found = info(flight, {"sources": sources, "plan": plan, "batch_size": 50, "with_row_ids": True})
    mixed = flight.do_get(found.endpoints[0].ticket).read_all()
    assert mixed["sums"].to_pylist() == [int(counts[row]) for row in mixed["__row_id"].to_pylist()]


def test_served_rows_have_the_history_that_they_are_sent_with(flight: fl.FlightClient) -> None:
    plan = {**PLAN, "outputs": [output for output in PLAN["outputs"] if output["name"] in EXPECTED]}
    batch = TABLE.slice(0, 600).combine_chunks().to_batches()[0]
    (answer,) = exchange(flight, {"plan": plan}, [batch])
    check(pa.table(answer), list(range(600)))
    (answer,) = exchange(flight, {"plan": {**plan, "filter": "step >= 3"}}, [batch])
    check(pa.table(answer), FRAME.index[(FRAME["step"] >= 3) & (FRAME.index < 600)].tolist())
    order = pa.array([1, 0, *range(2, 600)])
    with pytest.raises(pa.ArrowInvalid, match=r"plan.history"):
        exchange(flight, {"plan": plan}, [batch.take(order.take(pa.array([*range(2, 600), 0, 1])))])


@pytest.mark.parametrize("row_group_size", [1, 50, 100_000])
@pytest.mark.parametrize("name", ["unsorted", "repeated", "parted", "null"])
def test_bad_panels_are_refused(tmp_path: Path, serve: Serve, name: str, row_group_size: int) -> None:
    kind = TABLE.schema.field("ts").type
    later = TABLE.slice(1, 1).set_column(1, "ts", pa.array([pd.Timestamp("2031-01-01", tz="UTC")], kind))
    tables = {
        "unsorted": (
            TABLE.take(pa.array([0, 1, 3, 2, *range(4, ROWS)])),
            r"plan\.history\.order: row 3: .* is before that of",
        ),
        "repeated": (TABLE.take(pa.array([0, 1, 1, *range(2, ROWS)])), r"plan\.history\.order: row 2: .* is that of"),
        "parted": (pa.concat_tables([TABLE, later]), rf"plan\.history\.by: row {ROWS}: rows of its series"),
        "null": (
            TABLE.set_column(1, "ts", pa.array([None, *TABLE["ts"].to_pylist()[1:]], kind)),
            r"plan\.history\.order: row 0: \"ts\" is null or NaN",
        ),
    }
    table, words = tables[name]
    write(tmp_path / "bad", table, cuts=[], row_group_size=row_group_size)
    server = serve({"bad": tmp_path / "bad"})
    plan = {"outputs": [chain("x", "x", {"lag": {"n": 1}})], "history": HISTORY}
    with fl.connect(server.url) as flight:
        with pytest.raises(pa.ArrowInvalid, match=words):
            rows_of(flight, {"dataset": "bad", "plan": plan})
        with pytest.raises(pa.ArrowInvalid, match=words):
            fit(
                flight,
                "bad",
                {**plan, "outputs": [chain("x", "x", {"lag": {"n": 1}}, {"min_max": {}}, dtype="FLOAT32")]},
            )


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            {"outputs": [chain("o", "x", {"lag": {"n": 1}})]},
            r"ops\[0\]\.lag: reads earlier rows of a series: set the plan's history",
        ),
        (
            {"outputs": [chain("o", "list", {"lag": {"n": 1}})], "history": HISTORY},
            r"ops\[0\]\.lag: column \"list\" is list<.*: expected",
        ),
        (
            {"outputs": [chain("o", "name", {"diff": {"n": 1}})], "history": HISTORY},
            r"ops\[0\]\.diff: expected numbers, dates and times",
        ),
        ({"outputs": [chain("o", "nam", {"diff": {"n": 1}})], "history": HISTORY}, r"no column \"nam\""),
        (
            {"outputs": [chain("o", "large", rolling("SUM", 2))], "derive": LARGE, "history": HISTORY},
            r"row 2: 18\d+ does not fit in a 64-bit integer",
        ),
        (
            {"outputs": [chain("o", "ts", rolling("SUM", 3))], "history": HISTORY},
            r"rolling: expected numbers, and column \"ts\"",
        ),
        ({"outputs": [chain("o", "x", {"lag": {"n": 70_000}})], "history": HISTORY}, r"lag\.n: "),
        (
            {"outputs": [chain("o", "x", {"lag": {"n": 1}})], "history": {"by": ["no"], "order": "ts"}},
            r"plan\.history\.by\[0\].*no",
        ),
        (
            {"outputs": [chain("o", "x", {"lag": {"n": 1}})], "history": {"by": ["series"]}},
            r"plan\.history\.order: missing",
        ),
        (
            {"outputs": [chain("o", "x", {"min_max": {}}, {"lag": {"n": 1}})], "history": HISTORY},
            r"min_max: learns from rows",
        ),
        ({"outputs": [chain("o", "x", {"lag": {"n": 1}}, dtype="FLOAT32")], "history": HISTORY}, r"lag\(x, 1\).*null"),
    ],
)
def test_wrong_plans_are_refused_with_the_field(flight: fl.FlightClient, plan: Json, words: str) -> None:
    with pytest.raises((pa.ArrowInvalid, fl.FlightError), match=words):
        read(flight, "panel", plan)


def test_the_python_package_writes_the_ops(server: Server) -> None:
    plan = fb.Plan(
        outputs={
            "last": fb.cols("y").lag().fill_null(0),
            "mean": fb.cols("y").rolling("mean", 7).fill_null(0).standardize(),
            "step": fb.cols("ts").diff(1).fill_null(0),
        },
        history={"by": "series", "order": "ts"},
    )
    assert fb.Plan.from_json(plan.to_json()) == plan
    with fb.connect(server.url) as client:
        fitted = client.fit("panel", plan)
        assert fitted.plan.history == plan.history
        (batch,) = client.stream("panel", fitted, batch_size=ROWS)
    assert np.array_equal(batch["last"], GROUPS["y"].shift(1).fillna(0).to_numpy(np.float32))
    with pytest.raises(TypeError, match="history"):
        fb.Plan(outputs={"x": fb.cols("x")}, history="series")  # type: ignore[arg-type]
