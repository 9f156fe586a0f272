"""Batches of rows of similar length: of one bucket on all ranks in each step, and every row once in each epoch."""

from __future__ import annotations

import bisect
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.cut_files import write
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server, info, stored

Json = dict[str, Any]

ROWS = 3_001
RANDOM = np.random.default_rng(5)
# Few long rows, one far longer than all others, empty ones and nulls.
LENGTHS = np.minimum(RANDOM.geometric(0.02, ROWS) - 1, 300)
LENGTHS[1_234] = 900
IS_NULL = RANDOM.random(ROWS) < 0.03


def lists(data_type: pa.DataType) -> pa.Array:
    values = [None if null else [row] * length for row, length, null in zip(range(ROWS), LENGTHS, IS_NULL, strict=True)]
    return pa.array(values, data_type)


TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "tokens": lists(pa.list_(pa.int32())),
        "large": lists(pa.large_list(pa.int16())),
        "text": [None if null else "ä" * length for length, null in zip(LENGTHS, IS_NULL, strict=True)],
        "count": pa.array(np.where(IS_NULL, -7, LENGTHS), pa.int16()),
        "many": pa.array(
            [None if null else length for length, null in zip(LENGTHS, IS_NULL, strict=True)], pa.uint64()
        ),
        "float": LENGTHS.astype(float),
    }
)
TABLE = TABLE.append_column("kind", TABLE["text"].dictionary_encode())
OF_ROW = np.where(IS_NULL, 0, LENGTHS)
PLAN: Json = {"outputs": stored("id", "tokens")}
BOUNDARIES = [1, 16, 64, 128, 10_000]


