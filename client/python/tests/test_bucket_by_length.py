"""Batches of rows of similar length in the package: steps of ranks, states, epochs, and the padding that loops have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay.torch import FlightDataset
from harness.serving import Serve, Server

ROWS = 1_009
LENGTHS = np.random.default_rng(3).geometric(0.02, ROWS)
PLAN = fb.Plan(
    outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "tokens": fb.output(fb.cols("tokens"), dtype="as_stored")}
)
BY_TOKENS: dict[str, Any] = {"bucket_by_length": {"column": "tokens", "max_tokens": 2_048}}
BY_LENGTH: dict[str, Any] = {"bucket_by_length": {"column": "tokens", "boundaries": [16, 32, 64, 128]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("rows")
    values = np.arange(LENGTHS.sum(), dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int32)
    item = pa.field("item", pa.int32(), nullable=False)
    tokens = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=pa.list_(item))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("tokens", tokens.type, nullable=False)])
    table = pa.table([pa.array(range(ROWS)), tokens], schema=schema)
    pq.write_table(table, root / "0.parquet", row_group_size=100)
    return serve({"rows": root})


@pytest.fixture
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def dataset(server: Server, rank: int = 0, world_size: int = 1, **options: Any) -> FlightDataset:
    given: dict[str, Any] = {"batch_size": 16, "shuffle": True, **BY_LENGTH, **options}
    return FlightDataset(server.url, "rows", PLAN, rank=rank, world_size=world_size, **given)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def test_an_epoch_has_each_row_once_and_little_padding(server: Server) -> None:
    found: dict[str, float] = {}
    for name, options in (("any", {"bucket_by_length": None}), ("length", BY_LENGTH), ("tokens", BY_TOKENS)):
        data = dataset(server, **{**options, "batch_size": 64})
        steps, lengths = [], []
        for batch in data:
            steps.append(batch["id"].tolist())
            lengths.append(np.diff(batch["tokens"].offsets.numpy()))
        assert Counter(row for step in steps for row in step) == Counter(range(ROWS))
        assert len(data) == len(steps)
        padded = sum(len(step) * step.max() for step in lengths)
        stats = data.stats()
        assert stats["padding"] == pytest.approx(1 - LENGTHS.sum() / padded)
        assert (stats["batches"], stats["rows"]) == (len(steps), ROWS)
        found[name] = float(stats["padding"])
        if name == "tokens":
            assert max(len(step) * step.max() for step in lengths) <= 2_048
            assert {len(step) for step in steps} >= {64, 32}
    assert found["any"] > 0.6
    assert found["length"] < 0.35
    assert found["tokens"] < 0.15


@pytest.mark.parametrize("options", [BY_LENGTH, BY_TOKENS])
def test_ranks_have_equal_steps_unless_told_otherwise(server: Server, options: dict[str, Any]) -> None:
    with pytest.raises(fb.UnevenRanks, match="unequal steps of ranks"):
        next(iter(dataset(server, 0, 3, **options)))
    for remainder in ("pad", "drop"):
        ranks = [dataset(server, rank, 3, remainder=remainder, **options) for rank in range(3)]
        steps = [ids(rank) for rank in ranks]
        assert [len(rank) for rank in steps] == [len(rank) for rank in ranks]
        for together in zip(*steps, strict=True):
            # All ranks have rows of one bucket.
            longest = [LENGTHS[rank].max() for rank in together]
            assert max(longest) <= 2 * max(16, *[LENGTHS[rank].min() for rank in together]) or min(longest) >= 128
    kept = [dataset(server, rank, 3, remainder="keep", **options) for rank in range(3)]
    assert Counter(row for rank in kept for step in ids(rank) for row in step) == Counter(range(ROWS))


@pytest.mark.parametrize("options", [BY_LENGTH, BY_TOKENS])
def test_a_state_resumes_after_its_step(server: Server, options: dict[str, Any]) -> None:
    data = dataset(server, **options)
    epochs = [ids(data), ids(data)]
    assert epochs[0] != epochs[1]
    for taken in (1, len(epochs[0]) // 2, len(epochs[0]) - 1, len(epochs[0])):
        data = dataset(server, **options)
        batches = iter(data)
        begun = [next(batches)["id"].tolist() for _ in range(taken)]
        state = data.state_dict()
        assert begun == epochs[0][:taken]
        data = dataset(server, **options)
        data.load_state_dict(state)
        assert ids(data) == (epochs[0][taken:] or epochs[1])
        assert taken == len(epochs[0]) or ids(data) == epochs[1]


def test_a_state_resumes_only_in_its_own_steps(server: Server, client: fb.Client) -> None:
    data = dataset(server)
    next(iter(data))
    state = data.state_dict()
    assert state["bucket_by_length"] == BY_LENGTH["bucket_by_length"]
    assert state["batch_size"] == 16
    others: list[tuple[dict[str, Any], str]] = [
        ({"batch_size": 8}, "at world size 1 and batch size 16, and these are 1 and 8"),
        ({"world_size": 2}, "these are 2 and 16"),
        (BY_TOKENS, "bucket_by_length"),
        ({"bucket_by_length": None}, "bucket_by_length"),
    ]
    for other, words in others:
        with pytest.raises(fb.CursorRefused, match=words):
            dataset(server, **other).load_state_dict(state)
    # A new epoch begins at any world size and batch size.
    data = dataset(server, batch_size=8)
    data.load_state_dict({**state, "position": 0, "epoch": 3})
    assert sum(map(len, ids(data))) == ROWS
    stream = client.stream("rows", PLAN, cursor=state, batch_size=16)
    assert len(stream) == len(list(stream)) == stream.info.steps - 1
    assert stream.cursor().to_dict()["epoch"] == 1
    with pytest.raises(fb.CursorRefused, match="these are 1 and 4"):
        client.stream("rows", PLAN, cursor=state, batch_size=4)
    with pytest.raises(fb.CursorRefused, match="batch size"):
        client.replay("rows", PLAN, step=3, cursor=state, batch_size=4)


def test_the_info_of_a_stream_names_the_buckets(client: fb.Client) -> None:
    info = client.stream("rows", PLAN, batch_size=16, shuffle=True, **BY_LENGTH).info
    assert [(bucket.least, bucket.most) for bucket in info.length_buckets] == [
        (0, 15),
        (16, 31),
        (32, 63),
        (64, 127),
        (128, None),
    ]
    counts = np.bincount(np.searchsorted([16, 32, 64, 128], LENGTHS, side="right"))
    assert [bucket.rows for bucket in info.length_buckets] == counts.tolist()
    assert sum(bucket.steps for bucket in info.length_buckets) == info.steps == info.common_steps
    replayed = client.replay("rows", PLAN, step=info.steps - 1, batch_size=16, shuffle=True, **BY_LENGTH)
    assert replayed.rows.num_rows == replayed.header.rows


@pytest.mark.parametrize(
    ("buckets", "error"),
    [
        ("tokens", TypeError),
        ({"column": "tokens"}, fb.InvalidRequest),
        ({"column": "tokens", "boundaries": [4], "max_tokens": 9}, fb.InvalidRequest),
        ({"column": "tokens", "boundaries": 4}, TypeError),
        ({"column": "tokens", "boundaries": [0]}, ValueError),
        ({"column": "tokens", "boundaries": [1.5]}, TypeError),
        ({"column": "tokens", "tokens": 4}, TypeError),
        ({"column": 3, "max_tokens": 4}, TypeError),
        ({"column": "tokens", "boundaries": [9, 3]}, fb.InvalidRequest),
    ],
)
def test_wrong_buckets_are_refused(client: fb.Client, buckets: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="bucket_by_length|boundaries"):
        client.stream("rows", PLAN, bucket_by_length=buckets)


def test_arrays_have_the_same_batches(server: Server) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, **BY_TOKENS}
    with fb.ArrayDataset(server.url, "rows", PLAN, **options) as arrays:
        assert ids(arrays) == ids(dataset(server, **BY_TOKENS))
