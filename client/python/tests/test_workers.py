"""DataLoaders with workers, torchdata's StatefulDataLoader, Accelerate and Lightning: the same rows, once, in order.

What forks runs in a fresh process, for this one has long talked to servers. Ranks are real processes that meet over
gloo on loopback.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
from harness.serving import Server

# torchdata 0.11 calls what torch has since deprecated.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")]

ROWS = 100
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
HEAD = """
import json, os, sys, warnings, torch
from torch.utils.data import DataLoader
import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
url = sys.argv[1]
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "x": fb.cols("x").standardize()})
def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]
"""


def run(script: str, *arguments: str, world_size: int = 1) -> list[Any]:
    """Run HEAD and the script as so many ranks; returns what each printed as its last line, read as JSON."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", HEAD + script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(fb.__file__).parents[1]),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "ACCELERATE_USE_CPU": "true",
                "CUDA_VISIBLE_DEVICES": "",
                **({"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(world_size)} if world_size > 1 else {}),
            },
        )
        for r in range(world_size)
    ]
    try:
        printed = [rank.communicate(timeout=240) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (out, error) in zip(ranks, printed, strict=True):
        assert rank.returncode == 0, out + error
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


FORKED = """
data = FlightDataset(url, "tiny", plan, batch_size=7, with_row_ids=True)
seen = {}
for persistent in (False, True):
    loader = DataLoader(
        data, batch_size=None, num_workers=3, persistent_workers=persistent, multiprocessing_context="fork"
    )
    for epoch in (0, 3, 5):
        data.set_epoch(epoch)
        seen[f"{persistent} {epoch}"] = ids(loader)
    # A state loaded here reaches persistent workers, and they resume from it once.
    data.load_state_dict({**fb.Cursor(5, 70, 1).to_dict()})
    seen[f"{persistent} rest"] = ids(loader)
    seen[f"{persistent} again"] = ids(loader)
    del loader
print(json.dumps(seen))
"""


def test_forked_workers_yield_every_row_once_in_order_every_epoch(server: Server):
    (seen,) = run(FORKED, server.url)
    rests = {name: got for name, got in seen.items() if name.endswith("rest")}
    assert list(rests.values()) == [list(range(70, ROWS))] * 2
    assert all(got == list(range(ROWS)) for name, got in seen.items() if name not in rests)
    assert len(seen) == 10


def epoch_of(batch: dict[str, Any]) -> int:
    return int(batch["id"][0])


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_persistent_workers_see_a_new_epoch(server: Server, context: str):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=16)
    loader = StatefulDataLoader(
        data, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=context
    )
    for epoch in (0, 4, 9):
        data.set_epoch(epoch)
        loop = iter(loader)
        next(loop)
        cursors = places(loader.state_dict())
        # The worker that reads tells the epoch that it reads.
        assert (epoch, 16) in {(place["epoch"], place["position"]) for place in cursors}
        assert len(ids(loop)) == ROWS - 16


def places(state: Any) -> list[dict[str, Any]]:
    """All cursors anywhere in a state."""
    if not isinstance(state, dict):
        return []
    if "position" in state and "plan_id" in state:
        return [state]
    return [place for value in state.values() for place in places(value)]


@pytest.mark.parametrize(("workers", "steps"), [(0, 0), (0, 1), (0, 4), (0, 11), (0, 12), (2, 0), (2, 4), (2, 12)])
def test_stateful_loader_resumes_after_the_last_batch_taken(server: Server, workers: int, steps: int):
    def loader() -> StatefulDataLoader[Any]:
        data = FlightDataset(server.url, "tiny", IDS, batch_size=9, prefetch=4, epoch=2)
        context = "forkserver" if workers else None
        return StatefulDataLoader(data, batch_size=None, num_workers=workers, multiprocessing_context=context)

    first = loader()
    loop = iter(first)
    taken = ids(next(loop) for _ in range(steps))
    state = json.loads(json.dumps(first.state_dict(), default=str)) if workers == 0 else first.state_dict()
    del loop
    second = loader()
    second.load_state_dict(state)
    rest = ids(second)
    # The next epoch follows the last batch.
    assert (taken + rest if steps < 12 else rest) == list(range(ROWS))


ACCELERATED = """
import accelerate
accelerator = accelerate.Accelerator(cpu=True)
printed = {"rank": accelerator.process_index, "of": accelerator.num_processes}

def epochs(what, data, loader):
    loader = accelerator.prepare(loader)
    printed[what] = []
    for epoch in range(2):
        data.set_epoch(epoch)
        printed[what].append(ids(loader))

def dataset():
    return FlightDataset(url, "tiny", plan, batch_size=8)

data = dataset()
# First, for what forks must not have talked to a server.
epochs("workers", data, FlightLoader(data, num_workers=2, multiprocessing_context="fork"))
epochs("loader", data, FlightLoader(data))
epochs("dataset", data, data)
try:
    epochs("plain", data, DataLoader(data, batch_size=None))
except RuntimeError as error:
    printed["plain"] = str(error)
print(json.dumps(printed), flush=True)
os._exit(0)  # Where ranks ended with an error, gloo's farewell would wait.
"""


def test_accelerate_does_not_shard_twice(server: Server):
    printed = run(ACCELERATED, server.url, world_size=2)
    assert [(rank["rank"], rank["of"]) for rank in printed] == [(0, 2), (1, 2)]
    for what in ("workers", "loader", "dataset"):
        for epoch in range(2):
            assert [rank[what][epoch] for rank in printed] == [list(range(50)), list(range(50, ROWS))], what
    # Accelerate would read a plain DataLoader on rank 0 alone, and rank 1's rows would be lost.
    assert all("FlightLoader" in rank["plain"] for rank in printed)


