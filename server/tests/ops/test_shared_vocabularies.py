"""Vocabularies that several columns share, in one fit, against Python's Counter over all their values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.ops.tables import write
from harness.serving import Serve, Server, fit

ROWS = 3_001
RANDOM = np.random.default_rng(5)


def gaps(values: list[Any], share: float = 0.1) -> list[Any]:
    return [None if gap else value for value, gap in zip(values, RANDOM.random(len(values)) < share, strict=True)]


def items(count: int) -> list[int]:
    return (RANDOM.zipf(1.3, count) % 211).tolist()


TABLE = pa.table(
    {
        "n": pa.array(np.arange(ROWS)),
        "item": pa.array(gaps([f"i{value}" for value in items(ROWS)])).dictionary_encode(),
        "history": pa.array(gaps([[f"i{value}" for value in items(row % 9)] for row in range(ROWS)])),
        "other": pa.array([f"j{value}" for value in items(ROWS)]),
        "small": pa.array(gaps(items(ROWS)), pa.int16()),
        "wide": pa.array([value << 40 if value % 3 else value for value in items(ROWS)], pa.int64()),
        "big": pa.array(items(ROWS), pa.uint64()),
        "real": pa.array([float(value) for value in items(ROWS)], pa.float32()),
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("shared")
    write(folder / "rows", TABLE)
    pq.write_table(pa.table({"key": range(211), "name": [f"i{n % 100}" for n in range(211)]}), folder / "names.parquet")
    return serve({"rows": folder / "rows", "names": folder / "names.parquet"})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def values(*columns: str) -> list[Any]:
    """The values of columns that are not null, of all elements of lists."""
    found: list[Any] = []
    for column in columns:
        for value in TABLE[column].to_pylist():
            found += [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    return found


def order(counted: list[Any], min_count: int = 0, max_size: int = 0) -> list[Any]:
    ranked = sorted(Counter(counted).items(), key=lambda pair: (-pair[1], pair[0]))
    kept = [value for value, count in ranked if count >= min_count]
    return kept[: max_size or None]


def test_an_item_and_lists_of_items_share_their_indices(client: fb.Client):
    plan = fb.Plan(
        outputs={
            "item": fb.cols("item").vocab(shared="items"),
            "history": fb.cols("history").vocab(shared="items").fill_null(0).last_n(4, value=0),
            "other": fb.cols("other").vocab(),
        }
    )
    fitted = client.fitted("rows", plan)
    want = order(values("item", "history"))
    assert fitted.vocab("item", "item") == fitted.vocab("history", "history") == [None, *want]
    assert fitted.vocab("other", "other") == [None, *order(values("other"))]
    assert fitted.cardinalities["item"]["item"] == len(want) + 1
    index = {value: place for place, value in enumerate(want, 1)}
    with client.stream("rows", fitted, batch_size=500) as stream:
        batches = list(stream)
    got = np.concatenate([batch["item"].ravel() for batch in batches])
    assert got.tolist() == [index.get(value, 0) for value in TABLE["item"].to_pylist()]
    lists = np.concatenate([batch["history"] for batch in batches]).reshape(ROWS, 4)
    for row, history in enumerate(TABLE["history"].to_pylist()):
        last = [index[value] for value in (history or [])][-4:]
        assert lists[row].tolist() == [0] * (4 - len(last)) + last


@pytest.mark.parametrize(("min_count", "max_size"), [(0, 0), (3, 0), (0, 40), (20, 40)])
@pytest.mark.parametrize("columns", [["small", "wide"], ["item", "other", "history"]])
def test_limits_are_those_of_all_values(client: fb.Client, columns: list[str], min_count: int, max_size: int):
    chains = {name: fb.cols(name).vocab(min_count=min_count, max_size=max_size, shared="all") for name in columns}
    fitted = client.fitted("rows", fb.Plan(filter="n % 3 <> 0", outputs=dict(chains)))
    kept = TABLE.filter(pa.array(np.arange(ROWS) % 3 != 0))
    counted: list[Any] = []
    for column in columns:
        for value in kept[column].to_pylist():
            counted += [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    for name in columns:
        assert fitted.vocab(name, name)[1:] == order(counted, min_count, max_size), name


def test_ops_before_it_lookups_and_several_names(client: fb.Client):
    plan = fb.Plan(
        outputs={
            # Filled with its own mode first, so that it can learn in the second pass only.
            "item": fb.cols("item").fill_null("mode").vocab(shared="items"),
            "name": fb.cols("small").lookup("names", "key", ["name"]).vocab(shared="items"),
            "pair": fb.cols("small", "wide").abs().vocab(shared="numbers").one_hot(),
        }
    )
    fitted = client.fitted("rows", plan)
    mode = order(values("item"))[0]
    filled = [value or mode for value in TABLE["item"].to_pylist()]
    names = [f"i{value % 100}" for value in values("small")]
    assert fitted.vocab("item", "item")[1:] == order([*filled, *names])
    assert fitted.vocab("name", "small") == fitted.vocab("item", "item")
    assert fitted.vocab("pair", "small") == fitted.vocab("pair", "wide") == [None, *order(values("small", "wide"))]


def test_more_columns_than_one_pass_takes_of_others(tmp_path: Path, serve: Serve):
    names = [f"c{number}" for number in range(70)]
    table = pa.table({name: [f"v{(row * number) % 13}" for row in range(50)] for number, name in enumerate(names)})
    pq.write_table(table, tmp_path / "wide.parquet")
    server = serve({"wide": tmp_path / "wide.parquet"})
    with fb.connect(server.url) as client:
        plan = fb.Plan(outputs={"own": fb.cols(*names).vocab(), "all": fb.cols(*names).vocab(shared="v")})
        fitted = client.fitted("wide", plan)
        counted = [value for name in names for value in table[name].to_pylist()]
        assert all(fitted.vocab("all", name)[1:] == order(counted) for name in names)
        assert fitted.vocab("own", "c7")[1:] == order(table["c7"].to_pylist())


def test_a_fitted_vocabulary_is_stored_and_learned_once(client: fb.Client):
    chain = fb.cols("item", "other").vocab(shared="texts")
    assert str(chain.ops[0]) == "vocab(shared='texts')"
    fitted = client.fitted("rows", fb.Plan(outputs={"out": chain}))
    assert "shared='texts'" in fitted.describe()
    again = fb.Plan.from_dict(fitted.plan.to_dict())
    assert client.fit("rows", again).plan_id == fitted.plan_id
    given = fb.cols("item").vocab(values=["i1"], shared="texts")
    half = client.fitted("rows", fb.Plan(outputs={"given": given, "learned": fb.cols("other").vocab(shared="texts")}))
    assert half.vocab("given", "item") == [None, "i1"]
    assert half.vocab("learned", "other")[1:] == order(values("other"))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            ("item", {}),
            ("small", {}),
            r'ops\[0\]\.vocab\.shared: the vocabulary "s" is of one type, and column "small" is',
        ),
        (("small", {}), ("big", {}), 'is of one type, and column "big" is UInt64, but "small" Int64'),
        (("small", {}), ("real", {}), "cast one of them in a derived column"),
        (("item", {"min_count": 2}), ("other", {}), r"vocab\.shared: .* has another min_count or max_size"),
        (("item", {"max_size": 2}), ("other", {"max_size": 3}), "has another min_count or max_size"),
    ],
)
def test_what_cannot_share_is_refused(
    server: Server, first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]], words: str
):
    parts = [{"columns": [column], "ops": [{"vocab": {"shared": "s", **more}}]} for column, more in (first, second)]
    plan = {"outputs": [{"name": "out", "dtype": "INT32", "parts": parts}]}
    with fl.connect(server.url) as plain, pytest.raises((pa.ArrowException, fl.FlightError), match=words):
        fit(plain, "rows", plan)


def test_ops_that_wait_for_each_other_are_refused(client: fb.Client):
    chain = fb.cols("small").vocab(shared="a").vocab(shared="a")
    with pytest.raises(
        fb.InvalidRequest, match=r'ops\[0\]\.vocab\.shared: an op that learns before another one of "a"'
    ):
        client.fitted("rows", fb.Plan(outputs={"out": chain}))
    crossed = {
        "x": fb.cols("small").vocab(shared="a").vocab(shared="b"),
        "y": fb.cols("big").vocab(shared="b").vocab(shared="a"),
    }
    with pytest.raises(fb.InvalidRequest, match="waits for it"):
        client.fitted("rows", fb.Plan(outputs=dict(crossed)))
    with pytest.raises(TypeError, match="vocab: shared must be text"):
        fb.cols("small").vocab(shared=3)  # pyright: ignore[reportArgumentType]


def test_plain_json_names_it(server: Server):
    parts = [{"columns": ["item", "other"], "ops": [{"vocab": {"shared": "s", "max_size": 3}}]}]
    with fl.connect(server.url) as plain:
        result = fit(plain, "rows", {"outputs": [{"name": "out", "parts": parts}]})[-1]["result"]
    learned = [part["ops"][0]["vocab"] for part in result["plan"]["outputs"][0]["parts"]]
    assert [json.dumps(op["values"]["strings"]) for op in learned] == [
        json.dumps(order(values("item", "other"), 0, 3))
    ] * 2
