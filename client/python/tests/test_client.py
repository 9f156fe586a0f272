from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client.stored_plan import PlanDataset
from forebay._show.progress import FitProgress
from harness.serving import Serve, Server

ROWS = 100
ALL = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "x": fb.cols("x")})


def column(batches: list[fb.Batch], name: str) -> np.ndarray:
    return np.concatenate([batch[name] for batch in batches])


def test_datasets_are_listed_with_their_sizes(client: fb.Client):
    found = client.datasets()
    assert set(found) == {"tiny", "flights"}
    tiny = found["tiny"]
    assert (tiny.name, tiny.rows, tiny.files, tiny.error) == ("tiny", ROWS, 3, "")
    assert tiny.row_groups == 3 + 1 + 7
    assert tiny.bytes > 0
    assert tiny.snapshot


def test_schema_and_table_are_as_stored(client: fb.Client, tiny: pa.Table):
    assert client.schema("tiny").equals(tiny.schema)
    assert client.table("tiny").read().equals(tiny)


@pytest.mark.parametrize("batch_size", [1, 7, 9, 17, 40, 41, 99, 100, 101, 1024])
def test_batches_span_row_groups_and_files(client: fb.Client, tiny: pa.Table, batch_size: int):
    with client.stream("tiny", ALL, batch_size=batch_size) as stream:
        batches = list(stream)
    assert [len(b["id"]) for b in batches] == [min(batch_size, ROWS - at) for at in range(0, ROWS, batch_size)]
    assert np.array_equal(column(batches, "id"), np.arange(ROWS))
    assert np.array_equal(column(batches, "x"), tiny["x"].to_numpy().astype(np.float32))


def test_headers_number_the_steps_and_mark_the_last(client: fb.Client):
    with client.stream("tiny", ALL, batch_size=30, epoch=5) as stream:
        assert len(stream) == 4
        headers = [batch.header for batch in stream]
    assert [h.step for h in headers] == [0, 1, 2, 3]
    assert [h.position for h in headers] == [0, 30, 60, 90]
    assert [h.rows for h in headers] == [30, 30, 30, 10]
    assert [h.last for h in headers] == [False, False, False, True]
    assert {h.epoch for h in headers} == {5}
    assert {h.padding_rows for h in headers} == {0}


def test_a_batch_is_a_mapping_of_read_only_views(client: fb.Client):
    plan = fb.Plan(outputs={"pair": fb.cols("x", "unit"), "word": fb.cols("word").as_stored(), "one": fb.cols("small")})
    with client.stream("tiny", plan, batch_size=10) as stream:
        batch = next(stream)
    assert list(batch) == ["pair", "word", "one"]
    assert batch["pair"].shape == (10, 2)
    assert batch["pair"].dtype == np.float32
    assert not batch["pair"].flags.writeable
    storage = batch.data.column("pair").storage
    assert batch["pair"].__array_interface__["data"][0] == storage.flatten().buffers()[1].address
    assert batch["one"].shape == (10,)
    assert isinstance(batch["word"], pa.Array)
    with pytest.raises(KeyError, match="pair, word, one"):
        batch["words"]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 100])
