"""The next epoch is opened while the loop consumes the last batches of the current one."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay._dataset.reading import NextEpoch
from forebay.torch import FlightDataset
from harness.daemon import poll
from harness.serving import Serve, Server

ROWS, BATCH_SIZE, STEPS = 100, 16, 7
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
    """The ids of epochs 0 to 3, in order."""
    return [ids(make(epoch=epoch)) for epoch in range(4)]


def ids(batches: Iterable[dict[str, Any]]) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def own_threads() -> set[threading.Thread]:
    names = ("forebay-prefetch", "forebay-next-epoch")
    return {thread for thread in threading.enumerate() if thread.name in names}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs whose streams were open before their loops began."""
    found: list[int] = []
    take = NextEpoch.take

    def noted(following: NextEpoch) -> Any:
        reading = take(following)
        if reading is not None:
            found.append(following.start.epoch)
        return reading

    monkeypatch.setattr(NextEpoch, "take", noted)
    return found


def test_one_iterator_yields_all_epochs(make: Make, orders: list[list[int]], taken: list[int]):
    data = make(epochs=3, epoch=1)
    assert len(data) == 3 * STEPS
    batches = iter(data)
    for epoch in (1, 2, 3):
        first = ids(islice(batches, 1))
        assert data.epoch == epoch
        assert first + ids(islice(batches, STEPS - 1)) == orders[epoch]
        assert (data.state_dict()["epoch"], data.state_dict()["position"]) == (epoch + 1, 0)
    assert next(batches, None) is None
    assert taken == [2, 3]
    stats = data.stats()
    assert stats["batches"] == 3 * STEPS
    assert 0 < stats["boundary_wait_seconds"] <= stats["first_wait_seconds"] + 1
    assert stats["longest_wait_seconds"] > 0
    with pytest.warns(UserWarning, match="after the last of its 3"):
        assert ids(data) == []
    data.set_epoch(3)
    assert ids(data) == orders[3]


@pytest.mark.parametrize("steps", range(3 * STEPS + 1))
def test_a_resume_in_any_epoch_yields_the_rest(make: Make, orders: list[list[int]], steps: int):
    whole = [*orders[0], *orders[1], *orders[2]]
    data = make(epochs=3)
    batches = iter(data)
    first = ids(islice(batches, steps))
    assert first == whole[: len(first)]
    state = data.state_dict()
    assert state["epoch"] == steps // STEPS
    resumed = make(epochs=3)
    resumed.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert first + ids(resumed) == whole


def test_ranks_end_their_epochs_at_different_steps(make: Make, orders: list[list[int]]):
    found: list[list[int]] = [[], []]
    for rank in (0, 1):
        found[rank] = ids(make(epochs=2, rank=rank, world_size=2, batch_size=7, lanes=16))
    both = [ids(make(epoch=epoch, rank=rank, world_size=2, batch_size=7)) for epoch in (0, 1) for rank in (0, 1)]
    assert found == [both[0] + both[2], both[1] + both[3]]


def test_epochs_and_set_epoch_in_order_open_the_next_epoch(make: Make, orders: list[list[int]], taken: list[int]):
    data = make()
    assert [ids(batches) for _, batches in data.epochs(3)] == orders[:3]
    assert taken == [1, 2]
    taken.clear()
    data = make()
    for epoch in range(3):
        data.set_epoch(epoch)
        assert ids(data) == orders[epoch]
    assert taken == [1, 2]
    taken.clear()
    data = make()
    assert [ids(data) for _ in range(4)] == orders
    assert taken == [2, 3]


def test_another_epoch_or_state_than_the_open_one(make: Make, orders: list[list[int]], taken: list[int]):
    before = own_threads()
    data = make()
    state = data.state_dict()
    data.set_epoch(0)
    assert ids(data) == orders[0]
    assert own_threads() - before
    data.set_epoch(3)
    assert poll(lambda: own_threads() <= before)
    assert ids(data) == orders[3]
    data.set_epoch(4)
    ids(data)
    data.load_state_dict(state)
    assert ids(data) == orders[0]
    assert taken == [4] or not taken
    del data
    assert poll(lambda: own_threads() <= before)


@pytest.mark.parametrize("steps", [0, 1, STEPS - 1, STEPS, STEPS + 1])
def test_an_iterator_closed_early_leaves_nothing_open(make: Make, steps: int):
    before = own_threads()
    data = make(epochs=3)
    batches = iter(data)
    ids(islice(batches, steps))
    batches.close()  # type: ignore[attr-defined]
    assert poll(lambda: own_threads() <= before)
    batches = iter(data)
    ids(islice(batches, steps))
    del batches
    assert poll(lambda: own_threads() <= before)


def test_files_that_change_between_epochs_are_read(serve: Serve, tmp_path: Path, taken: list[int]):
    def write(name: str, first: int) -> None:
        # Complete at once: an epoch that is opened early could meet half a file, and would then be opened again.
        pq.write_table(pa.table({"id": range(first, first + 50)}), unfinished)
        unfinished.rename(tmp_path / name)

    unfinished = tmp_path.with_suffix(".unfinished")
    write("a.parquet", 0)
    data = FlightDataset(serve({"tiny": tmp_path}).url, "tiny", IDS, batch_size=10)
    for epoch, batches in data.epochs(3):
        assert ids(batches) == list(range(50 * (epoch + 1)))
        write(f"{epoch}.parquet".replace("0.", "b.").replace("1.", "c."), 50 * (epoch + 1))
    assert taken == [1, 2]


# Imported once rather than by every worker.
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch"])


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_yield_all_epochs(make: Make, orders: list[list[int]], persistent: bool):
    data = make(epochs=2)
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "forkserver"}
    loader = DataLoader(data, batch_size=None, persistent_workers=persistent, **options)
    assert len(loader) == 2 * STEPS
    assert ids(loader) == orders[0] + orders[1]
    assert data.epoch == 2
    data.set_epoch(1)
    assert ids(loader) == orders[1]


def places(state: Any) -> list[dict[str, Any]]:
    """All cursors anywhere in a state."""
    if not isinstance(state, dict):
        return []
    if "position" in state and "plan_id" in state:
        return [state]
    return [place for value in state.values() for place in places(value)]


def place(cursor: dict[str, Any]) -> tuple[int, int]:
    return cursor["epoch"], cursor["position"]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_every_state_of_a_worker_that_yields_all_epochs(make: Make, orders: list[list[int]]):
    data = make(epochs=3)
    expected = [place(data.state_dict()) for _ in iter(data)]
    loader = StatefulDataLoader(
        make(epochs=3), batch_size=None, num_workers=1, multiprocessing_context="forkserver", prefetch_factor=4
    )
    states = []
    for _ in loader:
        states.append(loader.state_dict())
    assert [[place(cursor) for cursor in places(state)] for state in states] == [[one] for one in expected]
    whole = [*orders[0], *orders[1], *orders[2]]
    for steps in (STEPS, STEPS + 2):
        again = StatefulDataLoader(make(epochs=3), batch_size=None, num_workers=1, multiprocessing_context="forkserver")
        again.load_state_dict(states[steps - 1])
        assert ids(again) == whole[ROWS + BATCH_SIZE * (steps - STEPS) :]


def test_epochs_is_checked(make: Make):
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        make(epochs=0)
    with pytest.raises(RuntimeError, match="omit epochs="):
        make(epochs=2).epochs(3)
