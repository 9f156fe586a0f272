"""Epochs that draw rows in proportion to a weight, on any ranks, in any order and after every resume."""

from __future__ import annotations

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
from harness.cut_files import write
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server, info, stored

Json = dict[str, Any]

ROWS = 3_001
RANDOM = np.random.default_rng(11)
# Some rows without a weight, most of small ones, and one of a fifth of all.
WEIGHTS = np.where(RANDOM.random(ROWS) < 0.2, 0.0, RANDOM.exponential(size=ROWS))
WEIGHTS[777] = WEIGHTS.sum() / 4
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "weight": WEIGHTS,
        "single": pa.array(WEIGHTS, pa.float32()),
        "kind": pa.array((np.arange(ROWS) % 5).astype(np.int8)),
        "text": [f"text {row} " * (row % 7) for row in range(ROWS)],
        "list": pa.array([[row] * (row % 4) for row in range(ROWS)], pa.list_(pa.int32())),
        "bad": pa.array([None if row == 1_500 else 1.0 for row in range(ROWS)]),
        "negative": pa.array([-0.5 if row == 2_000 else 1.0 for row in range(ROWS)]),
    }
)
PLAN: Json = {"outputs": stored("id", "text")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("weights")
    for name, size in (("rows", 173), ("alone", 1), ("whole", 10_000)):
        write(root / name, TABLE, cuts=[900, 900, 2_100], row_group_size=size)
    table = pa.table({"kind": pa.array(range(5), pa.int8()), "factor": [1.0, 2.0, 0.0, 0.5, 3.0]})
    (root / "factors").mkdir()
    pq.write_table(table, root / "factors" / "0.parquet")
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def flight(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def read(flight: fl.FlightClient, request: Json) -> list[int]:
    """The ids of the rows of all ranks, one rank after another."""
    found = info(flight, {"dataset": "rows", "plan": PLAN, "batch_size": 64, "sample_weight": "weight", **request})
    tables = [flight.do_get(endpoint.ticket).read_all() for endpoint in found.endpoints]
    table = pa.concat_tables(tables)
    ids = table["id"].to_pylist()
    assert table["text"].to_pylist() == [f"text {row} " * (row % 7) for row in ids]
    return ids


def check_shares(ids: list[int], weights: np.ndarray, rows: int) -> None:
    """Compare how often each row is drawn with its share."""
    assert len(ids) == rows
    counts = np.bincount(ids, minlength=ROWS)
    shares = weights / weights.sum() * rows
    assert np.all(np.abs(counts - shares) < 1 + 1e-6)
    assert np.all(counts[weights == 0] == 0)


@pytest.mark.parametrize("dataset", ["rows", "alone", "whole"])
def test_rows_are_drawn_by_their_share(flight: fl.FlightClient, dataset: str) -> None:
    ids = read(flight, {"dataset": dataset})
    check_shares(ids, WEIGHTS, ROWS)
    assert ids == sorted(ids)
    assert ids == read(flight, {"dataset": "rows"}), "the row groups decide nothing"


@pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 3}])
def test_ranks_and_batches_share_one_epoch(flight: fl.FlightClient, order: Json) -> None:
    whole = Counter(read(flight, order))
    for world_size, batch_size in ((1, 7), (3, 100), (4, 64)):
        assert Counter(read(flight, {**order, "world_size": world_size, "batch_size": batch_size})) == whole
    rest = read(flight, {**order, "start_position": 640})
    assert rest == read(flight, order)[640:]


def test_epochs_draw_other_rows(flight: fl.FlightClient) -> None:
    epochs = [Counter(read(flight, {"epoch": epoch})) for epoch in range(40)]
    assert len({tuple(sorted(epoch.items())) for epoch in epochs}) > 30
    drawn = np.array([[epoch[row] for row in range(ROWS)] for epoch in epochs]).mean(axis=0)
    shares = WEIGHTS / WEIGHTS.sum() * ROWS
    # The mean of 40 draws that are a whole number or the next one.
    assert np.all(np.abs(drawn - shares) < 0.5)
    assert Counter(read(flight, {"epoch": 3})) == epochs[3]
    assert Counter(read(flight, {"epoch": 3, "seed": 1})) != epochs[3]


