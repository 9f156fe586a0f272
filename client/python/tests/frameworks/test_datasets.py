"""Hugging Face Datasets: the conformance suite on a real `IterableDataset`, shards, derived datasets."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.frameworks.conformance import BATCH_SIZE, PLAN, ROWS, Conformance, Done, Job, Rows, expected
from harness.serving import Serve, Server

pytest.importorskip("datasets", reason="make test-frameworks installs Hugging Face Datasets")

from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from forebay.datasets import iterable


def received(rows: Any) -> Rows:
    found = Rows()
    for row in rows:
        found.add([row["id"]], np.array(row["dense"]))
    return found


class TestDatasets(Conformance):
    def run(self, job: Job) -> Done:
        data = iterable(job.url, job.dataset, PLAN, **job.options)
        if job.state is not None:
            data.load_state_dict(json.loads(job.state))
        if job.stop_after is not None:
            rows = received(islice(data, job.stop_after * BATCH_SIZE))
            return Done([rows], json.dumps(data.state_dict()))
        found: list[Rows] = []
        for epoch in range(job.epochs):
            data.set_epoch(epoch)
            found.append(received(data))
        return Done(found)


@pytest.mark.parametrize("rows", [1, 7, 8, 61, 99, 100])
def test_a_state_within_a_batch_resumes_after_its_row(server: Server, rows: int):
    def derived() -> Any:
        data = iterable(server.url, "tiny", PLAN, batch_size=8, shuffle=True, seed=5)
        return data.map(lambda row: {"double": 2 * row["id"]})

    data = derived()
    data.set_epoch(3)
    taken = list(islice(data, rows))
    state = json.loads(json.dumps(data.state_dict()))
    resumed = derived()
    resumed.set_epoch(3)
    resumed.load_state_dict(state)
    whole = taken + list(resumed)
    assert [row["id"] for row in whole] == expected(server.url, shuffle=True, epoch=3).ids
    assert all(row["double"] == 2 * row["id"] for row in whole)


def test_ranks_are_shards_of_nodes_and_of_workers(server: Server):
    data = iterable(server.url, "tiny", PLAN, ranks=4, batch_size=8)
    assert data.num_shards == 4
    assert data.features["id"].dtype == "int64"
    nodes = [[row["id"] for row in split_dataset_by_node(data, rank, 2)] for rank in range(2)]
    assert sorted(nodes[0] + nodes[1]) == list(range(ROWS))
    assert [len(node) for node in nodes] == [50, 50]
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert sorted(int(row["id"]) for row in loader) == list(range(ROWS))


def test_changed_files_are_not_resumed(serve: Serve, tiny: pa.Table, tmp_path: Path):
    pq.write_table(tiny, tmp_path / "a.parquet")
    server = serve({"tiny": tmp_path})
    data = iterable(server.url, "tiny", PLAN, batch_size=8)
    assert len(list(islice(data, 20))) == 20
    state = data.state_dict()
    pq.write_table(tiny.slice(1), tmp_path / "a.parquet")
    data.load_state_dict(state)
    with pytest.raises(fb.SnapshotChanged):
        list(data)


def test_rows_have_no_buckets_of_length(server: Server):
    with pytest.raises(fb.InvalidRequest, match="bucket_by_length: iterable returns rows"):
        iterable(server.url, "tiny", PLAN, bucket_by_length={"column": "id", "boundaries": [4]})
