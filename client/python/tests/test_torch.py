from __future__ import annotations

import contextlib
import gc
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import forebay as fb
from forebay._client.arrays import numbers
from forebay._client.header import BatchHeader
from forebay._dataset.device_copy import DeviceCopy
from forebay._dataset.tensors import to_tensors
from forebay.torch import FlightDataset
from harness.serving import Server

ROWS = 100
PLAN = fb.Plan(
    outputs={
        "id": fb.output(fb.cols("id"), dtype="int64"),
        "pair": fb.cols("x", "unit").standardize(),
        "word": fb.cols("word").vocab(),
    }
)
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
HEADER = BatchHeader.of({"last": True})


def ids(batches: Any) -> list[int]:
    return torch.cat([batch["id"] for batch in batches]).tolist()


def prefetch_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "forebay-prefetch"}


def test_epoch_yields_dicts_of_tensors(server: Server, tiny: pa.Table):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=32)
    batches = list(data)
    assert len(data) == len(batches) == 4
    assert ids(batches) == list(range(ROWS))
    assert {name: (t.dtype, tuple(t.shape)) for name, t in batches[0].items()} == {
        "id": (torch.int64, (32,)),
        "pair": (torch.float32, (32, 2)),
        "word": (torch.int32, (32,)),
    }
    x = tiny["x"].to_numpy()
    got = torch.cat([batch["pair"][:, 0] for batch in batches]).numpy()
    assert np.allclose(got, (x - x.mean()) / x.std(), rtol=1e-6, atol=1e-7)


def test_rejects_a_missing_device_immediately(server: Server):
    def made(device: str) -> FlightDataset:
        return FlightDataset(server.url, "tiny", PLAN, batch_size=32, device=device)

    with pytest.raises(ValueError, match='device must be "cpu" or "cuda"'):
        made("meta")
    with pytest.raises(ValueError, match="sees"):
        made(f"cuda:{torch.cuda.device_count()}")
    on_cpu, plain = list(made("cpu")), list(FlightDataset(server.url, "tiny", PLAN, batch_size=32))
    assert all(torch.equal(a[name], b[name]) for a, b in zip(on_cpu, plain, strict=True) for name in b)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch sees")
def test_batches_land_on_the_gpu_with_the_same_numbers(server: Server):
    there = list(FlightDataset(server.url, "tiny", PLAN, batch_size=7, prefetch=3, device="cuda"))
    here = list(FlightDataset(server.url, "tiny", PLAN, batch_size=7))
    for a, b in zip(there, here, strict=True):
        assert all(a[name].is_cuda and torch.equal(a[name].cpu(), b[name]) for name in b)


def test_tensors_are_views_of_the_received_memory(client: fb.Client):
    outputs = {
        "id": fb.output(fb.cols("id"), dtype="int64"),
        "pair": fb.cols("x", "unit"),
        "half": fb.output(fb.cols("x"), dtype="float16"),
        "brain": fb.output(fb.cols("x", "unit"), dtype="bfloat16"),
        "byte": fb.output(fb.cols("small").clip(0, 5), dtype="uint8"),
    }
    with client.stream("tiny", fb.Plan(outputs=outputs), batch_size=10, with_row_ids=True) as stream:
        batch = next(stream)
    tensors = to_tensors(batch)
    for name, tensor in tensors.items():
        flat, shape = numbers(batch.data.column(name))
        assert tensor.data_ptr() == flat.buffers()[1].address + flat.offset * tensor.element_size(), name
        assert tuple(tensor.shape) == shape
    assert tensors["brain"].dtype == torch.bfloat16
    assert torch.equal(tensors["brain"], tensors["pair"].to(torch.bfloat16))
    assert torch.equal(tensors["half"], tensors["pair"][:, 0].to(torch.float16))
    assert tensors["__row_id"].dtype == torch.int64


def matrix(rows: int, width: int, name: str = "m") -> pa.RecordBatch:
    numbers = pa.array(np.arange(rows * width, dtype=np.float32))
    values = pa.FixedSizeListArray.from_arrays(numbers, width)
    column = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [width]), values)
    return pa.record_batch([column], schema=pa.schema([pa.field(name, column.type, nullable=False)]))


def test_rows_of_a_sliced_matrix_are_those_of_the_slice():
    data = matrix(10, 3)
    for start, length in ((0, 10), (0, 4), (3, 5), (9, 1), (10, 0)):
        found = to_tensors(fb.Batch(data.slice(start, length), HEADER))["m"]
        assert torch.equal(found, torch.arange(30.0).view(10, 3)[start : start + length])


