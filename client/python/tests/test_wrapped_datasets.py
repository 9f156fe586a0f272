"""Datasets and functions around a `FlightDataset` in a worker, which replace its batches and may hold the last one.

They run in fresh processes, whose workers fork and find their classes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay as fb
from harness.serving import Server

pytestmark = pytest.mark.long

SCRIPT = """
import json, sys
from itertools import islice
from torch.utils.data import DataLoader, IterableDataset
import forebay as fb
from forebay.torch import FlightDataset
url, kind, persistent = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
def make():
    return FlightDataset(url, "tiny", plan, batch_size=16, shuffle=True, seed=5)
def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]

class Generator(IterableDataset):
    # Its variable holds the last batch while it requests the next one.
    def __init__(self, data):
        self.data = data
    def __iter__(self):
        for batch in self.data:
            yield {"id": batch["id"] * 1}

class Holder(Generator):
    # It holds its last batch until its own end.
    def __iter__(self):
        self.batches = iter(self.data)
        return self
    def __next__(self):
        self.batch = next(self.batches)
        return {"id": self.batch["id"] * 1}

class Counted(Generator):
    # It does not request the end of the epoch.
    def __iter__(self):
        for batch in islice(self.data, len(self.data)):
            yield {"id": batch["id"] * 1}

class Passing(Generator):
    # It passes the batches on as they are.
    def __iter__(self):
        yield from self.data

class Collate:
    # A collate_fn that holds the last batch.
    def __call__(self, batch):
        self.batch = batch
        return {"id": batch["id"] * 1}

def loader(data):
    collate = Collate() if kind == "Collate" else None
    return DataLoader(
        data, batch_size=None, num_workers=1, persistent_workers=persistent, multiprocessing_context="fork",
        collate_fn=collate,
    )
wrapper = Passing if kind == "Collate" else globals()[kind]

orders, data = [], make()
for epoch in range(3):
    orders.append(ids(data))
data = make()
batches = iter(data)
for _ in range(6):
    next(batches)
state = data.state_dict()
del batches
wrapped = wrapper(make())
wrapped.data.load_state_dict(state)
found = loader(wrapped)
printed = {"orders": orders, "found": [ids(found) for _ in range(3)], "next": wrapped.data.next_epoch}
del found
early = loader(wrapper(make()))
printed["early"] = [ids(islice(early, 2)), ids(early)]
print(json.dumps(printed))
"""


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", ["Generator", "Holder", "Counted", "Passing", "Collate"])
def test_epochs_advance_and_a_resume_shortens_one(server: Server, kind: str, persistent: bool):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.url, kind, str(persistent)],
        env={**os.environ, "PYTHONPATH": str(Path(fb.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    orders = printed["orders"]
    assert len({tuple(order) for order in orders}) == 3
    # State after 6 batches of 7: the rest, then whole epochs.
    assert printed["found"] == [orders[0][96:], *orders[1:]]
    assert printed["next"] == 3
    # A loop that is left early starts its epoch again.
    assert printed["early"] == [orders[0][:32], orders[0]]
