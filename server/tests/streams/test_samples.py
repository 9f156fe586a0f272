"""Samples: the rows of `hash64(__row_id, sample_seed) < sample x 2^64`, the same under every order and plan."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
import xxhash

import forebay as fb
from forebay.torch import FlightDataset
from harness.daemon import LOOPBACK, Daemon
from harness.serving import Serve, Server, info, plan_of, stored

ROWS = 6000
FILES = 3
PLAN = plan_of(stored("id", "word"))


def sampled(sample: float, seed: int = 0) -> list[int]:
    """The rows of a sample, by the package xxhash."""
    end = math.ceil(sample * 2**64)
    digests = (xxhash.xxh3_64_intdigest(row.to_bytes(8, "little"), seed=seed) for row in range(ROWS))
    return [row for row, digest in enumerate(digests) if digest < end]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    table = pa.table({"id": np.arange(ROWS), "word": [f"w{i % 37}" for i in range(ROWS)]})
    size = ROWS // FILES
    for file in range(FILES):
        pq.write_table(table.slice(file * size, size), folder / f"{file}.parquet", row_group_size=130)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, serve: Serve) -> Server:
    return serve({"t": folder})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def ids(client: fl.FlightClient, plan: dict[str, Any] = PLAN, **request: Any) -> list[int]:
    found = info(client, {"dataset": "t", "plan": plan, **request})
    got = [row for end in found.endpoints for row in client.do_get(end.ticket).read_all()["id"].to_pylist()]
    assert found.total_records == len(got)
    return got


@pytest.mark.parametrize(("sample", "seed"), [(0.01, 0), (0.1, 0), (0.1, 7), (0.5, 2**64 - 1), (0.999, 1), (1, 3)])
def test_samples_are_the_rows_of_their_definition(client: fl.FlightClient, sample: float, seed: int):
    want = sampled(sample, seed)
    request = {"sample": sample, "sample_seed": seed}
    assert ids(client, **request) == want
    threshold = f"hash64(__row_id, {seed}) < {math.ceil(sample * 2**64)}"
    assert ids(client, {**PLAN, "filter": threshold}) == want
    assert sorted(ids(client, world_size=4, shuffle=True, seed=5, window_rows=64, **request)) == want
    assert sorted(ids(client, world_size=3, shuffle=True, seed=6, epoch=2, **request)) == want
    odd = {**PLAN, "filter": "id % 2 = 1"}
    assert ids(client, odd, **request) == [row for row in want if row % 2]
    by_row = {**PLAN, "filter": "__row_id >= 5000"}
    assert ids(client, by_row, **request) == [row for row in want if row >= 5000]


def test_a_smaller_sample_is_part_of_a_larger_one(client: fl.FlightClient):
    one, ten, other = (ids(client, sample=s, sample_seed=k) for s, k in ((0.01, 3), (0.1, 3), (0.1, 4)))
    assert set(one) < set(ten) != set(other)


def test_a_sampled_stream_resumes_replays_and_explains(client: fl.FlightClient):
    request = {"dataset": "t", "plan": PLAN, "sample": 0.3, "sample_seed": 9, "batch_size": 32}
    request |= {"shuffle": True, "window_rows": 128, "lanes": 4}
    whole = client.do_get(info(client, request).endpoints[0].ticket).read_all()["id"].to_pylist()
    assert sorted(whole) == sampled(0.3, 9)
    rest = client.do_get(info(client, {**request, "start_position": 320}).endpoints[0].ticket).read_all()
    assert rest["id"].to_pylist() == whole[320:]
    body = json.dumps({"stream": request, "rank": 0, "step": 4}).encode()
    parts = [json.loads(bytes(part.body)) for part in client.do_action(fl.Action("replay", body))]
    assert [row["row_id"] for part in parts for row in part["rows"]] == whole[128:160]
    explained = json.loads(bytes(next(iter(client.do_action(fl.Action("explain", json.dumps(request).encode())))).body))
    assert (explained["rows"], explained["sample"], explained["sample_seed"]) == (len(whole), 0.3, 9)


def test_counts_of_samples_are_kept_apart(folder: Path, tmp_path: Path):
    even = {**PLAN, "filter": "id % 2 = 0"}
    for _ in range(2):
        daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"t={folder}")
        with fl.connect(daemon.url) as client:
            for sample, seed in ((0.2, 0), (0.2, 1), (0.4, 0), (1, 0)):
                want = sampled(sample, seed)
                assert ids(client, sample=sample, sample_seed=seed) == want
                assert ids(client, even, sample=sample, sample_seed=seed) == [row for row in want if row % 2 == 0]
        daemon.stop()


def test_a_tiny_sample_reads_only_the_row_groups_of_its_rows(client: fl.FlightClient):
    want = sampled(0.002)
    request = {"dataset": "t", "plan": PLAN, "sample": 0.002}
    explained = json.loads(bytes(next(iter(client.do_action(fl.Action("explain", json.dumps(request).encode())))).body))
    size = ROWS // FILES
    groups = {(row // size, row % size // 130) for row in want}
    assert 0 < explained["row_groups"] == len(groups) < FILES * 16


@pytest.mark.parametrize("sample", [0, -0.5, 1.5, 100, "NaN", "Infinity"])
def test_a_sample_is_more_than_nothing_and_at_most_all(client: fl.FlightClient, sample: object):
    with pytest.raises(pa.ArrowInvalid, match=r"sample: .*more than 0 and at most 1"):
        info(client, {"dataset": "t", "plan": PLAN, "sample": sample})
    body = json.dumps({"dataset": "t", "plan": PLAN, "sample": sample}).encode()
    with pytest.raises(pa.ArrowInvalid, match=r"sample: .*more than 0 and at most 1"):
        list(client.do_action(fl.Action("fit", body)))


def test_a_sample_without_rows_is_an_empty_epoch(client: fl.FlightClient):
    assert ids(client, sample=1e-300) == []


def test_a_fit_learns_from_a_sample(server: Server):
    plan = fb.Plan(outputs={"x": fb.cols("id").min_max(), "w": fb.cols("word").vocab()})
    want = sampled(0.01, 5)
    with fb.connect(server.url) as client:
        fitted = client.fit("t", plan, sample=0.01, sample_seed=5)
        learned = fitted.plan.to_dict()["outputs"][0]["parts"][0]["ops"][0]["min_max"]
        assert (learned["min"], learned["max"]) == (want[0], want[-1])
        assert fitted.plan_id != client.fit("t", plan).plan_id
        assert client.fit("t", plan, sample=1.0, sample_seed=9).plan_id == client.fit("t", plan).plan_id
        # The plan streams every row, or another sample.
        assert sum(len(batch["x"]) for batch in client.stream("t", fitted, batch_size=500)) == ROWS
        got = client.stream("t", fitted, sample=0.2, batch_size=500)
        assert sum(len(batch["x"]) for batch in got) == len(sampled(0.2))


def test_a_state_resumes_only_its_sample(server: Server):
    plan = fb.Plan.from_dict(plan_of([{"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}]))

    def dataset(**options: Any) -> FlightDataset:
        return FlightDataset(server.url, "t", plan, batch_size=16, shuffle=True, rank=0, world_size=1, **options)

    data = dataset(sample=0.1, sample_seed=3)
    whole = [row for batch in data for row in batch["id"].tolist()]
    assert sorted(whole) == sampled(0.1, 3)
    data = dataset(sample=0.1, sample_seed=3)
    batches = iter(data)
    first = [row for _ in range(4) for row in next(batches)["id"].tolist()]
    state = data.state_dict()
    resumed = dataset(sample=0.1, sample_seed=3)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert first + [row for batch in resumed for row in batch["id"].tolist()] == whole
    for other in ({}, {"sample": 0.1}, {"sample": 0.2, "sample_seed": 3}):
        with pytest.raises(fb.CursorRefused, match="resume with the saved sample"):
            dataset(**other).load_state_dict(state)
    with fb.connect(server.url) as client:
        # A stream takes what the cursor names, unless its options name another sample.
        rest = [row for batch in client.stream("t", plan, cursor=state, batch_size=16) for row in batch["id"].tolist()]
        assert first + rest == whole
        with pytest.raises(fb.CursorRefused, match="resume with the saved sample"):
            client.stream("t", plan, cursor=state, batch_size=16, sample=0.5)


@pytest.mark.parametrize(
    ("sample", "error"), [(0, ValueError), (1.2, ValueError), (math.nan, ValueError), ("1%", TypeError)]
)
def test_wrong_samples_fail_before_a_call(sample: Any, error: type[Exception]):
    with pytest.raises(error, match="sample must be"):
        fb.StreamOptions(sample=sample)
