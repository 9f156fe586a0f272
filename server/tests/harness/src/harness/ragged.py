"""Batches of lists, and a torch dataset of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import torch

import forebay as fb
from forebay._client.header import BatchHeader
from forebay._dataset.tensors import to_tensors

HEADER = BatchHeader(0, 0, 0, 0, 0, False, 0)
ROWS: list[list[int]] = [[3, 1, 2], [], [7], [5, 5]]


def field(item: pa.DataType, **metadata: str) -> pa.Field[Any]:
    return pa.field("x", pa.list_(pa.field("item", item, nullable=False)), nullable=False, metadata=metadata or None)


def batch(array: pa.Array[Any], column: pa.Field[Any]) -> fb.Batch:
    """A batch as received: through IPC."""
    data = pa.record_batch([array], schema=pa.schema([column]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    return fb.Batch(pa.ipc.open_stream(sink.getvalue()).read_next_batch(), HEADER)


class Held(torch.utils.data.Dataset[dict[str, Any]]):
    def __getitem__(self, index: int) -> dict[str, Any]:
        column = field(pa.int32())
        return to_tensors(batch(pa.array(ROWS[index:], column.type), column))

    def __len__(self) -> int:
        return 2
