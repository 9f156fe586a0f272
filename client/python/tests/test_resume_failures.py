"""Only the first batch that reaches the loop consumes a loaded state."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
from harness.daemon import poll
from harness.repository import package_environment
from harness.restartable import Restartable
from harness.serving import Server, server_binary
from harness.trainers.resumption import IDS, PLACE, REST, WHOLE, ids

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


def rows_of(loop: Any) -> list[int]:
    """The same; nothing where the server cannot be reached."""
    try:
        return ids(loop)
    except fb.Unavailable:
        return []


def place_of(data: FlightDataset) -> tuple[int, int]:
    state = data.state_dict()
    return state["epoch"], state["position"]


@pytest.fixture
def restartable(tiny_folder: Path, tmp_path: Path) -> Iterator[Restartable]:
    server = Restartable({"tiny": tiny_folder}, tmp_path / "state")
    yield server
    server.kill()


LOADERS = {
    "itself": lambda data: data,
    "DataLoader": lambda data: DataLoader(data, batch_size=None),
    "FlightLoader": FlightLoader,
    "StatefulDataLoader": lambda data: StatefulDataLoader(data, batch_size=None),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("has_connected", [False, True])
def test_unreachable_server_does_not_consume_a_state(restartable: Restartable, loader: str, has_connected: bool):
    data = FlightDataset(restartable.url, "tiny", IDS, batch_size=20, retry_seconds=0.2)
    if has_connected:
        assert len(data) == 5
    loop = LOADERS[loader](data)
    data.load_state_dict(PLACE)
    restartable.kill()
    for _ in range(2):
        with pytest.raises(fb.Unavailable):
            ids(loop)
        assert place_of(data) == (2, 40)
    restartable.start()
    # gRPC waits a second or more before it reconnects; these failures consume no state either.
    assert poll(lambda: rows_of(loop), seconds=30) == REST
    assert place_of(data) == (3, 0)
    assert ids(loop) == WHOLE


def test_stream_failing_before_its_first_batch_does_not_consume_a_state(restartable: Restartable):
    data = FlightDataset(restartable.url, "tiny", IDS, batch_size=20, retry_seconds=0.2)
    data.load_state_dict({**PLACE, "plan_id": "", "snapshot": "0" * 32})
    for _ in range(2):
        with pytest.raises(fb.SnapshotChanged):
            next(iter(data))
        assert place_of(data) == (2, 40)


@pytest.mark.parametrize("loader", LOADERS)
def test_unused_iterator_does_not_consume_a_state(server: Server, loader: str):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    loop = LOADERS[loader](data)
    data.load_state_dict(PLACE)
    for _ in range(2):
        iter(loop)
        assert place_of(data) == (2, 40)
    unused = iter(loop)
    assert ids(loop) == REST
    del unused
    assert place_of(data) == (3, 0)
    assert ids(loop) == WHOLE


def test_first_batch_consumes_a_state(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    data.load_state_dict(PLACE)
    assert ids([next(iter(data))]) == REST[:20]
    assert place_of(data) == (2, 60)
    copy = pickle.loads(pickle.dumps(data))
    assert place_of(copy) == (2, 60)
    for again in (data, copy):
        assert ids(again) == WHOLE


def test_pickled_dataset_keeps_an_unconsumed_state(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    data.load_state_dict(PLACE)
    iter(data)
    copy = pickle.loads(pickle.dumps(data))
    assert ids(data) == REST
    assert ids(copy) == REST
    assert ids(copy) == WHOLE


@pytest.mark.parametrize("change", ["set_epoch", "load_state_dict"])
def test_older_iterator_does_not_move_a_newer_position(server: Server, change: str):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=20)
    loop = iter(data)
    next(loop)
    if change == "set_epoch":
        data.set_epoch(7)
    else:
        data.load_state_dict(PLACE)
    chosen = place_of(data)
    assert ids(loop) == WHOLE[20:]
    assert place_of(data) == chosen == ((7, 0) if change == "set_epoch" else (2, 40))
    assert ids(data) == (WHOLE if change == "set_epoch" else REST)


WORKERS = """
import json, sys, warnings
from pathlib import Path
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
from harness.restartable import Restartable
from harness.trainers.resumption import IDS, PLACE, ids
warnings.simplefilter("ignore")

def as_list(batch):
    return {"id": batch["id"].tolist()}

if __name__ == "__main__":
    server = Restartable({"tiny": Path(sys.argv[1])}, Path(sys.argv[2]))
    reported = {}
    kinds = {
        "DataLoader": (DataLoader, {"persistent_workers": False}),
        "persistent": (DataLoader, {"persistent_workers": True}),
        "FlightLoader": (FlightLoader, {"persistent_workers": True}),
        "collated": (DataLoader, {"collate_fn": as_list, "prefetch_factor": 4}),
        "stateful": (StatefulDataLoader, {"persistent_workers": False}),
        "stateful, persistent": (StatefulDataLoader, {"persistent_workers": True}),
    }
    for name, (kind, options) in kinds.items():
        data = FlightDataset(server.url, "tiny", IDS, batch_size=10, retry_seconds=0.2)
        if kind is not FlightLoader:
            options = {"batch_size": None, **options}
        loader = kind(data, num_workers=1, multiprocessing_context="fork", **options)
        steps = reported[name] = []

        def look():
            try:
                steps.append(ids(loader))
            except fb.Unavailable:
                steps.append("unavailable")

        if name == "persistent":
            look()  # Workers that live when the state is loaded.
            assert len(steps.pop()) == 100
        if kind is StatefulDataLoader:
            one = iter(loader)
            for _ in range(4):
                next(one)
            state = loader.state_dict()
            del one
            loader.load_state_dict(state)
        else:
            data.load_state_dict(PLACE)
        server.kill()
        look()
        look()
        server.start()
        # A worker has read ahead, and the loop took nothing. (What a collate_fn made of a batch cannot say so.)
        if name != "collated":
            for _ in range(2):
                iter(loader)
        look()
        look()
        loader = None
    server.kill()
    print(json.dumps(reported))
"""


def test_worker_prefetch_does_not_consume_a_state(tiny_folder: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", WORKERS, str(tiny_folder), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**package_environment(), "FOREBAY_SERVER_BIN": server_binary()},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name, steps in json.loads(done.stdout.splitlines()[-1]).items():
        assert steps == ["unavailable", "unavailable", REST, WHOLE], name