def test_batches_of_another_schema_have_their_own_columns():
    device_copy = DeviceCopy(None)
    for data, name, shape in (
        (matrix(10, 3), "m", (10, 3)),
        (matrix(7, 3), "m", (7, 3)),
        (matrix(4, 2), "m", (4, 2)),
        (matrix(4, 2, "other"), "other", (4, 2)),
    ):
        tensors = device_copy.copy(fb.Batch(data, HEADER)).take()
        assert [(key, tuple(value.shape)) for key, value in tensors.items()] == [(name, shape)]


def test_tensors_outlive_their_batch_and_stream(server: Server):
    first = next(iter(FlightDataset(server.url, "tiny", IDS, batch_size=50)))
    gc.collect()
    assert first["id"].tolist() == list(range(50))


def test_an_as_stored_column_stays_arrow(server: Server, tiny: pa.Table):
    plan = fb.Plan(outputs={"word": fb.cols("word").as_stored(), "id": fb.cols("id")})
    batch = next(iter(DataLoader(FlightDataset(server.url, "tiny", plan), batch_size=None)))
    assert isinstance(batch["word"], pa.Array)
    assert batch["word"].to_pylist() == tiny["word"].to_pylist()


@pytest.mark.parametrize("batch_size", [1, 64])
@pytest.mark.parametrize("workers", [0, 1])
def test_rejects_a_loader_that_would_stack_whole_batches(server: Server, batch_size: int, workers: int):
    data = FlightDataset(server.url, "tiny", fb.Plan(outputs={"x": fb.cols("id")}), batch_size=10)
    context = "spawn" if workers else None
    loader = DataLoader(data, batch_size=batch_size, num_workers=workers, multiprocessing_context=context)
    with pytest.raises(ValueError, match=r"use DataLoader\(data, batch_size=None\)"):
        next(iter(loader))


def test_a_loader_with_its_own_collate_fn_receives_whole_batches(server: Server):
    data = FlightDataset(server.url, "tiny", fb.Plan(outputs={"x": fb.cols("id")}), batch_size=10)
    pairs = list(DataLoader(data, batch_size=2, collate_fn=list))
    assert [len(pair) for pair in pairs] == [2] * 5
    assert all(isinstance(batch, dict) and batch["x"].shape == (10,) for pair in pairs for batch in pair)


def test_the_length_is_the_ranks_exact_number_of_steps(server: Server):
    for rank in range(3):
        data = FlightDataset(server.url, "tiny", IDS, batch_size=11, rank=rank, world_size=3, remainder="keep")
        assert len(data) == len(list(data)) == len(DataLoader(data, batch_size=None))


def test_rank_comes_from_the_environment_unless_given(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ids(FlightDataset(server.url, "tiny", IDS)) == list(range(50, 75))
    assert ids(FlightDataset(server.url, "tiny", IDS, rank=0, world_size=2)) == list(range(50))
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(ValueError, match="RANK='two'"):
        list(FlightDataset(server.url, "tiny", IDS))


@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
def test_half_of_an_environment_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch, kind: Any):
    for name, value, words in (
        ("WORLD_SIZE", "4", "WORLD_SIZE=4 is set in the environment, and RANK is not"),
        ("RANK", "1", "RANK=1 is set in the environment, and WORLD_SIZE is not"),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            with pytest.raises(ValueError, match=words):
                len(kind(server.url, "tiny", IDS))
            assert len(kind(server.url, "tiny", IDS, rank=0, world_size=2, batch_size=10)) == 5
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert len(kind(server.url, "tiny", IDS, batch_size=10)) == 10


def test_the_length_follows_ranks_that_become_known(server: Server, monkeypatch: pytest.MonkeyPatch):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=10)
    assert len(data) == 10
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(data) == 5 == len(list(data))


@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
def test_ranks_that_differ_in_steps_are_refused_unless_told(server: Server, kind: Any, options: dict[str, Any]):
    def steps(rank: int, world_size: int, **more: Any) -> int:
        data = kind(server.url, "tiny", IDS, rank=rank, world_size=world_size, **options, **more)
        return len(list(data))

    words = r"unequal steps of ranks: of 100 rows .* have 4 steps and others 3.*remainder=\"pad\".*\"drop\".*\"keep\""
    for rank in range(3):
        with pytest.raises(fb.UnevenRanks, match=words):
            steps(rank, 3, batch_size=11)
    for more, want in (("keep", [3, 3, 4]), ("pad", [4, 4, 4]), ("drop", [3, 3, 3])):
        assert sorted(steps(rank, 3, batch_size=11, remainder=more) for rank in range(3)) == want
    assert [steps(rank, 3, batch_size=20) for rank in range(3)] == [2, 2, 2]


