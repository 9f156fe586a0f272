"""Joins as of a time against a loop over all pairs of rows, DuckDB's ASOF JOIN and pandas.merge_asof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._plan.plan_digest import plan_digest
from harness.exchange import exchange
from harness.ops.tables import write
from harness.prepare import prepare
from harness.serving import Serve, Server, fit, info, stored

CLICKS, PRICES, ITEMS = 2_003, 1_511, 41
RANDOM = np.random.default_rng(40)


def moments(count: int, gaps: float) -> list[int | None]:
    """Unsorted hours since 1970, many of them equal."""
    hours = RANDOM.integers(-3_000, 3_000, count) // 4
    return [None if gap else int(hour) for hour, gap in zip(hours, RANDOM.random(count) < gaps, strict=True)]


def items(count: int, gaps: float) -> list[int | None]:
    drawn = RANDOM.integers(0, ITEMS, count)
    return [None if gap else int(item) for item, gap in zip(drawn, RANDOM.random(count) < gaps, strict=True)]


CLICK_HOURS, PRICE_HOURS = moments(CLICKS, 0.05), moments(PRICES, 0.05)
CLICK_ITEMS, PRICE_ITEMS = items(CLICKS, 0.05), items(PRICES, 0.05)

# Types of times, and the units of an hour; a date has the start of its day.
TIME_TYPES: dict[str, tuple[pa.DataType, int]] = {
    "s": (pa.timestamp("s"), 3_600),
    "ms": (pa.timestamp("ms"), 3_600_000),
    "us": (pa.timestamp("us"), 3_600_000_000),
    "ns": (pa.timestamp("ns"), 3_600_000_000_000),
    "day": (pa.date32(), 0),
    "utc": (pa.timestamp("us", "UTC"), 3_600_000_000),
    "berlin": (pa.timestamp("ms", "Europe/Berlin"), 3_600_000),
    "hour": (pa.int32(), 1),
    "hour64": (pa.int64(), 1),
}
KINDS = {"utc": "instant", "berlin": "instant", "hour": "number", "hour64": "number"}


def times(hours: list[int | None], name: str) -> pa.Array:
    """The hours as times of a type; the start of the day for dates."""
    kind, units = TIME_TYPES[name]
    counts = [None if hour is None else hour * units if units else hour // 24 for hour in hours]
    if kind.bit_width == 32:
        return pa.array(counts, pa.int32()).cast(kind)
    return pa.array(counts, pa.int64()).cast(kind)


def seconds(hours: list[int | None], name: str) -> list[int | None]:
    """What `times` holds, in seconds."""
    day = 24 if name == "day" else 1
    return [None if hour is None else hour // day * day * 3_600 for hour in hours]


def columns(hours: list[int | None], keys: list[int | None]) -> pa.Table:
    texts = pa.array([None if key is None else f"item {key}" for key in keys])
    table = {"item": pa.array(keys, pa.int64()), "item32": pa.array(keys, pa.int32()), "text": texts}
    table |= {"dictionary": texts.dictionary_encode(), "price": pa.array(np.arange(len(keys), dtype=np.float64))}
    table |= {"float": pa.array([None if key is None else key / 2 for key in keys], pa.float32())}
    return pa.table(table | {f"at {name}": times(hours, name) for name in TIME_TYPES})


CLICK_TABLE = columns(CLICK_HOURS, CLICK_ITEMS).append_column("n", pa.array(np.arange(CLICKS)))
PRICE_TABLE = columns(PRICE_HOURS, PRICE_ITEMS)


def looped(left: str, right: str, *, allow_exact: bool = True, tolerance: float | None = None) -> list[int | None]:
    """The row of the table for each row, by comparing it with all others."""
    clicked, valid = seconds(CLICK_HOURS, left), seconds(PRICE_HOURS, right)
    by_item: dict[int, list[tuple[int, int]]] = {}
    for row, (item, time) in enumerate(zip(PRICE_ITEMS, valid, strict=True)):
        if item is not None and time is not None:
            by_item.setdefault(item, []).append((time, row))
    found: list[int | None] = []
    for item, time in zip(CLICK_ITEMS, clicked, strict=True):
        best: tuple[int, int] | None = None
        for candidate in by_item.get(item, []) if item is not None and time is not None else []:
            is_before = candidate[0] < time or (allow_exact and candidate[0] == time)
            is_near = tolerance is None or time - candidate[0] <= tolerance
            if is_before and is_near and (best is None or candidate > best):
                best = candidate
        found.append(None if best is None else best[1])
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("as-of")
    write(root / "clicks", CLICK_TABLE)
    write(root / "prices", PRICE_TABLE)
    write(
        root / "items", pa.table({"item": pa.array(range(ITEMS)), "since": times(list(range(0, 40 * ITEMS, 40)), "s")})
    )
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def as_of_join(left: str = "us", right: str = "us", key: str = "item", **as_of: Any) -> dict[str, Any]:
    named = {"left": f"at {left}", "right": f"at {right}", **as_of}
    return {"table": "prices", "on": key, "columns": ["price"], "prefix": "known_", "as_of": named}


def read(client: fl.FlightClient, plan: dict[str, Any], **request: Any) -> pa.Table:
    found = info(client, {"dataset": "clicks", "plan": plan, "batch_size": 300, **request})
    table = pa.concat_tables([client.do_get(end.ticket).read_all() for end in found.endpoints])
    assert found.total_records == table.num_rows
    return table


def known(client: fl.FlightClient, join: dict[str, Any]) -> list[int | None]:
    got = read(client, {"join": [join], "outputs": stored("n", "known_price")})
    assert got["n"].to_pylist() == list(range(CLICKS))
    return [None if price is None else int(price) for price in got["known_price"].to_pylist()]


@pytest.mark.parametrize("right", TIME_TYPES)
@pytest.mark.parametrize("left", TIME_TYPES)
def test_the_latest_row_that_is_not_after_is_joined(client: fl.FlightClient, left: str, right: str) -> None:
    if KINDS.get(left) != KINDS.get(right):
        words = (
            rf'plan.join\[0\].as_of.left: column "at {left}" has type .* does not compare with the times of the table'
        )
        with pytest.raises(pa.ArrowInvalid, match=words):
            known(client, as_of_join(left, right))
        return
    for allow_exact in (True, False):
        want = looped(left, right, allow_exact=allow_exact)
        assert 50 < sum(row is None for row in want) < CLICKS - 50
        assert known(client, as_of_join(left, right, allow_exact=allow_exact)) == want
    if left != right or KINDS.get(left) == "number":
        return
    for tolerance in (0, 3_600, 500_000.5):
        want = looped(left, right, tolerance=tolerance)
        assert known(client, as_of_join(left, right, tolerance_seconds=tolerance)) == want


@pytest.mark.parametrize(
    ("on", "key"), [("item32", "item"), ("text", "dictionary"), ("dictionary", "text"), ("float", "float")]
)
def test_keys_compare_like_those_of_any_join(client: fl.FlightClient, on: str, key: str) -> None:
    assert known(client, as_of_join(key=on) | {"key": key}) == looped("us", "us")


def test_equals_duckdb_and_pandas(client: fl.FlightClient) -> None:
    """Both take any of several rows with one time: prices are compared where a time occurs once, otherwise times."""
    connection = duckdb.connect()
    connection.register("clicks", CLICK_TABLE.select(["n", "item", "at us"]))
    connection.register("prices", PRICE_TABLE.select(["item", "at us", "price"]))
    joined = connection.sql(
        """SELECT n, p."at us" AS valid, p.price FROM clicks c ASOF LEFT JOIN prices p
           ON c.item = p.item AND c."at us" >= p."at us" ORDER BY n"""
    ).fetchall()
    got = known(client, as_of_join())
    at = PRICE_TABLE["at us"].to_pylist()
    places = list(zip(PRICE_ITEMS, at, strict=True))
    assert [None if row is None else at[row] for row in got] == [valid for _, valid, _ in joined]
    once = {place for place in places if places.count(place) == 1}
    compared = [
        (row, price) for row, (_, _, price) in zip(got, joined, strict=True) if row is None or places[row] in once
    ]
    assert len(compared) > CLICKS / 2
    assert [row for row, _ in compared] == [price if price is None else int(price) for _, price in compared]

    clicks = CLICK_TABLE.select(["n", "item", "at us"]).to_pandas().dropna()
    prices = PRICE_TABLE.select(["price", "item", "at us"]).to_pandas().dropna()
    ours = {False: known(client, as_of_join(allow_exact=False)), True: got}
    for allow_exact, rows in ours.items():
        merged = pd.merge_asof(
            clicks.sort_values("at us", kind="stable"),
            prices.sort_values("at us", kind="stable"),
            on="at us",
            by="item",
            allow_exact_matches=allow_exact,
        )
        want = dict(zip(merged["n"], merged["price"], strict=True))
        assert len(want) > CLICKS * 0.85
        assert {n: rows[n] for n in want} == {n: None if np.isnan(price) else int(price) for n, price in want.items()}


@pytest.mark.parametrize("request_", [{}, {"shuffle": True, "seed": 3, "lanes": 4}, {"world_size": 3}])
def test_filters_derived_columns_and_ranks_read_it(client: fl.FlightClient, request_: dict[str, Any]) -> None:
    plan = {
        "join": [as_of_join()],
        "filter": "known_price % 2 = 0",
        "derive": [{"name": "twice", "expr": "known_price * 2"}],
        "outputs": stored("n", "twice"),
    }
    got = read(client, plan, **request_)
    want = {n: row * 2 for n, row in enumerate(looped("us", "us")) if row is not None and row % 2 == 0}
    assert dict(zip(got["n"].to_pylist(), got["twice"].to_pylist(), strict=True)) == want
    assert got.num_rows == len(want)


def test_the_time_may_come_from_a_join_before(client: fl.FlightClient) -> None:
    since = {"table": "items", "on": "item", "columns": ["since"]}
    join = as_of_join() | {"as_of": {"left": "since", "right": "at s"}}
    got = read(client, {"join": [since, join], "outputs": stored("n", "known_price")})["known_price"].to_pylist()
    at = seconds(PRICE_HOURS, "s")
    for item, row in zip(CLICK_ITEMS, got, strict=True):
        if item is None:
            assert row is None
            continue
        known_then = [
            (time, price)
            for price, (key, time) in enumerate(zip(PRICE_ITEMS, at, strict=True))
            if key == item and time is not None and time <= 40 * item * 3_600
        ]
        assert row == (float(max(known_then)[1]) if known_then else None)


def test_a_fit_pins_the_table_and_has_the_id_of_its_plan(server: Server) -> None:
    join = fb.join(
        "prices",
        on="item",
        columns=["price"],
        prefix="known_",
        as_of=("at us", "at ns"),
        allow_exact=False,
        tolerance_seconds=86_400.5,
    )
    assert repr(join) == "known_price from prices on item = item, the latest at ns < at us within 86400.5 s"
    plan = fb.Plan(
        join=join,
        outputs={"x": fb.cols("known_price").fill_null("mean").standardize(), "n": fb.cols("n").as_stored()},
    )
    with fb.connect(server.url) as client:
        fitted = client.fit("clicks", plan)
        assert plan_digest(fitted.plan.to_dict()) == fitted.plan_id
        assert fb.Plan.from_json(fitted.plan.to_json()) == fitted.plan
        assert len(fitted.plan.join[0].snapshot) == 32
        x = np.concatenate([batch["x"] for batch in client.stream("clicks", fitted)])
    rows = looped("us", "ns", allow_exact=False, tolerance=86_400.5)
    prices = np.array([np.nan if row is None else row for row in rows], np.float64)
    filled = np.where(np.isnan(prices), np.nanmean(prices), prices)
    np.testing.assert_allclose(x, (filled - filled.mean()) / filled.std(), rtol=1e-5, atol=1e-6)


def test_an_exchange_joins_as_of_a_clients_times(client: fl.FlightClient) -> None:
    plan = {"join": [as_of_join()], "outputs": stored("known_price")}
    rows = CLICK_TABLE.select(["item", "at us"]).combine_chunks().to_batches()
    answers = pa.Table.from_batches(exchange(client, {"plan": plan}, rows))
    got = [None if price is None else int(price) for price in answers["known_price"].to_pylist()]
    assert got == looped("us", "us")


def test_a_query_of_prepare_has_the_same_rows(client: fl.FlightClient, tmp_path: Path) -> None:
    """For tables larger than memory: the query of the book."""
    folder = tmp_path / "tables"
    write(folder / "clicks", CLICK_TABLE.select(["n", "item", "at us"]).rename_columns(["n", "item", "clicked_at"]))
    write(
        folder / "prices",
        PRICE_TABLE.select(["item", "at us", "price"]).rename_columns(["item", "valid_from", "price"]),
    )
    book = Path(__file__).parents[3] / "docs/src/guides/data-in-time.md"
    (sql,) = (
        part.split("```")[0] for part in book.read_text().split("```sql\n")[1:] if "valid_from" in part.split("```")[0]
    )
    run = prepare(sql, {name: folder / name for name in ("clicks", "prices")}, tmp_path / "out")
    assert run.code == 0, run.error
    out = pq.read_table(tmp_path / "out").sort_by("n")
    want = [row if item is not None else None for item, row in zip(CLICK_ITEMS, looped("us", "us"), strict=True)]
    at, got = PRICE_TABLE["at us"].to_pylist(), out["price"].to_pylist()
    assert out["n"].to_pylist() == list(range(CLICKS))
    # The query takes any of several prices with one time.
    assert [None if row is None else at[int(row)] for row in got] == [None if row is None else at[row] for row in want]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"left": ""}, r"plan.join\[0\].as_of.left: missing"),
        ({"left": "at"}, r'plan.join\[0\].as_of.left: no column "at": did you mean'),
        ({"right": "at"}, r'plan.join\[0\].as_of.right: no column "at": did you mean'),
        ({"left": "text"}, r'as_of.left: column "text" has type Utf8: times are timestamps, dates or whole numbers'),
        ({"right": "text"}, r'as_of.right: column "text" .* has type Utf8: times are timestamps'),
        ({"right": "price"}, r'as_of.right: column "price" .* has type Float64: times are timestamps'),
        ({"tolerance_seconds": -1}, r"as_of.left: .*tolerance_seconds must be a number of seconds, 0 or more"),
        ({"left": "at hour", "right": "at hour", "tolerance_seconds": 1}, r"as_of.left: .* whose unit is unknown"),
        ({"late": 1}, r"as_of.*late"),
    ],
)  # fmt: skip
def test_a_wrong_join_is_refused(client: fl.FlightClient, change: dict[str, Any], words: str) -> None:
    plan = {"join": [renamed(change)], "outputs": stored("n")}
    for call in (lambda: info(client, {"dataset": "clicks", "plan": plan}), lambda: fit(client, "clicks", plan)):
        with pytest.raises((pa.ArrowInvalid, pa.ArrowKeyError, fl.FlightError), match=words):
            call()


def renamed(change: dict[str, Any]) -> dict[str, Any]:
    return as_of_join() | {"as_of": {"left": "at us", "right": "at us"} | change}


def test_python_names_the_wrong_argument() -> None:
    given = {"on": "item", "columns": ["price"]}
    for wrong, words in (
        ({"allow_exact": False}, "allow_exact and tolerance_seconds are those of a join as_of"),
        ({"tolerance_seconds": 1}, "allow_exact and tolerance_seconds are those of a join as_of"),
        ({"as_of": ("a",)}, "as_of must name two columns"),
        ({"as_of": ("a", "")}, "as_of must name two columns"),
        ({"as_of": "a", "tolerance_seconds": -1}, "join: tolerance_seconds"),
        ({"as_of": "a", "allow_exact": 1}, "allow_exact must be True or False"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            fb.join("prices", **given, **wrong)  # type: ignore[arg-type]
    plan = fb.Plan(join=fb.join("prices", **given, as_of="ts"), outputs={"x": fb.cols("x")})
    assert plan.to_dict()["join"] == [
        {"table": "prices", "on": "item", "columns": ["price"], "as_of": {"left": "ts", "right": "ts"}}
    ]
    assert fb.Plan.from_json(plan.to_json()).join == plan.join


def test_tables_without_rows_keys_or_times(serve: Serve, tmp_path: Path) -> None:
    """`right` is left out: it has the name of `left`."""
    day = pa.timestamp("s")
    tables = {
        "empty": pa.table({"k": pa.array([], pa.string()), "at": pa.array([], day), "v": pa.array([], pa.int64())}),
        "keyless": pa.table({"k": pa.array([None], pa.string()), "at": pa.array([0], day), "v": [1]}),
        "timeless": pa.table({"k": ["a", "b"], "at": pa.array([None, None], day), "v": [1, 2]}),
        "one": pa.table({"k": ["b"], "at": pa.array([7], day), "v": [3]}),
    }
    for name, table in tables.items():
        write(tmp_path / name, table)
    rows = {"k": ["a", "b", None, "b", "b"], "at": pa.array([7, 7, 7, 6, None], day)}
    write(tmp_path / "rows", pa.table(rows))
    server = serve({place.name: place for place in tmp_path.iterdir()})
    with fl.connect(server.url) as client:
        for name in tables:
            join = {"table": name, "on": "k", "columns": ["v"], "as_of": {"left": "at"}}
            found = info(client, {"dataset": "rows", "plan": {"join": [join], "outputs": stored("v")}, "batch_size": 2})
            got = client.do_get(found.endpoints[0].ticket).read_all()["v"].to_pylist()
            assert got == [None, 3 if name == "one" else None, None, None, None], name


def test_a_changed_table_changes_the_plan(serve: Serve, tmp_path: Path) -> None:
    write(tmp_path / "rows", pa.table({"k": [1, 1], "at": [5, 15]}))
    write(tmp_path / "t", pa.table({"k": [1], "at": [3], "v": [30]}))
    server = serve({name: tmp_path / name for name in ("rows", "t")})
    join = {"table": "t", "on": "k", "columns": ["v"], "as_of": {"left": "at"}}
    request = {"dataset": "rows", "plan": {"join": [join], "outputs": stored("v")}, "batch_size": 10}
    with fl.connect(server.url) as client:
        before = info(client, request)
        assert client.do_get(before.endpoints[0].ticket).read_all()["v"].to_pylist() == [30, 30]
        pq.write_table(pa.table({"k": [1], "at": [9], "v": [90]}), tmp_path / "t" / "later.parquet")
        after = info(client, request)
        assert after.endpoints[0].ticket != before.endpoints[0].ticket
        assert client.do_get(after.endpoints[0].ticket).read_all()["v"].to_pylist() == [30, 90]


def test_keys_with_many_rows(serve: Serve, tmp_path: Path) -> None:
    """A million rows of one key, each joined by the next one."""
    count = 1_000_003
    at = pa.array(np.arange(count) * 10, pa.timestamp("ms"))
    pq.write_table(pa.table({"k": np.zeros(count, np.int8), "at": at, "v": np.arange(count)}), tmp_path / "t.parquet")
    server = serve({"t": tmp_path / "t.parquet"})
    join = {
        "table": "t",
        "on": "k",
        "columns": ["v"],
        "prefix": "p_",
        "as_of": {"left": "at", "right": "at", "allow_exact": False},
    }
    plan = {
        "join": [join],
        "outputs": [
            {"name": "p", "dtype": "INT64", "parts": [{"columns": ["p_v"], "ops": [{"fill_null": {"value": -1}}]}]}
        ],
    }
    with fl.connect(server.url) as client:
        found = info(client, {"dataset": "t", "plan": plan, "batch_size": 65_536})
        got = client.do_get(found.endpoints[0].ticket).read_all()["p"].to_numpy()
    np.testing.assert_array_equal(got, np.arange(count) - 1)
