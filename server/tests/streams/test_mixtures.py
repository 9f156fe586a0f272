"""Mixtures: several datasets in one stream, against an oracle of which row is at which position."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness.mixture_order import prefix_lag
from harness.mixtures import (
    FILES,
    PLAN,
    check_ranks,
    check_values,
    every_byte,
    expected,
    make_request,
    read,
    rows_of,
    write_datasets,
    write_file,
)
from harness.serving import Serve, Server, info

Json = dict[str, Any]
WORLDS = (1, 2, 3, 5)
# Divided by all of them.
LANES = 30
FIRST_TWO = [{"dataset": "a", "weight": 0.7}, {"dataset": "b", "weight": 0.3}]
# Sources, and their weights in lowest terms.
MIXTURES: dict[str, tuple[list[Json], list[int]]] = {
    "two": (FIRST_TWO, [7, 3]),
    "three": ([*FIRST_TWO, {"dataset": "c", "weight": 1}], [7, 3, 10]),
    "repeating": ([{"dataset": "c", "weight": 5}, {"dataset": "b", "weight": 2, "repeat": True}], [5, 2]),
    "tiny": (
        [
            {"dataset": "tiny", "weight": 0.25, "repeat": True},
            {"dataset": "a", "weight": 0.5},
            {"dataset": "one", "weight": 0.25, "repeat": True},
        ],
        [1, 2, 1],
    ),
    "alone": ([{"dataset": "a", "weight": 3}], [1]),
    "short": ([{"dataset": "one", "weight": 1}, {"dataset": "c", "weight": 1}], [1, 1]),
    "filtered": (
        [{"dataset": "a", "weight": 1, "plan": {**PLAN, "filter": "id % 3 = 1"}}, {"dataset": "b", "weight": 1}],
        [1, 1],
    ),
}


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return serve(write_datasets(tmp_path_factory.mktemp("mixtures")), "--cpu-threads", "2")


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def act(client: fl.FlightClient, action: str, body: Json) -> list[Json]:
    results = client.do_action(fl.Action(action, json.dumps(body).encode()))
    return [json.loads(result.body.to_pybytes()) for result in results]


def refusal(client: fl.FlightClient, request: Json) -> str:
    with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
        info(client, request)
    return str(caught.value)


@pytest.mark.parametrize("remainder", ["KEEP", "DROP", "PAD"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_every_row_is_at_its_position_at_every_world_size(
    client: fl.FlightClient, name: str, shuffle: bool, remainder: str
):
    sources, counts = MIXTURES[name]
    for world in WORLDS:
        request = make_request(
            sources, shuffle=shuffle, world_size=world, remainder=remainder, seed=11, epoch=3, window_rows=20
        )
        check_ranks(client, request, expected(request, counts))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["two", "repeating", "tiny"])
def test_an_epoch_resumes_at_every_step(client: fl.FlightClient, name: str, shuffle: bool):
    sources, counts = MIXTURES[name]
    for world in (1, 3):
        request = make_request(sources, shuffle=shuffle, world_size=world, window_rows=16, batch_size=8)
        whole = every_byte(client, request)
        steps = max(len(messages) for messages in whole)
        for step in range(steps):
            resumed = every_byte(client, {**request, "start_position": step * world * 8})
            for before, after in zip(whole, resumed, strict=True):
                # A rank whose epoch is over sends an empty batch.
                assert after == before[step:] or not before[step:]
        check_ranks(client, request, expected(request, counts), start_position=steps // 2 * world * 8)


def test_the_global_sequence_is_the_same_at_every_world_size(client: fl.FlightClient):
    sources, _ = MIXTURES["three"]
    sequences = []
    for world in WORLDS:
        request = make_request(sources, shuffle=True, world_size=world, lanes=LANES, window_rows=16)
        ends = info(client, request).endpoints
        ranks = [[row for _, batch in read(client, end.ticket) for row in rows_of(batch, request)] for end in ends]
        turns = itertools.zip_longest(*ranks)
        sequences.append([row for turn in turns for row in turn if row is not None])
    assert all(sequence == sequences[0] for sequence in sequences)
    assert len(set(sequences[0])) == len(sequences[0])


def test_an_epoch_resumes_at_another_world_size(client: fl.FlightClient):
    sources, counts = MIXTURES["repeating"]
    request = make_request(sources, shuffle=True, world_size=2, lanes=LANES, window_rows=16, batch_size=15)
    for world, batch_size in ((1, 15), (3, 10), (5, 7)):
        other = {**request, "world_size": world, "batch_size": batch_size}
        check_ranks(client, other, expected(other, counts), start_position=4 * LANES)


def test_every_prefix_has_its_share_of_every_source(client: fl.FlightClient):
    rng = random.Random(5)
    for _ in range(12):
        names = rng.sample(["a", "b", "c"], rng.randint(2, 3))
        weights = [rng.randint(1, 60) for _ in names]
        sources = [
            {"dataset": name, "weight": weight / 100, "repeat": index > 0}
            for index, (name, weight) in enumerate(zip(names, weights, strict=True))
        ]
        request = make_request(sources, shuffle=rng.random() < 0.5, batch_size=50)
        messages = read(client, info(client, request).endpoints[0].ticket)
        sequence = [source for _, batch in messages for source, _ in rows_of(batch, request)]
        shares = [Fraction(weight, sum(weights)) for weight in weights]
        assert prefix_lag(sequence, shares) < 1, request["sources"]


def test_random_mixtures(client: fl.FlightClient):
    rng = random.Random(8)
    for number in range(16):
        names = rng.sample(list(FILES), rng.randint(1, 5))
        counts = [rng.randint(1, 9) for _ in names]
        counts[0] = 1
        ending = rng.randrange(len(names))
        sources = [
            {"dataset": name, "weight": count / 4, "repeat": index != ending and rng.random() < 0.7}
            for index, (name, count) in enumerate(zip(names, counts, strict=True))
        ]
        world = rng.choice(WORLDS)
        request = make_request(
            sources,
            shuffle=rng.random() < 0.7,
            world_size=world,
            lanes=world * rng.randint(1, 9),
            window_rows=rng.choice([1, 7, 100, 16_384]),
            batch_size=rng.choice([1, 5, 64, 1000]),
            seed=rng.getrandbits(64),
            epoch=rng.randint(0, 5),
            remainder=rng.choice(["KEEP", "DROP", "PAD"]),
            order_version=number % 4,
        )
        check_ranks(client, request, expected(request, counts))


def test_an_epoch_ends_with_the_first_source_that_does_not_repeat(client: fl.FlightClient):
    def described(sources: list[Json]) -> tuple[int, list[tuple[int, int]]]:
        found = json.loads(info(client, make_request(sources, shuffle=True)).app_metadata)
        return int(found["rows"]), [(int(one["epoch_rows"]), int(one["rows"])) for one in found["sources"]]

    equal: list[Json] = [{"dataset": "b", "weight": 1}, {"dataset": "c", "weight": 1}]
    rows, sources = described(equal)
    assert sources[0] == (143, 143)
    assert rows == sum(read for read, _ in sources)
    assert 142 <= sources[1][0] <= 144
    equal[0]["repeat"] = True
    rows, sources = described(equal)
    assert sources[1] == (400, 400)
    assert 399 <= sources[0][0] <= 401
    assert rows == sum(read for read, _ in sources)


def test_every_repetition_has_every_row_once_in_another_order(client: fl.FlightClient):
    request = make_request(
        [{"dataset": "c", "weight": 1}, {"dataset": "b", "weight": 1, "repeat": True}], shuffle=True, window_rows=64
    )

    def repetitions(epoch: int) -> list[list[int]]:
        messages = read(client, info(client, {**request, "epoch": epoch}).endpoints[0].ticket)
        rows = [row for _, batch in messages for source, row in rows_of(batch, request) if source == 1]
        return [rows[:143], rows[143:286]]

    orders = [*repetitions(0), *repetitions(1)]
    assert all(sorted(order) == list(range(143)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_an_epoch_has_other_rows_of_a_source_that_it_does_not_exhaust(client: fl.FlightClient):
    request = make_request([{"dataset": "a", "weight": 9}, {"dataset": "c", "weight": 1}], shuffle=True)
    rows = [
        frozenset(
            row
            for _, batch in read(client, info(client, {**request, "epoch": epoch}).endpoints[0].ticket)
            for source, row in rows_of(batch, request)
            if source == 1
        )
        for epoch in range(30)
    ]
    # About 25 of 400 rows each: 30 epochs with the same ones would have 25, independent ones about 340.
    assert len(frozenset.union(*rows)) > 250


def test_two_sources_of_one_dataset_have_different_orders(client: fl.FlightClient):
    plans = [{**PLAN, "derive": [{"name": "copy", "expr": f"id + {copy}"}]} for copy in (0, 1)]
    request = make_request([{"dataset": "c", "weight": 1, "plan": plan} for plan in plans], shuffle=True)
    (replayed,) = act(client, "replay", {"stream": {**request, "batch_size": 700}, "rank": 0, "step": 0})
    orders: list[list[int]] = [[], []]
    for row in replayed["rows"]:
        orders[int(row.get("source", 0))].append(int(row["row_id"]))
    assert len(orders[0]) > 300
    assert orders[0] != orders[1]
    # They are not shifted either: neighbors of one order are not neighbors of the other.
    neighbors = [set(itertools.pairwise(order)) for order in orders]
    assert len(neighbors[0] & neighbors[1]) < 20


def test_rows_per_batch_are_exact(client: fl.FlightClient):
    sources = [{"dataset": "a", "rows_per_batch": 5}, {"dataset": "c", "rows_per_batch": 11, "repeat": True}]
    for shuffle, world in ((False, 1), (False, 3), (True, 1)):
        request = make_request(sources, shuffle=shuffle, world_size=world, remainder="DROP")
        check_ranks(client, request, expected(request, [5, 11]))
        for end in info(client, request).endpoints:
            for _, batch in read(client, end.ticket):
                assert Counter(source for source, _ in rows_of(batch, request)) == {0: 5, 1: 11}
    request = make_request(sources, shuffle=True, world_size=3, remainder="DROP")
    ranks = [read(client, end.ticket) for end in info(client, request).endpoints]
    for messages in zip(*ranks, strict=True):
        step = Counter(source for _, batch in messages for source, _ in rows_of(batch, request))
        assert step == {0: 15, 1: 33}


def test_ranks_have_similar_shares(client: fl.FlightClient):
    sources = [{"dataset": "c", "weight": 1}, {"dataset": "a", "weight": 1, "repeat": True}]
    request = make_request(sources, shuffle=True, world_size=2, batch_size=400)
    for end in info(client, request).endpoints:
        rows = [source for _, batch in read(client, end.ticket) for source, _ in rows_of(batch, request)]
        assert abs(rows.count(0) - 200) < 60


@pytest.mark.parametrize("shuffle", [False, True])
def test_concurrent_streams_have_the_same_bytes(client: fl.FlightClient, server: Server, shuffle: bool):
    request = make_request(MIXTURES["tiny"][0], shuffle=shuffle, world_size=2, batch_size=7)
    whole = every_byte(client, request)

    def again(_: int) -> list[list[tuple[bytes, bytes]]]:
        with fl.connect(server.url) as other:
            return every_byte(other, request)

    with ThreadPoolExecutor(4) as pool:
        assert all(found == whole for found in pool.map(again, range(8)))


@pytest.mark.parametrize("shuffle", [False, True])
def test_replay_says_the_source(client: fl.FlightClient, shuffle: bool):
    for name, remainder in (("three", "PAD"), ("tiny", "KEEP"), ("short", "PAD")):
        sources, counts = MIXTURES[name]
        request = make_request(sources, shuffle=shuffle, world_size=3, remainder=remainder, window_rows=16)
        order = expected(request, counts)
        for rank in range(3):
            for step, rows in enumerate(order.batches(rank)):
                (found,) = act(client, "replay", {"stream": request, "rank": rank, "step": step})
                assert [(int(row.get("source", 0)), int(row.get("row_id", 0))) for row in found["rows"]] == rows
                for row in found["rows"]:
                    dataset = sources[int(row.get("source", 0))]["dataset"]
                    assert row["dataset"] == dataset
                    assert Path(row["file"]).suffix == ".parquet"
                if step == 0:
                    batch = next(batch for _, batch in read(client, fl.Ticket(base64.b64decode(found["ticket"]))))
                    assert rows_of(batch, request) == rows


def test_explain_lists_the_sources(client: fl.FlightClient):
    sources, _ = MIXTURES["repeating"]
    for shuffle in (False, True):
        request = make_request(sources, shuffle=shuffle, world_size=2)
        (found,) = act(client, "explain", request)
        described = json.loads(info(client, request).app_metadata)
        assert int(found["rows"]) == int(described["rows"])
        assert found["sources"] == described["sources"]
        assert [one["dataset"] for one in found["sources"]] == ["c", "b"]
        assert [one["share"] for one in found["sources"]] == [5 / 7, 2 / 7]
        repeated = found["sources"][1]
        assert repeated["epochs"] == int(repeated["epoch_rows"]) / 143
        assert repeated["repeat"]
        assert int(found["read_bytes"]) >= int(found["stored_bytes"])
        assert int(found["memory_bytes"]) > 0
        assert float(found["row_groups_per_batch"]) >= 1


def test_tickets_pin_every_source(serve: Serve, tmp_path: Path):
    server = serve(write_datasets(tmp_path))
    request = make_request(MIXTURES["three"][0], shuffle=True, seed=4)
    with fl.connect(server.url) as client:
        found = info(client, request)
        snapshot = json.loads(found.app_metadata)["snapshot"]
        whole = read(client, found.endpoints[0].ticket)
        write_file(tmp_path / "c" / "9.parquet", [50], 2_000_400)
        changed = json.loads(info(client, request).app_metadata)["snapshot"]
        assert changed != snapshot
        # The ticket, and a request that names the snapshot, still read the files of before.
        for ticket in (found.endpoints[0].ticket, info(client, {**request, "snapshot": snapshot}).endpoints[0].ticket):
            again = read(client, ticket)
            assert [header for header, _ in again] == [header for header, _ in whole]
            assert all(one.equals(other) for (_, one), (_, other) in zip(again, whole, strict=True))
        (tmp_path / "c" / "0.parquet").write_bytes((tmp_path / "b" / "0.parquet").read_bytes())
        with pytest.raises(fl.FlightError, match="SNAPSHOT_CHANGED"):
            read(client, found.endpoints[0].ticket)
    other = serve({name: tmp_path / name for name in FILES})
    with fl.connect(other.url) as client, pytest.raises(fl.FlightError, match="SNAPSHOT_CHANGED.*sources"):
        info(client, {**request, "snapshot": snapshot})


def test_samples_apply_to_every_source(client: fl.FlightClient):
    sources = [{"dataset": "c", "weight": 1}, {"dataset": "a", "weight": 1, "repeat": True}]
    request = make_request(sources, sample=0.5, sample_seed=3)
    described = json.loads(info(client, request).app_metadata)["sources"]
    for one in described:
        alone = json.loads(
            info(client, {"dataset": one["dataset"], "plan": PLAN, "sample": 0.5, "sample_seed": 3}).app_metadata
        )
        assert one["rows"] == alone["rows"]
        assert one["plan_id"] == alone["plan_id"]
        assert one["snapshot"] == alone["snapshot"]


def test_values_of_sources_with_different_plans(client: fl.FlightClient):
    doubled = {**PLAN, "derive": [{"name": "y", "expr": "x * 2"}]}
    doubled["outputs"] = [
        {**output, "parts": [{"columns": ["y", "id"]}]} if output["name"] == "wide" else output
        for output in PLAN["outputs"]
    ]
    request = make_request([{"dataset": "a", "weight": 1}, {"dataset": "b", "weight": 1, "plan": doubled}])
    for _, batch in read(client, info(client, request).endpoints[0].ticket):
        for (source, _), wide, i in zip(
            rows_of(batch, request), batch["wide"].to_numpy_ndarray(), batch["id"].to_pylist(), strict=True
        ):
            assert wide[0] == (i % 1000) / 8 * (1 + source)


def test_sources_with_different_outputs_are_refused(client: fl.FlightClient):
    def with_outputs(outputs: list[Json]) -> str:
        other = {"dataset": "b", "weight": 1, "plan": {"outputs": outputs}}
        return refusal(client, make_request([{"dataset": "a", "weight": 1}, other]))

    outputs = [dict(output) for output in PLAN["outputs"]]
    text = with_outputs(outputs[:-1])
    assert "INVALID_REQUEST: sources[1].plan: 4 outputs here and 5 in sources[0]" in text
    text = with_outputs([{**outputs[0], "name": "number"}, *outputs[1:]])
    assert 'output "number" is "id" in sources[0]' in text
    assert '"b" and "a"' in text
    text = with_outputs([{**outputs[0], "dtype": "INT32"}, *outputs[1:]])
    assert 'output "id" is Int32 here and Int64 in sources[0]' in text
    text = with_outputs([outputs[0], {**outputs[1], "parts": [{"columns": ["x", "x", "id"]}]}, *outputs[2:]])
    assert 'output "wide" is' in text


UNFITTED = {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]}]}
PLAIN = {"dataset": "a", "weight": 1}
REFUSALS: dict[str, tuple[Json, str]] = {
    "both": ({"dataset": "a", "sources": FIRST_TWO}, 'dataset: "a" cannot be combined with sources'),
    "no source": ({"plan": PLAN}, "dataset: missing"),
    "no weight": ({"sources": [{"dataset": "a"}]}, "sources[0].weight: missing"),
    "zero": ({"sources": [PLAIN, {"dataset": "b", "weight": 0}]}, "sources[1].weight: 0 is not a share"),
    "negative": ({"sources": [{"dataset": "b", "weight": -0.5}, PLAIN]}, "sources[0].weight: -0.5 is not a share"),
    "infinite": ({"sources": [PLAIN, {"dataset": "b", "weight": "Infinity"}]}, "sources[1].weight: inf is not"),
    "no number": ({"sources": [PLAIN, {"dataset": "b", "weight": "NaN"}]}, "sources[1].weight: NaN is not"),
    "sum": (
        {"sources": [{"dataset": "a", "weight": 1e308}, {"dataset": "b", "weight": 1e308}]},
        "sources: the sum of the weights is not finite",
    ),
    "too small": (
        {"sources": [PLAIN, {"dataset": "b", "weight": 1e-9}]},
        "sources[1].weight: 0.000000001 is less than",
    ),
    "too many": ({"sources": [{"dataset": "a", "weight": 1}] * 65}, "sources: 65 sources exceed the 64"),
    "no name": ({"sources": [{"weight": 1}]}, "sources[0].dataset: missing"),
    "unknown": ({"sources": [PLAIN, {"dataset": "aa", "weight": 1}]}, 'sources[1], dataset "aa": no dataset "aa"'),
    "twice": (
        {"sources": [PLAIN, {"dataset": "b", "weight": 1}, PLAIN]},
        'sources[2].dataset: "a" is also sources[0], with the same plan',
    ),
    "all repeat": (
        {"sources": [{**PLAIN, "repeat": True}, {"dataset": "b", "weight": 1, "repeat": True}]},
        "sources: every source repeats",
    ),
    "no rows": (
        {"sources": [PLAIN, {"dataset": "b", "weight": 1, "plan": {**PLAN, "filter": "id < 0"}}]},
        'EMPTY_DATASET: sources[1]: no row of dataset "b" passes',
    ),
    "groups": ({"sources": FIRST_TWO, "group_by": "key"}, "group_by: cannot be combined with sources"),
    "both weights": (
        {"sources": [{**PLAIN, "rows_per_batch": 16}]},
        "sources[0].rows_per_batch: send either weight or rows_per_batch",
    ),
    "mixed weights": (
        {"sources": [PLAIN, {"dataset": "b", "rows_per_batch": 16}]},
        "sources[1].rows_per_batch: all sources need rows_per_batch, or none",
    ),
    "rows per batch": (
        {"sources": [{"dataset": "a", "rows_per_batch": 5}, {"dataset": "b", "rows_per_batch": 5}]},
        "add up to 10, and batch_size is 16",
    ),
    "no rows per batch": (
        {"sources": [{"dataset": "a", "rows_per_batch": 16}, {"dataset": "b", "rows_per_batch": 0}]},
        "sources[1].rows_per_batch: 0 is not a share",
    ),
    "two plans": (
        {"sources": [{**PLAIN, "plan": PLAN, "plan_id": "x"}]},
        "sources[0].plan_id: send either plan or plan_id",
    ),
    "no plan": ({"sources": FIRST_TWO, "plan": None}, "sources[0].plan: missing"),
    "empty plan": (
        {"sources": [{**PLAIN, "plan": {"outputs": []}}]},
        "sources[0].plan.outputs",
    ),
    "unfitted": (
        {"sources": FIRST_TWO, "plan": UNFITTED},
        'NOT_FITTED: sources[0], dataset "a": plan.outputs[0].parts[0]',
    ),
    "unknown plan": ({"sources": [{**PLAIN, "plan_id": "nope"}]}, 'UNKNOWN_PLAN: sources[0], dataset "a"'),
    "misspelled": ({"sources": [{**PLAIN, "repeats": True}]}, "repeats"),
    "past the end": ({"sources": FIRST_TWO, "start_position": 160_000}, "start_position"),
    "snapshot": ({"sources": FIRST_TWO, "snapshot": "5f3a"}, "SNAPSHOT_CHANGED"),
    "snapshot of a source": ({"sources": [{**PLAIN, "snapshot": "5f3a"}]}, "SNAPSHOT_CHANGED: sources[0]"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_wrong_mixtures_are_refused(client: fl.FlightClient, name: str):
    changes, message = REFUSALS[name]
    request = {"plan": PLAN, "batch_size": 16, **changes}
    request = {field: value for field, value in request.items() if value is not None}
    text = refusal(client, request)
    assert message in text
    if request.get("group_by") is None:
        with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
            act(client, "explain", request)
        assert message in str(caught.value)


def test_a_plan_that_was_fitted_on_one_dataset(client: fl.FlightClient):
    *_, last = act(client, "fit", {"dataset": "a", "plan": UNFITTED})
    plan_id = last["result"]["plan_id"]
    request = {"sources": FIRST_TWO, "plan_id": plan_id}
    found = info(client, request)
    described = json.loads(found.app_metadata)
    assert {one["plan_id"] for one in described["sources"]} == {plan_id}
    assert described["plan_id"] != plan_id
    assert sum(batch.num_rows for _, batch in read(client, found.endpoints[0].ticket)) == int(described["rows"])


def test_weights_change_the_id_of_the_plans(client: fl.FlightClient):
    def plan_id(sources: list[Json]) -> str:
        return str(json.loads(info(client, make_request(sources)).app_metadata)["plan_id"])

    known = plan_id(FIRST_TWO)
    assert plan_id([{**FIRST_TWO[0], "weight": 7}, {**FIRST_TWO[1], "weight": 3}]) == known
    assert plan_id([{**FIRST_TWO[0], "weight": 0.6}, FIRST_TWO[1]]) != known
    assert plan_id([FIRST_TWO[0], {**FIRST_TWO[1], "repeat": True}]) != known


def test_memory_is_reserved_for_every_source(serve: Serve, tmp_path: Path):
    server = serve(write_datasets(tmp_path), "--memory-limit-bytes", "24MiB")
    request = make_request(MIXTURES["three"][0], shuffle=True)
    with fl.connect(server.url) as client:
        for lanes in (1, 4096):
            ticket = info(client, {**request, "lanes": lanes}).endpoints[0].ticket
            if lanes == 1:
                for _, batch in read(client, ticket):
                    check_values(batch)
                continue
            with pytest.raises((fl.FlightError, pa.ArrowException), match="LIMIT.*fewer lanes or smaller window_rows"):
                read(client, ticket)


def test_many_ranks_of_a_large_mixture_are_refused(client: fl.FlightClient):
    plans = [{**PLAN, "filter": f"id >= 0 and {number} = {number} and '{'x' * 300}' <> ''"} for number in range(64)]
    sources = [{"dataset": "a", "weight": 1, "plan": plan} for plan in plans]
    assert "LIMIT: world_size: the tickets of 16384 ranks" in refusal(client, make_request(sources, world_size=16_384))
    assert info(client, make_request(sources, world_size=16)).endpoints