def test_unequal_steps_are_refused_wherever_they_are_counted(server: Server):
    threads = set(threading.enumerate())
    data = FlightDataset(server.url, "tiny", IDS, rank=0, world_size=3, batch_size=11)
    for counted in (len, FlightDataset.info, lambda data: next(iter(data)), lambda data: next(next(data.epochs(2))[1])):
        with pytest.raises(fb.UnevenRanks):
            counted(data)
    # Resumed by another number of ranks, which differ in what is left.
    saved = FlightDataset(server.url, "tiny", IDS, batch_size=12, shuffle=True, lanes=3)
    with contextlib.closing(iter(saved)) as batches:
        next(batches)
    state = saved.state_dict()
    for more in ({}, {"remainder": "pad"}, {"remainder": "drop"}):
        resumed = FlightDataset(server.url, "tiny", IDS, rank=1, world_size=3, batch_size=29, shuffle=True, **more)
        resumed.load_state_dict(state)
        with pytest.raises(fb.UnevenRanks, match="of 88 rows.*the state has remainder .keep., so resume with another"):
            next(iter(resumed))
    array = fb.ArrayDataset(server.url, "tiny", IDS, rank=1, world_size=3, batch_size=29, shuffle=True)
    array.load_state_dict(state)
    with pytest.raises(fb.UnevenRanks, match="of 88 rows"):
        next(iter(array))
    # No thread of a refused epoch is left.
    for thread in set(threading.enumerate()) - threads:
        thread.join(30)
        assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
def test_an_epoch_without_a_step_is_reported(server: Server, kind: Any):
    with pytest.warns(fb.errors.EmptyEpoch, match="no steps: no row passes the filter"):
        assert list(kind(server.url, "tiny", IDS, filter="id < 0")) == []
    with pytest.warns(fb.errors.EmptyEpoch, match="remainder drop too few for a whole batch on every rank"):
        assert list(kind(server.url, "tiny", IDS, batch_size=101, remainder="drop")) == []


class Doubled(IterableDataset[Any]):
    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Any:
        for batch in self.data:
            yield {"id": batch["id"] * 2}


@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
def test_rejects_a_loader_that_would_stack_batches_of_a_wrapper(server: Server, kind: Any):
    data = kind(server.url, "tiny", IDS, batch_size=10)
    with pytest.raises(ValueError, match=r"yields whole batches.*DataLoader\(data, batch_size=None\)"):
        next(iter(DataLoader(Doubled(data), batch_size=8)))
    assert len(list(DataLoader(Doubled(data), batch_size=None))) == 10
    assert [len(pair) for pair in DataLoader(Doubled(data), batch_size=2, collate_fn=list)] == [2] * 5


def test_rank_comes_from_torch_distributed_before_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        data = FlightDataset(server.url, "tiny", IDS)
        assert ids(data) == list(range(ROWS))
        carried = pickle.dumps(data)
    finally:
        torch.distributed.destroy_process_group()
    # A worker of this process cannot use torch.distributed, and must not read the environment.
    assert ids(pickle.loads(carried)) == list(range(ROWS))


def test_rejects_a_rank_without_a_world_size():
    with pytest.raises(ValueError, match="both rank and world_size"):
        FlightDataset("grpc://127.0.0.1:1", "tiny", IDS, rank=1)


def test_set_epoch_numbers_the_next_epoch(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=64)
    for epoch in (0, 3):
        data.set_epoch(epoch)
        assert data.epoch == epoch
        assert ids(data) == list(range(ROWS))
        assert data.state_dict()["epoch"] == epoch + 1


def test_options_reach_the_server(server: Server):
    data = FlightDataset(
        server.url, "tiny", IDS, batch_size=8, rank=1, world_size=3, remainder="drop", with_row_ids=True
    )
    batches = list(data)
    assert ids(batches) == list(range(33, 65))
    assert torch.cat([b["__row_id"] for b in batches]).tolist() == list(range(33, 65))
    with pytest.raises(fb.InvalidRequest, match="batch_size"):
        next(iter(FlightDataset(server.url, "tiny", IDS, batch_size=0)))


@pytest.mark.parametrize("steps", [0, 1, 3, 5, 6])
def test_loaded_state_resumes_after_the_last_batch_taken(server: Server, steps: int):
    def dataset() -> FlightDataset:
        return FlightDataset(server.url, "tiny", PLAN, batch_size=9, rank=1, world_size=2, prefetch=3)

    whole = list(dataset())
    assert len(whole) == 6
    data = dataset()
    data.set_epoch(4)
    loop = iter(DataLoader(data, batch_size=None))
    taken = [next(loop) for _ in range(steps)]
    state = data.state_dict()
    del loop
    resumed = dataset()
    resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
    # The next epoch follows the last step of all ranks.
    assert resumed.epoch == (5 if steps == 6 else 4)
    resumed.set_epoch(resumed.epoch)
    assert len(resumed) == 6
    rest = list(DataLoader(resumed, batch_size=None))
    assert ids(taken + rest if steps < 6 else rest) == ids(whole)
    # Only the first iteration is resumed.
    assert ids(resumed) == ids(whole)