@pytest.mark.parametrize(
    ("expression", "weights"),
    [
        ("1 + kind", 1.0 + np.arange(ROWS) % 5),
        ("CASE WHEN kind = 2 THEN 3 ELSE 0.25 END", np.where(np.arange(ROWS) % 5 == 2, 3.0, 0.25)),
        ("kind = 1", (np.arange(ROWS) % 5 == 1).astype(float)),
        ("CAST(kind AS DECIMAL(5, 2)) / 3", (np.arange(ROWS) % 5) / 3.0),
        ("single", WEIGHTS.astype(np.float32).astype(float)),
        ("1", np.ones(ROWS)),
        ("factor", np.array([1.0, 2.0, 0.0, 0.5, 3.0])[np.arange(ROWS) % 5]),
        ("twice * factor", 2 * WEIGHTS * np.array([1.0, 2.0, 0.0, 0.5, 3.0])[np.arange(ROWS) % 5]),
    ],
)
def test_expressions_read_any_columns(flight: fl.FlightClient, expression: str, weights: np.ndarray) -> None:
    plan = {
        **PLAN,
        "join": [{"table": "factors", "on": "kind", "columns": ["factor"]}],
        "derive": [{"name": "twice", "expr": "2 * weight"}],
    }
    ids = read(flight, {"plan": plan, "sample_weight": expression})
    counts = np.bincount(ids, minlength=ROWS)
    shares = weights / weights.sum() * ROWS
    assert np.all(np.abs(counts - shares) < 1 + 1e-4 * shares)


def test_filters_and_samples_choose_the_rows_that_are_drawn(flight: fl.FlightClient) -> None:
    passing = np.arange(ROWS) % 5 > 1
    ids = read(flight, {"plan": {**PLAN, "filter": "kind > 1"}})
    check_shares(ids, np.where(passing, WEIGHTS, 0), int(passing.sum()))
    rows = info(flight, {"dataset": "rows", "plan": PLAN, "batch_size": 64, "sample": 0.4}).total_records
    ids = read(flight, {"sample": 0.4})
    assert len(ids) == rows
    assert read(flight, {"plan": {**PLAN, "filter": "false"}}) == []


def test_drawn_rows_have_their_earlier_rows(flight: fl.FlightClient) -> None:
    part = {"columns": ["id"], "ops": [{"lag": {"n": 1}}, {"fill_null": {"value": -1}}]}
    outputs = [*stored("id", "text"), {"name": "before", "dtype": "INT64", "parts": [part]}]
    plan = {"outputs": outputs, "history": {"order": "id"}}
    request = {"dataset": "rows", "plan": plan, "batch_size": 64, "sample_weight": "weight", "shuffle": True}
    table = flight.do_get(info(flight, request).endpoints[0].ticket).read_all()
    check_shares(table["id"].to_pylist(), WEIGHTS, ROWS)
    assert table["before"].to_pylist() == [row - 1 for row in table["id"].to_pylist()]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sample_weight": "bad"}, r"sample_weight: row 1500: null is not a weight"),
        ({"sample_weight": "negative"}, r"sample_weight: row 2000: -0\.5 is not a weight"),
        ({"sample_weight": "1 / (weight - weight)"}, r"sample_weight: row 0: .* is not a weight"),
        ({"sample_weight": "text"}, r"sample_weight: the expression gives .*: expected numbers"),
        ({"sample_weight": "wait"}, r"sample_weight: .*weight"),
        ({"sample_weight": "1 +"}, r"sample_weight: "),
        ({"sample_weight": "0 * weight"}, r"sample_weight: no row that passes has a weight above 0"),
        ({"sample_weight": "1e306 + weight"}, r"sample_weight: the weights add up to more"),
        ({"sample_weight": " + ".join(["1"] * 3000)}, r"operators"),
        ({"balance": {"by": "kind"}}, r"sample_weight: cannot be combined with balance"),
        ({"group_by": "kind"}, r"sample_weight: cannot be combined with group_by"),
        ({"window": {"order": "id", "length": 2}}, r"window"),
        (
            {"plan": {"outputs": [{"name": "t", "parts": [{"columns": ["list"]}], "pack": {"length": 8}}]}},
            r"sample_weight: the plan packs",
        ),
    ],
)
def test_wrong_weights_are_refused_with_the_field(flight: fl.FlightClient, change: Json, words: str) -> None:
    with pytest.raises((pa.ArrowInvalid, fl.FlightError), match=words):
        read(flight, change)


