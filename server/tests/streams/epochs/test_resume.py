"""Shuffled epochs resume anywhere and are the same for any number of ranks, byte for byte."""

from __future__ import annotations

import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.epochs import (
    REMAINDERS,
    SEED_MAX,
    Data,
    check,
    describe,
    every_byte,
    failure,
    make_request,
    read_ids,
)
from harness.serving import Serve, Server, info


@pytest.mark.parametrize(("dataset", "lanes", "step_rows"), [("uneven", 8, 40), ("single", 12, 240), ("ones", 16, 16)])
def test_global_step_has_the_same_rows_at_every_world_size(
    client: fl.FlightClient, dataset: str, lanes: int, step_rows: int
):
    """Where lanes divides batch_size x world_size."""
    steps: dict[int, list[list[int]]] = {}
    for world in (world for world in range(1, lanes + 1) if lanes % world == 0):
        request = make_request(
            dataset, lanes=lanes, batch_size=step_rows // world, world_size=world, window_rows=17, seed=3
        )
        ranks = read_ids(client, request)
        steps[world] = [sorted(itertools.chain(*step)) for step in itertools.zip_longest(*ranks, fillvalue=[])]
    for world, rows in steps.items():
        assert rows == steps[1], f"world size {world}"


@pytest.mark.parametrize(
    ("remainder", "changes"),
    [
        ("KEEP", {"dataset": "uneven", "world_size": 1, "batch_size": 41}),
        ("KEEP", {"dataset": "uneven", "world_size": 3, "batch_size": 19, "lanes": 6, "window_rows": 7}),
        ("KEEP", {"dataset": "single", "world_size": 2, "batch_size": 97, "lanes": 4, "window_rows": 50}),
        ("KEEP", {"dataset": "ones", "world_size": 4, "batch_size": 3, "where": "id % 2 = 1"}),
        ("DROP", {"dataset": "uneven", "world_size": 3, "batch_size": 13, "lanes": 3}),
        ("PAD", {"dataset": "uneven", "world_size": 4, "batch_size": 13, "window_rows": 10}),
        ("PAD", {"dataset": "dozen", "world_size": 5, "batch_size": 2}),
    ],
)
def test_resuming_at_every_step_gives_the_same_remaining_bytes(
    client: fl.FlightClient, datasets: dict[str, Data], remainder: str, changes: dict[str, Any]
):
    request = make_request(**changes, remainder=remainder, seed=5, epoch=2)
    order, whole = datasets[request["dataset"]].epoch(request), every_byte(client, request)
    for step in range(order.steps):
        rest = every_byte(client, {**request, "start_position": step * order.step_rows})
        for rank, got in enumerate(rest):
            place = f"rank {rank} from step {step} of {describe(request)}"
            if whole[rank][step:]:
                assert got == whole[rank][step:], place
            else:
                ((header, _),) = got
                assert (json.loads(header)["rows"], json.loads(header)["last"]) == (0, True), place


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("dataset", ["uneven", "single"])
def test_resuming_at_another_world_size_and_batch_size(
    client: fl.FlightClient, datasets: dict[str, Data], dataset: str, remainder: str
):
    """From a position that lanes divides, with any ranks and batches afterwards: each row exactly once."""
    data = datasets[dataset]
    saved = make_request(dataset, lanes=12, world_size=4, batch_size=21, window_rows=19, seed=8)
    order = data.epoch(saved)
    ranks = [order.ids(rank) for rank in range(4)]
    for step, world in itertools.product((1, 2), (1, 2, 3, 6, 12)):
        # lanes divides the position; 17 x world and most of these do not.
        resumed = {**saved, "world_size": world, "batch_size": 17, "start_position": step * order.step_rows}
        resumed["remainder"] = remainder
        check(client, data, resumed)
        if remainder == "KEEP":
            before = [row for rank in ranks for batch in rank[:step] for row in batch]
            after = [row for rank in read_ids(client, resumed) for batch in rank for row in batch]
            assert sorted(before + after) == list(range(data.table.num_rows)), describe(resumed)


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("world", "batch_size"), [(1, 7), (3, 19), (6, 5)])
def test_resuming_at_every_position_that_the_ranks_share(
    client: fl.FlightClient, datasets: dict[str, Data], remainder: str, shuffle: bool, world: int, batch_size: int
):
    """A start between steps needs `resumed_from`: the batches are counted from there."""
    data, rows = datasets["uneven"], datasets["uneven"].table.num_rows
    request = make_request("uneven", lanes=6, world_size=world, batch_size=batch_size, window_rows=19, seed=8)
    request |= {"shuffle": shuffle, "remainder": remainder}
    step_rows = world * batch_size
    for start in range(world, rows, world * 7):
        resumed = {**request, "start_position": start, "resumed_from": start % step_rows}
        check(client, data, resumed)
        if start % step_rows and not (shuffle and start % 6 == 0):
            words = str(failure(client, {**request, "start_position": start}))
            assert f"send resumed_from = {start % step_rows} as well" in words


