"""`replay` and `explain` agree with the streams that they describe."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client.explain import LibraryColumn, read_explain
from forebay.torch import FlightDataset
from harness.serving import Serve, Server

PLAN = fb.Plan(
    filter="small <> 0", outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "x": fb.cols("x").min_max()}
)
ORDERS: list[dict[str, Any]] = [
    {},
    {"remainder": "pad"},
    {"shuffle": True, "seed": 3, "lanes": 6, "window_rows": 4},
    {"shuffle": True, "seed": 3, "remainder": "pad"},
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_replayed_batch_equals_the_streams_bytes_and_locates_its_rows(
    client: fb.Client, tiny: pa.Table, tiny_folder: Path, order: dict[str, Any]
):
    options: dict[str, Any] = {"batch_size": 7, "world_size": 3, "epoch": 2, "with_row_ids": True, **order}
    for rank in range(3):
        with client.stream("tiny", PLAN, rank=rank, **options) as stream:
            batches = list(stream)
        for batch in batches:
            replay = client.replay("tiny", PLAN, rank=rank, step=batch.header.step, **options)
            assert replay.batch.header.checksum == batch.header.checksum
            assert replay.batch.data.equals(batch.data)
            assert (replay.header.step, replay.header.position) == (batch.header.step, batch.header.position)
            assert (replay.snapshot, replay.plan_id) == (stream.info.snapshot, stream.info.plan_id)
            rows = replay.rows.to_pylist()
            assert len(rows) == batch.header.rows
            assert [row["row_id"] for row in rows] == batch["__row_id"].tolist()
            assert sum(row["padding"] for row in rows) == batch.header.padding_rows
            for row, row_id in zip(rows, batch["id"].tolist(), strict=True):
                file = pq.ParquetFile(tiny_folder / Path(row["file"]).name)
                assert file.read_row_group(row["row_group"])["id"][row["row"]].as_py() == row_id


def test_dataset_replays_its_batches(server: Server):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=9, rank=1, world_size=2, epoch=5, with_row_ids=True)
    batches = list(data)
    for step, batch in enumerate(batches):
        replay = data.replay(step=step)
        assert replay.header.epoch == 5
        assert np.array_equal(replay.batch["id"], batch["id"].numpy())
        assert replay.rows["row_id"].to_pylist() == batch["__row_id"].tolist()
    assert data.replay(step=0, rank=0).rows["row_id"][0].as_py() < data.replay(step=0).rows["row_id"][0].as_py()


def test_replays_large_batches_completely(client: fb.Client, flights: pa.Table):
    plan = fb.Plan(outputs={"distance": fb.cols("distance")})
    replay = client.replay("flights", plan, step=1, batch_size=150_000, with_row_ids=True)
    assert replay.rows.num_rows == 150_000
    assert np.array_equal(replay.rows["row_id"].to_numpy(), np.arange(150_000, 300_000))
    assert np.array_equal(replay.batch["__row_id"], replay.rows["row_id"].to_numpy())


def test_rejects_an_invalid_step_or_rank(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match="step|position"):
        client.replay("tiny", PLAN, step=1000)
    with pytest.raises(ValueError, match="rank 3"):
        client.replay("tiny", PLAN, step=0, rank=3, world_size=3)
    with pytest.raises(TypeError, match="batchsize"):
        client.replay("tiny", PLAN, step=0, batchsize=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_explain_agrees_with_the_streams(client: fb.Client, order: dict[str, Any]):
    options: dict[str, Any] = {"batch_size": 7, "world_size": 3, **order}
    explained = client.explain("tiny", PLAN, **options)
    streams = [client.stream("tiny", PLAN, rank=rank, **options) for rank in range(3)]
    info = streams[0].info
    assert (explained.rows, explained.steps) == (info.rows, info.steps)
    assert (explained.snapshot, explained.plan_id) == (info.snapshot, info.plan_id)
    assert (explained.lanes, explained.window_rows) == (info.lanes, info.window_rows if info.lanes else 0)
    assert [share.rows for share in explained.ranks] == [stream.info.rank_rows for stream in streams]
    assert [share.steps for share in explained.ranks] == [stream.info.rank_steps for stream in streams]
    assert explained.row_bytes == 8 + 4
    assert explained.bytes == explained.rows * explained.row_bytes
    assert 0 < explained.memory_bytes <= explained.memory_limit_bytes
    assert explained.read_amplification == pytest.approx(explained.read_bytes / explained.stored_bytes)
    assert explained.bound_by == ""
    text = str(explained)
    assert f"{info.steps:,} steps" in text
    assert explained.snapshot in text


def test_explain_names_the_columns_that_the_library_decodes(serve: Serve, tmp_path: Path):
    rows = range(100)
    table = pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "items": pa.array([[row] for row in rows]),
            "x": pa.array([row / 3 for row in rows]),
            "price": pa.array([Decimal(row) for row in rows], pa.decimal128(20, 2)),
            "seen": pa.array([row * 10**9 for row in rows], pa.timestamp("ns")),
            "unread": pa.array([[row] for row in rows]),
        }
    )
    for name, options in {"new": {}, "old": {"use_deprecated_int96_timestamps": True}}.items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "a.parquet", row_group_size=50, **options)
    columns = [name for name in table.column_names if name != "unread"]
    plan = fb.Plan(outputs={name: fb.cols(name).as_stored() for name in columns})
    server = serve({name: tmp_path / name for name in ("new", "old")})
    with fb.connect(server.url) as connected:
        new, old = (connected.explain(name, plan) for name in ("new", "old"))
        only_numbers = connected.explain("new", fb.Plan(outputs={"x": fb.cols("x")}))
    library = [LibraryColumn("items", "nested", 2), LibraryColumn("price", "fixed length", 2)]
    assert (new.columns, new.fused_columns, list(new.library_columns)) == (5, 3, library)
    library.append(LibraryColumn("seen", "INT96", 2))
    assert (old.columns, old.fused_columns, list(old.library_columns)) == (5, 2, library)
    assert "fused 3 of 5 columns; 2 by the parquet crate: nested (items), fixed length (price)" in str(new)
    assert "fused 1 of 1 columns\n" in str(only_numbers)


def test_explain_uses_the_given_assumptions(server: Server):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=16, rank=0, world_size=2)
    explained = data.explain(rows=10**9, row_bytes=1000, storage_bytes_per_second=1e9, wire_bytes_per_second=1e9)
    assert explained.rows == 10**9
    assert explained.wire_seconds == pytest.approx(10**9 * 1000 / 2 / 1e9, rel=0.01)
    assert explained.epoch_seconds == max(explained.wire_seconds, explained.storage_seconds)
    assert explained.bound_by in ("storage", "wire")
    assert f"bound by {explained.bound_by}" in str(explained)


def test_explanation_of_many_ranks_is_summarized():
    share = {"rows": 10, "steps": 1, "bytes": 80, "read_bytes": 2_500_000, "memory_bytes": 3_000_000_000}
    summary = str(
        read_explain([{"rows": 160, "steps": 1, "lanes": 16, "ranks": [{"rank": r, **share} for r in range(16)]}])
    )
    assert "shuffled, 16 lanes" in summary
    assert "2.5 MB read, 3.0 GB of memory" in summary
    assert "8 more ranks" in summary
    with pytest.raises(fb.errors.StreamError, match="0 results"):
        read_explain([])
