"""Epochs advance by themselves: the iterator after a finished epoch is that of the next one."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
from harness.serving import Server

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

ROWS, BATCH_SIZE = 100, 16
STEPS = 7
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
Make = Callable[..., FlightDataset]


@pytest.fixture
def make(server: Server) -> Make:
    def made(**options: Any) -> FlightDataset:
        options = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 5, **options}
        return FlightDataset(server.url, "tiny", IDS, **options)

    return made


@pytest.fixture
def orders(make: Make) -> list[list[int]]:
    """The ids of epochs 0 to 5, in order."""
    found = []
    for epoch in range(6):
        found.append(ids(make(epoch=epoch)))
    assert len({tuple(order) for order in found}) == 6
    return found


def ids(batches: Iterable[dict[str, Any]]) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


# Imported once rather than by every worker.
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch"])
WORKERS = {"num_workers": 1, "multiprocessing_context": "forkserver"}
LOADERS: dict[str, Callable[[FlightDataset], Any]] = {
    "itself": lambda data: data,
    "DataLoader": lambda data: DataLoader(data, batch_size=None),
    "FlightLoader": FlightLoader,
    "StatefulDataLoader": lambda data: StatefulDataLoader(data, batch_size=None),
    "workers": lambda data: DataLoader(data, batch_size=None, **{**WORKERS, "num_workers": 2}),
    "persistent workers": lambda data: DataLoader(data, batch_size=None, persistent_workers=True, **WORKERS),
    "collated": lambda data: DataLoader(data, batch_size=None, collate_fn=dict, **WORKERS),
    "stateful workers": lambda data: StatefulDataLoader(data, batch_size=None, **WORKERS),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_a_new_iterator_after_a_finished_epoch_is_the_next_epoch(make: Make, orders: list[list[int]], loader: str):
    data = make()
    loop = LOADERS[loader](data)
    for epoch in range(3):
        assert data.epoch == epoch
        assert ids(loop) == orders[epoch]
    data.set_epoch(1)
    assert data.epoch == 1
    for epoch in (1, 2):
        assert ids(loop) == orders[epoch]
    # Also for an epoch that has just finished.
    data.set_epoch(2)
    assert ids(loop) == orders[2]
    assert data.epoch == 3


@pytest.mark.parametrize("loader", ["itself", "DataLoader", "StatefulDataLoader", "workers", "persistent workers"])
def test_an_iterator_left_early_is_started_again(make: Make, orders: list[list[int]], loader: str):
    data = make()
    loop = LOADERS[loader](data)
    for taken in (0, 1, STEPS - 2):
        assert ids(islice(iter(loop), taken)) == orders[0][: taken * BATCH_SIZE]
        assert data.epoch == 0
    # The last batch finishes the epoch, even if no end follows it.
    assert ids(islice(iter(loop), STEPS)) == orders[0]
    assert ids(loop) == orders[1]


@pytest.mark.parametrize("loader", ["itself", "DataLoader", "FlightLoader"])
def test_state_at_an_epochs_end_is_the_start_of_the_next_one(make: Make, orders: list[list[int]], loader: str):
    for with_end in (False, True):
        data = make()
        loop = iter(LOADERS[loader](data))
        list(loop if with_end else islice(loop, STEPS))
        state = data.state_dict()
        assert (state["epoch"], state["position"]) == (1, 0)
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.epoch == 1
        assert ids(LOADERS[loader](resumed)) == orders[1]
        assert ids(LOADERS[loader](resumed)) == orders[2]


def test_a_resumed_epoch_is_followed_by_the_next_one(make: Make, orders: list[list[int]]):
    data = make(epoch=3)
    state = taken_state(data, 2)
    for loader in ("itself", "persistent workers"):
        resumed = make()
        resumed.load_state_dict(state)
        loop = LOADERS[loader](resumed)
        assert ids(loop) == orders[3][2 * BATCH_SIZE :]
        assert ids(loop) == orders[4]


def taken_state(data: FlightDataset, steps: int) -> dict[str, Any]:
    loop = iter(data)
    for _ in range(steps):
        next(loop)
    return data.state_dict()


def test_ranks_of_different_length_finish_the_same_epoch(make: Make):
    # 33, 33 and 34 rows: rank 2 has a step more than the others.
    ranks = [make(batch_size=11, rank=rank, world_size=3, shuffle=False, remainder="keep") for rank in range(3)]
    assert [len(data) for data in ranks] == [3, 3, 4]
    for steps in (3, None):
        for data in ranks:
            list(islice(iter(data), steps))
        assert {data.next_epoch for data in ranks} == {1 if steps else 2}
        states = [data.state_dict() for data in ranks]
        if steps:
            # A job that saves here must not lose the row that rank 2 has left.
            assert {(state["epoch"], state["position"]) for state in states} == {(0, 99)}


def test_drop_and_pad_finish_with_the_last_step(make: Make):
    for remainder, steps in (("drop", 3), ("pad", 4)):
        for rank in range(2):
            data = make(batch_size=16, rank=rank, world_size=2, remainder=remainder, shuffle=False)
            assert len(data) == steps
            list(islice(iter(data), steps - 1))
            assert data.next_epoch == 0
            list(islice(iter(data), steps))
            assert data.next_epoch == 1


def test_the_epoch_is_that_of_the_running_loop_until_its_end(make: Make):
    data = make()
    seen = [data.epoch for _ in range(3) for _ in data]
    assert seen == [0] * STEPS + [1] * STEPS + [2] * STEPS
    assert data.epoch == 3


def test_an_older_iterator_does_not_advance_a_newer_one(make: Make, orders: list[list[int]]):
    data = make()
    older = iter(data)
    newer = iter(data)
    next(newer)
    assert ids(older) == orders[0]
    assert data.epoch == 0
    assert data.state_dict()["position"] == BATCH_SIZE
    assert ids(newer) == orders[0][BATCH_SIZE:]
    assert ids(data) == orders[1]


def test_pickled_dataset_continues_with_the_next_epoch(make: Make, orders: list[list[int]]):
    data = make()
    ids(data)
    copy = pickle.loads(pickle.dumps(data))
    assert copy.epoch == 1
    assert ids(copy) == orders[1]
    assert ids(data) == orders[1]


def test_epochs_of_workers_and_of_this_process_alternate(make: Make, orders: list[list[int]]):
    data = make()
    persistent = LOADERS["persistent workers"](data)
    assert ids(persistent) == orders[0]
    assert ids(data) == orders[1]
    assert ids(persistent) == orders[2]
    assert ids(LOADERS["workers"](data)) == orders[3]
    assert ids(persistent) == orders[4]
    assert ids(data) == orders[5]


@pytest.mark.parametrize("loader", ["itself", "DataLoader", "FlightLoader", "persistent workers"])
def test_epochs_run_up_to_the_total(make: Make, orders: list[list[int]], loader: str):
    data = make()
    if loader == "FlightLoader":
        loop = FlightLoader(data).epochs(3)
    else:
        loop = data.epochs(3) if loader == "itself" else data.epochs(3, LOADERS[loader](data))
    assert [(epoch, ids(batches)) for epoch, batches in loop] == list(enumerate(orders[:3]))
    assert list(loop) == []


def test_epochs_resume_after_a_loaded_state(make: Make, orders: list[list[int]]):
    data = make(epoch=1)
    state = taken_state(data, 4)
    for loader in ("itself", "persistent workers"):
        resumed = make()
        resumed.load_state_dict(state)
        loop = resumed.epochs(3, LOADERS[loader](resumed))
        seen = [(epoch, ids(batches)) for epoch, batches in loop]
        assert seen == [(1, orders[1][4 * BATCH_SIZE :]), (2, orders[2])]
    ended = make()
    ended.load_state_dict(taken_state(make(epoch=1), STEPS))
    assert [epoch for epoch, batches in ended.epochs(3) if ids(batches)] == [2]


@pytest.mark.parametrize("loader", ["itself", "DataLoader", "persistent workers"])
def test_leaving_an_inner_loop_ends_its_epoch(make: Make, orders: list[list[int]], loader: str):
    data = make()
    seen = []
    for epoch, batches in data.epochs(3, LOADERS[loader](data)):
        seen.append((epoch, ids(islice(batches, 2))))
        if loader != "persistent workers":
            # A state saved here resumes within the epoch.
            state = data.state_dict()
            assert (state["epoch"], state["position"]) == (epoch, 2 * BATCH_SIZE)
    assert seen == [(epoch, orders[epoch][: 2 * BATCH_SIZE]) for epoch in range(3)]


def test_a_choice_within_the_loop_takes_effect(make: Make, orders: list[list[int]]):
    data = make()
    state = None
    seen: list[tuple[int, list[int]]] = []
    for epoch, batches in data.epochs(3):
        if epoch == 1 and state is None:
            # Back to a checkpoint, as after a loss that is not a number.
            next(batches)
            state = data.state_dict()
            next(batches)
            data.load_state_dict(state)
            continue
        seen.append((epoch, ids(batches)))
    assert seen == [(0, orders[0]), (1, orders[1][BATCH_SIZE:]), (2, orders[2])]


def test_epochs_that_are_over_yield_nothing_and_say_so(make: Make):
    data = make(epoch=3)
    with pytest.warns(UserWarning, match=r"epochs\(3\) yields nothing.*epoch 3; call set_epoch\(0\)"):
        assert list(data.epochs(3)) == []
    with warnings.catch_warnings(action="error"):
        assert list(data.epochs(0)) == []
    for wrong, error in ((-1, ValueError), ("3", TypeError)):
        with pytest.raises(error, match="epochs: count"):
            data.epochs(wrong)  # pyright: ignore[reportArgumentType]


def test_set_epoch_rejects_what_is_no_epoch(make: Make):
    data = make()
    for wrong, error in ((-1, ValueError), ("1", TypeError), (None, TypeError)):
        with pytest.raises(error, match="epoch must be"):
            data.set_epoch(wrong)  # pyright: ignore[reportArgumentType]


def test_the_length_is_that_of_the_epoch_and_stays_known(make: Make):
    data = make()
    for _ in range(2):
        assert len(data) == len(list(data)) == STEPS


def test_an_epoch_ended_by_close_is_not_finished(make: Make, orders: list[list[int]]):
    data = make()
    loop = iter(data)
    next(loop)
    closer = threading.Thread(target=loop.close)
    closer.start()
    closer.join()
    assert list(loop) == []
    assert data.epoch == 0
    assert ids(data) == orders[0]


@pytest.mark.parametrize("keeps_iterator", [False, True])
@pytest.mark.parametrize("kind", [FlightDataset, fb.ArrayDataset])
def test_a_sample_within_the_loop_leaves_its_epoch_and_position(
    server: Server, orders: list[list[int]], kind: Any, keeps_iterator: bool
):
    data = kind(server.url, "tiny", IDS, batch_size=BATCH_SIZE, shuffle=True, seed=5)
    samples: list[Any] = []
    for epoch in range(3):
        seen: list[int] = []
        for step, batch in enumerate(data):
            seen += ids([batch])
            if step == STEPS - 1:
                break
            sample = iter(data)
            assert ids([next(sample)]) == orders[epoch][:BATCH_SIZE]
            samples = [sample] if keeps_iterator else []
            del sample
            if not keeps_iterator:
                assert (data.state_dict()["epoch"], data.state_dict()["position"]) == (epoch, len(seen))
        assert seen == orders[epoch]
        assert (data.state_dict()["epoch"], data.state_dict()["position"]) == (epoch + 1, 0)
    assert len(samples) == keeps_iterator


def test_a_sample_of_the_next_epoch_at_the_last_step(make: Make, orders: list[list[int]]):
    data = make()
    for epoch in range(3):
        seen: list[int] = []
        for batch in data:
            seen += ids([batch])
            if len(seen) == ROWS:
                assert ids([next(iter(data))]) == orders[epoch + 1][:BATCH_SIZE]
        assert seen == orders[epoch]
        assert data.next_epoch == epoch + 1


def test_an_iterator_left_open_before_the_loop_does_not_hold_the_epoch(make: Make, orders: list[list[int]]):
    data = make()
    left = iter(data)
    next(left)
    assert [ids(data) for _ in range(3)] == orders[:3]
    for step, _ in enumerate(data):
        if step == 3:
            break
    assert (data.state_dict()["epoch"], data.state_dict()["position"]) == (3, 4 * BATCH_SIZE)
    assert left is not None
