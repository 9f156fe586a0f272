"""`mix`: mixtures as the dataset of streams and of `FlightDataset`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import forebay as fb
from forebay._client.mixture import MixtureSource
from forebay.torch import FlightDataset
from harness.serving import Serve, Server

ROWS = {"a": 700, "b": 300, "c": 50}
FIRST_IDS = {"a": 0, "b": 100_000, "c": 200_000}
PLAN = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="INT64"), "x": fb.cols("x")})
MIX = fb.mix({"a": 0.7, "b": 0.3})


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    root = tmp_path_factory.mktemp("mixtures")
    for name, rows in ROWS.items():
        (root / name).mkdir()
        ids = FIRST_IDS[name] + np.arange(rows)
        pq.write_table(pa.table({"id": ids, "x": ids % 7.0}), root / name / "0.parquet", row_group_size=60)
    return serve({name: root / name for name in ROWS})


@pytest.fixture
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def shares(ids: list[int]) -> dict[str, int]:
    return {name: sum(first <= i < first + 100_000 for i in ids) for name, first in FIRST_IDS.items()}


def ids_of(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def test_a_mixture_is_shown_as_it_is_written():
    assert repr(MIX) == "mix({'a': 0.7, 'b': 0.3})"
    several = fb.mix({"a": 7, "b": {"weight": 3, "repeat": True}})
    assert repr(several) == "mix({'a': 7.0, 'b': {'weight': 3.0, 'repeat': True}})"
    twice = fb.mix([{"dataset": "a", "weight": 1}, MixtureSource(dataset="a", weight=2, plan="7f")])
    assert repr(twice).startswith("mix([MixtureSource(dataset='a', weight=1.0")
    assert twice.to_list() == [{"dataset": "a", "weight": 1.0}, {"dataset": "a", "weight": 2.0, "plan_id": "7f"}]


@pytest.mark.parametrize(
    ("sources", "error", "text"),
    [
        ({}, ValueError, "at least one source"),
        ("a", TypeError, "a mapping such as"),
        ({"a": 0}, ValueError, "source 'a': weight must be a finite number above 0, not 0"),
        ({"a": -1}, ValueError, "above 0, not -1"),
        ({"a": float("nan")}, ValueError, "above 0, not nan"),
        ({"a": float("inf")}, ValueError, "above 0, not inf"),
        ({"a": "much"}, TypeError, "weight must be a number"),
        ({"a": True}, TypeError, "weight must be a number"),
        ({"a": {}}, ValueError, "pass either weight or rows_per_batch"),
        ({"a": {"weight": 1, "rows_per_batch": 4}}, ValueError, "pass either weight or rows_per_batch"),
        ({"a": {"weigth": 1}}, TypeError, "mix has no argument 'weigth'"),
        ({"a": {"weight": 1, "repeat": "yes"}}, TypeError, "repeat must be True or False"),
        ({"a": {"weight": 1, "plan": 5}}, TypeError, "plan must be a Plan"),
        ({"": 1}, TypeError, "name of a dataset"),
        ([{"weight": 1}], TypeError, "lacks its dataset"),
        ([5], TypeError, "a source of a mixture must be"),
    ],
)
def test_wrong_sources_are_refused(sources: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        fb.mix(sources)


def test_a_stream_has_the_shares(client: fb.Client):
    stream = client.stream(MIX, PLAN, shuffle=True, batch_size=100)
    assert [source.dataset for source in stream.info.sources] == ["a", "b"]
    assert [source.share for source in stream.info.sources] == [0.7, 0.3]
    ids = ids_of(stream)
    assert len(ids) == stream.info.rows == len(set(ids))
    for end in range(0, len(ids), 97):
        found = shares(ids[:end])
        assert abs(found["a"] - 0.7 * end) < 1
        assert abs(found["b"] - 0.3 * end) < 1


def test_a_stream_resumes_from_its_cursor(client: fb.Client):
    whole = ids_of(client.stream(MIX, PLAN, shuffle=True, batch_size=64))
    stream = client.stream(MIX, PLAN, shuffle=True, batch_size=64)
    read = ids_of(next(stream) for _ in range(5))
    rest = ids_of(client.stream(MIX, PLAN, cursor=stream.cursor().to_json(), batch_size=64))
    assert read + rest == whole
    with pytest.raises(fb.CursorRefused, match="plan"):
        client.stream(fb.mix({"a": 0.6, "b": 0.4}), PLAN, cursor=stream.cursor(), batch_size=64)


def test_a_dataset_resumes_from_its_state(server: Server):
    def data(**more: Any) -> FlightDataset:
        return FlightDataset(server.url, MIX, PLAN, batch_size=32, shuffle=True, seed=5, rank=0, world_size=1, **more)

    whole = [ids_of([batch]) for batch in data()]
    assert len(data()) == len(whole)
    interrupted = data()
    iterator = iter(interrupted)
    read = [ids_of([next(iterator)]) for _ in range(9)]
    state = copy.deepcopy(interrupted.state_dict())
    resumed = data()
    resumed.load_state_dict(state)
    assert read + [ids_of([batch]) for batch in resumed] == whole
    assert "mix({'a': 0.7, 'b': 0.3})" in repr(resumed)
    second = [ids_of([batch]) for batch in resumed]
    assert second != whole
    assert isinstance(next(iter(resumed))["x"], torch.Tensor)


def test_sources_with_their_own_plans(client: fb.Client):
    tripled = fb.Plan(
        derive={"y": "x * 3"},
        outputs={"id": fb.output(fb.cols("id"), dtype="INT64"), "x": fb.cols("y")},
        filter="id % 2 = 0",
    )
    mixture = fb.mix({"c": {"weight": 1, "repeat": True}, "b": {"weight": 1, "plan": tripled}})
    for batch in client.stream(mixture, PLAN, batch_size=50):
        ids, values = np.asarray(batch["id"]), np.asarray(batch["x"])
        of_b = (ids >= 100_000) & (ids < 200_000)
        assert (ids[of_b] % 2 == 0).all()
        assert np.array_equal(values, np.where(of_b, 3, 1) * (ids % 7))


def test_a_plan_that_learns_is_fitted_on_one_dataset(client: fb.Client, server: Server):
    plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="INT64"), "x": fb.cols("x").standardize()})
    with pytest.raises(fb.NotFitted, match=r"client\.fit\('a', plan\)"):
        client.stream(MIX, plan)
    with pytest.raises(fb.NotFitted, match=r"client\.fit\('b', plan\)"):
        client.stream(fb.mix({"a": 1, "b": {"weight": 1, "plan": plan}}), PLAN)
    fitted = client.fit("a", plan)
    data = FlightDataset(server.url, MIX, fitted, batch_size=500, rank=0, world_size=1)
    assert len(ids_of(data)) == client.stream(MIX, fitted).info.rows
    filtered = ids_of(client.stream(MIX, client.fitted(MIX, fitted, "id % 2 = 0")))
    assert filtered
    assert all(i % 2 == 0 for i in filtered)


def test_replay_and_explain_name_the_sources(client: fb.Client):
    mixture = fb.mix({"a": 3, "c": {"weight": 1, "repeat": True}})
    replay = client.replay(mixture, PLAN, step=2, batch_size=40, shuffle=True)
    rows = replay.rows.to_pylist()
    assert {row["dataset"] for row in rows} == {"a", "c"}
    assert [FIRST_IDS[row["dataset"]] + row["row_id"] for row in rows] == list(replay.batch["id"])
    assert all(row["dataset"] == ("a", "c")[row["source"]] for row in rows)
    explained = client.explain(mixture, PLAN, batch_size=40, shuffle=True)
    assert [source.dataset for source in explained.sources] == ["a", "c"]
    assert "source         c: 25 %" in str(explained)
    assert "(repeats)" in str(explained)


def test_columns_are_selected_in_each_source(client: fb.Client):
    plan = fb.Plan(outputs={"id": fb.output(fb.cols.matching("^i"), dtype="INT64"), "x": fb.cols.matching("^x$")})
    for mixture in (MIX, fb.mix({"a": 1, "b": {"weight": 1, "plan": plan}})):
        assert ids_of(client.stream(mixture, plan)) == ids_of(client.stream(mixture, PLAN))


def test_names_only_where_a_mixture_makes_no_sense(client: fb.Client):
    with pytest.raises(TypeError):
        client.head(MIX)  # pyright: ignore[reportArgumentType]