def test_a_run_resumes_within_its_weights(server: Server) -> None:
    plan = fb.Plan.from_dict(PLAN)
    options: Any = {"batch_size": 100, "shuffle": True, "seed": 2}

    def ids_of(batch: Any) -> list[int]:
        return np.asarray(batch["id"]).tolist()

    with fb.connect(server.url) as client:
        stream = client.stream("rows", plan, sample_weight="weight", **options)
        whole = [ids_of(batch) for batch in stream]
        begun = client.stream("rows", plan, sample_weight=" weight ", **options)
        first = [ids_of(next(begun)) for _ in range(7)]
        cursor = begun.cursor()
        assert cursor.to_dict()["sample_weight"] == "weight"
        rest = [ids_of(batch) for batch in client.stream("rows", plan, cursor=cursor.to_json(), batch_size=100)]
        assert first + rest == whole
        for other in ("2 * weight", None):
            with pytest.raises(fb.CursorRefused, match="sample_weight"):
                client.stream("rows", plan, cursor=cursor, batch_size=100, sample_weight=other)
        with pytest.raises(TypeError, match="sample_weight"):
            client.stream("rows", plan, sample_weight=3)  # type: ignore[arg-type]


def test_a_restart_finds_the_weights_under_its_state_unless_they_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(TABLE, tmp_path / "rows" / "0.parquet", row_group_size=500)
    found, bytes_read = [], []
    for damage in (False, False, True):
        if damage:
            for kept in (tmp_path / "state").rglob("*"):
                if kept.is_file():
                    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
        daemon = Daemon(*LOOPBACK, "--dataset", f"rows={tmp_path}/rows", "--state", f"{tmp_path}/state")
        with fl.connect(daemon.url) as flight:
            info(flight, {"dataset": "rows", "plan": PLAN, "batch_size": 64, "sample_weight": "weight"})
            bytes_read.append(scrape(daemon).value("forebay_storage_read_bytes_total"))
            found.append(read(flight, {}))
        daemon.stop()
    assert found[0] == found[1] == found[2]
    assert bytes_read[1] < bytes_read[0]
    assert bytes_read[2] == bytes_read[0]


def test_weights_by_row_ids_number_the_rows_of_all_files(tmp_path: Path, serve: Serve) -> None:
    """A filter on partitions leaves files out, and the numbers of the other rows stay."""
    for part in range(3):
        (tmp_path / "parts" / f"part={part}").mkdir(parents=True)
        rows = TABLE.slice(part * 1_000, 1_000)
        pq.write_table(rows, tmp_path / "parts" / f"part={part}" / "0.parquet", row_group_size=300)
    server = serve({"parts": tmp_path / "parts"})
    weight = "CASE WHEN __row_id % 10 = 3 THEN 1 ELSE 0 END"
    request = {"dataset": "parts", "plan": {**PLAN, "filter": "part = 2"}, "sample_weight": weight}
    with fl.connect(server.url) as flight:
        for more in ({}, {"with_row_ids": True}):
            ids = read(flight, {**request, **more})
            assert len(ids) == 1_000
            assert Counter(ids) == dict.fromkeys(range(2_003, 3_000, 10), 10)
