"""Lists in a batch: values and offsets as NumPy arrays and torch tensors over the received memory."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import forebay as fb
from forebay._client.arrays import is_lists
from forebay._dataset.tensors import to_tensors
from harness.ragged import HEADER, ROWS, Held, batch, field


def address(array: pa.Array[Any]) -> int:
    return array.buffers()[1].address


@pytest.mark.parametrize("item", [pa.float32(), pa.float16(), pa.int32(), pa.int64(), pa.uint8()])
def test_lists_are_values_and_offsets_without_a_copy(item: pa.DataType):
    column = field(item)
    got = batch(pa.array(ROWS, column.type), column)
    values, offsets = got["x"]
    assert values.tolist() == [3, 1, 2, 7, 5, 5]
    assert values.dtype == item.to_pandas_dtype()
    assert offsets.tolist() == [0, 3, 3, 4, 6]
    assert offsets.dtype == np.int32
    assert not values.flags.writeable
    stored = got.data.column("x")
    assert values.ctypes.data == address(stored.values)
    tensors = to_tensors(got)["x"]
    assert isinstance(tensors, fb.Ragged)
    assert tensors.values.data_ptr() == values.ctypes.data
    assert tensors.offsets.data_ptr() == offsets.ctypes.data
    assert torch.equal(tensors.values, torch.from_numpy(values.copy()))
    assert tensors.offsets.dtype == torch.int32


def test_bfloat16_lists_are_bits_in_numpy_and_numbers_in_torch():
    column = field(pa.uint16(), **{"forebay.dtype": "BFLOAT16"})
    bits = torch.tensor([1.5, -2.0, 0.0]).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    got = batch(pa.array([list(bits[:1]), list(bits[1:])], column.type), column)
    assert got["x"].values.tolist() == bits.tolist()
    assert to_tensors(got)["x"].values.tolist() == [1.5, -2.0, 0.0]
    assert to_tensors(got)["x"].values.dtype == torch.bfloat16


@pytest.mark.parametrize("span", [(0, 4), (1, 3), (2, 2), (4, 0)])
def test_a_slice_counts_its_offsets_from_0(span: tuple[int, int]):
    column = field(pa.int64())
    data = batch(pa.array(ROWS, column.type), column).data.slice(*span)
    for ragged in (fb.Batch(data, HEADER)["x"], to_tensors(fb.Batch(data, HEADER))["x"]):
        starts = ragged.offsets.tolist()
        assert starts[0] == 0
        assert len(starts) == span[1] + 1
        lists = [ragged.values[a:b].tolist() for a, b in itertools.pairwise(starts)]
        assert lists == ROWS[span[0] : span[0] + span[1]]
        assert len(ragged.values) == starts[-1]


def test_batch_without_rows_has_one_offset():
    column = field(pa.int32())
    got = batch(pa.array([], column.type), column)
    assert got["x"].values.tolist() == []
    assert got["x"].offsets.tolist() == [0]
    assert to_tensors(got)["x"].offsets.tolist() == [0]


@pytest.mark.parametrize(
    "column",
    [
        pa.field("x", pa.list_(pa.int32()), nullable=False),
        pa.field("x", pa.list_(pa.field("item", pa.int32(), nullable=False))),
        pa.field("x", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        pa.field("x", pa.large_list(pa.field("item", pa.int32(), nullable=False)), nullable=False),
    ],
    ids=["null elements", "null lists", "text", "large"],
)
def test_lists_of_other_types_stay_arrow(column: pa.Field[Any]):
    assert not is_lists(column)
    got = batch(pa.array([], column.type), column)
    assert isinstance(got["x"], pa.Array)
    assert isinstance(to_tensors(got)["x"], pa.Array)


@pytest.mark.parametrize("item", [pa.int32(), pa.int64()])
def test_embedding_bag_accepts_ragged_values(item: pa.DataType):
    column = field(item)
    ragged = to_tensors(batch(pa.array(ROWS, column.type), column))["x"]
    bag = torch.nn.EmbeddingBag(8, 3, mode="sum", include_last_offset=True)
    pooled = bag(ragged.values, ragged.offsets)
    want = torch.stack([bag.weight[torch.tensor(row, dtype=torch.int64)].sum(0) for row in ROWS])
    torch.testing.assert_close(pooled, want)


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader_passes_ragged_values(workers: int):
    context = "spawn" if workers else None
    loader = torch.utils.data.DataLoader(Held(), batch_size=None, num_workers=workers, multiprocessing_context=context)
    first, second = (item["x"] for item in loader)
    assert type(first).__name__ == "Ragged"
    assert first.values.tolist() == [3, 1, 2, 7, 5, 5]
    assert second.offsets.tolist() == [0, 0, 1, 3]


def test_frameworks_move_ragged_values_to_a_device():
    from accelerate.utils import send_to_device
    from lightning.fabric.utilities import move_data_to_device

    ragged = Held()[0]
    meta = torch.device("meta")
    for moved in (move_data_to_device(ragged, meta)["x"], send_to_device(ragged, meta)["x"]):
        assert isinstance(moved, fb.Ragged)
        assert moved.values.device == meta
        assert moved.offsets.device == meta


def test_ragged_values_pickle():
    ragged = pickle.loads(pickle.dumps(Held()[0]["x"]))
    assert isinstance(ragged, fb.Ragged)
    assert ragged.offsets.tolist() == [0, 3, 3, 4, 6]
