"""Spans: a batch's tensors move to a device in one copy, here to other memory of this process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

import forebay as fb
from forebay._client.ragged import Ragged
from forebay._dataset.device_copy import leaves_of, with_leaves
from forebay._dataset.spans import ALIGNMENT, GAP_MAX, spans_of
from forebay._dataset.tensors import to_tensors
from harness.serving import Server

CPU = torch.device("cpu")
HEADER = pa.py_buffer(b"")


def moved(tensors: list[torch.Tensor]) -> tuple[int, list[torch.Tensor]]:
    """Copy the spans. Return their number, and the tensors over the copies; those in no span stay."""
    found, spans = list(tensors), spans_of(tensors)
    for span in spans:
        space = span.space(CPU)
        space[span.lead :].copy_(span.here())
        for place, tensor in span.over(space):
            found[place] = tensor
    return len(spans), found


def assert_moved(found: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    for one, other in zip(found, tensors, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        assert one.data_ptr() != other.data_ptr() or not one.numel()


def received(rows: int) -> list[torch.Tensor]:
    """The tensors of a batch that was read from a message: numbers of several sizes, and text between them."""
    random = np.random.default_rng(rows)
    fields = {
        "f": random.random(rows).astype(np.float32),
        "i": random.integers(-9, 9, rows),
        "u": random.integers(0, 9, rows).astype(np.uint8),
        "h": random.random(rows).astype(np.float16),
        "d": random.random(rows),
    }
    schema = pa.schema(
        [pa.field(name, pa.from_numpy_dtype(each.dtype), nullable=False) for name, each in fields.items()]
    )
    batch = pa.record_batch([pa.array(each) for each in fields.values()], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    return leaves_of(to_tensors(fb.Batch(pa.ipc.open_stream(sink.getvalue()).read_next_batch(), HEADER)))


@pytest.mark.parametrize("rows", [1, 7, 255, 10_007])
def test_the_columns_of_a_message_are_one_span(rows: int):
    tensors = received(rows)
    count, found = moved(tensors)
    assert count == 1
    assert_moved(found, tensors)
    assert all(one.data_ptr() % 8 == other.data_ptr() % 8 for one, other in zip(found, tensors, strict=True))


def test_every_kind_of_column_of_a_stream_moves(server: Server):
    plan = fb.Plan(
        outputs={
            "pair": fb.output(fb.cols("x", "unit").fill_null(0), dtype="float32"),
            "brain": fb.output(fb.cols("x").fill_null(0), dtype="bfloat16"),
            "word": fb.cols("word").as_stored(),
            "id": fb.cols("id"),
        }
    )
    with fb.connect(server.url) as client, client.stream("tiny", plan, batch_size=33, with_row_ids=True) as stream:
        for batch in stream:
            tensors = to_tensors(batch)
            leaves = leaves_of(tensors)
            _, found = moved(leaves)
            assert_moved(found, leaves)
            again = with_leaves(tensors, found)
            assert list(again) == list(tensors)
            assert again["word"] is tensors["word"]


def test_lists_move_with_their_offsets():
    lists = {"ids": Ragged(torch.arange(5), torch.tensor([0, 2, 5], dtype=torch.int32)), "x": torch.ones(2)}
    _, found = moved(leaves_of(lists))
    again = with_leaves(lists, found)
    assert (again["ids"].values.tolist(), again["ids"].offsets.tolist()) == ([0, 1, 2, 3, 4], [0, 2, 5])
    assert again["x"].tolist() == [1, 1]


def test_memory_between_distant_tensors_is_not_copied():
    memory = torch.arange(3 * GAP_MAX, dtype=torch.int64)
    near, far = memory[:10], memory[GAP_MAX:]
    assert moved([far, near])[0] == 2
    assert moved([near, memory[11:20], memory[15:17]])[0] == 1


def test_tensors_without_elements_or_at_odd_addresses_are_in_no_span():
    odd = torch.from_numpy(np.frombuffer(bytearray(17), np.uint8, 8, 1).view(np.float32))
    tensors = [torch.empty(0), torch.empty(0, 3), odd] if odd.data_ptr() % 4 else [torch.empty(0), torch.empty(0, 3)]
    assert spans_of(tensors) == []
    assert spans_of([]) == []


def test_a_span_starts_where_its_memory_would_be_aligned():
    memory = torch.arange(1000, dtype=torch.uint8)
    (span,) = spans_of([memory[3:]])
    assert span.lead == (memory.data_ptr() + 3) % ALIGNMENT
    assert span.space(CPU).nbytes == span.lead + 997


def test_autograd_tracks_the_tensors_of_a_batch_by_themselves():
    base = torch.arange(8, dtype=torch.float32)
    _, (left, right) = moved([base[:4], base[4:]])
    weight = torch.ones(4, requires_grad=True)
    loss = (weight * left).sum()
    # As a view of the same tensor, this change would make `left` unusable for the backward pass.
    right.zero_()
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0, 1, 2, 3]
