"""PyTorch's DataLoader, torchdata's StatefulDataLoader and Accelerate: the conformance suite on the real ones.

`test_workers.py` has the same in several processes, and `test_example_ddp_resume.py` DDP that is killed and resumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import accelerate
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay as fb
from forebay.torch import FlightDataset, FlightLoader
from harness.frameworks.conformance import PLAN, Conformance, Done, Job, Rows, expected
from harness.serving import Server


def dataset(job: Job) -> FlightDataset:
    return FlightDataset(job.url, job.dataset, PLAN, **job.options)


def received(batches: Iterable[dict[str, Any]], limit: int | None = None) -> Rows:
    rows = Rows()
    for batch in islice(batches, limit):
        rows.add(batch["id"], batch["dense"])
    return rows


class TestArrayDataset(Conformance):
    def run(self, job: Job) -> Done:
        with fb.ArrayDataset(job.url, job.dataset, PLAN, **job.options) as data:
            if job.state is not None:
                data.load_state_dict(job.state)
            if job.stop_after is not None:
                return Done([received(data, job.stop_after)], data.state_dict())
            return Done([received(batches) for _, batches in data.epochs(job.epochs)])


def test_a_state_continues_in_the_other_dataset(server: Server):
    job = Job(server.url, shuffle=True)
    whole = expected(server.url, shuffle=True)
    with fb.ArrayDataset(job.url, job.dataset, PLAN, **job.options) as arrays:
        first = received(arrays, 4)
        tensors = dataset(job)
        tensors.load_state_dict(arrays.state_dict())
        second = received(tensors, 3)
        arrays.load_state_dict(tensors.state_dict())
        assert first + second + received(arrays) == whole
        assert arrays.epoch == 1
        assert len(arrays) == 13


class TestFlightDataset(Conformance):
    def run(self, job: Job) -> Done:
        data = dataset(job)
        if job.state is not None:
            data.load_state_dict(job.state)
        if job.stop_after is not None:
            return Done([received(data, job.stop_after)], data.state_dict())
        return Done([received(batches) for _, batches in data.epochs(job.epochs)])


# torchdata 0.11 calls what torch has since deprecated.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
class TestStatefulDataLoader(Conformance):
    def run(self, job: Job) -> Done:
        loader: StatefulDataLoader[Any] = StatefulDataLoader(dataset(job), batch_size=None)
        if job.state is not None:
            loader.load_state_dict(job.state)
        if job.stop_after is not None:
            batches = iter(loader)
            return Done([received(batches, job.stop_after)], loader.state_dict())
        return Done([received(loader) for _ in range(job.epochs)])


class TestAccelerate(Conformance):
    def run(self, job: Job) -> Done:
        accelerator = accelerate.Accelerator(cpu=True)
        loader = accelerator.prepare(FlightLoader(dataset(job)))
        accelerator.register_for_checkpointing(loader)
        if job.state is not None:
            accelerator.load_state(job.state)
        if job.stop_after is not None:
            rows = received(loader, job.stop_after)
            return Done([rows], accelerator.save_state(str(job.folder / "checkpoint")))
        return Done([received(batches) for _, batches in loader.epochs(job.epochs)])
