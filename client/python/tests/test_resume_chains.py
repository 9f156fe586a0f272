"""Runs that are preempted again and again, each time resumed with another batch size and world size.

The rows of all runs together are those of an uninterrupted epoch, each exactly once, and every state that a run saved
loads again in the same run.
"""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay._client.cursor import Order
from forebay._client.resume import start_at
from forebay.torch import FlightDataset
from harness.epoch_order import Epoch, passing_rows
from harness.restartable import Restartable
from harness.serving import Serve, Server

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

# Cases that forebay_proto::resume is tested with, too.
CASES = Path(__file__).parents[3] / "proto/tests/resume.csv"
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
GROUP_ROWS = (300, 1, 140, 77, 96, 57)
ROWS = sum(GROUP_ROWS)
SEEDS = range(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chains") / "rows"
    root.mkdir()
    start = 0
    for number, rows in enumerate(GROUP_ROWS):
        ids = np.arange(start, start + rows)
        pq.write_table(pa.table({"id": ids, "third": ids % 3}), root / f"{number}.parquet")
        start += rows
    return root


@pytest.fixture(scope="module")
def server(serve: Serve, folder: Path) -> Server:
    return serve({"rows": folder, "more": folder})


@pytest.fixture
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def own_ids(batch: fb.Batch) -> list[int]:
    """The rows of a batch without padding."""
    return [int(i) for i in batch["id"][: batch.header.rows - batch.header.padding_rows]]


def table_cases() -> list[dict[str, str]]:
    lines = [line for line in CASES.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize("case", table_cases(), ids=lambda case: ",".join(case.values()))
def test_the_rule_is_that_of_the_server(case: dict[str, str]):
    numbers = ("position", "saved_world_size", "lanes", "world_size", "batch_size")
    position, saved, lanes, world_size, batch_size = (int(case[name]) for name in numbers)
    place = fb.Cursor(1, position, saved, Order(shuffle=lanes > 0, lanes=lanes or None))
    if case["outcome"] != "resumes":
        with pytest.raises(fb.CursorRefused) as raised:
            place.check(world_size=world_size)
        assert case["expected"] in str(raised.value)
        return
    place.check(world_size=world_size)
    fields = start_at(position, world_size=world_size, batch_size=batch_size)
    assert fields == {"start_position": position, "resumed_from": int(case["expected"])}


def preempted(draw: random.Random, client: fb.Client, data: Any, state: str, world: int) -> tuple[list[int], str]:
    """Some steps of every rank from a state on: the rows, and the state after them, which is that of all ranks."""
    size = draw.choice([2, 3, 5, 8, 13, 21, 34, 55])
    steps = draw.randint(1, max(1, min(4, 90 // (size * world))))
    rows: list[int] = []
    states: set[str] = set()
    for rank in range(world):
        place, left = state, 0
        # The same run is interrupted after each of its steps, and loads its own state.
        for _ in range(steps):
            with client.stream(data, IDS, rank=rank, world_size=world, batch_size=size, cursor=place) as stream:
                before, left = stream.cursor().position, len(stream)
                batches = list(itertools.islice(stream, 1))
                place = stream.cursor().to_json()
            for batch in batches:
                header = batch.header
                assert (header.position, header.step) == (before, before // (size * world))
                rows += own_ids(batch)
            if not batches or fb.Cursor.of(place).position == 0:
                assert left <= 1
                break
        states.add(place)
    assert len(states) == 1, "all ranks save the same"
    return rows, states.pop()


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_shuffled_epoch_survives_any_preemptions(client: fb.Client, seed: int, remainder: Any):
    draw = random.Random(f"{seed} {remainder}")
    lanes = draw.choice([8, 12, 16, 18])
    order: dict[str, Any] = {"shuffle": True, "seed": seed, "lanes": lanes, "window_rows": draw.choice([1, 7, 64])}
    epoch = Epoch(passing_rows(GROUP_ROWS), **order, epoch=2)
    state = fb.Cursor(2, 0, lanes, Order(**order, remainder=remainder)).to_json()
    seen: list[int] = []
    while (place := fb.Cursor.of(state)).epoch == 2:
        common = math.gcd(lanes, place.position)
        world = draw.choice([one for one in range(1, lanes + 1) if common % one == 0])
        rows, state = preempted(draw, client, "rows", state, world)
        seen += rows
        after = fb.Cursor.of(state)
        if after.epoch == 2:
            assert sorted(seen) == sorted(epoch.prefix(after.position)), f"{world} ranks to {after.position}"
    assert len(set(seen)) == len(seen), "a row came twice"
    if remainder == "drop":
        assert set(seen) == set(epoch.prefix(len(seen)))
    else:
        assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("world", [1, 3])
def test_an_epoch_in_file_order_survives_other_batch_sizes(client: fb.Client, world: int, remainder: Any):
    draw = random.Random(world)
    state = fb.Cursor(0, 0, world, Order(remainder=remainder)).to_json()
    seen: list[int] = []
    while fb.Cursor.of(state).epoch == 0:
        rows, state = preempted(draw, client, "rows", state, world)
        seen += rows
    assert len(set(seen)) == len(seen)
    if remainder != "drop":
        assert sorted(seen) == list(range(ROWS))
    with pytest.raises(fb.CursorRefused, match="resume at world size 2"):
        client.stream("rows", IDS, world_size=4, cursor=fb.Cursor(0, 48, 2))


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_mixture_survives_any_preemptions(client: fb.Client, seed: int):
    draw = random.Random(seed)
    mixture = fb.mix({"rows": 0.7, "more": 0.3})
    order: dict[str, Any] = {"shuffle": True, "seed": seed, "lanes": 12, "window_rows": 16}
    whole = ids(client.stream(mixture, IDS, **order))
    state = fb.Cursor(0, 0, 12, Order(**order)).to_json()
    seen: list[int] = []
    while (place := fb.Cursor.of(state)).epoch == 0:
        common = math.gcd(12, place.position)
        world = draw.choice([one for one in range(1, 13) if common % one == 0])
        rows, state = preempted(draw, client, mixture, state, world)
        seen += rows
        if (after := fb.Cursor.of(state)).epoch == 0:
            assert sorted(seen) == sorted(whole[: after.position])
    assert sorted(seen) == sorted(whole)


def test_a_group_resumes_at_another_batch_size(client: fb.Client):
    seen: list[int] = []
    cursor, size = None, 7
    while True:
        group = client.groups("rows", IDS, by="third", batch_size=size, shuffle=True, seed=3)[1]
        with group.open(cursor=cursor) as stream:
            batches = list(itertools.islice(stream, 2))
            cursor = stream.cursor()
        seen += ids(batches)
        if cursor.epoch:
            break
        size = size % 11 + 3
    assert sorted(seen) == list(range(1, ROWS, 3))


def test_the_issues_run_loads_its_own_state(server: Server):
    """Saved in batches of 12, resumed in batches of 10 on the lanes, preempted one step later."""

    def run(batch_size: int, state: dict[str, Any] | None, steps: int) -> tuple[list[int], dict[str, Any]]:
        rows: list[int] = []
        states = []
        for rank in range(2):
            options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "lanes": 16, "remainder": "keep"}
            data = FlightDataset(server.url, "rows", IDS, rank=rank, world_size=2, **options)
            if state is not None:
                data.load_state_dict(state)
            loop = iter(data)
            rows += ids(itertools.islice(loop, steps))
            states.append(data.state_dict())
        assert states[0] == states[1]
        return rows, states[0]

    seen, state = run(12, None, 2)
    for _ in range(3):
        rows, state = run(10, state, 1)
        seen += rows
    assert state["position"] == 48 + 3 * 20
    rows, state = run(10, state, ROWS)
    assert sorted(seen + rows) == list(range(ROWS))
    assert (state["epoch"], state["position"]) == (1, 0)


def test_a_stateful_data_loader_resumes_between_its_steps(server: Server):
    def loader(batch_size: int) -> tuple[FlightDataset, StatefulDataLoader[Any]]:
        data = FlightDataset(server.url, "rows", IDS, batch_size=batch_size, shuffle=True, seed=2)
        return data, StatefulDataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="forkserver")

    seen: list[int] = []
    state: Any = None
    for size in (12, 10, 10, 7, 100):
        _, batches = loader(size)
        if state is not None:
            batches.load_state_dict(state)
        count = ROWS if size == 100 else 3
        # The state of a worker counts the batches that the loop received.
        loop = iter(batches)
        for _ in range(count):
            batch = next(loop, None)
            if batch is None:
                break
            seen += [int(i) for i in batch["id"]]
        state = batches.state_dict()
        del loop
    assert sorted(seen) == list(range(ROWS))


def test_epochs_follow_a_resume_between_steps(server: Server):
    def data(batch_size: int) -> FlightDataset:
        return FlightDataset(server.url, "rows", IDS, batch_size=batch_size, shuffle=True, seed=4, epochs=3)

    orders = [Epoch(passing_rows(GROUP_ROWS), shuffle=True, seed=4, epoch=epoch).prefix(ROWS) for epoch in range(3)]
    first = data(12)
    loop = iter(first)
    taken = ids(next(loop) for _ in range(4))
    state = first.state_dict()
    again = data(10)
    again.load_state_dict(state)
    loop = iter(again)
    taken += ids([next(loop)])
    last = data(10)
    last.load_state_dict(again.state_dict())
    assert taken + ids(last) == [*orders[0], *orders[1], *orders[2]]


def test_replay_finds_the_batches_of_a_resumed_run(server: Server, client: fb.Client):
    options: dict[str, Any] = {"shuffle": True, "seed": 6}
    first = FlightDataset(server.url, "rows", IDS, batch_size=12, **options)
    loop = iter(first)
    for _ in range(4):
        next(loop)
    state = first.state_dict()
    data = FlightDataset(server.url, "rows", IDS, batch_size=10, **options)
    data.load_state_dict(state)
    with client.stream("rows", IDS, batch_size=10, cursor=state) as stream:
        batches = [next(stream) for _ in range(5)]
        saved = stream.cursor()
    assert [batch.header.step for batch in batches] == [4, 5, 6, 7, 8]
    loop = iter(data)
    for batch in batches:
        assert ids([next(loop)]) == ids([batch])
        for replay in (
            data.replay(step=batch.header.step),
            client.replay("rows", IDS, step=batch.header.step, batch_size=10, cursor=state),
            client.replay("rows", IDS, step=batch.header.step, batch_size=10, cursor=saved),
        ):
            assert replay.rows["row_id"].to_pylist() == ids([batch]) == ids([replay.batch])
            assert (replay.header.step, replay.header.position) == (batch.header.step, batch.header.position)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_run_between_steps_fails_over(folder: Path, tmp_path: Path, shuffle: bool):
    server = Restartable({"rows": folder}, tmp_path / "state")
    try:
        with fb.connect(server.url, retry_seconds=60) as client:
            order = Order(shuffle=shuffle, lanes=16 if shuffle else None, seed=1)
            whole = ids(client.stream("rows", IDS, shuffle=shuffle, lanes=order.lanes, seed=1))
            stream = client.stream("rows", IDS, batch_size=100, cursor=fb.Cursor(0, 37, 1, order))
            assert len(stream) == -(-(ROWS - 37) // 100)
            seen = ids([next(stream)])
            server.kill()
            server.start()
            assert seen + ids(stream) == whole[37:]
    finally:
        server.kill()


def test_a_state_at_which_ranks_differ_names_the_world_sizes_that_resume(client: fb.Client):
    state = fb.Cursor(0, 68, 2, Order(shuffle=True, lanes=16))
    with pytest.raises(fb.CursorRefused, match="world size 8 does not divide position 68.*such as 4"):
        client.stream("rows", IDS, world_size=8, cursor=state)
    assert len(client.stream("rows", IDS, world_size=4, batch_size=10, cursor=state)) == -(-(ROWS - 68) // 40)


def test_lanes_that_a_state_leaves_out_are_those_of_its_world_size(client: fb.Client):
    for version, lanes in ((1, 20), (2, 20), (3, 40)):
        begin = fb.Cursor(0, 0, 1, Order(shuffle=True, lanes=lanes), order_version=version)
        whole = ids(client.stream("rows", IDS, cursor=begin))
        state = fb.Cursor(0, 40, 5, Order(shuffle=True), order_version=version)
        assert ids(client.stream("rows", IDS, cursor=state)) == whole[40:]