def test_cursor_moves_from_4_ranks_to_2_to_8(client: fl.FlightClient, datasets: dict[str, Data]):
    """Ten steps at each world size: every prefix is the order's, in rows and in number."""
    data, seen, position = datasets["single"], list[int](), 0
    for world, steps in ((4, 10), (2, 10), (8, 10), (4, 100)):
        request = make_request(
            "single", lanes=8, world_size=world, batch_size=48 // world, start_position=position, seed=21
        )
        ranks = read_ids(client, request)
        seen += [row for rank in ranks for batch in rank[:steps] for row in batch]
        position = min(position + steps * 48, data.table.num_rows)
        assert sorted(seen) == sorted(data.epoch(request).prefix(position)), f"{world} ranks, up to {position}"
    assert sorted(seen) == list(range(data.table.num_rows))


# === The same bytes everywhere ===


def test_epochs_and_seeds_differ_and_hold_the_same_rows(client: fl.FlightClient):
    orders = {
        (seed, epoch): read_ids(client, make_request("uneven", seed=seed, epoch=epoch))[0][0]
        for seed, epoch in itertools.product((0, 1, SEED_MAX), (0, 1, SEED_MAX))
    }
    assert len(set(map(tuple, orders.values()))) == len(orders)
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1


def test_epoch_is_byte_identical_across_servers_and_runs(
    client: fl.FlightClient, server: Server, root: Path, serve: Serve
):
    """Read twice, by all ranks at once, from another process with another state, and from that after a restart."""
    request = make_request(
        "uneven", world_size=4, batch_size=9, window_rows=20, where="text IS NOT NULL", seed=4, epoch=1
    )
    first = every_byte(client, request)
    tickets = [endpoint.ticket for endpoint in info(client, request).endpoints]
    assert every_byte(client, request) == first

    def read_alone(ticket: fl.Ticket) -> list[tuple[bytes, bytes]]:
        with fl.connect(server.url) as own:
            return [(c.app_metadata.to_pybytes(), c.data.serialize().to_pybytes()) for c in own.do_get(ticket)]

    with ThreadPoolExecutor(len(tickets)) as pool:
        assert list(pool.map(read_alone, tickets)) == first
    for replica in (Server({"uneven": root / "uneven"}), Server({"uneven": root / "uneven", "one": root / "one"})):
        try:
            with fl.connect(replica.url) as other:
                assert [endpoint.ticket for endpoint in info(other, request).endpoints] == tickets
                assert every_byte(other, request) == first
        finally:
            replica.stop()


def test_epoch_survives_a_restart_with_the_same_state(root: Path, tmp_path: Path):
    """The counts that a filter's pass left in --state are those that are used again."""
    request = make_request("uneven", world_size=3, batch_size=9, where="id % 2 = 1", remainder="PAD", seed=9)
    seen: list[Any] = []
    for _ in range(2):
        dataset = f"uneven={root / 'uneven'}"
        daemon = Daemon(*LOOPBACK, "--state", os.fspath(tmp_path), "--dataset", dataset)
        try:
            with fl.connect(daemon.url) as connected:
                seen.append(every_byte(connected, request))
        finally:
            daemon.stop()
    assert seen[0] == seen[1]


def test_abandoned_stream_does_not_disturb_others(client: fl.FlightClient, datasets: dict[str, Data]):
    request = make_request("single", batch_size=10, world_size=2, window_rows=64)
    for _ in range(5):
        reader = client.do_get(info(client, request).endpoints[1].ticket)
        reader.read_chunk()
        reader.cancel()
    check(client, datasets["single"], request)
