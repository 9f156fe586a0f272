"""JAX and Grain: the conformance suite on devices, sharded batches, and Grain's iterators."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from typing import Any

import numpy as np
import pytest

import forebay as fb
from harness.frameworks.conformance import PLAN, ROWS, Conformance, Done, Job, Rows
from harness.repository import package_environment
from harness.serving import Server

pytest.importorskip("jax", reason="make test-frameworks installs JAX")

import jax

from forebay.jax import JaxDataset

NARROW = fb.Plan(outputs={**PLAN.outputs, "id": fb.output(fb.cols("id"), dtype="int32")})


def received(batches: Any, limit: int | None = None) -> Rows:
    rows = Rows()
    for batch in islice(batches, limit):
        assert isinstance(batch["dense"], jax.Array)
        rows.add(np.asarray(batch["id"]), np.asarray(batch["dense"]))
    return rows


class TestJax(Conformance):
    def run(self, job: Job) -> Done:
        with JaxDataset(job.url, job.dataset, NARROW, sharding=jax.devices()[0], **job.options) as data:
            if job.state is not None:
                data.load_state_dict(job.state)
            if job.stop_after is not None:
                return Done([received(data, job.stop_after)], data.state_dict())
            return Done([received(batches) for _, batches in data.epochs(job.epochs)])


class TestGrain(Conformance):
    def run(self, job: Job) -> Done:
        grain = pytest.importorskip("forebay.grain")
        data = fb.ArrayDataset(job.url, job.dataset, PLAN, **job.options)
        batches = iter(grain.FlightIterDataset(lambda: data, epochs=job.epochs))
        found = [Rows() for _ in range(job.epochs)]
        if job.state is not None:
            batches.set_state(json.loads(job.state))
        for step, batch in enumerate(islice(batches, job.stop_after)):
            found[step // 13].add(batch["id"], batch["dense"])
        state = json.dumps(batches.get_state())
        del batches
        data.close()
        return Done(found, state)


SHARDED = """
import sys, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import forebay as fb
from forebay.jax import JaxDataset
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int32"), "dense": fb.cols("x", "unit")})
rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
with JaxDataset(sys.argv[1], "tiny", plan, sharding=rows, batch_size=8, remainder="drop") as data:
    total = jax.jit(lambda batch: batch["dense"].sum())
    ids = []
    for batch in data:
        assert len(batch["dense"].addressable_shards) == 4
        assert batch["dense"].sharding.is_equivalent_to(rows, 2)
        assert [shard.data.shape for shard in batch["dense"].addressable_shards] == [(2, 2)] * 4
        assert np.isclose(float(total(batch)), np.asarray(batch["dense"]).sum(), atol=1e-4)
        ids += np.asarray(batch["id"]).tolist()
    assert ids == list(range(96)), ids
"""


def test_batches_are_sharded_over_devices(server: Server):
    environment = {**package_environment(), "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ended = subprocess.run(
        [sys.executable, "-c", SHARDED, server.url], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr


def test_types_that_jax_would_change(server: Server):
    with pytest.raises(fb.InvalidRequest, match="output 'id' is int64, which JAX would cut to 32 bits"):
        JaxDataset(server.url, "tiny", PLAN)
    rows = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(fb.InvalidRequest, match="remainder="):
        JaxDataset(server.url, "tiny", NARROW, sharding=rows)
    plan = fb.Plan(outputs={"half": fb.output(fb.cols("unit"), dtype="bfloat16"), "word": fb.cols("word").as_stored()})
    with JaxDataset(server.url, "tiny", plan, batch_size=ROWS) as data:
        (batch,) = data
        assert batch["half"].dtype == jax.numpy.bfloat16
        with fb.connect(server.url) as client:
            unit = client.table("tiny").read()["unit"].to_numpy()
        assert np.array_equal(np.asarray(batch["half"]), unit.astype(jax.numpy.bfloat16))
        assert len(batch["word"]) == ROWS
