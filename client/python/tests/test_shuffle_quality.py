"""How much consecutive epochs differ, what `explain` measures of it, and what warns of it."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DistributedSampler

import forebay as fb
from forebay.torch import FlightDataset
from harness.serving import Serve

IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
ROWS, WORLD = 60_000, 4
OPTIONS: dict[str, Any] = {"shuffle": True, "seed": 7, "world_size": WORLD, "remainder": "drop", "window_rows": 512}


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def written(row_group_size: int) -> Path:
        folder = tmp_path_factory.mktemp("rows")
        pq.write_table(pa.table({"id": np.arange(ROWS)}), folder / "a.parquet", row_group_size=row_group_size)
        return folder

    return written


def epochs_of(client: fb.Client, name: str, epochs: int, **options: Any) -> list[Any]:
    """The rows of a rank in consecutive epochs."""
    streams = (client.stream(name, IDS, epoch=epoch, **{**OPTIONS, **options}) for epoch in range(epochs))
    return [np.concatenate([batch["id"] for batch in stream]) for stream in streams]


def kept(client: fb.Client, name: str, epochs: int) -> float:
    """The share of its rows that a rank reads again in the next epoch: the mean over ranks and epochs."""
    pairs = [pair for rank in range(WORLD) for pair in pairwise(epochs_of(client, name, epochs, rank=rank))]
    return float(np.mean([len(np.intersect1d(before, after)) / len(before) for before, after in pairs]))


def correlation(client: fb.Client, name: str, epochs: int) -> float:
    """The correlation of a row's positions in two epochs: the mean over epochs."""
    orders = epochs_of(client, name, epochs, world_size=1, remainder="keep")
    pairs = pairwise(np.argsort(order) for order in orders)
    return float(np.mean([np.corrcoef(before, after)[0, 1] for before, after in pairs]))


def sampled(epochs: int) -> float:
    """The share of its rows that a rank of torch's sampler reads again in the next epoch."""
    sampler = DistributedSampler(range(ROWS), WORLD, 0, seed=7)
    rows = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        rows.append(np.array(list(sampler)))
    return float(np.mean([len(np.intersect1d(before, after)) / len(before) for before, after in pairwise(rows)]))


@pytest.mark.parametrize("row_groups", [1, 3, 32, 150])
def test_epochs_are_about_independent(serve: Serve, write: Any, row_groups: int):
    server = serve({"rows": write(-(-ROWS // row_groups))})
    with fb.connect(server.url) as client:
        assert abs(kept(client, "rows", 6) - sampled(6)) < 0.1
        assert abs(correlation(client, "rows", 12)) < 0.1
        explained = client.explain("rows", IDS, **OPTIONS)
        assert abs(explained.rank_rows_kept - 1 / WORLD) < 0.1
        assert abs(explained.place_correlation) < 0.1


@pytest.mark.parametrize("world_size", [1, 4, 16, 64])
def test_batches_of_a_table_that_is_sorted_by_class_have_several(serve: Serve, write: Any, world_size: int):
    server = serve({"rows": write(ROWS)})
    with fb.connect(server.url) as client:
        for rank in {0, world_size - 1}:
            with client.stream("rows", IDS, rank=rank, world_size=world_size, shuffle=True, batch_size=64) as stream:
                # Ten classes, one after another.
                classes = [len(set((batch["id"] * 10 // ROWS).tolist())) for batch in stream]
            assert np.mean(classes) > 4.5, classes


def old_state(version: int, epoch: int = 0) -> dict[str, Any]:
    """The state at the start of a run that began when this version of the order was the latest."""
    order = {"lanes": 16, "remainder": "drop", "seed": 7, "shuffle": True, "window_rows": 512}
    return {"version": fb.Cursor(0, 0, 1).to_dict()["version"], "epoch": epoch, "position": 0, "world_size": WORLD} | {
        "order_version": version,
        **order,
    }


@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
def test_ranks_of_an_older_run_that_keep_their_rows_are_reported(serve: Serve, write: Any, kind: Any):
    server = serve({"one": write(ROWS)})
    data = kind(server.url, "one", IDS, rank=0, **OPTIONS)
    data.load_state_dict(old_state(2))
    pattern = "each rank reads 100% of its rows in the next epoch, too.* give 25%.* version 2 of the order"
    with pytest.warns(fb.errors.KeptRows, match=pattern) as warned:
        epochs = [np.concatenate([batch["id"] for batch in data]) for _ in range(3)]
    assert len([one for one in warned if one.category is fb.errors.KeptRows]) == 1
    # Its later epochs have the older version, too.
    with fb.connect(server.url) as client:
        for number, rows in enumerate(epochs):
            cursor = old_state(2, number)
            with client.stream("one", IDS, cursor=cursor, rank=0, world_size=WORLD) as stream:
                assert np.array_equal(np.concatenate([batch["id"] for batch in stream]), rows)
    # Another run has other rows in every epoch.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(kind(server.url, "one", IDS, rank=0, **OPTIONS)) > 0


def test_explain_measures_what_older_versions_keep(serve: Serve, write: Any):
    server = serve({"one": write(ROWS)})
    with fl.connect(server.url) as flight:
        request = {"dataset": "one", "plan": IDS.to_dict(), **OPTIONS, "remainder": "DROP", "order_version": 2}
        answers = list(flight.do_action(fl.Action("explain", json.dumps(request).encode())))
        found = json.loads(answers[0].body.to_pybytes())
        assert (found["rank_rows_kept"], found["place_correlation"] > 0.7) == (1, True)
    with fb.connect(server.url) as client:
        explained = client.explain("one", IDS, **OPTIONS)
        assert "of their rows in the next epoch, too; 25% if epochs are independent" in str(explained)
        assert "of a row in two epochs correlate" in str(explained)
        assert client.explain("one", IDS, shuffle=True).rank_rows_kept == 0
        in_order = client.explain("one", IDS, world_size=2)
        assert (in_order.rank_rows_kept, in_order.place_correlation) == (0, 0)


def test_few_rows_and_single_ranks_are_not_reported(serve: Serve, tmp_path: Path, write: Any):
    small = tmp_path / "small"
    small.mkdir()
    pq.write_table(pa.table({"id": np.arange(500)}), small / "a.parquet")
    server = serve({"small": small, "one": write(ROWS)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(FlightDataset(server.url, "small", IDS, rank=0, batch_size=25, **OPTIONS)) == 5
        assert len(FlightDataset(server.url, "one", IDS, shuffle=True)) == -(-ROWS // 1024)
        assert len(FlightDataset(server.url, "one", IDS, rank=0, world_size=2, remainder="drop")) == ROWS // 2048
