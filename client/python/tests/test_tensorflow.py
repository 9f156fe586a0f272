"""`forebay.tensorflow` with TensorFlow itself: the batches of the torch dataset, resumed to the byte."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch._dynamo  # Before TensorFlow: both include LLVM, and the process aborts if torch's is loaded second.

import forebay as fb
from forebay.torch import FlightDataset
from harness.serving import Serve, Server

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed; `make test-tensorflow` installs it")

from forebay._dataset.elements import Elements  # noqa: E402
from forebay.tensorflow import FlightData, dataset  # noqa: E402 (without TensorFlow there is nothing to import)

ROWS = 100
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
DTYPES = fb.Plan(
    outputs={
        "id": fb.output(fb.cols("id"), dtype="int64"),
        "pair": fb.cols("x", "unit").standardize(),
        "double": fb.output(fb.cols("x"), dtype="float64"),
        "half": fb.output(fb.cols("x"), dtype="float16"),
        "brain": fb.output([fb.cols("x"), fb.cols("unit")], dtype="bfloat16"),
        "word": fb.cols("word").vocab(),
        "byte": fb.output(fb.cols("id"), dtype="uint8"),
        "stored": fb.cols("small").as_stored(),
        "text": fb.cols("word").as_stored(),
    },
    filter="word IS NOT NULL",
)
ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "seed": 5, "with_row_ids": True},
    {"shuffle": True, "seed": 5, "epoch": 3, "window_rows": 7, "lanes": 8},
    {"remainder": "drop", "rank": 1, "world_size": 3},
    {"remainder": "pad", "rank": 2, "world_size": 3, "shuffle": True},
    {"filter": "id % 3 = 1 AND word IS NOT NULL", "sample": 0.7, "sample_seed": 2},
]


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"].numpy()]


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(fb.__file__).parents[1])}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


def prefetch_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "forebay-prefetch"}


def content(value: Any) -> Any:
    """A column of torch or TensorFlow as its dtype's name, its shape and its bytes; text as a list."""
    if isinstance(value, pa.Array):
        if value.type == pa.int32():
            return "int32", (len(value),), np.asarray(value).tobytes()
        return [text.encode() for text in value.to_pylist()]
    if isinstance(value, torch.Tensor):
        raw = value.view(torch.uint16) if value.dtype == torch.bfloat16 else value
        return str(value.dtype).removeprefix("torch."), tuple(value.shape), raw.numpy().tobytes()
    if value.dtype == tf.string:
        return value.numpy().tolist()
    return value.dtype.name.replace("half", "float16"), tuple(value.shape), value.numpy().tobytes()