class Step(NamedTuple):
    """The batches of all ranks in a step; None where a rank has none."""

    ids: list[list[int] | None]
    padding: int

    @property
    def rows(self) -> list[int]:
        return [row for rank in self.ids for row in rank or []]

    def buckets(self, boundaries: list[int]) -> set[int]:
        return {bisect.bisect_right(boundaries, OF_ROW[row]) for row in self.rows}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("lengths")
    for name, size in (("rows", 173), ("whole", 10_000), ("alone", 7)):
        write(root / name, TABLE, cuts=[900, 900, 2_100], row_group_size=size)
    by_length = TABLE.take(pa.array(np.argsort(OF_ROW, kind="stable")))
    write(root / "sorted", by_length, cuts=[], row_group_size=100)
    (root / "one").mkdir()
    pq.write_table(TABLE.slice(7, 1), root / "one" / "0.parquet")
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def flight(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def request_of(buckets: Json | None = None, **more: Any) -> Json:
    buckets = {"column": "tokens", "boundaries": BOUNDARIES} if buckets is None else buckets
    return {"dataset": "rows", "plan": PLAN, "batch_size": 32, "bucket_by_length": buckets, **more}


def batches_of(flight: fl.FlightClient, ticket: fl.Ticket) -> dict[int, tuple[Json, pa.RecordBatch]]:
    """The batches of a rank by step, whose headers are checked."""
    found: dict[int, tuple[Json, pa.RecordBatch]] = {}
    headers: list[Json] = []
    for chunk in flight.do_get(ticket):
        header = json.loads(chunk.app_metadata.to_pybytes())
        assert int(header.get("rows", 0)) == chunk.data.num_rows
        headers.append(header)
        if chunk.data.num_rows:
            found[int(header.get("step", 0))] = header, chunk.data
    assert [bool(header.get("last")) for header in headers] == [False] * (len(headers) - 1) + [True]
    assert list(found) == sorted(found)
    return found


def read(flight: fl.FlightClient, request: Json) -> list[Step]:
    """The steps of all ranks; compares them with the info and checks every row."""
    described = info(flight, request)
    about = json.loads(described.app_metadata)
    ranks = [batches_of(flight, endpoint.ticket) for endpoint in described.endpoints]
    slots = request["batch_size"] * len(ranks)
    steps: dict[int, Step] = {}
    first = request.get("start_position", 0) // slots
    last = max((max(rank, default=-1) for rank in ranks), default=-1)
    for number in range(first, last + 1):
        of_ranks = [rank.get(number) for rank in ranks]
        found = [batch for batch in of_ranks if batch]
        assert all(int(header.get("position", 0)) == number * slots for header, _ in found)
        for _, data in found:
            ids, tokens = data["id"].to_pylist(), data["tokens"].to_pylist()
            expected = [None if IS_NULL[row] else [row] * LENGTHS[row] for row in ids]
            assert tokens == expected
        ids = [batch[1]["id"].to_pylist() if batch else None for batch in of_ranks]
        steps[number] = Step(ids, sum(int(header.get("padding_rows", 0)) for header, _ in found))
    if first == 0:
        sent = sum(len(step.rows) for step in steps.values())
        assert described.total_records == int(about.get("rows", 0)) == sent
        assert int(about.get("steps", 0)) == len(steps)
        common = int(about.get("common_steps", 0))
        assert all((None in step.ids) == (number >= common) for number, step in steps.items())
        for rank, endpoint in zip(ranks, described.endpoints, strict=True):
            share = json.loads(endpoint.app_metadata)
            assert int(share.get("steps", 0)) == len(rank)
            assert int(share.get("rows", 0)) == sum(data.num_rows for _, data in rank.values())
        assert sum(int(bucket["rows"]) for bucket in about.get("length_buckets", [])) == int(about["passing_rows"])
    return list(steps.values())


ORDERS: list[Json] = [{}, {"shuffle": True, "seed": 3}, {"shuffle": True, "lanes": 48, "window_rows": 64, "epoch": 2}]


@pytest.mark.parametrize("dataset", ["rows", "whole", "alone", "sorted"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("world_size", [1, 3])
def test_each_step_is_of_one_bucket_and_each_row_in_one_step(
    flight: fl.FlightClient, dataset: str, order: Json, world_size: int
) -> None:
    steps = read(flight, request_of(dataset=dataset, world_size=world_size, **order))
    assert Counter(row for step in steps for row in step.rows) == Counter(range(ROWS))
    assert all(len(step.buckets(BOUNDARIES)) == 1 for step in steps)
    # One step of each bucket at most is not full, and those are the last ones.
    is_full = [all(len(rank or []) == 32 for rank in step.ids) for step in steps]
    assert is_full == sorted(is_full, reverse=True)
    assert is_full.count(False) <= len(BOUNDARIES) + 1


@pytest.mark.parametrize("column", ["large", "text", "count", "many", "kind", "derived"])
def test_any_column_with_lengths(flight: fl.FlightClient, column: str) -> None:
    plan = {**PLAN, "derive": [{"name": "derived", "expr": "coalesce(length(text), 0)"}]}
    request = request_of({"column": column, "boundaries": BOUNDARIES}, plan=plan, shuffle=True, world_size=2)
    steps = read(flight, request)
    assert Counter(row for step in steps for row in step.rows) == Counter(range(ROWS))
    assert all(len(step.buckets(BOUNDARIES)) == 1 for step in steps)


@pytest.mark.parametrize("world_size", [1, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_batches_have_at_most_so_many_tokens(flight: fl.FlightClient, world_size: int, order: Json) -> None:
    buckets = {"column": "tokens", "max_tokens": 1_024}
    request = request_of(buckets, batch_size=1_000, world_size=world_size, **order)
    steps = read(flight, request)
    assert Counter(row for step in steps for row in step.rows) == Counter(range(ROWS))
    for step in steps:
        for rank in filter(None, step.ids):
            assert len(rank) * max(OF_ROW[rank]) <= 1_024
        longest, shortest = max(OF_ROW[step.rows]), min(OF_ROW[step.rows])
        assert longest <= 16 or longest <= 1.25 * shortest
    tokens, padded = OF_ROW.sum(), sum(len(rank) * max(OF_ROW[rank]) for step in steps for rank in step.ids if rank)
    assert padded < 1.15 * tokens
    capped = read(flight, {**request, "batch_size": 5})
    assert max(len(rank or []) for step in capped for rank in step.ids) == 5


def test_buckets_mix_throughout_the_epoch(flight: fl.FlightClient) -> None:
    steps = read(flight, request_of(batch_size=4, shuffle=True))
    buckets = [next(iter(step.buckets(BOUNDARIES))) for step in steps]
    thirds = [
        Counter(buckets[start : start + len(buckets) // 3]) for start in range(0, len(buckets), len(buckets) // 3)
    ]
    for bucket, count in Counter(buckets).items():
        assert all(abs(third[bucket] - count / 3) <= 4 for third in thirds[:2])
    again = read(flight, request_of(batch_size=4, shuffle=True))
    assert again == steps
    for change in ({"epoch": 1}, {"seed": 1}):
        other = read(flight, request_of(batch_size=4, shuffle=True, **change))
        assert [step.buckets(BOUNDARIES) for step in other] != [step.buckets(BOUNDARIES) for step in steps]
        # Rows move to other batches, too.
        assert not {frozenset(step.rows) for step in other if len(step.rows) == 4} & {
            frozenset(step.rows) for step in steps if len(step.rows) == 4 and OF_ROW[step.rows[0]] < 128
        }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("buckets", [None, {"column": "tokens", "max_tokens": 2_000}])
def test_a_run_resumes_at_any_step(flight: fl.FlightClient, order: Json, buckets: Json | None) -> None:
    request = request_of(buckets, world_size=2, **order)
    steps = read(flight, request)
    randomly = random.Random(4).sample(range(1, len(steps)), 6)
    for step in [*randomly, len(steps) - 1, len(steps)]:
        assert read(flight, {**request, "start_position": step * 64}) == steps[step:]


@pytest.mark.parametrize("order", ORDERS)
def test_drop_and_pad_give_ranks_equal_steps(flight: fl.FlightClient, order: Json) -> None:
    buckets = Counter(bisect.bisect_right(BOUNDARIES, length) for length in OF_ROW)
    dropped = read(flight, request_of(world_size=3, remainder="DROP", **order))
    rows = Counter(row for step in dropped for row in step.rows)
    assert rows.total() == len(rows) == sum(count // 96 * 96 for count in buckets.values())
    padded = read(flight, request_of(world_size=3, remainder="PAD", **order))
    assert all(len(rank or []) == 32 for step in [*dropped, *padded] for rank in step.ids)
    assert len(padded) == sum(-(-count // 96) for count in buckets.values())
    assert {row for step in padded for row in step.rows} == set(range(ROWS))
    assert sum(step.padding for step in padded) == len(padded) * 96 - ROWS
    assert all(len(step.buckets(BOUNDARIES)) == 1 for step in [*dropped, *padded])


def test_filters_samples_and_few_rows(flight: fl.FlightClient) -> None:
    of_plan = {"plan": {**PLAN, "filter": "id >= 100 AND id < 600"}}
    steps = read(flight, request_of(shuffle=True, **of_plan))
    assert sorted(row for step in steps for row in step.rows) == list(range(100, 600))
    sampled = read(flight, request_of(shuffle=True, sample=0.3))
    whole = read(
        flight, {**request_of(shuffle=True, sample=0.3), "bucket_by_length": {"column": "id", "boundaries": [9]}}
    )
    assert {row for step in sampled for row in step.rows} == {row for step in whole for row in step.rows}
    assert read(flight, request_of(plan={**PLAN, "filter": "false"}, world_size=2)) == []
    alone = read(flight, request_of(dataset="one", world_size=2, shuffle=True))
    assert [step.ids for step in alone] == [[[7], None]]
    repeated = read(flight, request_of(dataset="one", world_size=2, shuffle=True, remainder="PAD"))
    assert [step.rows for step in repeated] == [[7] * 64]


@pytest.mark.parametrize("order", [{}, {"shuffle": True, "lanes": 1, "window_rows": 64}])
def test_buckets_at_other_places_of_a_file(tmp_path: Path, serve: Serve, order: Json) -> None:
    """Short rows are in the first half alone: their bucket reads it while the other one is far ahead."""
    rows = 120_000
    is_short = (np.arange(rows) % 2 == 1) & (np.arange(rows) < rows // 2)
    texts = [f"text {row % 50_000}" for row in range(rows)]
    table = pa.table({"id": np.arange(rows), "size": np.where(is_short, 5, 50), "text": texts})
    (tmp_path / "rows").mkdir()
    pq.write_table(table, tmp_path / "rows" / "0.parquet", row_group_size=50_000)
    server = serve({"rows": tmp_path / "rows"})
    request = {
        "dataset": "rows",
        "plan": {"outputs": stored("id", "text")},
        "batch_size": 500,
        "bucket_by_length": {"column": "size", "boundaries": [10]},
        **order,
    }
    with fl.connect(server.url) as flight:
        found: list[np.ndarray] = []
        for chunk in flight.do_get(info(flight, request).endpoints[0].ticket):
            ids = chunk.data["id"].to_numpy()
            assert len(set(is_short[ids])) == 1
            assert chunk.data["text"].to_pylist() == [texts[row] for row in ids]
            found.append(ids)
        for step in (40, 150):
            ticket = info(flight, {**request, "start_position": 500 * step}).endpoints[0].ticket
            assert np.array_equal(flight.do_get(ticket).read_chunk().data["id"].to_numpy(), found[step])
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(rows))


def test_replays_find_the_rows_of_a_step(flight: fl.FlightClient) -> None:
    request = request_of(shuffle=True, world_size=2)
    steps = read(flight, request)
    for step in (0, len(steps) // 2, len(steps) - 1):
        for rank, ids in enumerate(steps[step].ids):
            body = json.dumps({"stream": request, "rank": rank, "step": step}).encode()
            if ids is None:
                with pytest.raises((pa.ArrowInvalid, fl.FlightError), match=f"rank {rank} has no batch in step {step}"):
                    list(flight.do_action(fl.Action("replay", body)))
                continue
            parts = [json.loads(part.body.to_pybytes()) for part in flight.do_action(fl.Action("replay", body))]
            rows = [row for part in parts for row in part.get("rows", [])]
            assert [int(row.get("row_id", 0)) for row in rows] == ids
            is_last = step == len(steps) - 1 or steps[step + 1].ids[rank] is None
            assert bool(parts[0]["header"].get("last")) == is_last


def test_explain_tells_rows_steps_and_memory(flight: fl.FlightClient) -> None:
    def explain(request: Json) -> Json:
        [answer] = flight.do_action(fl.Action("explain", json.dumps(request).encode()))
        return json.loads(answer.body.to_pybytes())

    request = request_of({"column": "tokens", "max_tokens": 1_024}, shuffle=True, world_size=2)
    found, steps = explain(request), read(flight, request)
    assert (int(found["rows"]), int(found["steps"])) == (ROWS, len(steps))
    assert [int(rank["rows"]) for rank in found["ranks"]] == [
        sum(len(step.ids[rank] or []) for step in steps) for rank in (0, 1)
    ]
    assert int(found["memory_bytes"]) > 0
    assert 1 <= found["read_amplification"] < 2
    assert 1 <= found["row_groups_per_batch"] <= int(found["row_groups"])
    with pytest.raises((pa.ArrowInvalid, fl.FlightError), match="assume.rows: cannot be combined"):
        explain({**request, "assume": {"rows": 1_000}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bucket_by_length": {"boundaries": [4]}}, r"bucket_by_length\.column: missing"),
        ({"bucket_by_length": {"column": "tokens"}}, r"bucket_by_length: expected boundaries, .* or max_tokens"),
        ({"bucket_by_length": {"column": "tokens", "boundaries": [4, 4]}}, r"bucket_by_length\.boundaries: "),
        ({"bucket_by_length": {"column": "tokns", "boundaries": [4]}}, r"bucket_by_length\.column: .*tokens"),
        ({"bucket_by_length": {"column": "float", "boundaries": [4]}}, r"\"float\" is double: expected lists, text"),
        (
            {"bucket_by_length": {"column": "tokens", "max_tokens": 500}},
            r"bucket_by_length\.max_tokens: 1 row has a \"tokens\" longer than 500",
        ),
        ({"balance": {"by": "count"}}, r"bucket_by_length: cannot be combined with balance"),
        ({"group_by": "count"}, r"bucket_by_length: cannot be combined with group_by"),
        ({"sources": [{"dataset": "rows"}], "dataset": ""}, r"bucket_by_length: cannot be combined with sources"),
        ({"start_position": 33}, r"start_position: 33 is not a multiple of world_size . batch_size = 32"),
        ({"shuffle": True, "lanes": 16, "start_position": 16}, r"start_position: 16 is not a multiple"),
        ({"start_position": 320, "resumed_from": 5}, r"bucket_by_length: cannot be combined with resumed_from"),
        ({"start_position": 32 * 4_000}, r"start_position: 128000 is past the end of the epoch"),
        (
            {"plan": {"outputs": [{"name": "t", "parts": [{"columns": ["tokens"]}], "pack": {"length": 8}}]}},
            r"bucket_by_length\.column: the plan packs its output",
        ),
    ],
)
def test_wrong_buckets_are_refused_with_the_field(flight: fl.FlightClient, change: Json, words: str) -> None:
    with pytest.raises((pa.ArrowInvalid, fl.FlightError), match=words):
        info(flight, {**request_of(), **change})


def test_a_restart_finds_the_buckets_under_its_state(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(TABLE, tmp_path / "rows" / "0.parquet", row_group_size=500)
    found, bytes_read = [], []
    for _ in range(2):
        daemon = Daemon(*LOOPBACK, "--dataset", f"rows={tmp_path}/rows", "--state", f"{tmp_path}/state")
        with fl.connect(daemon.url) as flight:
            info(flight, request_of())
            bytes_read.append(scrape(daemon).value("forebay_storage_read_bytes_total"))
            found.append(read(flight, request_of(shuffle=True)))
            # Other buckets are other counts.
            steps = read(flight, request_of({"column": "tokens", "boundaries": [2]}))
            assert all(len(step.buckets([2])) == 1 for step in steps)
        daemon.stop()
    assert found[0] == found[1]
    assert bytes_read[1] < bytes_read[0]


def test_cached_rows_are_those_of_their_bucket(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(TABLE, tmp_path / "rows" / "0.parquet", row_group_size=500)
    plan = {"outputs": [{"name": "x", "dtype": "INT64", "parts": [{"columns": ["id"]}]}]}
    server = serve({"rows": tmp_path / "rows"}, "--cache-bytes", "64MiB")
    with fl.connect(server.url) as flight:
        for more in ({}, {"boundaries": [5]}, {"boundaries": [50]}, {"boundaries": [5]}):
            request = request_of({"column": "tokens", "boundaries": BOUNDARIES, **more}, plan=plan, shuffle=True)
            for _ in range(2):
                rows: Counter[int] = Counter()
                for endpoint in info(flight, request).endpoints:
                    for chunk in flight.do_get(endpoint.ticket):
                        ids = [int(value) for value in chunk.data["x"].to_pylist()]
                        rows.update(ids)
                        boundaries = request["bucket_by_length"]["boundaries"]
                        assert len({bisect.bisect_right(boundaries, OF_ROW[row]) for row in ids}) == 1
                assert rows == Counter(range(ROWS))