def test_state_is_small_versioned_and_equal_on_every_rank(server: Server):
    states = []
    for rank in range(2):
        data = FlightDataset(server.url, "tiny", PLAN, batch_size=9, rank=rank, world_size=2, seed=7)
        loop = iter(data)
        next(loop), next(loop)
        states.append(data.state_dict())
        del loop
    assert states[0] == states[1]
    assert states[0]["version"] == 2
    assert states[0]["position"] == 2 * 9 * 2
    assert states[0]["seed"] == 7
    assert len(pickle.dumps(states[0])) < 600


def test_at_the_end_of_an_epoch_every_rank_reports_the_next(server: Server):
    # Ranks of 33, 33 and 34 rows: in batches of 11 the last rank has a step more.
    states = []
    for rank in range(3):
        data = FlightDataset(server.url, "tiny", IDS, batch_size=11, rank=rank, world_size=3, remainder="keep")
        ids(data)
        states.append(data.state_dict())
    assert [
        len(FlightDataset(server.url, "tiny", IDS, batch_size=11, rank=r, world_size=3, remainder="keep"))
        for r in (0, 2)
    ] == [3, 4]
    assert states[0] == states[1] == states[2]
    assert (states[0]["epoch"], states[0]["position"]) == (1, 0)


def test_rank_without_remaining_rows_resumes_to_an_empty_epoch(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=11, rank=2, world_size=3, remainder="keep")
    loop = iter(data)
    for _ in range(3):
        next(loop)
    state = data.state_dict()
    del loop
    rests = []
    for rank in range(3):
        resumed = FlightDataset(server.url, "tiny", IDS, batch_size=11, rank=rank, world_size=3, remainder="keep")
        resumed.load_state_dict(state)
        rests.append([batch["id"].tolist() for batch in resumed])
    assert rests == [[], [], [[99]]]


def test_rejects_a_state_of_another_plan(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=10)
    loop = iter(data)
    next(loop)
    state = data.state_dict()
    del loop
    other = FlightDataset(server.url, "tiny", PLAN, batch_size=10)
    other.load_state_dict(state)
    with pytest.raises(fb.CursorRefused, match="saved under plan"):
        iter(other)


@pytest.mark.parametrize("batch_size", [8, 7, 1000])
def test_another_batch_size_resumes(server: Server, batch_size: int):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    loop = iter(data)
    taken = [next(loop), next(loop)]
    state = data.state_dict()
    del loop
    resumed = FlightDataset(server.url, "tiny", IDS, batch_size=batch_size)
    resumed.load_state_dict(state)
    assert ids([*taken, *resumed]) == list(range(ROWS))


def test_leaving_a_loop_early_leaks_no_thread(server: Server):
    before = prefetch_threads()
    data = FlightDataset(server.url, "tiny", IDS, batch_size=1, prefetch=1)
    for _ in range(5):
        for batch in DataLoader(data, batch_size=None):
            assert batch["id"].tolist() == [0]
            break
    loop = iter(data)
    next(loop)
    assert len(prefetch_threads() - before) == 1
    loop.close()
    assert prefetch_threads() <= before
    assert list(loop) == []
    assert data.state_dict()["position"] == 1
    assert ids(data) == list(range(ROWS))
    assert prefetch_threads() <= before


def test_stream_error_reaches_the_loop(server: Server):
    plan = fb.Plan(outputs={"gappy": fb.cols("gappy")})
    before = prefetch_threads()
    with pytest.raises(fb.ForebayError, match="gappy"):
        list(FlightDataset(server.url, "tiny", plan, batch_size=10))
    assert prefetch_threads() <= before


def test_stats_count_batches_that_the_loop_took(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=30)
    list(data)
    list(data)
    stats = data.stats()
    assert stats["batches"] == 8
    assert stats["rows"] == 2 * ROWS
    assert stats["bytes"] == 2 * ROWS * 8
    assert stats["wait_seconds"] > 0


def test_a_pickled_dataset_holds_no_connection(server: Server):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=16)
    assert len(data) == 7
    copy = pickle.loads(pickle.dumps(data))
    assert ids(copy) == ids(data)


def test_spawned_workers_yield_every_row_once(server: Server):
    data = FlightDataset(server.url, "tiny", PLAN, batch_size=16)
    assert len(data) == 7
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert ids(loader) == list(range(ROWS))
    with pytest.raises(RuntimeError, match="num_workers=0"):
        data.state_dict()
    assert ids(data) == list(range(ROWS))
    assert data.state_dict()["epoch"] == 2