def contents(batches: Any) -> list[dict[str, Any]]:
    return [{name: content(value) for name, value in batch.items()} for batch in batches]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    """A dataset of lists, of embeddings, of all kinds of text and of types that TensorFlow does not have."""
    folder = tmp_path_factory.mktemp("lists") / "lists"
    folder.mkdir()
    rows = 23
    table = pa.table(
        {
            "tags": pa.array([[f"t{j}" for j in range(i % 4)] for i in range(rows)]),
            "codes": pa.array([list(range(i, i + i % 5)) for i in range(rows)], pa.list_(pa.int64())),
            "large": pa.array([[float(i)] * (i % 3) for i in range(rows)], pa.large_list(pa.float32())),
            "embedding": pa.array([[i, i + 0.5] for i in range(rows)], pa.list_(pa.float32(), 2)),
            "city": pa.array([f"é{i % 3}" for i in range(rows)]).dictionary_encode(),
            "raw": pa.array([bytes([i, 0, 255]) for i in range(rows)], pa.binary()),
            "flag": pa.array([i % 2 == 0 for i in range(rows)]),
            "holes": pa.array([None if i == 20 else [i] for i in range(rows)], pa.list_(pa.int64())),
            "day": pa.array(range(rows), pa.date32()),
        }
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    return serve({"lists": folder})


# === Batches ===


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_batches_are_those_of_the_torch_dataset_to_the_bit(server: Server, order: dict[str, Any]):
    ours = dataset(server.url, "tiny", DTYPES, batch_size=9, **order)
    theirs = FlightDataset(server.url, "tiny", DTYPES, batch_size=9, **order)
    assert isinstance(ours, tf.data.Dataset)
    for _ in range(2):
        assert len(ours) == len(theirs) > 0
        assert contents(ours) == contents(theirs)
        assert ours.epoch == theirs.epoch
        assert ours.state_dict() == theirs.state_dict()


def test_each_row_is_read_once_in_each_epoch_in_another_order(server: Server):
    data = dataset(server.url, "tiny", IDS, batch_size=9, shuffle=True, seed=1)
    epochs = [ids(batches) for _, batches in data.epochs(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize(("remainder", "rows"), [("keep", None), ("drop", 9), ("pad", 9)])
def test_shapes_are_static_and_so_are_the_rows_unless_kept(server: Server, remainder: Any, rows: int | None):
    data = dataset(server.url, "tiny", DTYPES, batch_size=9, remainder=remainder, with_row_ids=True)
    specs = {name: (spec.shape.as_list(), spec.dtype) for name, spec in data.element_spec.items()}
    assert specs == {
        "id": ([rows], tf.int64),
        "pair": ([rows, 2], tf.float32),
        "double": ([rows], tf.float64),
        "half": ([rows], tf.float16),
        "brain": ([rows, 2], tf.bfloat16),
        "word": ([rows], tf.int32),
        "byte": ([rows], tf.uint8),
        "stored": ([rows], tf.int32),
        "text": ([rows], tf.string),
        "__row_id": ([rows], tf.int64),
    }
    traced: list[Any] = []
    for _ in data.map(lambda batch: traced.append(batch["pair"].shape.as_list()) or batch):
        pass
    assert traced == [[rows, 2]]
    for batch in data:
        for name, spec in data.element_spec.items():
            assert spec.is_compatible_with(batch[name])


def test_lists_are_ragged_and_text_is_strings(lists: Server):
    plan = fb.Plan(
        outputs={
            "hashed": fb.cols("tags").hash_bucket(1000),
            "hot": fb.cols("tags").hash_bucket(8).multi_hot(),
            **{name: fb.cols(name).as_stored() for name in ("tags", "codes", "large", "embedding", "city", "raw")},
            "flag": fb.cols("flag").as_stored(),
        }
    )
    data = dataset(lists.url, "lists", plan, batch_size=10)
    assert data.element_spec["hashed"] == tf.RaggedTensorSpec([None, None], tf.int32)
    assert data.element_spec["tags"] == tf.RaggedTensorSpec([None, None], tf.string)
    assert data.element_spec["embedding"] == tf.TensorSpec([None, 2], tf.float32)
    batches = list(data)
    with fb.connect(lists.url) as client:
        table = client.table("lists").read()
    for name in ("tags", "codes", "large", "embedding", "city", "raw", "flag"):
        rows = [row for batch in batches for row in (batch[name].to_list() if name in RAGGED else batch[name].numpy())]
        want = table[name].to_pylist()
        assert [np.asarray(row).tolist() for row in rows] == [np.asarray(encoded(row)).tolist() for row in want], name
    torch_batches = list(FlightDataset(lists.url, "lists", plan, batch_size=10))
    for ours, theirs in zip(batches, torch_batches, strict=True):
        assert isinstance(ours["hashed"], tf.RaggedTensor)
        assert ours["hashed"].values.numpy().tobytes() == theirs["hashed"].values.numpy().tobytes()
        assert ours["hashed"].row_splits.numpy().tolist() == theirs["hashed"].offsets.tolist()


RAGGED = ("tags", "codes", "large")


def encoded(value: Any) -> Any:
    """The value with its text in UTF-8, as TensorFlow has it."""
    if isinstance(value, list):
        return [encoded(one) for one in value]
    return value.encode() if isinstance(value, str) else value


def test_rank_comes_from_the_environment_unless_given(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ids(dataset(server.url, "tiny", IDS)) == list(range(50, 75))
    assert ids(dataset(server.url, "tiny", IDS, rank=0, world_size=2)) == list(range(50))


def test_a_strategy_does_not_shard_the_dataset_again(server: Server):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

    def of(context: Any) -> Any:
        rank, world_size = context.input_pipeline_id, context.num_input_pipelines
        return dataset(server.url, "tiny", IDS, batch_size=9, rank=rank, world_size=world_size)

    assert ids(strategy.distribute_datasets_from_function(of)) == list(range(ROWS))
    policy = of(tf.distribute.InputContext()).prefetch(1).options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.OFF


# === Positions ===


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3, 5, 6])
def test_loaded_state_resumes_after_the_last_batch_taken(server: Server, steps: int, shuffle: bool):
    def made(kind: Any, epoch: int = 4) -> Any:
        return kind(server.url, "tiny", DTYPES, batch_size=8, rank=1, world_size=2, shuffle=shuffle, epoch=epoch)

    whole, following = contents(made(dataset)), contents(made(dataset, 5))
    assert len(whole) == 6
    for saving, loading in ((dataset, dataset), (dataset, FlightDataset), (FlightDataset, dataset)):
        data = made(saving)
        loop = iter(data)
        taken = contents(next(loop) for _ in range(steps))
        state = data.state_dict()
        del loop
        resumed = made(loading, 0)
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
        # The next epoch follows the last step of all ranks.
        assert resumed.epoch == (5 if steps == 6 else 4)
        assert len(resumed) == 6
        rest = contents(resumed)
        assert (taken + rest if steps < 6 else rest) == (whole if steps < 6 else following)
        # Only the first iteration is resumed.
        assert len(list(resumed)) == 6


def test_another_world_size_resumes_a_shuffled_epoch(server: Server):
    data = dataset(server.url, "tiny", IDS, batch_size=16, shuffle=True)
    loop = iter(data)
    taken = ids([next(loop), next(loop)])
    rest = []
    for rank in range(4):
        resumed = dataset(server.url, "tiny", IDS, batch_size=4, shuffle=True, rank=rank, world_size=4)
        resumed.load_state_dict(data.state_dict())
        rest += ids(resumed)
    assert sorted(taken + rest) == list(range(ROWS))


def test_a_state_that_does_not_fit_is_rejected(server: Server):
    data = dataset(server.url, "tiny", IDS, batch_size=20)
    next(iter(data))
    state = data.state_dict()
    with pytest.raises(fb.CursorRefused, match="resume at world size 1"):
        dataset(server.url, "tiny", IDS, batch_size=20, rank=0, world_size=2).load_state_dict(state)
    with pytest.raises(fb.CursorRefused, match="saved with remainder keep, and this dataset's shapes"):
        dataset(server.url, "tiny", IDS, batch_size=20, remainder="drop").load_state_dict(state)
    other = dataset(server.url, "tiny", fb.Plan(outputs={"x": fb.cols("x")}), batch_size=20)
    other.load_state_dict(state)
    with pytest.raises(fb.CursorRefused, match="saved under plan"):
        next(iter(other))


def test_state_dict_counts_the_batches_of_a_loop_over_the_dataset_itself(server: Server):
    data = dataset(server.url, "tiny", IDS, batch_size=9, prefetch=8)
    for step, _ in enumerate(data, 1):
        assert data.state_dict()["position"] == (9 * step if step < 12 else 0)

    @tf.function
    def sum_of_next(loop: Any) -> Any:
        return tf.reduce_sum(next(loop)["id"])

    loop = iter(data)
    for step in range(1, 4):
        assert int(sum_of_next(loop)) == sum(range(9 * (step - 1), 9 * step))
        assert data.state_dict()["position"] == 9 * step


def test_a_loop_over_a_derived_dataset_says_how_many_batches_it_has(server: Server):
    whole = contents(dataset(server.url, "tiny", DTYPES, batch_size=9, shuffle=True))
    data = dataset(server.url, "tiny", DTYPES, batch_size=9, shuffle=True)
    loop = iter(data.map(lambda batch: batch, num_parallel_calls=3).prefetch(4))
    for step in range(4):
        next(loop)
        with pytest.raises(RuntimeError, match=r"may have read ahead of it: .* state_dict\(steps=…\)"):
            data.state_dict()
        resumed = dataset(server.url, "tiny", DTYPES, batch_size=9, shuffle=True)
        resumed.load_state_dict(data.state_dict(steps=step + 1))
        assert contents(resumed) == whole[step + 1 :]
        # Its own steps count from there.
        assert resumed.state_dict(steps=2)["position"] == 9 * (step + 3)
        assert resumed.state_dict(steps=0)["position"] == 9 * (step + 1)
    with pytest.raises(ValueError, match="steps=99, but only"):
        data.state_dict(steps=99)
    rest = list(loop)
    assert data.state_dict(steps=4 + len(rest))["epoch"] == 1


def test_an_interrupt_within_next_loses_no_batch(server: Server, monkeypatch: pytest.MonkeyPatch):
    """The handler raises in the main thread after a thread of tf.data has taken the batch."""
    whole = contents(dataset(server.url, "tiny", DTYPES, batch_size=9, shuffle=True))
    data = dataset(server.url, "tiny", DTYPES, batch_size=9, shuffle=True)
    original, steps = Elements.__next__, iter(range(100))

    def interrupting(elements: Elements) -> Any:
        taken = original(elements)
        if next(steps) in {0, 4, 5, 13}:
            signal.raise_signal(signal.SIGINT)
        return taken

    monkeypatch.setattr(Elements, "__next__", interrupting)
    loop, got, interrupts = iter(data), list[Any](), 0
    while True:
        try:
            got += contents([next(loop)])
        except KeyboardInterrupt:
            interrupts += 1
            assert data.state_dict()["position"] == 9 * len(got)
        except StopIteration:
            break
    assert interrupts == 4
    assert got == whole
    assert data.epoch == 1


def test_an_unused_iterator_does_not_use_a_loaded_state_up(server: Server):
    data = dataset(server.url, "tiny", IDS, batch_size=10)
    data.load_state_dict({**data.state_dict(), "position": 30})
    for _ in range(2):
        iter(data)
        assert data.state_dict()["position"] == 30
    assert ids(data) == list(range(30, ROWS))
    assert ids(data) == list(range(ROWS))


# === Epochs ===


def test_epochs_advance_like_those_of_the_torch_dataset(server: Server):
    for data in (
        dataset(server.url, "tiny", IDS, batch_size=30, epoch=1),
        FlightDataset(server.url, "tiny", IDS, batch_size=30, epoch=1),
    ):
        seen = []
        for epoch, batches in data.epochs(4):
            seen.append((epoch, data.epoch, data.next_epoch))
            for step, _ in enumerate(batches):
                if epoch == 2 and step == 1:
                    break
        assert seen == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
        assert data.next_epoch == 4
        # Left early: the same epoch again.
        next(iter(data))
        assert len(list(data)) == 4
        assert data.epoch == 5
        data.set_epoch(2)
        assert (data.epoch, data.state_dict()["position"]) == (2, 0)
        with pytest.warns(UserWarning, match="yields nothing"):
            assert list(data.epochs(2)) == []


def test_each_repetition_is_the_next_epoch(server: Server):
    options: dict[str, Any] = {"batch_size": 25, "shuffle": True, "seed": 4}
    repeated = ids(dataset(server.url, "tiny", IDS, **options).repeat(2))
    assert repeated == ids(dataset(server.url, "tiny", IDS, **options)) + ids(
        dataset(server.url, "tiny", IDS, epoch=1, **options)
    )


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_keras_fits_each_epoch_in_its_order(server: Server):
    plan = fb.Plan(outputs={"x": fb.cols("x", "unit").standardize(), "y": fb.cols("id")})
    seen: list[int] = []

    def pair(batch: dict[str, Any]) -> tuple[Any, Any]:
        tf.py_function(lambda y: seen.extend(int(i) for i in y), [batch["y"]], [])
        return batch["x"], batch["y"]

    def made() -> FlightData:
        return dataset(server.url, "tiny", plan, batch_size=10, shuffle=True, remainder="drop")

    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = made()
    sized = data.map(pair).apply(tf.data.experimental.assert_cardinality(len(data)))
    history = model.fit(sized, epochs=2, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 2
    whole = [
        ids(dataset(server.url, "tiny", IDS, batch_size=10, shuffle=True, remainder="drop", epoch=epoch))
        for epoch in (0, 1)
    ]
    assert seen == whole[0] + whole[1]
    assert data.next_epoch == 2

    state = made().state_dict() | {"position": 40}
    resumed = made()
    resumed.load_state_dict(state)
    seen.clear()
    for epoch in range(resumed.next_epoch, 2):
        model.fit(resumed.map(pair), initial_epoch=epoch, epochs=epoch + 1, shuffle=False, verbose=0)
    assert seen == whole[0][40:] + whole[1]
    assert resumed.state_dict(steps=10)["epoch"] == 2


# === Errors, threads, imports ===


def test_errors_are_the_clients(server: Server, lists: Server):
    with pytest.raises(fb.NotFound, match="flihgts"):
        dataset(server.url, "flihgts", IDS)
    with pytest.raises(fb.Unavailable, match="cannot connect"):
        dataset("grpc://127.0.0.1:1", "tiny", IDS)
    with pytest.raises(fb.InvalidRequest, match="batch_size"):
        dataset(server.url, "tiny", IDS, batch_size=0)
    with pytest.raises(TypeError, match=r"dataset has no argument 'shufle': did you mean shuffle\?"):
        dataset(server.url, "tiny", IDS, shufle=True)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="both rank and world_size"):
        dataset(server.url, "tiny", IDS, rank=1)
    for name in ("day", "holes"):
        plan = fb.Plan(outputs={name: fb.cols(name).as_stored()})
        with pytest.raises(fb.InvalidRequest, match=f"column {name}"):
            list(dataset(lists.url, "lists", plan, batch_size=10))


def test_error_of_a_stream_reaches_the_loop(server: Server, tiny: pa.Table):
    before = prefetch_threads()
    gappy = fb.Plan(outputs={"gappy": fb.cols("gappy"), "id": fb.cols("id")})
    data = dataset(server.url, "tiny", gappy, batch_size=3)
    for loop in (iter(data), iter(data)):
        for _ in range(2):
            with pytest.raises(fb.InvalidRequest, match="row 4 is null"):
                list(loop)
    with pytest.raises(tf.errors.OpError, match="InvalidRequest: .*row 4 is null"):
        list(data.map(lambda batch: batch))
    assert isinstance(data.failure, fb.InvalidRequest)
    words = dataset(server.url, "tiny", fb.Plan(outputs={"word": fb.cols("word").as_stored()}), batch_size=1)
    present = tiny["word"].to_pylist().index(None)
    assert present
    with pytest.raises(fb.InvalidRequest, match="column word has 1 nulls .* and TensorFlow has no null"):
        list(words)
    # The batches before it count.
    assert words.state_dict()["position"] == present
    del loop, data, words
    assert prefetch_threads() <= before


def test_a_server_that_ends_is_an_error_of_the_loop(serve: Serve, tiny_folder: Path):
    server = serve({"tiny": tiny_folder})
    data = dataset(server.url, "tiny", IDS, batch_size=1, retry_seconds=0, prefetch=1)
    loop = iter(data)
    next(loop)
    server.process.kill()
    server.process.wait()
    with pytest.raises(fb.ForebayError):
        list(iter(data))
    assert isinstance(data.failure, fb.Unavailable)
    del loop


def test_leaving_a_loop_early_leaks_no_thread(server: Server):
    before = prefetch_threads()
    data = dataset(server.url, "tiny", IDS, batch_size=1, prefetch=1)
    for made in (data, data.prefetch(3)):
        for _ in range(3):
            for batch in made:
                assert batch["id"].numpy().tolist() == [0]
                break
        loop = iter(made)
        next(loop)
        assert len(prefetch_threads() - before) == 1
        del loop
        assert prefetch_threads() <= before
    assert ids(data) == list(range(ROWS))
    assert prefetch_threads() <= before


def test_a_dropped_dataset_leaves_nothing(server: Server):
    before = prefetch_threads()
    loop = iter(dataset(server.url, "tiny", IDS, batch_size=1, prefetch=1))
    # The iterator keeps the dataset.
    assert ids([next(loop), next(loop)]) == [0, 1]
    assert isinstance(loop, tf.data.Iterator)
    del loop
    assert prefetch_threads() <= before


def test_a_process_that_ends_within_a_loop_exits(server: Server):
    script = """
import sys
import forebay as fb
from forebay.tensorflow import dataset
data = dataset(sys.argv[1], "tiny", fb.Plan(outputs={"id": fb.cols("id")}), batch_size=1, prefetch=1)
loop = iter(data)
print(next(loop)["id"].numpy().tolist())
"""
    ended = python(script, server.url)
    assert (ended.returncode, ended.stdout) == (0, "[0.0]\n"), ended.stderr


WAITING = """
import sys, time
import tensorflow as tf
import forebay as fb
from forebay._dataset.elements import Elements
from forebay._client.stream import Stream
from forebay.tensorflow import dataset
read, taken = Stream.__next__, {}

def stall(stream):
    # As if the server stopped after the first batches.
    taken[id(stream)] = taken.get(id(stream), 0) + 1
    if taken[id(stream)] > 3:
        stream._stopped.wait(600)
        raise StopIteration
    return read(stream)

Stream.__next__ = stall

def data():
    return dataset(sys.argv[1], "tiny", fb.Plan(outputs={"x": fb.cols("x")}), batch_size=1, prefetch=1)

def in_python(batch):
    return tf.py_function(lambda x: x * 2, [batch["x"]], tf.float32)

hidden = data()
derived = [
    data(), data().repeat(), data().map(in_python), tf.data.Dataset.range(2).flat_map(lambda _: hidden),
]
loops = [iter(one.prefetch(16)) for one in derived]
for loop in loops:
    next(loop)

def waits(frame):
    name = frame.f_code.co_name
    while frame is not None and not isinstance(frame.f_locals.get("self"), Elements):
        frame = frame.f_back
    return name == "wait" and frame is not None

until = time.monotonic() + 60
while (count := sum(map(waits, sys._current_frames().values()))) < len(loops) and time.monotonic() < until:
    time.sleep(0.01)
print(count, "threads wait", flush=True)
"""


def test_a_process_whose_derived_datasets_wait_for_a_batch_exits(server: Server):
    ended = python(WAITING, server.url)
    assert (ended.returncode, ended.stdout) == (0, "4 threads wait\n"), ended.stderr
    assert "Error occurred when finalizing" not in ended.stderr


def test_only_the_tensorflow_module_loads_tensorflow():
    script = """
import json, sys
def loaded():
    return [name for name in ("tensorflow", "torch") if name in sys.modules]
import forebay
first = loaded()
import forebay.tensorflow
print(json.dumps([first, loaded()]))
"""
    ended = python(script)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[], ["tensorflow"]]


def test_the_dataset_is_a_flight_data(server: Server):
    data = dataset(server.url, "tiny", IDS, batch_size=64)
    assert isinstance(data, FlightData)
    # The cardinality is unknown to tf.data, which would otherwise reject a resumed epoch.
    assert int(data.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    assert len(data) == 2


def test_batches_of_tokens_have_any_number_of_rows(lists: Server) -> None:
    plan = fb.Plan(outputs={"codes": fb.cols("codes").as_stored()})
    for buckets, rows in (({"boundaries": [2, 4]}, 3), ({"max_tokens": 64}, None)):
        options: Any = {"batch_size": 3, "remainder": "drop", "bucket_by_length": {"column": "codes", **buckets}}
        data = dataset(lists.url, "lists", plan, **options)
        assert data.element_spec["codes"].shape[0] == rows
        assert sum(batch["codes"].shape[0] for batch in data) > 15
