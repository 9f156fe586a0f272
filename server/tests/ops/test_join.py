"""Joins of a plan against pandas.merge: their columns serve the filter, derived columns, fits and outputs."""

from __future__ import annotations

import datetime as dt
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
from harness.exchange import exchange
from harness.ops.tables import same_bits, write
from harness.serving import Serve, Server, fit, info, stored

START = dt.datetime(1960, 1, 1)
ROWS, USERS, CITIES = 20_011, 997, 31

RANDOM = np.random.default_rng(8)


def some(values: list[Any], share: float = 0.15) -> list[Any]:
    return [None if gap else value for value, gap in zip(values, RANDOM.random(len(values)) < share, strict=True)]


CITY = pa.table(
    {
        "city": pa.array([f"city {i}" for i in range(CITIES)]),
        "people": pa.array(some(list(range(10, CITIES + 10))), pa.int64()),
    }
)
USER = pa.table(
    {
        "id": pa.array(RANDOM.permutation(USERS * 3)[:USERS], pa.int64()),
        "segment": pa.array(some([f"s{i % 5}" for i in range(USERS)])).dictionary_encode(),
        "score": pa.array(some(RANDOM.normal(size=USERS).tolist())),
        "city": pa.array(some([f"city {i % (CITIES + 5)}" for i in range(USERS)])),
        "joined": pa.array(some([START + dt.timedelta(days=40 * i) for i in range(USERS)]), pa.timestamp("us", "UTC")),
        "price": pa.array(some([Decimal(i * 37) / 100 for i in range(USERS)]), pa.decimal128(12, 2)),
        "born": pa.array(some(list(range(USERS))), pa.int32()).view(pa.date32()),
        "member": pa.array(some([i % 3 == 0 for i in range(USERS)])),
        "twice": pa.array([i // 2 for i in range(USERS)]),
    }
)  # fmt: skip
CLICKS = pa.table(
    {
        "user": pa.array(some(RANDOM.integers(0, USERS * 3, ROWS).tolist()), pa.int32()),
        "x": pa.array(RANDOM.normal(size=ROWS)),
        "n": pa.array(np.arange(ROWS)),
        "tags": pa.array([[i % 3] for i in range(ROWS)], pa.list_(pa.int64())),
        "score": pa.array(np.zeros(ROWS)),
    }
)
COLUMNS = [name for name in USER.column_names if name not in {"id", "twice"}]
JOIN = {"table": "users", "on": "user", "key": "id", "columns": COLUMNS, "prefix": "user_"}
CITY_JOIN = {"table": "cities", "on": "user_city", "key": "city", "columns": ["people"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("joins")
    write(root / "clicks", CLICKS)
    write(root / "users", USER)
    write(root / "cities", CITY)
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def merged() -> pd.DataFrame:
    """The rows with all joined columns as objects, by pandas."""
    users = {row["id"]: row for row in USER.to_pylist()}
    cities = {row["city"]: row["people"] for row in CITY.to_pylist()}
    rows = []
    for row in CLICKS.to_pylist():
        user = users.get(row["user"], {})
        joined = {f"user_{name}": user.get(name) for name in COLUMNS}
        rows.append({**row, **joined, "people": cities.get(joined["user_city"])})
    return pd.DataFrame(rows, dtype=object)


MERGED = merged()


def read(client: fl.FlightClient, plan: dict[str, Any], **request: Any) -> pa.Table:
    found = info(client, {"dataset": "clicks", "plan": plan, "batch_size": 3000, **request})
    table = pa.concat_tables([client.do_get(end.ticket).read_all() for end in found.endpoints])
    assert found.total_records == table.num_rows
    return table


def test_joined_columns_keep_type_and_value(client: fl.FlightClient):
    names = [f"user_{name}" for name in COLUMNS]
    table = read(client, {"join": [JOIN, CITY_JOIN], "outputs": stored("n", *names, "people")})
    assert table["n"].to_pylist() == list(range(ROWS))
    for name in [*names, "people"]:
        want = MERGED[name].tolist()
        want = [value.replace(tzinfo=dt.timezone.utc) if isinstance(value, dt.datetime) else value for value in want]
        assert table[name].to_pylist() == want, name
    types = {name: table.schema.field(f"user_{name}").type for name in ("joined", "price", "born", "member")}
    assert types == {name: USER.schema.field(name).type for name in types}


FILTERS = {
    "user_score > 0.1 AND x < 1": lambda row: row.user_score is not None and row.user_score > 0.1 and row.x < 1,
    "user_segment IN ('s1', 's4')": lambda row: row.user_segment in {"s1", "s4"},
    "people IS NULL": lambda row: row.people is None,
    "people % 2 = 0 OR user_member": lambda row: (row.people or 1) % 2 == 0 or bool(row.user_member),
    "user_joined < TIMESTAMP '1975-01-01T00:00:00Z'": lambda row: (
        row.user_joined is not None and row.user_joined.year < 1975
    ),
    "user_price >= 100.5 AND n > 9000": lambda row: (row.user_price or 0) >= Decimal("100.5") and row.n > 9000,
    "__row_id % 2 = 0 AND user_member": lambda row: row.n % 2 == 0 and bool(row.user_member),
}


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("request_", [{}, {"shuffle": True, "seed": 3, "lanes": 4}], ids=["file", "shuffled"])
def test_a_filter_reads_joined_columns(client: fl.FlightClient, text: str, request_: dict[str, Any]):
    plan = {"join": [JOIN, CITY_JOIN], "filter": text, "outputs": stored("n")}
    got = read(client, plan, **request_)["n"].to_pylist()
    want = [row.n for row in MERGED.itertuples() if FILTERS[text](row)]
    assert 0 < len(want) < ROWS
    assert sorted(got) == want
    assert (got == want) == (not request_)


def test_derived_columns_read_joined_ones(client: fl.FlightClient):
    plan = {
        "join": [JOIN, CITY_JOIN],
        "derive": [
            {"name": "late", "expr": "coalesce(user_score, 0) + x"},
            {"name": "crowd", "expr": "people * 2"},
            {"name": "year", "expr": "date_part('year', user_born)"},
        ],
        "filter": "x > 0",
        "outputs": stored("n", "late", "crowd", "year"),
    }
    got = read(client, plan)
    kept = MERGED[MERGED["x"] > 0]
    assert got["n"].to_pylist() == kept["n"].tolist()
    same_bits(got["late"].to_numpy(), np.array([(row.user_score or 0.0) + row.x for row in kept.itertuples()]), "late")
    assert got["crowd"].to_pylist() == [None if value is None else value * 2 for value in kept["people"]]
    assert got["year"].to_pylist() == [None if value is None else value.year for value in kept["user_born"]]


def test_fits_learn_from_the_joined_columns_of_passing_rows(server: Server):
    plan = fb.Plan(
        join=[fb.join("users", on="user", key="id", columns=["score", "segment"], prefix="user_")],
        filter="user_segment <> 's2'",
        derive={"wide": "user_score * 10"},
        outputs={
            "dense": fb.cols("user_score", "wide").fill_null("mean").standardize(),
            "cats": fb.cols("user_segment").vocab(),
        },
    )
    assert "user_score, user_segment from users on user = id" in repr(plan)
    with fb.connect(server.url) as client:
        fitted = client.fit("clicks", plan)
        assert fb.Plan.from_json(fitted.plan.to_json()) == fitted.plan
        assert len(fitted.plan.join[0].snapshot) == 32
        batches = list(client.stream("clicks", fitted, batch_size=149))
        got = {name: np.concatenate([batch[name] for batch in batches]) for name in ("dense", "cats")}
        kept = MERGED[[value not in {None, "s2"} for value in MERGED["user_segment"]]]
        scores = np.array([np.nan if value is None else value for value in kept["user_score"]])
        filled = np.where(np.isnan(scores), np.nanmean(scores), scores)
        np.testing.assert_allclose(got["dense"][:, 0], (filled - filled.mean()) / filled.std(), rtol=2e-6, atol=1e-6)
        np.testing.assert_allclose(got["dense"][:, 0], got["dense"][:, 1], rtol=1e-5, atol=1e-5)
        order = kept["user_segment"].value_counts()
        want = sorted(order.index, key=lambda value: (-order[value], value))
        assert fitted.vocab("cats", "user_segment") == [None, *want]
        train, val = plan.split(by="user", val=0.3)
        rows = [sum(len(batch["cats"]) for batch in client.stream("clicks", side)) for side in (train, val)]
        assert sum(rows) == len(kept) - kept["user"].isna().sum()
        assert min(rows) > 0


def test_an_exchange_joins_a_clients_rows(client: fl.FlightClient):
    plan = {
        "join": [{"table": "users", "on": "user", "key": "id", "columns": ["price"]}],
        "filter": "price > 3",
        "outputs": stored("price"),
    }
    rows = pa.record_batch({"user": pa.array([None, -1, *USER["id"].to_pylist()], pa.int64())})
    (answer,) = exchange(client, {"plan": plan}, [rows])
    assert answer["price"].to_pylist() == [price for price in USER["price"].to_pylist() if price and price > 3]


def test_a_changed_table_changes_the_plan_and_its_counts(tmp_path: Path, serve: Serve):
    pq.write_table(pa.table({"k": [1, 2, 3, 4]}), tmp_path / "rows.parquet")
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"k": [1, 2, 3], "v": [1, 0, 1]}), table)
    server = serve({"rows": tmp_path / "rows.parquet", "table": table})
    request = {
        "dataset": "rows",
        "plan": {"join": [{"table": "table", "on": "k", "columns": ["v"]}], "filter": "v = 1", "outputs": stored("k")},
    }
    with fl.connect(server.url) as client:
        before = info(client, request)
        assert before.total_records == 2
        old = client.do_get(before.endpoints[0].ticket).read_all()["k"].to_pylist()
        assert old == [1, 3]
        table.unlink()
        pq.write_table(pa.table({"k": [4, 3, 2, 1], "v": [1, 1, 1, 0]}), table)
        after = info(client, request)
        assert after.total_records == 3
        assert client.do_get(after.endpoints[0].ticket).read_all()["k"].to_pylist() == [2, 3, 4]
        # The table of the old ticket is still in memory.
        assert client.do_get(before.endpoints[0].ticket).read_all()["k"].to_pylist() == old


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": "user"}, r'plan.join\[0\].table: .*"user".*users'),
        ({"table": ""}, r"plan.join\[0\].table: missing"),
        ({"on": ""}, r"plan.join\[0\].on: missing"),
        ({"on": "usr"}, r'plan.join\[0\].on: .*"usr".*user'),
        ({"key": "identity"}, r'plan.join\[0\].key: .*"identity"'),
        ({"key": "twice"}, r'plan.join\[0\].key: column "twice" .* twice: a lookup needs unique keys'),
        ({"key": "born"}, r'plan.join\[0\].key: column "born" .* nulls: a lookup needs unique keys'),
        ({"key": ""}, r'plan.join\[0\].key: .*"user"'),
        ({"columns": []}, r"plan.join\[0\].columns: missing"),
        ({"columns": ["scor"]}, r'plan.join\[0\].columns: .*"scor".*score'),
        ({"columns": ["city", "city"]}, r'plan.join\[0\].columns: there already is a column "user_city"'),
        ({"columns": ["score"], "prefix": ""}, r'there already is a column "score": set prefix'),
        ({"on": "tags"}, r'plan.join\[0\].on: column "tags" is .*: a join needs a column of scalars'),
        ({"on": "x"}, r"plan.join\[0\].key: .* does not compare with values of type Float64"),
        ({"columns": [f"c{i}" for i in range(5000)]}, r"plan.join: 5000 entries, the limit is 4096"),
    ],
)  # fmt: skip
def test_a_wrong_join_is_refused(client: fl.FlightClient, change: dict[str, Any], words: str):
    plan = {"join": [JOIN | change], "outputs": stored("n")}
    for call in (lambda: info(client, {"dataset": "clicks", "plan": plan}), lambda: fit(client, "clicks", plan)):
        with pytest.raises((pa.ArrowInvalid, pa.ArrowKeyError, fl.FlightError), match=words):
            call()


def test_python_names_the_wrong_argument():
    for wrong in ({"on": ""}, {"columns": "score"}, {"columns": []}):
        with pytest.raises(TypeError, match="join: " + next(iter(wrong))):
            fb.join("users", **({"on": "user", "columns": ["score"]} | wrong))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="join: item 0"):
        fb.Plan(join=[{"table": "users"}], outputs={"x": fb.cols("x")})  # type: ignore[list-item]
    plan = fb.Plan(join=fb.join("users", on="user", columns=["score"]), outputs={"x": fb.cols("x")})
    assert json.loads(plan.to_json())["join"] == [{"table": "users", "on": "user", "columns": ["score"]}]
    assert fb.Plan.from_json(plan.to_json()) == plan.with_filter("")
