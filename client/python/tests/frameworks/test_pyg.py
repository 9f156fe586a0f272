"""PyTorch Geometric: the conformance suite on batches of edges, whole graphs, and a model that trains on each."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import forebay as fb
from forebay.torch import FlightDataset
from harness.frameworks.conformance import PLAN, ROWS, Conformance, Done, Job, Rows
from harness.serving import Serve, Server

pytest.importorskip("torch_geometric", reason="make test-frameworks installs PyTorch Geometric")
import torch_geometric.typing
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GCNConv

from forebay.pyg import EdgeLoader, graph

# PyG 2.8 calls what torch has since deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")

# Each row is an edge: from its number to the remainder of the number.
EDGES = fb.Plan(
    derive={"end": "id % 10"},
    outputs={**PLAN.outputs, "edge_index": fb.output(fb.cols("id", "end"), dtype="int64")},
)


def received(batches: Any, limit: int | None = None) -> Rows:
    rows = Rows()
    for batch in islice(batches, limit):
        batch.validate()
        ends = batch.n_id[batch.edge_index]
        assert ends.tolist() == [batch.id.tolist(), (batch.id % 10).tolist()]
        assert batch.n_id.tolist() == sorted(set(ends.flatten().tolist()))
        rows.add(ends[0], batch.dense)
    return rows


class TestEdgeLoader(Conformance):
    def run(self, job: Job) -> Done:
        loader = EdgeLoader(FlightDataset(job.url, job.dataset, EDGES, **job.options))
        if job.state is not None:
            loader.load_state_dict(job.state)
        if job.stop_after is not None:
            return Done([received(loader, job.stop_after)], loader.state_dict())
        return Done([received(batches) for _, batches in loader.epochs(job.epochs)])


def test_edges_from_a_worker(server: Server):
    data = FlightDataset(server.url, "tiny", EDGES, batch_size=8)
    loader = EdgeLoader(data, num_workers=2, multiprocessing_context="spawn", persistent_workers=True)
    assert [received(loader).ids for _ in range(2)] == [list(range(ROWS))] * 2


NODES, DEGREE = 500, 4
OF_NODES = fb.Plan(
    derive={"late": "value > 0"},
    outputs={"x": [fb.cols("value", "noise").standardize()], "y": fb.output(fb.cols("late"), dtype="int64")},
)
OF_EDGES = fb.Plan(
    outputs={"edge_index": fb.output(fb.cols("source", "target"), dtype="int64"), "edge_weight": fb.cols("weight")}
)


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    """Nodes of two classes, and edges that mostly connect nodes of the same class."""
    random = np.random.default_rng(3)
    value = random.normal(size=NODES)
    nodes = pa.table({"value": value, "noise": random.normal(size=NODES)})
    source = np.repeat(np.arange(NODES), DEGREE)
    order = np.argsort(value)
    target = order[(np.argsort(order)[source] + random.integers(1, 9, len(source))) % NODES]
    return nodes, pa.table({"source": source, "target": target, "weight": random.random(len(source))})


@pytest.fixture(scope="module")
def graphs(serve: Serve, tables: tuple[pa.Table, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("graph")
    for name, table in zip(("nodes", "edges"), tables, strict=True):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "a.parquet", row_group_size=333)
    return serve({name: folder / name for name in ("nodes", "edges")})


def test_a_graph_is_that_of_the_tables(graphs: Server, tables: tuple[pa.Table, pa.Table]):
    nodes, edges = tables
    with fb.connect(graphs.url) as client:
        found = graph(client, nodes=("nodes", OF_NODES), edges=("edges", OF_EDGES))
    assert found.validate()
    assert (found.num_nodes, found.num_edges) == (NODES, NODES * DEGREE)
    assert found.edge_index.is_contiguous()
    assert found.edge_index.tolist() == [edges["source"].to_pylist(), edges["target"].to_pylist()]
    assert found.edge_weight.tolist() == edges["weight"].to_numpy().astype(np.float32).tolist()
    value = nodes["value"].to_numpy()
    assert np.allclose(found.x[:, 0], (value - value.mean()) / value.std(), atol=1e-6)
    assert found.y.tolist() == (value > 0).astype(int).tolist()


def test_a_model_learns_from_a_graph_and_from_its_edges(graphs: Server):
    torch.manual_seed(1)
    with fb.connect(graphs.url) as client:
        whole = graph(client, nodes=("nodes", OF_NODES), edges=("edges", OF_EDGES))
    layer = GCNConv(2, 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)

    def step(x: torch.Tensor, y: torch.Tensor, batch: Any) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(layer(x, batch.edge_index, batch.edge_weight), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    first = step(whole.x, whole.y, whole)
    full = [step(whole.x, whole.y, whole) for _ in range(30)]
    assert full[-1] < first / 2
    loader = EdgeLoader(FlightDataset(graphs.url, "edges", OF_EDGES, batch_size=256, shuffle=True))
    losses = [
        step(whole.x[batch.n_id], whole.y[batch.n_id], batch) for _, batches in loader.epochs(3) for batch in batches
    ]
    assert len(losses) == 3 * -(-NODES * DEGREE // 256)
    assert np.mean(losses[-8:]) < full[-1]


@pytest.mark.skipif(
    not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE),
    reason="PyG's neighbour sampler needs pyg-lib or torch-sparse, which PyPI does not have for this PyTorch",
)
def test_neighbours_are_sampled_from_a_graph(graphs: Server):
    with fb.connect(graphs.url) as client:
        whole = graph(client, nodes=("nodes", OF_NODES), edges=("edges", OF_EDGES))
    seeds = [batch.n_id[: batch.batch_size] for batch in NeighborLoader(whole, [4, 4], batch_size=100)]
    assert torch.cat(seeds).tolist() == list(range(NODES))


def test_wrong_plans_are_named(graphs: Server, server: Server):
    narrow = fb.Plan(outputs={"edge_index": fb.output(fb.cols("source", "target"), dtype="int32")})
    with pytest.raises(ValueError, match="needs an int64 output 'edge_index' of two columns, and has torch.int32"):
        next(iter(EdgeLoader(FlightDataset(graphs.url, "edges", narrow))))
    with fb.connect(graphs.url) as client:
        with pytest.raises(ValueError, match="and has none: edge_index=fb.output"):
            graph(client, nodes=("nodes", OF_NODES), edges=("nodes", OF_NODES))
        named = fb.Plan(outputs={**OF_EDGES.outputs, "x": fb.cols("weight")})
        with pytest.raises(ValueError, match="nodes and edges both have an output 'x'"):
            graph(client, nodes=("nodes", OF_NODES), edges=("edges", named))
        half = fb.Plan(outputs=OF_NODES.outputs, derive=OF_NODES.derive, filter="value > 0")
        with pytest.raises(
            ValueError, match=r"the ends of the edges are 0 to 499, and the nodes are numbered 0 to \d+:"
        ):
            graph(client, nodes=("nodes", half), edges=("edges", OF_EDGES))
    with fb.connect(server.url) as client, pytest.raises(TypeError, match="output 'word' is not a tensor"):
        graph(client, nodes=("tiny", fb.Plan(outputs={"word": fb.cols("word").as_stored()})), edges=("tiny", EDGES))


def test_no_edges_are_a_graph_too(serve: Serve, tables: tuple[pa.Table, pa.Table], tmp_path: Path):
    for name, table in zip(("nodes", "edges"), tables, strict=True):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "a.parquet")
    none = fb.Plan(outputs=OF_EDGES.outputs, filter="weight > 2")
    with fb.connect(serve({name: tmp_path / name for name in ("nodes", "edges")}).url) as client:
        found = graph(client, nodes=("nodes", OF_NODES), edges=("edges", none))
    assert (found.num_nodes, found.num_edges) == (NODES, 0)
    assert found.validate()
