"""NVIDIA DALI: the conformance suite through real pipelines, on the CPU. Nothing here has run on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import forebay as fb
from forebay.torch import FlightDataset
from harness.frameworks.conformance import BATCH_SIZE, PLAN, Conformance, Done, Job, Rows, expected
from harness.serving import Server

pytest.importorskip("nvidia.dali", reason="make test-frameworks installs DALI")

from nvidia.dali import pipeline_def

from forebay.dali import DaliDataset


@pipeline_def(batch_size=BATCH_SIZE, num_threads=1, device_id=None)
def pipeline(data: DaliDataset) -> Any:
    ids, dense, label = data.external_source()
    return ids, dense * 1.0, label


def batches(pipe: Any) -> Iterator[tuple[Any, ...]]:
    """What is left of the pipeline's epoch."""
    while True:
        try:
            found = pipe.run()
        except StopIteration:
            pipe.reset()
            return
        yield tuple(output.as_array() for output in found)


def received(found: Iterator[tuple[Any, ...]], limit: int | None = None) -> Rows:
    rows = Rows()
    for ids, dense, _ in islice(found, limit):
        rows.add(ids, dense)
    return rows


class TestDali(Conformance):
    def run(self, job: Job) -> Done:
        with DaliDataset(job.url, job.dataset, PLAN, **job.options) as data:
            if job.state is not None:
                data.load_state_dict(job.state)
            pipe = pipeline(data)
            pipe.build()
            if job.stop_after is not None:
                rows = received(batches(pipe), job.stop_after)
                return Done([rows], data.state_dict(steps=job.stop_after))
            return Done([received(batches(pipe)) for _ in range(job.epochs)])


def test_the_position_is_that_of_the_loop(server: Server):
    whole = expected(server.url, shuffle=True)
    with DaliDataset(server.url, "tiny", PLAN, batch_size=BATCH_SIZE, shuffle=True, seed=5) as data:
        pipe = pipeline(data)
        pipe.build()
        first = received(batches(pipe), 3)
        with pytest.raises(RuntimeError, match=r"pass the number of batches .* state_dict\(steps=…\)"):
            data.state_dict()
        with pytest.raises(ValueError, match="steps=9, but only"):
            data.state_dict(steps=9)
        state = data.state_dict(steps=3)
        del pipe
    other = FlightDataset(server.url, "tiny", PLAN, batch_size=BATCH_SIZE)
    other.load_state_dict(state)
    rest = Rows()
    for batch in other:
        rest.add(batch["id"], batch["dense"])
    assert first + rest == whole


def test_outputs_are_samples_of_their_types(server: Server):
    with DaliDataset(server.url, "tiny", PLAN, batch_size=BATCH_SIZE) as data:
        pipe = pipeline(data)
        pipe.build()
        ids, dense, label = next(batches(pipe))
        assert [(one.dtype, one.shape) for one in (ids, dense, label)] == [
            (np.dtype("int64"), (8,)),
            (np.dtype("float32"), (8, 2)),
            (np.dtype("float32"), (8,)),
        ]
        *_, last = batches(pipe)
        assert last[0].tolist() == [96, 97, 98, 99]
        del pipe


def test_outputs_that_dali_does_not_read(server: Server):
    for output, kind in (
        (fb.cols("word").as_stored(), "string"),
        (fb.output(fb.cols("x"), dtype="bfloat16"), "uint16"),
    ):
        with pytest.raises(fb.InvalidRequest, match=f"output 'out' is .*{kind}.*, which DALI does not read"):
            DaliDataset(server.url, "tiny", fb.Plan(outputs={"out": output}))
