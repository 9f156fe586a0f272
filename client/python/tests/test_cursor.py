"""Cursors: their content, the requests that reject them, and resuming after them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import forebay as fb
from forebay._client.cursor import Order
from forebay.torch import FlightDataset
from harness.serving import Serve, Server

IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
ROWS = 100


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def cursor(position: int, world_size: int, *, lanes: int = 0) -> fb.Cursor:
    """A cursor in a shuffled epoch, or in file order if `lanes` is 0."""
    order = Order(lanes=lanes, shuffle=True, window_rows=64) if lanes else Order()
    return fb.Cursor(epoch=1, position=position, world_size=world_size, order=order)


def test_largest_cursor_round_trips_in_300_bytes_of_json():
    # The most that the server takes, of 2^53 rows; its digests have 32 digits.
    order = Order(lanes=2**16, remainder="keep", seed=2**64 - 1, shuffle=True, window_rows=2**26)
    largest = fb.Cursor(2**64 - 1, 2**53, 2**14, order, snapshot="a" * 32, plan_id="b" * 32, order_version=1)
    text = largest.to_json()
    assert len(text.encode()) <= 300
    assert fb.Cursor.of(text) == fb.Cursor.of(json.loads(text)) == fb.Cursor.of(largest) == largest
    data = FlightDataset("grpc://127.0.0.1:1", "tiny", IDS, batch_size=1024, rank=3, world_size=2**14)
    data.load_state_dict(largest.to_dict())
    assert data.state_dict() == largest.to_dict()


def test_stream_resumes_after_its_cursor(client: fb.Client):
    options: dict[str, Any] = {"batch_size": 9, "world_size": 2, "rank": 1}
    whole = list(client.stream("tiny", IDS, **options, epoch=3))
    assert len(whole) == 6
    for steps in range(6):
        with client.stream("tiny", IDS, **options, epoch=3) as stream:
            for _ in range(steps):
                next(stream)
            place = stream.cursor()
            assert (place.epoch, place.position, place.world_size) == (3, steps * 18, 2)
            assert place.snapshot == (stream.info.snapshot if steps else "")
        with client.stream("tiny", IDS, **options, cursor=place.to_json()) as stream:
            assert stream.cursor() == place
            rest = list(stream)
        assert [batch.header for batch in rest] == [batch.header for batch in whole[steps:]]
        assert all(a.data.equals(b.data) for a, b in zip(rest, whole[steps:], strict=True))
        assert (stream.cursor().epoch, stream.cursor().position) == (4, 0)


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_every_rank_reports_the_same_cursor_after_the_same_step(client: fb.Client, remainder: Any):
    places: dict[int, set[fb.Cursor]] = {}
    for rank in range(3):
        with client.stream("tiny", IDS, batch_size=11, world_size=3, rank=rank, remainder=remainder) as stream:
            for batch in stream:
                places.setdefault(batch.header.step, set()).add(stream.cursor())
    assert all(len(place) == 1 for place in places.values())
    assert [next(iter(places[step])).epoch for step in sorted(places)] == [0] * (len(places) - 1) + [1]


def test_cursor_is_the_same_with_and_without_torch(client: fb.Client, server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    loop = iter(data)
    taken = [next(loop), next(loop)]
    state = data.state_dict()
    del loop
    with client.stream("tiny", IDS, batch_size=20, cursor=state) as stream:
        assert stream.cursor().to_dict() == state
        rest = ids(stream)
    assert ids(taken) + rest == list(range(ROWS))
    with client.stream("tiny", IDS, batch_size=20) as stream:
        next(stream)
        place = stream.cursor()
    data.load_state_dict(place.to_dict())
    assert torch.cat([batch["id"] for batch in data]).tolist() == list(range(20, ROWS))


def test_prefetched_batches_do_not_advance_the_cursor(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=10, prefetch=8)
    loop = iter(data)
    for taken in range(1, 10):
        next(loop)
        assert data.state_dict()["position"] == 10 * taken


@pytest.mark.parametrize(
    ("place", "world_size", "batch_size", "words"),
    [
        (cursor(0, 2), 3, 7, None),
        (cursor(48, 2), 2, 7, None),
        (cursor(48, 2), 4, 12, "file order"),
        (cursor(48, 2, lanes=16), 16, 7, None),
        (cursor(40, 2, lanes=16), 4, 8, None),
        (cursor(48, 2, lanes=16), 3, 16, "does not divide the 16 lanes"),
        (cursor(40, 2, lanes=16), 16, 8, "does not divide position 40.*such as 8"),
    ],
)
def test_dataset_loads_a_state_that_its_ranks_can_share(
    place: fb.Cursor, world_size: int, batch_size: int, words: str | None
):
    data = FlightDataset("grpc://127.0.0.1:1", "tiny", IDS, batch_size=batch_size, rank=0, world_size=world_size)
    if words is None:
        data.load_state_dict(place.to_dict())
        return
    with pytest.raises(ValueError, match=words):
        data.load_state_dict(place.to_dict())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 1}, "version 1, this package reads version 2"),
        ({"version": 3}, "version 3"),
        ({"position": None}, "invalid number"),
        ({"remainder": "some"}, "remainder"),
    ],
)
def test_rejects_a_foreign_state(client: fb.Client, change: dict[str, Any], words: str):
    state = {**cursor(20, 1).to_dict(), **change}
    with pytest.raises(fb.CursorRefused, match=words):
        client.stream("tiny", IDS, batch_size=20, cursor=state)
    with pytest.raises(ValueError, match=words):
        FlightDataset("grpc://127.0.0.1:1", "tiny", IDS, batch_size=20).load_state_dict(state)


def test_incomplete_state_names_the_missing_field():
    state = cursor(20, 1).to_dict()
    del state["position"]
    with pytest.raises(fb.CursorRefused, match="lacks position"):
        fb.Cursor.of(state)
    for nothing in ("{", "[]", 7):
        with pytest.raises(fb.CursorRefused, match="state is n"):
            fb.Cursor.of(nothing)  # type: ignore[arg-type]


def test_rejects_another_plan_dataset_or_order(client: fb.Client):
    with client.stream("tiny", IDS, batch_size=20) as stream:
        next(stream)
        place = stream.cursor()
    other = fb.Plan(outputs={"x": fb.cols("x")})
    with pytest.raises(fb.CursorRefused, match=f"saved under plan {place.plan_id}"):
        client.stream("tiny", other, batch_size=20, cursor=place)
    with pytest.raises(fb.NotFound, match="tony"):
        client.stream("tony", IDS, batch_size=20, cursor=place)
    with pytest.raises(ValueError, match="order"):
        client.stream("tiny", IDS, batch_size=20, cursor={**place.to_dict(), "order_version": 77})


def test_a_state_of_order_version_1_keeps_its_meaning(client: fb.Client, server: Server):
    """The rest of its epoch, and later epochs, follow the version that the state names; new epochs the latest."""
    options: dict[str, Any] = {"batch_size": 20, "shuffle": True, "seed": 4}

    def epoch(number: int, version: int) -> list[int]:
        with client.stream("tiny", IDS, **options, epoch=number) as stream:
            start = stream.cursor().to_dict()
        with client.stream("tiny", IDS, batch_size=20, cursor={**start, "order_version": version}) as stream:
            assert stream.cursor().order_version == version
            return ids(stream)

    first, second = epoch(0, 1), epoch(1, 1)
    orders = [first, epoch(0, 2), epoch(0, 3)]
    assert len(set(map(tuple, orders))) == 3
    assert all(sorted(order) == list(range(ROWS)) for order in orders)
    data = FlightDataset(server.url, "tiny", IDS, **options)
    assert ids(data) == epoch(0, 3)
    data = FlightDataset(server.url, "tiny", IDS, **options)
    next(iter(data))
    saved = {**data.state_dict(), "order_version": 1}
    old = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    old.load_state_dict(saved)
    assert ids(old) == first[20:]
    assert ids(old) == second
    assert old.state_dict()["order_version"] == 1


FEW = fb.Plan(filter="id < 20", outputs=IDS.outputs)


def test_checks_the_plan_before_the_position(client: fb.Client, server: Server):
    """A plan whose epoch is shorter than the place: the plan is what is wrong, not the position."""
    with client.stream("tiny", IDS, batch_size=20) as stream:
        next(stream), next(stream)
        place = stream.cursor()
    with client.stream("tiny", FEW, batch_size=20) as stream:
        few = stream.info.plan_id
    words = f"saved under plan {place.plan_id}; this plan is {few}"
    with pytest.raises(fb.CursorRefused, match=words):
        client.stream("tiny", FEW, batch_size=20, cursor=place)
    with pytest.raises(fb.CursorRefused, match=words):
        client.stream("tiny", fb.FittedPlan(few, FEW), batch_size=20, cursor=place)
    data = FlightDataset(server.url, "tiny", FEW, batch_size=20)
    data.load_state_dict(place.to_dict())
    with pytest.raises(fb.CursorRefused, match=words):
        next(iter(data))
    # With the same plan, the position past the end is the error.
    behind = fb.Cursor.of({**place.to_dict(), "position": 4000})
    with pytest.raises(fb.InvalidRequest, match="start_position") as raised:
        client.stream("tiny", IDS, batch_size=20, cursor=behind)
    assert type(raised.value) is fb.InvalidRequest


def test_checks_the_snapshot_before_the_position(client: fb.Client):
    with client.stream("tiny", IDS, batch_size=20) as stream:
        next(stream)
        present = stream.info.snapshot
        place = fb.Cursor.of({**stream.cursor().to_dict(), "snapshot": "0" * len(present), "position": 4000})
    with pytest.raises(fb.SnapshotChanged, match=f"{place.snapshot}.*{present}|{present}.*{place.snapshot}"):
        client.stream("tiny", IDS, batch_size=20, cursor=place)


SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 5, "window_rows": 4}


def test_shuffled_cursor_resumes_at_any_world_size_that_divides_the_lanes(server: Server):
    def ranks(world_size: int, batch_size: int) -> list[FlightDataset]:
        options: dict[str, Any] = {"batch_size": batch_size, "world_size": world_size, "remainder": "keep", **SHUFFLED}
        return [FlightDataset(server.url, "tiny", IDS, rank=rank, lanes=8, **options) for rank in range(world_size)]

    taken: list[int] = []
    states = []
    for data in ranks(4, 6):
        loop = iter(data)
        taken += ids([next(loop), next(loop)])
        states.append(data.state_dict())
    assert all(state == states[0] for state in states)
    assert (states[0]["position"], states[0]["lanes"], states[0]["shuffle"]) == (48, 8, True)
    assert len(set(taken)) == 48
    assert taken != sorted(taken)
    # Any batch size resumes, also where 48 is not a multiple of batch_size x world_size.
    for world_size, batch_size in [(1, 100), (1, 7), (2, 5), (4, 6), (8, 3), (8, 9)]:
        rest: list[int] = []
        for data in ranks(world_size, batch_size):
            data.load_state_dict(states[0])
            batches = list(data)
            rest += ids(batches)
            assert (data.state_dict()["epoch"], data.state_dict()["position"]) == (1, 0)
            assert data.state_dict()["order_version"] == states[0]["order_version"] > 0
        assert sorted(taken + rest) == list(range(ROWS)), (world_size, batch_size)
    with pytest.raises(fb.CursorRefused, match="does not divide the 8 lanes"):
        ranks(3, 8)[0].load_state_dict(states[0])


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("batch_size", [3, 5, 7, 16])
def test_shuffled_stream_resumes_after_every_step(client: fb.Client, remainder: Any, batch_size: int):
    options: dict[str, Any] = {"batch_size": batch_size, "world_size": 2, "remainder": remainder, **SHUFFLED}
    for rank in range(2):
        with client.stream("tiny", IDS, rank=rank, **options) as stream:
            places, whole = [], []
            for batch in stream:
                whole.append(batch)
                places.append(stream.cursor())
            assert len(whole) == len(stream)
        assert {place.order.lanes for place in places} == {16}
        for at, place in enumerate(places[:-1], start=1):
            if place.epoch:
                continue  # This is also the other rank's last step; the next epoch follows.
            with client.stream("tiny", IDS, rank=rank, batch_size=batch_size, world_size=2, cursor=place) as stream:
                assert len(stream) == len(whole) - at
                assert [batch.header for batch in stream] == [batch.header for batch in whole[at:]]


def test_state_records_the_servers_default_lanes(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=12, rank=0, world_size=3, **SHUFFLED)
    before = data.state_dict()
    loop = iter(data)
    next(loop)
    after = data.state_dict()
    assert before["lanes"] == after["lanes"] == 24
    assert before["window_rows"] == after["window_rows"] == 4


def test_rejects_another_snapshot(serve: Serve, tmp_path: Path):
    folder = tmp_path / "growing"
    folder.mkdir()
    pq.write_table(pa.table({"id": np.arange(50)}), folder / "a.parquet")
    server = serve({"growing": folder})
    data = FlightDataset(server.url, "growing", IDS, batch_size=10)
    loop = iter(data)
    next(loop)
    state = data.state_dict()
    del loop
    pq.write_table(pa.table({"id": np.arange(50, 60)}), folder / "b.parquet")
    fresh = FlightDataset(serve({"growing": folder}).url, "growing", IDS, batch_size=10)
    fresh.load_state_dict(state)
    with pytest.raises(fb.SnapshotChanged):
        iter(fresh)
    # The start of an epoch belongs to no snapshot.
    fresh.load_state_dict({**state, "epoch": 1, "position": 0, "snapshot": ""})
    assert ids(fresh) == list(range(60))
