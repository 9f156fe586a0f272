"""Shuffled epochs over bare pyarrow Flight, compared row by row with an order computed in NumPy (`epoch_order`)."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.epoch_order import Epoch, passing_rows
from harness.epochs import (
    FILES,
    REMAINDERS,
    SEED_MAX,
    Data,
    check,
    describe,
    failure,
    make_request,
    random_request,
    read,
    read_ids,
)
from harness.serving import Serve, Server, info

# Random cases of each dataset and remainder; the environment variable sets more.
CASES = int(os.environ.get("FOREBAY_EPOCH_CASES", "12"))


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("dataset", FILES)
def test_every_row_follows_the_order(client: fl.FlightClient, datasets: dict[str, Data], dataset: str, remainder: str):
    for number in range(CASES):
        check(client, datasets[dataset], random_request(datasets[dataset], remainder, number))


CORNERS: dict[str, dict[str, Any]] = {
    "all defaults": {"dataset": "uneven"},
    "windows of one row keep T's order within a lane": {"dataset": "uneven", "window_rows": 1, "batch_size": 64},
    "one lane, one window": {"dataset": "single", "lanes": 1, "window_rows": 10**6, "batch_size": 997},
    "a window one row shorter than the lane": {"dataset": "dozen", "lanes": 1, "window_rows": 11},
    "cuts within a row group": {"dataset": "single", "lanes": 8, "window_rows": 100, "batch_size": 211},
    "lanes that meet": {"dataset": "ones", "lanes": 6, "window_rows": 4, "batch_size": 7, "world_size": 3},
    "an odd number of lanes that meet": {"dataset": "ones", "lanes": 3, "batch_size": 9},
    "row groups just too few to meet": {"dataset": "ones", "lanes": 8, "window_rows": 4, "batch_size": 7},
    "row groups just enough not to turn": {"dataset": "ones", "lanes": 30, "window_rows": 4, "batch_size": 7},
    "row groups just few enough to turn": {"dataset": "ones", "lanes": 31, "window_rows": 4, "batch_size": 7},
    "lanes of many row groups": {"dataset": "ones", "lanes": 2, "window_rows": 7, "batch_size": 5},
    "more lanes than rows": {"dataset": "dozen", "lanes": 64, "batch_size": 5, "world_size": 4},
    "as many lanes as there may be": {"dataset": "dozen", "lanes": 65536, "batch_size": 5, "world_size": 32},
    "more ranks than rows": {"dataset": "twelve", "world_size": 40, "batch_size": 2},
    "more ranks than rows, padded": {"dataset": "twelve", "world_size": 40, "batch_size": 2, "remainder": "PAD"},
    "more ranks than rows, dropped": {"dataset": "twelve", "world_size": 40, "batch_size": 2, "remainder": "DROP"},
    "one row, many ranks, padded": {"dataset": "one", "world_size": 5, "batch_size": 3, "remainder": "PAD"},
    "batches larger than the data, padded": {"dataset": "dozen", "world_size": 2, "batch_size": 50, "remainder": "PAD"},
    "nothing passes": {"dataset": "uneven", "where": "id < 0", "world_size": 3},
    "nothing passes, padded": {"dataset": "uneven", "where": "id < 0", "world_size": 3, "remainder": "PAD"},
    "nothing passes, dropped": {"dataset": "uneven", "where": "id < 0", "world_size": 3, "remainder": "DROP"},
    "the largest numbers": {"dataset": "uneven", "seed": SEED_MAX, "epoch": SEED_MAX, "window_rows": 2**26},
    "a world that does not divide 16": {"dataset": "uneven", "world_size": 5, "batch_size": 9},
    "from the end": {"dataset": "dozen", "world_size": 2, "batch_size": 3, "start_position": 12},
}


@pytest.mark.parametrize("corner", CORNERS)
def test_edge_cases_follow_the_order(client: fl.FlightClient, datasets: dict[str, Data], corner: str):
    request = make_request(**CORNERS[corner])
    check(client, datasets[request["dataset"]], request)


def test_real_data_in_the_default_order(flights: pa.Table, flights_folder: Path, serve: Serve):
    """336,776 flights in row groups larger than a window, of which a filter leaves some out."""
    plan = {
        "filter": "arr_delay IS NOT NULL",
        "outputs": [
            {"name": "distance", "parts": [{"columns": ["distance"]}]},
            {"name": "tail", "dtype": "AS_STORED", "parts": [{"columns": ["tailnum"]}]},
        ],
    }
    request = {"dataset": "flights", "plan": plan, "shuffle": True, "with_row_ids": True, "seed": 7, "epoch": 1}
    files = [pq.ParquetFile(path).metadata for path in sorted(flights_folder.iterdir())]
    sizes = [file.row_group(i).num_rows for file in files for i in range(file.num_row_groups)]
    passes = flights["arr_delay"].is_valid().to_numpy()
    order = Epoch(passing_rows(sizes, passes), shuffle=True, batch_size=4096, world_size=2, seed=7, epoch=1)
    with fl.connect(serve({"flights": flights_folder}).url) as connected:
        found = info(connected, {**request, "batch_size": 4096, "world_size": 2})
        assert found.total_records == order.rows == 327_346
        for rank, endpoint in enumerate(found.endpoints):
            got = connected.do_get(endpoint.ticket).read_all()
            assert np.array_equal(got["__row_id"].to_numpy(), np.concatenate(order.ids(rank)))
            rows = flights.take(got["__row_id"])
            assert np.array_equal(got["distance"].to_numpy(), rows["distance"].to_numpy().astype(np.float32))
            assert got["tail"].to_pylist() == rows["tailnum"].to_pylist()


def test_server_counts_match_the_files(client: fl.FlightClient, datasets: dict[str, Data]):
    """The row groups are permuted, the empty ones among them: their number is part of the order."""
    for found in client.list_flights():
        about = json.loads(found.app_metadata)
        assert about["row_groups"] == len(datasets[about["name"]].groups), about["name"]


def test_row_ids_only_add_a_column(client: fl.FlightClient):
    request = make_request("uneven", batch_size=50, world_size=2, window_rows=30)
    for with_ids, without in zip(
        info(client, request).endpoints, info(client, {**request, "with_row_ids": False}).endpoints, strict=True
    ):
        left = [batch.drop_columns("__row_id") for _, batch in read(client, with_ids.ticket)]
        right = [batch for _, batch in read(client, without.ticket)]
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert one.equals(other)


# === Requests that are wrong ===


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start_position": 12, "lanes": 8, "batch_size": 5, "world_size": 4}, ["start_position", "12", "20", "8"]),
        ({"start_position": 1}, ["start_position", "1024", "16"]),
        ({"start_position": 8, "lanes": 16, "batch_size": 3, "world_size": 2}, ["start_position", "6", "16"]),
        ({"start_position": 2**63}, ["start_position"]),
        ({"start_position": 320_000, "batch_size": 16}, ["start_position"]),
        ({"lanes": 16, "world_size": 3}, ["lanes", "world_size", "3"]),
        ({"lanes": 2, "world_size": 4}, ["lanes", "world_size", "4"]),
        ({"window_rows": 0}, ["window_rows"]),
        ({"window_rows": -1}, ["window_rows"]),
        ({"window_rows": 2**63}, ["window_rows"]),
        ({"lanes": -16}, ["lanes"]),
        ({"batch_size": 0}, ["batch_size"]),
        ({"world_size": 0}, ["world_size"]),
        ({"seed": 2**65}, ["seed"]),
    ],
)
def test_invalid_request_names_the_field_and_allowed_values(
    client: fl.FlightClient, server: Server, changes: dict[str, Any], words: list[str]
):
    error = failure(client, make_request("uneven", **changes))
    assert error.code == "INVALID_ARGUMENT", str(error)
    for word in words:
        assert word in str(error), f"{word!r} is not in {error}"
    assert server.alive


@pytest.mark.parametrize("lanes", [2**63, 2**64 - 16, 2**48, 2**32])
def test_rejects_excessive_lanes_naming_the_limit(client: fl.FlightClient, server: Server, lanes: int):
    error = failure(client, make_request("uneven", lanes=lanes))
    assert error.code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"), str(error)
    assert "lanes" in str(error)
    assert server.alive


def test_rejects_another_order_version_by_name(client: fl.FlightClient, datasets: dict[str, Data]):
    error = failure(client, make_request("uneven", order_version=4))
    assert error.code == "INVALID_ARGUMENT", str(error)
    assert "order_version" in str(error)
    assert "versions 1 to 3" in str(error)
    assert error.reason == "ORDER_CHANGED"
    check(client, datasets["uneven"], make_request("uneven", order_version=1, batch_size=100))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_differ_and_keep_the_rows_of_a_step(client: fl.FlightClient, datasets: dict[str, Data], version: int):
    """All versions resume at any world size, where lanes divides the rows of a step."""
    data = datasets["single"]
    request = make_request("single", order_version=version, lanes=8, window_rows=40, seed=5)
    other = data.epoch({**request, "order_version": version % 3 + 1})
    assert other.prefix(100) != data.epoch(request).prefix(100)
    steps = [
        [set(itertools.chain(*ranks)) for ranks in zip(*read_ids(client, {**request, **sizes}), strict=True)]
        for sizes in ({"world_size": 1, "batch_size": 64}, {"world_size": 4, "batch_size": 16})
    ]
    assert steps[0] == steps[1]
    check(client, data, {**request, "batch_size": 16, "world_size": 2, "start_position": 64})


def test_the_ramp_lets_the_first_batch_read_little(serve: Serve, tmp_path: Path):
    """The first windows are small: the first batch needs few rows of each lane."""
    rows = 1 << 20
    table = pa.table({"id": np.arange(rows)})
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=rows // 16)
    plan = {"outputs": [{"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}]}
    request = {"dataset": "long", "plan": plan, "shuffle": True, "with_row_ids": True, "window_rows": rows // 16}
    request |= {"lanes": 16, "seed": 3}
    spread: dict[int, int] = {}
    with fl.connect(serve({"long": tmp_path}).url) as connected:
        for version in (1, 2):
            ticket = info(connected, {**request, "order_version": version}).endpoints[0].ticket
            reader = connected.do_get(ticket)
            ids = reader.read_chunk().data["__row_id"].to_numpy()
            reader.cancel()
            order = Epoch(passing_rows([rows // 16] * 16), shuffle=True, lanes=16, window_rows=rows // 16, seed=3)
            assert ids.tolist() == order.with_(version=version).ids(0)[0]
            # Lane 0 is a whole row group: how much of it the first rows come from.
            of_lane = ids[::16] % (rows // 16)
            spread[version] = int(of_lane.max() - of_lane.min())
    assert spread[2] < 512 < rows // 32 < spread[1]


@pytest.mark.parametrize("dataset", ["dozen", "twelve"])
def test_server_permutation_matches_the_oracle(client: fl.FlightClient, datasets: dict[str, Data], dataset: str):
    for seed, lanes in itertools.product(range(8), (1, 3)):
        request = make_request(dataset, lanes=lanes, seed=seed, epoch=seed // 3, batch_size=12)
        assert read_ids(client, request)[0][0] == datasets[dataset].epoch(request).prefix(12), describe(request)