def test_ranks_own_spans_of_the_file_order(client: fb.Client, world_size: int):
    for rank in range(world_size):
        with client.stream("tiny", ALL, batch_size=8, world_size=world_size, rank=rank) as stream:
            steps = len(stream)
            batches = list(stream)
        assert len(batches) == steps
        span = np.arange(rank * ROWS // world_size, (rank + 1) * ROWS // world_size)
        assert np.array_equal(column(batches, "id"), span)


def test_keep_sends_every_row_once_and_ranks_may_differ_by_a_step(client: fb.Client):
    streams = [client.stream("tiny", ALL, batch_size=11, world_size=3, rank=rank) for rank in range(3)]
    assert sorted(np.concatenate([column(list(s), "id") for s in streams])) == list(range(ROWS))
    assert max(map(len, streams)) - min(map(len, streams)) <= 1


def test_drop_sends_full_batches_and_equal_steps(client: fb.Client):
    streams = [client.stream("tiny", ALL, batch_size=8, world_size=3, rank=r, remainder="drop") for r in range(3)]
    assert [len(s) for s in streams] == [4, 4, 4]
    for rank, stream in enumerate(streams):
        batches = list(stream)
        assert [b.header.rows for b in batches] == [8] * 4
        first = rank * ROWS // 3
        assert np.array_equal(column(batches, "id"), np.arange(first, first + 32))


def test_pad_repeats_rows_to_equal_steps_and_counts_them(client: fb.Client):
    streams = [client.stream("tiny", ALL, batch_size=8, world_size=3, rank=r, remainder="pad") for r in range(3)]
    assert [len(s) for s in streams] == [5, 5, 5]
    for rank, stream in enumerate(streams):
        batches = list(stream)
        assert [b.header.rows for b in batches] == [8] * 5
        span = set(range(rank * ROWS // 3, (rank + 1) * ROWS // 3))
        repeats = sum(b.header.padding_rows for b in batches)
        assert repeats == 40 - len(span)
        ids = column(batches, "id")
        assert set(ids) == span
        assert list(ids[: len(span)]) == sorted(span)


def test_some_ranks_have_no_steps_with_more_ranks_than_rows(client: fb.Client):
    lengths = [len(client.stream("tiny", ALL, world_size=128, rank=rank)) for rank in range(128)]
    assert sum(lengths) == ROWS
    empty = lengths.index(0)
    with client.stream("tiny", ALL, world_size=128, rank=empty) as stream:
        assert list(stream) == []


def test_row_ids_are_positions_in_the_snapshot(client: fb.Client, tiny: pa.Table):
    plan = fb.Plan(filter="small > 0", outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
    with client.stream("tiny", plan, batch_size=13, with_row_ids=True) as stream:
        batches = list(stream)
    want = np.flatnonzero(tiny["small"].to_numpy() > 0)
    assert column(batches, "__row_id").dtype == np.uint64
    assert np.array_equal(column(batches, "__row_id"), want)
    assert np.array_equal(column(batches, "id"), want)


def test_stream_resumed_at_any_step_gives_the_same_remaining_batches(client: fb.Client):
    options = {"batch_size": 9, "world_size": 2, "rank": 1}
    whole = list(client.stream("tiny", ALL, **options))
    for step in range(len(whole) + 1):
        with client.stream("tiny", ALL, **options, start_position=step * 18) as stream:
            assert len(stream) == len(whole) - step
            rest = list(stream)
        assert [b.header for b in rest] == [b.header for b in whole[step:]]
        assert all(a.data.equals(b.data) for a, b in zip(rest, whole[step:], strict=True))


def test_the_same_request_gives_the_same_bytes(client: fb.Client, server: Server):
    first = [b.header for b in client.stream("tiny", ALL, batch_size=16)]
    with fb.connect(server.url) as other:
        assert [b.header for b in other.stream("tiny", ALL, batch_size=16)] == first
    assert len({h.checksum for h in first}) == len(first)


def test_concurrent_streams_can_be_abandoned_early(client: fb.Client):
    left = client.stream("tiny", ALL, batch_size=1)
    next(left)
    with client.stream("tiny", ALL, batch_size=50) as whole:
        next(left)
        assert len(list(whole)) == 2
    left.close()
    assert list(left) == []
    assert len(list(client.stream("tiny", ALL, batch_size=50))) == 2


def test_fit_reports_progress_and_what_it_learned(client: fb.Client, tiny: pa.Table):
    plan = fb.Plan(
        filter="small >= -3",
        outputs={"x": fb.cols("gappy").fill_null("median").standardize(), "word": fb.cols("word").vocab(min_count=3)},
    )
    seen: list[FitProgress] = []
    fitted = client.fit("tiny", plan, refit=True, progress=seen.append)
    assert not fitted.plan.needs_fit
    rows = tiny.filter(tiny["small"].to_numpy() >= -3).to_pandas()
    ops = fitted.plan.to_dict()["outputs"][0]["parts"][0]["ops"]  # type: ignore[index]
    median = rows["gappy"].median()
    assert ops[0]["fill_null"]["value"] == pytest.approx(median, rel=1e-12)
    filled = rows["gappy"].fillna(median)
    assert ops[1]["standardize"]["mean"] == pytest.approx(filled.mean(), rel=1e-12)
    assert ops[1]["standardize"]["std"] == pytest.approx(filled.std(ddof=0), rel=1e-12)
    assert seen
    assert {p.passes for p in seen} == {2}
    assert [p.pass_number for p in seen] == sorted(p.pass_number for p in seen)
    assert all(0 <= p.rows_done <= p.rows_total == ROWS for p in seen)


def test_fitted_plan_is_the_same_inline_by_id_and_from_json(client: fb.Client):
    plan = fb.Plan(outputs={"x": fb.cols("x").standardize(), "word": fb.cols("word").vocab()})
    fitted = client.fit("tiny", plan)
    read_back = fb.Plan.from_json(fitted.to_json())
    forms = [plan, fitted, fitted.plan, fitted.plan_id, read_back]
    streams = [client.stream("tiny", form, batch_size=64) for form in forms]
    assert {stream.info.plan_id for stream in streams} == {fitted.plan_id}
    assert len({tuple(b.header.checksum for b in stream) for stream in streams}) == 1


def test_unfitted_plan_is_fitted_once_per_client(client: fb.Client, monkeypatch: pytest.MonkeyPatch):
    fits: list[str] = []
    fit = client.fit

    def counted(dataset: str, plan: fb.Plan, **options: object) -> fb.FittedPlan:
        fits.append(dataset)
        return fit(dataset, plan)

    monkeypatch.setattr(client, "fit", counted)
    for epoch in range(3):
        plan = fb.Plan(outputs={"x": fb.cols("x").min_max()})
        assert column(list(client.stream("tiny", plan, epoch=epoch)), "x").max() == 1
    assert fits == ["tiny"]


def test_a_fitted_plan_runs_on_a_server_that_never_fitted_it(client: fb.Client, serve: Serve, tiny_folder: object):
    fitted = client.fit("tiny", fb.Plan(outputs={"x": fb.cols("x").standardize()}))
    with fb.connect(serve({"tiny": tiny_folder}).url) as other:
        here, there = client.stream("tiny", fitted), other.stream("tiny", fitted)
        assert [b.header for b in here] == [b.header for b in there]
        with pytest.raises(fb.NotFound, match=fitted.plan_id):
            other.stream("tiny", fitted.plan_id)


def test_stored_plans_are_listed_and_removed(serve: Serve, tiny_folder: object):
    plan = fb.Plan(outputs={"x": fb.cols("x").standardize()})
    with fb.connect(serve({"tiny": tiny_folder}).url) as client:
        assert client.plans() == []
        fitted = client.fit("tiny", plan, progress=False)
        (stored,) = client.plans()
        assert stored.plan_id == fitted.plan_id
        info = client.datasets()["tiny"]
        assert stored.datasets == (PlanDataset("tiny", info.snapshot, info.rows, True),)
        assert stored.created is not None
        assert stored.used is not None
        assert stored.created <= stored.used
        assert client.remove_plan(fitted.plan_id) == stored
        assert client.plans() == []
        with pytest.raises(fb.NotFound, match="there is none"):
            client.remove_plan(fitted.plan_id)
        # The whole plan is in the FittedPlan.
        assert len(list(client.stream("tiny", fitted))) > 0


def test_half_precision_outputs(client: fb.Client, tiny: pa.Table):
    plan = fb.Plan(
        outputs={
            "half": fb.output(fb.cols("x", "unit"), dtype="float16"),
            "brain": fb.output(fb.cols("x", "unit"), dtype="bfloat16"),
            "byte": fb.output(fb.cols("small").clip(0, 5), dtype="uint8"),
        }
    )
    with client.stream("tiny", plan, batch_size=ROWS) as stream:
        batch = next(stream)
    both = np.stack([tiny["x"].to_numpy(), tiny["unit"].to_numpy().astype(np.float64)], axis=1)
    assert batch["half"].dtype == np.float16
    assert np.array_equal(batch["half"], both.astype(np.float16))
    assert batch["brain"].dtype == np.uint16
    shown = (batch["brain"].astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(shown, both, rtol=2**-8)
    assert np.array_equal(batch["byte"], tiny["small"].to_numpy().clip(0, 5).astype(np.uint8))


def test_an_as_stored_column_keeps_type_and_nulls(client: fb.Client, tiny: pa.Table):
    plan = fb.Plan(outputs={"word": fb.cols("word").as_stored(), "gappy": fb.cols("gappy").as_stored()})
    batches = list(client.stream("tiny", plan, batch_size=33))
    assert pa.chunked_array([b["word"] for b in batches]).equals(tiny["word"])
    assert pa.chunked_array([b["gappy"] for b in batches]).equals(tiny["gappy"])


def test_rejects_an_outdated_snapshot(serve: Serve, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("changing")
    pq.write_table(pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0]}), folder / "a.parquet")
    with fb.connect(serve({"changing": folder}).url) as client:
        stream = client.stream("changing", ALL)
        snapshot = stream.info.snapshot
        assert client.stream("changing", ALL, snapshot=snapshot).info.snapshot == snapshot
        with pytest.raises((fb.SnapshotChanged, fb.NotFound, fb.FailedPrecondition), match="snapshot"):
            client.stream("changing", ALL, snapshot="0" * len(snapshot))


def test_errors_carry_only_the_servers_message(client: fb.Client):
    with pytest.raises(fb.NotFound) as caught:
        client.stream("tony", ALL)
    text = str(caught.value)
    assert '"tony"' in text
    assert '"tiny"' in text
    assert "gRPC" not in text
    assert "message:" not in text
    assert "Flight" not in text


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 1), (1, 1), (5, 3)])
def test_rejects_a_rank_outside_the_world(client: fb.Client, rank: int, world_size: int):
    with pytest.raises(ValueError, match=f"rank {rank} is not one of the {world_size} ranks"):
        client.stream("tiny", ALL, rank=rank, world_size=world_size)


def test_stopped_server_is_unavailable(serve: Serve, tiny_folder: object):
    server = serve({"tiny": tiny_folder})
    with fb.connect(server.url) as client:
        server.process.kill()
        server.process.wait()
        with pytest.raises(fb.Unavailable):
            client.datasets()


def test_map_batches_opens_the_stream(client: fb.Client):
    plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
    sums = client.map_batches(lambda batch: int(batch["id"].sum()), "tiny", plan, batch_size=40)
    assert list(sums) == [sum(range(40)), sum(range(40, 80)), sum(range(80, 100))]
