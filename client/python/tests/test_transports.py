"""What the native module and the ring have in common: the batches of Flight, in memory that the loop may keep."""

from __future__ import annotations

import gc
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import torch

import forebay as fb
from forebay._client.native import is_built
from forebay.torch import FlightDataset
from harness.serving import Serve, Server
from harness.transports import PLAN, REQUESTS, ROWS, assert_same, batches, column, table, tickets


@dataclass(frozen=True)
class Transport:
    """A transport, the variable that switches it off, and whether it needs a Unix socket."""

    name: str
    switch: str
    unix: bool

    def serve(self, serve: Serve, folder: Path) -> Server:
        return serve({"t": folder}, unix=self.unix)


NATIVE = Transport("native", "FOREBAY_NATIVE", unix=False)
RING = Transport("ring", "FOREBAY_RING", unix=True)
UNBUILT = pytest.mark.skipif(not is_built(), reason="the package has no native module: make build")


@pytest.fixture(
    scope="module", params=[pytest.param(NATIVE, marks=UNBUILT), RING], ids=lambda transport: transport.name
)
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("transports")
    pq.write_table(table(), root / "a.parquet", row_group_size=1700)
    return root


@pytest.fixture(scope="module")
def server(serve: Serve, folder: Path, transport: Transport) -> Server:
    return transport.serve(serve, folder)


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch: pytest.MonkeyPatch, transport: Transport) -> None:
    monkeypatch.delenv(transport.switch, raising=False)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("how", ["in order", "shuffled", "padded"])
def test_the_bytes_are_those_of_flight(
    server: Server, transport: Transport, monkeypatch: pytest.MonkeyPatch, name: str, how: str
):
    request: dict[str, Any] = {"dataset": "t", "plan": REQUESTS[name], "batch_size": 512, "world_size": 2}
    if how == "shuffled":
        request |= {"shuffle": True, "seed": 3, "with_row_ids": True, "window_rows": 1024}
    if how == "padded":
        request |= {"remainder": "PAD"}
    for ticket in tickets(server, request):
        same_as_flight(server, ticket, transport, monkeypatch)


def test_raw_tables_groups_and_empty_ranks_are_the_same(
    server: Server, transport: Transport, monkeypatch: pytest.MonkeyPatch
):
    [whole] = tickets(server, {"table": {"dataset": "t"}})
    [few] = tickets(server, {"table": {"dataset": "t", "columns": ["word", "a"], "limit": 700}})
    plan = {"outputs": [column("a")]}
    groups = tickets(server, {"dataset": "t", "plan": plan, "group_by": "kind", "batch_size": 300})
    # A rank without rows receives an empty batch.
    ranks = tickets(server, {"dataset": "t", "plan": {**plan, "filter": "id < 2"}, "world_size": 4, "batch_size": 300})
    for ticket in (whole, few, *groups, *ranks):
        same_as_flight(server, ticket, transport, monkeypatch)


def same_as_flight(
    server: Server, ticket: flight.Ticket, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(transport.switch, raising=False)
    found = batches(server, ticket, transport.name)
    monkeypatch.setenv(transport.switch, "off")
    assert_same(found, batches(server, ticket, "flight"))


def test_a_dataset_reports_its_transport(server: Server, transport: Transport, monkeypatch: pytest.MonkeyPatch):
    data = FlightDataset(server.url, "t", PLAN, batch_size=100)
    assert data.stats()["transport"] == ""
    assert sum(len(batch["id"]) for batch in data) == ROWS
    assert data.stats()["transport"] == transport.name
    monkeypatch.setenv(transport.switch, "OFF")
    plain = FlightDataset(server.url, "t", PLAN, batch_size=100)
    assert torch.equal(torch.cat([batch["id"] for batch in plain]), torch.arange(ROWS))
    assert plain.stats()["transport"] == "flight"


def test_a_loop_may_keep_everything(server: Server):
    with fb.connect(server.url) as client:
        kept = list(client.stream("t", PLAN, batch_size=50))
    assert np.concatenate([batch["id"] for batch in kept]).tolist() == list(range(ROWS))
    tensors = list(FlightDataset(server.url, "t", PLAN, batch_size=50, prefetch=1))
    assert torch.equal(torch.cat([batch["id"] for batch in tensors]), torch.arange(ROWS))


def test_arithmetic_in_place_on_received_tensors(server: Server):
    for number, batch in enumerate(FlightDataset(server.url, "t", PLAN, batch_size=64)):
        ids = batch["id"]
        ids.add_(1).mul_(2)
        batch["x"].fill_(0.5)
        assert torch.equal(ids, (torch.arange(number * 64, number * 64 + len(ids)) + 1) * 2)
        assert float(batch["x"].sum()) == batch["x"].numel() * 0.5


def test_batches_outlive_stream_client_and_server(serve: Serve, folder: Path, transport: Transport):
    server = transport.serve(serve, folder)
    stream = fb.connect(server.url, retry_seconds=0).stream("t", PLAN, batch_size=100)
    first, second = next(stream), next(stream)
    tensor = torch.from_dlpack(second.data.column("id"))
    stream.close()
    server.process.kill()
    server.process.wait()
    del stream, second
    gc.collect()
    assert first["id"].tolist() == list(range(100))
    assert torch.equal(tensor.add_(1), torch.arange(101, 201))


def test_killing_the_server_resumes_at_a_replica(serve: Serve, folder: Path, transport: Transport):
    first, second = (transport.serve(serve, folder) for _ in range(2))
    with fb.connect([first.url, second.url]) as client:
        stream = client.stream("t", PLAN, batch_size=10)
        kept = [next(stream) for _ in range(5)]
        first.process.send_signal(signal.SIGKILL)
        kept += list(stream)
    assert {batch.transport for batch in kept} == {transport.name}
    assert np.concatenate([batch["id"] for batch in kept]).tolist() == list(range(ROWS))
