"""lookup against pandas.merge: a left join on a unique key of another dataset of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.ops.hashes import bucket
from harness.ops.tables import PRIME, features, same_bits, write
from harness.serving import Serve, Server

KEYS = 401


def items() -> pa.Table:
    """Unsorted keys of several types, each once; values with nulls."""
    random = np.random.default_rng(2)
    ids = random.permutation(np.arange(-KEYS, KEYS))[:KEYS]
    # Some as far out as they go.
    ids[:4] = [2**62, -(2**63), 2**63 - 1, 2**31]
    gaps = random.random(KEYS) < 0.1
    return pa.table(
        {
            "id": pa.array(ids),
            "unsigned": pa.array([2**64 - 1, 2**63, *range(KEYS - 2)], pa.uint64()),
            "word": pa.array([f"wörd {i}" if i % 7 else "" if i == 0 else "x" * (i * 100) for i in range(KEYS)]),
            "float": pa.array(np.concatenate([[0.0, np.inf], random.normal(size=KEYS - 2)])),
            "small": pa.array(random.permutation(KEYS).astype(np.int16)),
            "date": pa.array(random.permutation(KEYS).astype(np.int32)).view(pa.date32()),
            "price": pa.array(random.normal(10, 3, KEYS), mask=gaps),
            "single": pa.array(random.normal(10, 3, KEYS).astype(np.float32)),
            "stock": pa.array(random.integers(-(2**62), 2**62, KEYS), mask=random.random(KEYS) < 0.1),
            "brand": pa.array([None if gap else f"brand {i % 13}" for i, gap in enumerate(gaps)]),
            "coded": pa.array([f"kind {i % 5}" for i in range(KEYS)]).dictionary_encode(),
            "twice": pa.array(np.arange(KEYS) // 2),
            "nullable": pa.array([None, *range(1, KEYS)], pa.int64()),
        }
    )


ITEMS = items()


def clicks() -> pa.Table:
    random = np.random.default_rng(6)

    def drawn(column: str, unknown: list[Any]) -> list[Any]:
        known = ITEMS[column].to_pylist()
        picked = [known[i] for i in random.integers(0, KEYS, PRIME)]
        gaps, misses = random.random(PRIME) < 0.1, random.random(PRIME) < 0.1
        misses[0] = gaps[0] = False
        return [
            None if gap else unknown[i % len(unknown)] if miss else value
            for i, (value, gap, miss) in enumerate(zip(picked, gaps, misses, strict=True))
        ]

    basket = [drawn("id", [10**6, -1000])[: random.integers(0, 5)] for _ in range(PRIME)]
    return pa.table(
        {
            "item": pa.array(drawn("id", [10**6, 2**62 + 1, 2**63 - 2]), pa.int64()),
            "unsigned": pa.array(drawn("unsigned", [2**64 - 2, 2**53 + 1]), pa.uint64()),
            "word": pa.array(drawn("word", ["wörd", "nothing"]), pa.string()),
            "coded": pa.array(drawn("word", ["wörd", "nothing"]), pa.string()).dictionary_encode(),
            "float": pa.array(drawn("float", [0.5, -np.inf]), pa.float64()),
            "small": pa.array(drawn("small", [-1, 30_000]), pa.int32()),
            "date": pa.array(drawn("small", [-1]), pa.int32()).view(pa.date32()),
            "basket": pa.array(basket, pa.list_(pa.int64())),
        }
    )


CLICKS = clicks()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("lookup")
    write(root / "clicks", CLICKS)
    write(root / "plain", CLICKS, use_dictionary=False)
    write(root / "items", ITEMS)
    (root / "none").mkdir()
    pq.write_table(ITEMS.slice(0, 0), root / "none/a.parquet")
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def merged(left: str, key: str, column: str) -> list[Any]:
    """The joined column as pandas has it; None where there is none."""
    clicks = pd.DataFrame({"key": pd.Series(CLICKS[left].to_pylist(), dtype=object)})
    items = pd.DataFrame(
        {"key": pd.Series(ITEMS[key].to_pylist(), dtype=object), "value": pd.Series(range(KEYS), dtype=object)}
    )
    places = clicks.merge(items, on="key", how="left", validate="many_to_one")["value"]
    values = ITEMS[column].to_pylist()
    found = [None if pd.isna(place) else values[int(place)] for place in places]
    return [None if key is None else value for key, value in zip(clicks["key"], found, strict=True)]


JOINS = {
    "integers": ("item", "id"),
    "unsigned": ("unsigned", "unsigned"),
    "text": ("word", "word"),
    "dictionary": ("coded", "word"),
    "floats": ("float", "float"),
    "narrow": ("small", "small"),
}


@pytest.mark.parametrize("dataset", ["clicks", "plain"])
@pytest.mark.parametrize("join", JOINS)
def test_lookup_is_pandas_left_merge(client: fb.Client, join: str, dataset: str):
    left, key = JOINS[join]
    columns = ["price", "single"]
    numbers = fb.cols(left).lookup("items", key, columns).fill_null(-1.5)
    stock = fb.cols(left).lookup("items", key, ["stock"]).fill_null(-7)
    brands = fb.cols(left).lookup("items", key, ["brand", "coded"]).hash_bucket(1000).fill_null(-1)
    got = features(client, dataset, {"numbers": numbers, "stock": fb.output(stock, dtype="int64"), "brands": brands})
    for place, column in enumerate(columns):
        want = [-1.5 if value is None else value for value in merged(left, key, column)]
        same_bits(got["numbers"][:, place], np.array(want).astype(np.float32), f"{join}: {column}")
    want = [-7 if value is None else value for value in merged(left, key, "stock")]
    same_bits(got["stock"], np.array(want, np.int64), join)
    for place, column in enumerate(["brand", "coded"]):
        want = [-1 if value is None else bucket(value.encode(), 1000) for value in merged(left, key, column)]
        same_bits(got["brands"][:, place], np.array(want, np.int32), f"{join}: {column}")
    assert sum(value is None for value in merged(left, key, "single")) > 50


def test_looked_up_values_go_through_the_chain(client: fb.Client):
    prices = fb.cols("item").fill_null(2**31).lookup("items", "id", ["price"]).fill_null(0).log1p().clip(0, 2)
    brands = fb.cols("item").lookup("items", "id", ["brand"]).fill_null(text="?").vocab(values=["brand 3", "?"])
    got = features(client, "clicks", {"p": prices, "b": brands, "hot": brands.one_hot()})
    by_id = dict(zip(ITEMS["id"].to_pylist(), ITEMS["price"].to_pylist(), strict=True))
    price = np.array([by_id.get(2**31 if item is None else item) or 0 for item in CLICKS["item"].to_pylist()])
    np.testing.assert_allclose(got["p"], np.clip(np.log1p(price), 0, 2), rtol=1e-6)
    want = [{"brand 3": 1, None: 2}.get(value, 0) for value in merged("item", "id", "brand")]
    assert got["b"].tolist() == want
    assert np.array_equal(got["hot"], np.eye(3)[want])


def test_fit_learns_from_looked_up_values(client: fb.Client):
    chain = fb.cols("item").lookup("items", "id", ["price"])
    brand = fb.cols("item").lookup("items", "id", ["brand"])
    plan = fb.Plan(outputs={"p": chain.fill_null("mean").standardize(), "b": brand.vocab()})
    ops = [out["parts"][0]["ops"] for out in client.fitted("clicks", plan).plan.to_dict()["outputs"]]  # type: ignore[union-attr]
    prices = [value for value in merged("item", "id", "price") if value is not None]
    assert ops[0][1]["fill_null"]["value"] == pytest.approx(np.mean(prices), rel=1e-14)
    brands = pd.Series([value for value in merged("item", "id", "brand") if value is not None]).value_counts()
    want = sorted(brands.index, key=lambda value: (-brands[value], value))
    assert ops[1][1]["vocab"]["values"]["strings"] == want


def test_several_columns_are_each_looked_up(client: fb.Client):
    derived = {"again": "item + 0"}
    chain = fb.cols("item", "again").lookup("items", "id", ["single", "small"]).fill_null(-1)
    got = features(client, "clicks", {"o": chain}, derive=derived)["o"]
    assert got.shape == (PRIME, 4)
    for place, column in enumerate(["single", "small", "single", "small"]):
        want = [-1 if value is None else value for value in merged("item", "id", column)]
        same_bits(got[:, place], np.array(want, np.float32), column)


def test_dataset_can_be_looked_up_in_itself(client: fb.Client):
    got = features(client, "items", {"o": fb.cols("id").lookup("items", "id", ["small"])})["o"]
    assert got.tolist() == ITEMS["small"].to_pylist()


@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_and_resumes_look_up_the_same(client: fb.Client, world_size: int):
    plan = fb.Plan(
        outputs={"o": fb.output(fb.cols("item").lookup("items", "id", ["stock"]).fill_null(-7), dtype="int64")}
    )
    want = [-7 if value is None else value for value in merged("item", "id", "stock")]
    found = [
        batch["o"]
        for rank in range(world_size)
        for batch in client.stream("clicks", plan, batch_size=50, rank=rank, world_size=world_size)
    ]
    assert np.concatenate(found).tolist() == want
    late = [batch["o"] for batch in client.stream("clicks", plan, batch_size=50, start_position=300)]
    assert np.concatenate(late).tolist() == want[300:]


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (fb.cols("item").lookup("itens", "id", ["price"]), ["lookup", '"itens"', '"items"']),
        (fb.cols("item").lookup("items", "idd", ["price"]), ["lookup", '"idd"', '"id"']),
        (fb.cols("item").lookup("items", "id", ["prize"]), ["lookup", '"prize"', '"price"']),
        (fb.cols("item").lookup("items", "twice", ["price"]), ["lookup", '"twice"', "unique"]),
        (fb.cols("item").lookup("items", "nullable", ["price"]), ["lookup", '"nullable"', "null"]),
        (fb.cols("item").lookup("items", "word", ["price"]), ["lookup", '"word"']),
        (fb.cols("word").lookup("items", "id", ["price"]), ["lookup", '"word"']),
        (fb.cols("item").lookup("items", "id", ["price"]), ['"item"', "null", "fill_null"]),
        (fb.cols("item").lookup("items", "id", ["brand"]), ["vocab", "hash_bucket"]),
        (fb.cols("item").vocab(values=[1]).one_hot().lookup("items", "id", ["price"]), ["one_hot"]),
    ],
)
def test_rejects_invalid_joins_with_the_reason(client: fb.Client, chain: fb.Columns, words: list[str]):
    with pytest.raises(fb.ForebayError) as caught:
        features(client, "clicks", {"o": chain})
    assert caught.value.code in ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"), caught.value
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def test_a_table_without_rows_has_no_keys(client: fb.Client):
    got = features(client, "clicks", {"o": fb.cols("item").lookup("none", "id", ["price"]).fill_null(5)})["o"]
    assert set(got.tolist()) == {5.0}


def test_ticket_pins_the_lookup_table(tmp_path: Path, serve: Serve):
    pq.write_table(pa.table({"k": [2, 1, 2]}), tmp_path / "rows.parquet")
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"k": [1, 2], "v": [10.0, 20.0], "w": [1.0, 2.0]}), table)
    running = serve({"rows": tmp_path / "rows.parquet", "table": table})
    lookup = {"table": "table", "key": "k", "columns": ["v", "w"]}
    plan = {"outputs": [{"name": "o", "parts": [{"columns": ["k"], "ops": [{"lookup": lookup}]}]}]}
    command = fl.FlightDescriptor.for_command(json.dumps({"dataset": "rows", "plan": plan}).encode())

    def read(server: Server, ticket: fl.Ticket) -> list[list[float]]:
        with fl.connect(server.url) as client:
            return client.do_get(ticket).read_all()["o"].to_pylist()

    with fl.connect(running.url) as client:
        raw = client.get_flight_info(fl.FlightDescriptor.for_path("table"))
        before = client.get_flight_info(command)
        old = [[20.0, 2.0], [10.0, 1.0], [20.0, 2.0]]
        assert read(running, before.endpoints[0].ticket) == old
        pq.write_table(pa.table({"k": [1, 2], "v": [-1.0, -2.0], "w": [5.0, 6.0]}), table)
        after = client.get_flight_info(command)
        assert read(running, after.endpoints[0].ticket) == [[-2.0, 6.0], [-1.0, 5.0], [-2.0, 6.0]]
        ids = {json.loads(info.app_metadata)["plan_id"] for info in (before, after)}
        assert len(ids) == 2, "what is looked up is part of the plan's id"
        # The table that was read is cached: the old rows, never a mix.
        assert read(running, before.endpoints[0].ticket) == old
    # A server that never read it cannot read it now.
    lookup["snapshot"] = json.loads(raw.app_metadata)["snapshot"]
    pinned = fl.FlightDescriptor.for_command(json.dumps({"dataset": "rows", "plan": plan}).encode())
    with fl.connect(running.url) as client:
        assert read(running, client.get_flight_info(pinned).endpoints[0].ticket) == old
    again = serve({"rows": tmp_path / "rows.parquet", "table": table})
    with fl.connect(again.url) as client, pytest.raises(pa.ArrowException, match="snapshot changed"):
        client.get_flight_info(pinned)


def test_an_error_names_the_table_and_its_column(client: fb.Client):
    chain = fb.cols("item").lookup("items", "id", ["price", "brand"]).fill_null(0)
    with pytest.raises(fb.InvalidRequest, match="fill_null") as raised:
        client.fit("clicks", fb.Plan(outputs={"o": chain}))
    assert "text" in str(raised.value)
    for columns, name, kind in ((["price", "brand"], "brand", "Utf8"), (["coded"], "coded", "Utf8")):
        plan = fb.Plan(outputs={"o": fb.cols("item").lookup("items", "id", columns)})
        with pytest.raises(
            fb.InvalidRequest, match=f'column "items.{name}": a column of type .*{kind}.* is not numeric'
        ):
            client.fit("clicks", plan)
