"""Selections of columns by type or name, labels, and lists on a device."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import forebay as fb
from forebay.torch import FlightDataset
from harness.serving import Server

SCHEMA = pa.schema(
    [
        pa.field("C1", pa.int32()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("C20", pa.float64()),
        pa.field("word", pa.string()),
        pa.field("code", pa.dictionary(pa.int32(), pa.string())),
        pa.field("flag", pa.bool_()),
        pa.field("XC1", pa.large_string()),
        pa.field("image", pa.binary(8)),
    ]
)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (fb.cols.all(), SCHEMA.names),
        (fb.cols.numeric(), ["C1", "price", "C20"]),
        (fb.cols.numeric().exclude("price"), ["C1", "C20"]),
        (fb.cols.numeric().exclude("price", "word").exclude("C1"), ["C20"]),
        (fb.cols.strings(), ["word", "code", "XC1"]),
        (fb.cols.matching(r"^C\d+$"), ["C1", "C20"]),
        (fb.cols.matching("C1"), ["C1", "XC1"]),
        (fb.cols.of_type(pa.bool_(), "timestamp", pa.int32()), ["C1", "at", "flag"]),
        (fb.cols.of_type("timestamp[us]", "decimal128"), ["at", "price"]),
        (fb.cols.of_type(pa.timestamp("us")), ["at"]),
    ],
)
def test_a_selection_is_of_the_schema_in_its_order(selection: fb.Columns, names: list[str]):
    plan = fb.Plan(outputs={"o": selection.hash_bucket(10)})
    assert plan.has_selectors
    resolved = plan.resolve(SCHEMA)
    assert resolved == fb.Plan(outputs={"o": fb.cols(*names).hash_bucket(10)})
    assert not resolved.has_selectors
    assert resolved.to_json() == fb.Plan(outputs={"o": fb.cols(*names).hash_bucket(10)}).to_json()
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_an_empty_selection_names_the_columns():
    with pytest.raises(ValueError, match=r"'o': cols.matching\('\^z'\) selects none.*C1 int32, day date32"):
        fb.Plan(outputs={"o": fb.cols.matching("^z")}).resolve(SCHEMA)
    with pytest.raises(ValueError, match=r"no column 'wrd': did you mean word\?"):
        fb.Plan(outputs={"o": fb.cols.all().exclude("wrd")}).resolve(SCHEMA)


def test_an_unresolved_plan_has_no_json():
    plan = fb.Plan(outputs={"o": fb.cols.numeric().fill_null(0).standardize()})
    assert "cols.numeric().fill_null(value=0).standardize()" in repr(plan)
    with pytest.raises(ValueError, match=r"cols.numeric\(\) has no columns yet: call plan.resolve"):
        plan.to_json()


def test_clients_resolve_selections_of_their_dataset(server: Server, client: fb.Client):
    plan = fb.Plan(
        derive={"extra": "x + 1"},
        outputs={"n": fb.cols.numeric().exclude("id").fill_null(0.0), "w": fb.cols.strings().vocab()},
    )
    named = fb.Plan(
        derive={"extra": "x + 1"},
        outputs={"n": fb.cols("x", "gappy", "small", "unit").fill_null(0.0), "w": fb.cols("word").vocab()},
    )
    fitted = client.fit("tiny", plan, progress=False)
    assert fitted == client.fit("tiny", named, progress=False)
    whole = next(client.stream("tiny", plan))
    assert whole["n"].shape == (100, 4)
    (batch,) = FlightDataset(server.url, "tiny", plan, batch_size=100)
    assert torch.equal(batch["n"], torch.from_numpy(whole["n"].copy()))
    assert client.explain("tiny", plan).rows == 100
    assert client.replay("tiny", plan, step=0).rows.num_rows == 100
    unfitted = fb.Plan(outputs={"n": fb.cols.numeric()})
    schema = pa.schema([("a", pa.float32()), ("b", pa.string()), ("c", pa.float32())])
    with client.exchange(unfitted, schema=schema) as exchange:
        rows = exchange({"a": [1.0], "b": ["x"], "c": [2.0]})
        assert np.array_equal(rows["n"], [[1.0, 2.0]])


def test_a_label_is_class_ids(server: Server, client: fb.Client, tiny: pa.Table):
    classes = ["c", "ab", "déf"]
    plan = fb.Plan(
        filter="word IS NOT NULL",
        derive={"low": "small < 0"},
        outputs={"y": fb.label("word", classes=classes), "i": fb.label("id"), "b": fb.label("low")},
    )
    assert not plan.needs_fit
    (batch,) = FlightDataset(server.url, "tiny", plan, batch_size=100)
    rows = [row for row in tiny.to_pylist() if row["word"] is not None]
    assert {name: tensor.dtype for name, tensor in batch.items()} == dict.fromkeys("yib", torch.int64)
    assert batch["y"].tolist() == [classes.index(row["word"]) for row in rows]
    assert batch["i"].tolist() == [row["id"] for row in rows]
    assert batch["b"].tolist() == [int(row["small"] < 0) for row in rows]
    logits = torch.zeros(len(rows), 3)
    assert torch.nn.functional.cross_entropy(logits, batch["y"]) > 0
    numbered = fb.Plan(outputs={"y": fb.label("small", classes=list(range(-5, 5)))})
    assert next(client.stream("tiny", numbered))["y"].tolist() == [row["small"] + 5 for row in tiny.to_pylist()]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (fb.label("word", classes=["c", "ab", "déf"]), "word"),
        (fb.label("small", classes=[0, 1]), "small"),
        (fb.label("x"), "x"),
        (fb.label("word"), "word"),
    ],
)
def test_a_value_that_is_no_class_is_an_error(client: fb.Client, output: fb.Output, words: str):
    with pytest.raises(fb.InvalidRequest, match=f'column "{words}"'):
        next(client.stream("tiny", fb.Plan(outputs={"y": output})))


def lists(values: list[float]) -> fb.Ragged:
    return fb.Ragged(torch.tensor(values), torch.tensor([0, 1, len(values)], dtype=torch.int32))


@pytest.mark.parametrize(
    ("arguments", "keywords", "dtype"),
    [
        (("cpu",), {}, torch.float32),
        (("cpu",), {"non_blocking": True}, torch.float32),
        ((torch.float16,), {}, torch.float16),
        (("cpu", torch.float64), {}, torch.float64),
        ((), {"device": "cpu", "dtype": torch.bfloat16}, torch.bfloat16),
    ],
)
def test_lists_move_like_a_tensor(arguments: tuple[Any, ...], keywords: dict[str, Any], dtype: torch.dtype):
    moved = lists([1.0, 2.0, 3.0]).to(*arguments, **keywords)
    assert isinstance(moved, fb.Ragged)
    assert moved.values.dtype == dtype
    assert moved.values.tolist() == [1.0, 2.0, 3.0]
    # A dtype is that of the values.
    assert moved.offsets.dtype == torch.int32
    assert repr(moved) == f"Ragged(2 lists, 3 values of {dtype})"


def test_lists_move_to_another_device_with_their_offsets():
    moved = lists([1.0, 2.0, 3.0]).to("meta")
    assert {moved.values.device.type, moved.offsets.device.type} == {"meta"}