def test_accelerate_in_one_process_accepts_any_loader(server: Server):
    (printed,) = run(ACCELERATED, server.url)
    assert {what: printed[what] for what in ("workers", "loader", "dataset", "plain")} == dict.fromkeys(
        ("workers", "loader", "dataset", "plain"), [list(range(ROWS))] * 2
    )


LIGHTNING = """
import lightning
folder = sys.argv[2]
warnings.filterwarnings("ignore")

class Model(lightning.LightningModule):
    def __init__(self, data):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.data, self.seen, self.epochs = data, [[], []], []
    def training_step(self, batch, index):
        self.seen[self.current_epoch] += batch["id"].tolist()
        self.epochs.append(self.data.epoch)
        return self.layer(batch["x"][:, None]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

printed = {}
for what in ("FlightLoader", "DataLoader"):
    # Rank and world size are torch.distributed's, which the Trainer starts.
    data = FlightDataset(url, "tiny", plan, batch_size=8)
    model = Model(data)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )
    trainer.fit(model, FlightLoader(data) if what == "FlightLoader" else DataLoader(data, batch_size=None))
    printed[what] = {"rank": trainer.global_rank, "of": trainer.world_size, "seen": model.seen, "epochs": model.epochs}
# gloo's threads do not outlive the process well.
torch.distributed.destroy_process_group()
print(json.dumps(printed))
"""


def test_lightning_does_not_shard_twice(server: Server, tmp_path: Path):
    printed = run(LIGHTNING, server.url, str(tmp_path), world_size=2)
    # Lightning sets the epoch of samplers only, and only FlightLoader has one; the dataset advances by itself.
    for what in ("FlightLoader", "DataLoader"):
        ranks = [rank[what] for rank in printed]
        assert [(rank["rank"], rank["of"]) for rank in ranks] == [(0, 2), (1, 2)]
        for epoch in range(2):
            assert [rank["seen"][epoch] for rank in ranks] == [list(range(50)), list(range(50, ROWS))]
        assert [set(rank["epochs"]) for rank in ranks] == [{0, 1}, {0, 1}]


def test_flight_loader_is_a_data_loader_with_a_position(server: Server):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=9)
    loader = FlightLoader(data)
    assert isinstance(loader, DataLoader)
    assert len(loader) == 12
    loop = iter(loader)
    taken = ids([next(loop), next(loop)])
    state = loader.state_dict()
    assert state == data.state_dict()
    del loop
    other = FlightLoader(FlightDataset(server.url, "tiny", IDS, batch_size=9))
    other.load_state_dict(state)
    assert taken + ids(other) == list(range(ROWS))
    other.set_epoch(7)
    assert other.flight.epoch == 7
    with pytest.raises(ValueError, match="batch_size"):
        FlightLoader(data, batch_size=4)


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"collate_fn": dict}], ids=str)
def test_flight_loader_has_the_position_of_the_loop_with_workers_too(server: Server, options: dict[str, Any]):
    def made(**more: Any) -> FlightLoader:
        data = FlightDataset(server.url, "tiny", IDS, batch_size=9, epoch=2)
        return FlightLoader(data, **more)

    def place(loader: FlightLoader) -> tuple[int, int]:
        state = loader.state_dict()
        return state["epoch"], state["position"]

    workers = {"num_workers": 2, "multiprocessing_context": "forkserver", **options}
    alone, loader = made(), made(**workers)
    assert place(loader) == (2, 0)
    for _ in range(2):
        for batch, other in zip(loader, alone, strict=True):
            assert batch["id"].tolist() == other["id"].tolist()
            assert loader.state_dict() == alone.state_dict()
        assert place(loader) == place(alone)
    # A loop that was left early starts its epoch again.
    next(iter(loader))
    assert place(loader) == (4, 9)
    iter(loader)
    assert place(loader) == (4, 0)
    loader.set_epoch(7)
    assert place(loader) == (7, 0)
    loop = iter(alone)
    taken = ids(next(loop) for _ in range(3))
    loader.load_state_dict(alone.state_dict())
    assert loader.state_dict() == alone.state_dict()
    assert taken + ids(loader) == list(range(ROWS))


LIGHTNING_RESUMED = """
import lightning
folder = sys.argv[2]
warnings.filterwarnings("ignore")

class Model(lightning.LightningModule):
    def __init__(self, stop_after):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.stop_after, self.seen = stop_after, []
    def training_step(self, batch, index):
        self.seen += batch["id"].tolist()
        return self.layer(batch["x"][:, None]).sum()
    def on_train_batch_end(self, *_):
        if len(self.seen) >= self.stop_after:
            self.trainer.save_checkpoint(folder + "/place.ckpt")
            os.write(1, (json.dumps(self.seen) + "\\n").encode())
            os._exit(0)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

def trainer():
    return lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )

loader = FlightLoader(FlightDataset(url, "tiny", plan, batch_size=8), num_workers=int(sys.argv[3]))
if os.path.exists(folder + "/place.ckpt"):
    model = Model(10**9)
    trainer().fit(model, loader, ckpt_path=folder + "/place.ckpt")
    print(json.dumps(model.seen))
else:
    trainer().fit(Model(40), loader)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_lightning_checkpoints_keep_the_position(server: Server, tmp_path: Path, workers: str):
    (taken,) = run(LIGHTNING_RESUMED, server.url, str(tmp_path), workers)
    (rest,) = run(LIGHTNING_RESUMED, server.url, str(tmp_path), workers)
    assert taken == list(range(40))
    assert taken + rest == list(range(ROWS))
