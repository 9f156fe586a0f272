"""Balanced epochs, on any ranks, in any order and after every resume.

They have exact numbers of each class, and every row as often as the others of its class, to within one.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve, Server, info, stored

Json = dict[str, Any]

ROWS = 5_003
RARE, RAREST = 97, 5
RANDOM = np.random.default_rng(12)


def labels() -> list[int | None]:
    """Class 0 most of the time, 97 rows of class 1, five of class 2 in the last file, and rows without one."""
    found: list[int | None] = [0] * ROWS
    places = RANDOM.permutation(ROWS - 200)
    for row in places[:RARE]:
        found[row] = 1
    for row in places[RARE : RARE + 40]:
        found[row] = None
    for row in range(ROWS - RAREST, ROWS):
        found[row] = 2
    return found


LABELS = labels()


def make_table() -> pa.Table:
    names = {None: None, 0: "common", 1: "rare", 2: "rarest"}
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "label": pa.array(LABELS, pa.int8()),
            "unsigned": pa.array(LABELS, pa.uint64()),
            "name": [names[label] for label in LABELS],
            "dictionary": pa.array([names[label] for label in LABELS]).dictionary_encode(),
            "flag": pa.array([None if label is None else label > 0 for label in LABELS]),
            "decimal": pa.array(LABELS, pa.int32()).cast(pa.decimal128(12, 0)).cast(pa.decimal128(14, 2)),
            "day": pa.array(LABELS, pa.int32()).cast(pa.date32()),
            "x": pa.array(RANDOM.normal(size=ROWS)),
            "text": [f"text {row} " * (row % 9) for row in range(ROWS)],
        }
    )


TABLE = make_table()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("balance")
    (root / "rows").mkdir()
    rows = TABLE
    pq.write_table(rows.slice(0, 2_001), root / "rows/a.parquet", row_group_size=333)
    pq.write_table(rows.slice(2_001, 0), root / "rows/b.parquet")
    pq.write_table(rows.slice(2_001), root / "rows/c.parquet", row_group_size=1_000)
    (root / "names").mkdir()
    names = pa.table({"label": pa.array([0, 1, 2], pa.int64()), "kind": ["common", "odd", "odd"]})
    pq.write_table(names, root / "names/a.parquet")
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def flight(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


PLAN: Json = {"outputs": stored("id", "label")}


def drawn(flight: fl.FlightClient, balance: Json | None, plan: Json = PLAN, **request: Any) -> list[int]:
    """The ids of all ranks, one after another."""
    described = {"dataset": "rows", "plan": plan, "batch_size": 256, **request}
    found = info(flight, described if balance is None else {**described, "balance": balance})
    ids = [row for end in found.endpoints for row in flight.do_get(end.ticket).read_all()["id"].to_pylist()]
    assert found.total_records == len(ids)
    return ids


def check(ids: Sequence[int], classes: Sequence[Any], weights: dict[Any, float] | None = None) -> None:
    """Compare the draws of an epoch with the shares of its classes; `classes` has that of each row."""
    weights = weights or {}
    sizes = Counter(classes)
    rows = [row for row, value in enumerate(classes) if value != "left out"]
    sizes.pop("left out", None)
    total = sum(weights.get(value, 1.0) for value in sizes)
    draws = Counter(ids)
    assert len(ids) == len(rows)
    of_class = Counter(classes[row] for row in ids)
    for value, size in sizes.items():
        exact = len(rows) * weights.get(value, 1.0) / total
        assert abs(of_class[value] - exact) <= 1, value
        each = of_class[value] // size
        found = {draws[row] for row in rows if classes[row] == value}
        assert found <= {each, each + 1}, value


@pytest.mark.parametrize("by", ["label", "unsigned", "name", "dictionary", "flag", "decimal", "day"])
def test_every_class_has_its_share(flight: fl.FlightClient, by: str) -> None:
    classes = [None if label is None else bool(label) for label in LABELS] if by == "flag" else LABELS
    check(drawn(flight, {"by": by}), classes)
    check(drawn(flight, {"by": by}, shuffle=True, seed=3, epoch=2), classes)


def test_weights_are_relative(flight: fl.FlightClient, client: fb.Client) -> None:
    weights = [{"key": {"integer": 1}, "weight": 3}, {"key": {"null": True}, "weight": 0}]
    check(drawn(flight, {"by": "label", "weights": weights}), LABELS, {1: 3.0, None: 0.0})
    plan = fb.Plan.from_dict(PLAN)
    balance = {"by": "name", "weights": {"rare": 0.5, "rarest": 2, None: 0}}
    with client.stream("rows", plan, batch_size=100, balance=balance) as stream:
        ids = [row for batch in stream for row in batch["id"].tolist()]
    check(ids, LABELS, {1: 0.5, 2: 2.0, None: 0.0})


@pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 5}, {"shuffle": True, "seed": 5, "window_rows": 64}])
def test_ranks_and_batches_share_one_epoch(flight: fl.FlightClient, order: Json) -> None:
    lanes = {"lanes": 12} if order else {}
    whole = drawn(flight, {"by": "label"}, **order, **lanes)
    assert whole != drawn(flight, {"by": "label"}, **{**order, "seed": 6}, **lanes)
    for world, batch in ((1, 1), (1, 5_003), (2, 100), (3, 64), (4, 999)):
        shared = drawn(flight, {"by": "label"}, world_size=world, batch_size=batch, **order, **lanes)
        assert sorted(shared) == sorted(whole)
        assert world > 1 or shared == whole
    dropped = drawn(flight, {"by": "label"}, world_size=2, batch_size=100, remainder="DROP", **order, **lanes)
    assert len(dropped) == ROWS // 200 * 200
    assert not Counter(dropped) - Counter(whole)


def test_epochs_draw_other_rows_of_a_frequent_class(flight: fl.FlightClient) -> None:
    epochs = [drawn(flight, {"by": "label"}, epoch=epoch, seed=9) for epoch in range(12)]
    common = [{row for row in ids if LABELS[row] == 0} for ids in epochs]
    share = len(common[0]) / sum(label == 0 for label in LABELS)
    assert 0.2 < share < 0.3
    for one, other in itertools.pairwise(common):
        assert 0.1 < len(one & other) / len(one) < 0.45
    # Each row misses an epoch with probability 3/4, and misses all of them rarely.
    assert len(set().union(*common)) > 0.9 * sum(label == 0 for label in LABELS)
    assert drawn(flight, {"by": "label"}, epoch=3, seed=9) == epochs[3]


@pytest.mark.parametrize(
    ("plan", "by", "classes"),
    [
        (
            {"filter": "x > 0", **PLAN},
            "label",
            lambda row, label: label if row["x"] > 0 else "left out",
        ),
        (
            {"derive": [{"name": "odd", "expr": "coalesce(label, 0) > 0 AND x < 1"}], **PLAN},
            "odd",
            lambda row, label: (label or 0) > 0 and row["x"] < 1,
        ),
        (
            {"join": [{"table": "names", "on": "label", "columns": ["kind"]}], **PLAN},
            "kind",
            lambda _, label: {0: "common", 1: "odd", 2: "odd"}.get(label),
        ),
        ({"filter": "label = 2", **PLAN}, "label", lambda _, label: label if label == 2 else "left out"),
        ({"filter": "id = 4000", **PLAN}, "name", lambda row, label: label if row["id"] == 4000 else "left out"),
    ],
)
def test_classes_of_filtered_derived_and_joined_rows(
    flight: fl.FlightClient, plan: Json, by: str, classes: Any
) -> None:
    of_rows = [classes(row, label) for row, label in zip(TABLE.to_pylist(), LABELS, strict=True)]
    check(drawn(flight, {"by": by}, plan), of_rows)
    check(drawn(flight, {"by": by}, plan, shuffle=True, world_size=3), of_rows)


def test_a_sample_is_balanced_among_its_rows(flight: fl.FlightClient) -> None:
    sampled = set(drawn(flight, None, sample=0.3, sample_seed=2))
    classes = [label if row in sampled else "left out" for row, label in enumerate(LABELS)]
    check(drawn(flight, {"by": "label"}, sample=0.3, sample_seed=2), classes)


def test_values_follow_their_rows(flight: fl.FlightClient, client: fb.Client) -> None:
    outputs = {
        "id": fb.cols("id").as_stored(),
        "text": fb.cols("text").as_stored(),
        "x": fb.output(fb.cols("x"), dtype="float64"),
    }
    rows = TABLE
    with client.stream("rows", fb.Plan(outputs=outputs), batch_size=64, shuffle=True, balance="label") as stream:
        batches = list(stream)
    ids = np.concatenate([batch["id"] for batch in batches])
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in batches]), rows["x"].to_numpy()[ids])
    texts = [text for batch in batches for text in batch.data["text"].to_pylist()]
    assert texts == rows["text"].take(pa.array(ids)).to_pylist()
    replayed = client.replay("rows", fb.Plan(outputs=outputs), step=7, batch_size=64, shuffle=True, balance="label")
    assert replayed.rows["row_id"].to_pylist() == batches[7]["id"].tolist()


def test_a_run_resumes_within_its_balance(server: Server, client: fb.Client) -> None:
    plan = fb.Plan.from_dict(PLAN)
    options: Json = {"batch_size": 128, "shuffle": True, "seed": 4, "lanes": 8, "balance": {"by": "label"}}
    with client.stream("rows", plan, **options) as stream:
        whole = [batch["id"].tolist() for batch in stream]
    with client.stream("rows", plan, **options) as stream:
        for _ in range(5):
            next(stream)
        cursor = stream.cursor()
    assert '"balance":{"by":"label","weights":[]}' in cursor.to_json()
    resumed = fb.Cursor.of(cursor.to_json())
    for given in ({}, {"balance": "label"}):
        with client.stream("rows", plan, cursor=resumed, batch_size=128, **given) as stream:
            assert [batch["id"].tolist() for batch in stream] == whole[5:]
    with pytest.raises(fb.CursorRefused, match="balance"):
        client.stream("rows", plan, cursor=resumed, balance="name")
    # One of both is named, the other is the cursor's.
    sampled = {**options, "sample": 0.5, "sample_seed": 3}
    with client.stream("rows", plan, **sampled) as stream:
        rest = [batch["id"].tolist() for batch in stream][1:]
    with client.stream("rows", plan, **sampled) as stream:
        next(stream)
        cursor = stream.cursor()
    for given in ({"balance": "label"}, {"sample": 0.5, "sample_seed": 3}):
        with client.stream("rows", plan, cursor=cursor, batch_size=128, **given) as stream:
            assert [batch["id"].tolist() for batch in stream] == rest
    data = fb.ArrayDataset(server.url, "rows", plan, **options)
    taken = [next(iter(data))["id"].tolist()]
    state = json.loads(json.dumps(data.state_dict()))
    again = fb.ArrayDataset(server.url, "rows", plan, **options)
    again.load_state_dict(state)
    assert [*taken, *(batch["id"].tolist() for batch in again)] == whole
    other = fb.ArrayDataset(server.url, "rows", plan, **{**options, "balance": None})
    with pytest.raises(fb.CursorRefused, match="balance"):
        other.load_state_dict(state)


def test_one_row_of_a_class_may_be_half_of_the_epoch(serve: Serve, tmp_path: Path) -> None:
    """A text of a megabyte, drawn 2,000 times, is not in memory 2,000 times at once."""
    rows = 4_000
    texts = ["x" * (1 << 20), *(str(row) for row in range(1, rows))]
    pq.write_table(pa.table({"text": texts, "y": [1] + [0] * (rows - 1)}), tmp_path / "t.parquet")
    server = serve({"t": tmp_path / "t.parquet"}, "--memory-limit-bytes", "300000000")
    plan = {"outputs": stored("text")}
    request = {"dataset": "t", "plan": plan, "batch_size": 16, "balance": {"by": "y"}}
    with fl.connect(server.url) as flight:
        reader = flight.do_get(info(flight, request).endpoints[0].ticket)
        lengths = [len(text) for chunk in reader for text in chunk.data["text"].to_pylist()]
    assert lengths.count(1 << 20) == rows // 2
    assert len(lengths) == rows


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"balance": {}}, "balance.by: missing"),
        ({"balance": {"by": "labe"}}, 'balance.by: no column "labe": did you mean "label"'),
        ({"balance": {"by": "x"}}, 'balance.by: column "x" is double'),
        ({"balance": {"by": "label"}, "group_by": "name"}, "balance: cannot be combined with group_by"),
        ({"balance": {"by": "label", "weights": [{"weight": 1}]}}, r"balance.weights\[0\].key: missing"),
        (
            {"balance": {"by": "label", "weights": [{"key": {"text": "1"}, "weight": 1}]}},
            r"balance.weights\[0\].key: not a value of column \"label\"",
        ),
        (
            {"balance": {"by": "label", "weights": [{"key": {"integer": 7}, "weight": 1}]}},
            r"balance.weights\[0\].key: no row that passes has this value",
        ),
        (
            {"balance": {"by": "label", "weights": [{"key": {"integer": 1}, "weight": -1}]}},
            r"balance.weights\[0\].weight: -1",
        ),
        (
            {
                "plan": {"filter": "label = 1", **PLAN},
                "balance": {"by": "label", "weights": [{"key": {"integer": 1}, "weight": 0}]},
            },
            "balance.weights: no row has a value with a weight above 0",
        ),
        ({"balance": {"by": "label", "of": 1}}, "of"),
    ],
)
def test_wrong_balances_are_refused(flight: fl.FlightClient, change: Json, words: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=words):
        info(flight, {"dataset": "rows", "plan": PLAN, **change})


def test_mixtures_and_packs_have_no_classes(flight: fl.FlightClient) -> None:
    request = {"sources": [{"dataset": "rows", "weight": 1}], "plan": PLAN, "balance": {"by": "label"}}
    with pytest.raises(pa.ArrowInvalid, match="balance: cannot be combined with sources"):
        info(flight, request)


def test_python_names_the_wrong_argument() -> None:
    for wrong, words in (
        ({"by": "a", "weight": {}}, "weights"),
        ({"by": ""}, "balance: by"),
        ({"by": "a", "weights": 3}, "mapping"),
        ({"by": "a", "weights": {1: -1}}, "at least 0"),
        ({"by": "a", "weights": {1.5: 1}}, "whole numbers"),
        (7, "balance must be a column"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            fb.StreamOptions(balance=wrong)
    options = fb.StreamOptions(balance={"by": "a", "weights": {True: 1, "b": 2, None: 0, 2**63: 1, -1: 0.5}})
    assert options.balance == {
        "by": "a",
        "weights": [
            {"key": {"boolean": True}, "weight": 1.0},
            {"key": {"text": "b"}, "weight": 2.0},
            {"key": {"null": True}, "weight": 0.0},
            {"key": {"unsigned": 2**63}, "weight": 1.0},
            {"key": {"integer": -1}, "weight": 0.5},
        ],
    }
    assert fb.StreamOptions(**options.keywords()) == options
