"""How much consecutive epochs differ: what `explain` measures, and the warning with advice that helps."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay.torch import FlightDataset
from harness.serving import Serve, Server

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


def kept(server: Server, name: str, epochs: int = 4) -> float:
    """The share of its rows that a rank reads again in the next epoch: the mean over ranks and epochs."""
    shares = []
    with fb.connect(server.url) as client:
        for rank in range(WORLD):
            rows = [
                np.concatenate([batch["id"] for batch in client.stream(name, IDS, rank=rank, epoch=epoch, **OPTIONS)])
                for epoch in range(epochs)
            ]
            shares += [len(np.intersect1d(before, after)) / len(before) for before, after in pairwise(rows)]
    return float(np.mean(shares))


def lengths(kind: Any, server: Server) -> tuple[int, int]:
    """The number of steps, asked twice."""
    data = kind(server.url, "one", IDS, rank=0, **OPTIONS)
    return len(data), len(data)


@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
def test_ranks_that_keep_their_rows_are_reported_with_advice_that_helps(serve: Serve, write: Any, kind: Any):
    server = serve({"one": write(ROWS)})
    with pytest.warns(fb.KeptRows, match="each rank reads 100% of its rows in the next epoch, too.* give 25%") as told:
        first, second = lengths(kind, server)
    assert first == second
    assert len([one for one in told if one.category is fb.KeptRows]) == 1
    assert kept(server, "one") > 0.95
    (advised,) = re.findall(r"row_group_size=(\d+)", str(told[0].message))
    better = serve({"many": write(int(advised))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(kind(better.url, "many", IDS, rank=0, **OPTIONS)) == first
    assert kept(better, "many") < 0.4


def test_explain_measures_consecutive_epochs(serve: Serve, write: Any):
    server = serve({"one": write(ROWS), "many": write(500)})
    with fb.connect(server.url) as client:
        few = client.explain("one", IDS, **OPTIONS)
        many = client.explain("many", IDS, **OPTIONS)
        assert few.rank_rows_kept == 1
        assert few.place_correlation > 0.7
        assert abs(many.rank_rows_kept - kept(server, "many", 6)) < 0.1
        assert abs(many.place_correlation) < 0.2
        assert "read 100% of their rows in the next epoch, too; 25% if epochs are independent" in str(few)
        assert "of a row in two epochs correlate" in str(few)
        alone = client.explain("one", IDS, shuffle=True)
        assert alone.rank_rows_kept == 0
        assert alone.place_correlation > 0.3
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
