"""PyTorch Geometric: `EdgeLoader` yields each batch of edges as a graph, and `graph` reads a whole one into memory.

A plan for edges has the output ``edge_index``, an int64 matrix [n, 2] of the two ends of each edge:
``fb.output(fb.cols("source", "target"), dtype="int64")``. All other outputs become attributes of the graph.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import torch

from ._client.client import Client
from ._dataset.dataset import FlightDataset
from ._dataset.framework import framework
from ._dataset.loader import FlightLoader
from ._dataset.tensors import TensorBatch, TensorColumns, to_tensors
from ._plan.fitted import FittedPlan
from ._plan.plan import Plan

__all__ = ["EdgeLoader", "graph"]

Data: Any = framework("torch_geometric.data", extra="pyg").Data

EDGES = "edge_index"
# Rows of a batch of `graph`, which copies them into one tensor.
BATCH_SIZE = 65_536


class EdgeLoader(FlightLoader):
    """Mini-batches of edges, each as a ``torch_geometric.data.Data``; `options` are those of DataLoader.

    As in the batches of PyG's loaders, ``n_id`` has the nodes that occur, ascending, and ``edge_index`` [2, n] their
    places in it, so a layer computes ``model(x[batch.n_id], batch.edge_index)``. Order, epochs and states are those
    of the dataset: see `forebay.torch.FlightLoader`.
    """

    def __init__(self, data: FlightDataset, **options: Any) -> None:
        super().__init__(data, collate_fn=_edges, **options)


def graph(
    client: Client,
    *,
    nodes: tuple[str, Plan | FittedPlan | str],
    edges: tuple[str, Plan | FittedPlan | str],
) -> Any:
    """Return a whole graph as a ``torch_geometric.data.Data``, for full batches and PyG's own samplers.

    `nodes` and `edges` are each a dataset and a plan. The nodes are numbered by the rows that pass the plan's filter,
    in file order, from 0; the ends of the edges must be such numbers. The outputs of the nodes' plan become attributes
    of the nodes (name them ``x``, ``y``, ``train_mask``), those of the edges' plan ``edge_index`` and attributes of the
    edges.
    """
    attributes, node_count = _whole(client, *nodes)
    of_edges, edge_count = _whole(client, *edges)
    ends = _ends(of_edges)
    both = sorted(attributes.keys() & of_edges.keys())
    if both:
        raise ValueError(f"the plans of nodes and edges both have an output {both[0]!r}: name one of them otherwise")
    if edge_count and not 0 <= int(ends.min()) <= int(ends.max()) < node_count:
        raise ValueError(
            f"the ends of the edges are {int(ends.min())} to {int(ends.max())}, and the nodes are numbered 0 to "
            f"{node_count - 1}: number them by the rows of {nodes[0]!r}"
        )
    return Data(num_nodes=node_count, edge_index=ends.t().contiguous(), **attributes, **of_edges)


def _whole(client: Client, dataset: str, plan: Plan | FittedPlan | str) -> tuple[dict[str, Any], int]:
    """Return the outputs of all rows, in file order, and the number of rows."""
    with client.stream(dataset, plan, batch_size=BATCH_SIZE) as stream:
        # The types of the outputs, also if there are no rows.
        empty = [cast(Any, column).combine_chunks() for column in stream.schema.empty_table().columns]
        first = TensorColumns(stream.schema).tensors(cast(Any, pa.RecordBatch).from_arrays(empty, schema=stream.schema))
        parts = {name: [_tensor(name, value)] for name, value in first.items()}
        for batch in stream:
            for name, value in to_tensors(batch).items():
                # A copy, as the batch is a view of the received memory.
                parts[name].append(value.clone())
        return {name: torch.cat(values) for name, values in parts.items()}, stream.info.rows


def _edges(batch: TensorBatch) -> Any:
    """Return the graph of a batch of edges."""
    attributes = dict(batch)
    n_id, local = cast(Any, torch).unique(_ends(attributes), return_inverse=True)
    return Data(num_nodes=len(n_id), n_id=n_id, edge_index=local.t().contiguous(), **attributes)


def _ends(outputs: dict[str, Any]) -> torch.Tensor:
    """Remove the ends of the edges from the outputs, and return them."""
    ends = outputs.pop(EDGES, None)
    if not isinstance(ends, torch.Tensor) or ends.dtype != torch.int64 or ends.shape[1:] != (2,):
        found = "none" if ends is None else getattr(ends, "dtype", type(ends).__name__)
        raise ValueError(
            f"the plan of the edges needs an int64 output {EDGES!r} of two columns, and has {found}: "
            f'{EDGES}=fb.output(fb.cols("source", "target"), dtype="int64")'
        )
    return ends


def _tensor(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"output {name!r} is not a tensor but {type(value).__name__}: give it a dtype of numbers")
    return value
