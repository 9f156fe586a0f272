"""Declared functions, their digests and checked results; `map_batches`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from forebay import udf

SOURCE = """
import pyarrow as pa
from forebay import udf

@udf.function(arguments=[pa.string()], returns=pa.int64(), version={version!r})
def f(text):
    return text  # {comment}
"""


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def declared(body: Callable[..., object], returns: pa.DataType, *, numpy: bool = False) -> udf.Function:
    return udf.function(arguments=[pa.float64()], returns=returns, numpy=numpy)(body)


X = batch(x=pa.array([1.0, 2.0, 4.0]))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name: str, *, version: str = "", comment: str = "") -> ModuleType:
        (tmp_path / f"{name}.py").write_text(SOURCE.format(version=version, comment=comment))
        return importlib.import_module(name)

    yield load
    for name in [name for name in sys.modules if name.startswith("declared_")]:
        del sys.modules[name]


def test_a_digest_covers_source_and_version(module: Callable[..., ModuleType]):
    first = module("declared_a").f.digest()
    assert first == module("declared_b").f.digest()
    assert len(first) == 32
    others = {module("declared_c", version="2").f.digest(), module("declared_d", comment="other").f.digest()}
    assert len({first, *others}) == 3


def test_a_digest_covers_types_and_form():
    def body(x: Any) -> Any:
        return x

    forms = [declared(body, pa.float64()), declared(body, pa.float32()), declared(body, pa.float64(), numpy=True)]
    forms.append(udf.function(arguments=[pa.float32()], returns=pa.float64())(body))
    assert len({form.digest() for form in forms}) == 4


def test_results_of_every_form_are_arrays():
    assert declared(lambda x: x, pa.float64()).apply(X).to_pylist() == [1.0, 2.0, 4.0]
    chunked = declared(lambda x: pa.chunked_array([x[:1], x[1:]]), pa.float64())
    assert chunked.apply(X).to_pylist() == [1.0, 2.0, 4.0]
    assert declared(lambda x: (x * 2).astype(np.int32), pa.int32(), numpy=True).apply(X).to_pylist() == [2, 4, 8]
    pairs = declared(lambda x: np.stack([x, -x], axis=1), pa.list_(pa.float64(), 2), numpy=True).apply(X)
    assert pairs.to_pylist() == [[1.0, -1.0], [2.0, -2.0], [4.0, -4.0]]
    # A transposed array is not contiguous.
    turned = declared(lambda x: np.stack([x, -x]).T, pa.list_(pa.float64(), 2), numpy=True).apply(X)
    assert turned.equals(pairs)
    matrix = udf.function(arguments=[pa.list_(pa.float64(), 2)], returns=pa.float64(), numpy=True)(lambda x: x[:, 0])
    assert matrix.apply(batch(x=pairs)).to_pylist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("body", "returns", "words"),
    [
        (lambda x: x[:2], pa.float64(), "returned 2 values for 3 rows"),
        (lambda x: x, pa.float32(), "returned double, but declares float"),
        (lambda x: [1, 2, 3], pa.float64(), "returned list"),
        (lambda x: None, pa.float64(), "returned NoneType"),
        (lambda x: np.ones((3, 2)), pa.list_(pa.float64(), 3), r"the shape \(3, 2\)"),
        (lambda x: np.ones((3, 3), np.float32), pa.list_(pa.float64(), 3), "array of float32"),
        (lambda x: np.ones(3, np.float32), pa.float64(), "returned float, but declares double"),
    ],
)
def test_results_that_contradict_the_declaration_are_errors(body: Any, returns: pa.DataType, words: str):
    with pytest.raises(udf.ResultError, match=words):
        declared(body, returns).apply(X)


def test_numpy_arguments_have_no_nulls():
    with pytest.raises(udf.ResultError, match=r"argument x has 1 null\(s\)"):
        declared(lambda x: x, pa.float64(), numpy=True).apply(batch(x=pa.array([1.0, None])))


def test_declarations_are_checked():
    with pytest.raises(TypeError, match="has 2 argument"):
        udf.function(arguments=[pa.int8()], returns=pa.int8())(lambda a, b: a)
    with pytest.raises(TypeError, match="arguments is empty"):
        udf.function(arguments=[], returns=pa.int8())
    with pytest.raises(TypeError, match="is not a type of pyarrow"):
        udf.function(arguments=[int], returns=pa.int8())  # pyright: ignore[reportArgumentType]


def test_the_op_is_the_first_of_its_chain():
    chain = fb.cols("a").udf("f", "b").clip(0, 1)
    assert str(chain) == "cols('a').udf(name='f', columns=['b']).clip(min=0, max=1)"
    assert chain.to_dict()["ops"] == [
        {"udf": {"name": "f", "columns": ["b"]}},
        {"clip": {"min": 0.0, "max": 1.0}},
    ]
    with pytest.raises(ValueError, match="udf must be the first op"):
        fb.cols("a").log1p().udf("f")
    plan = fb.Plan(outputs={"o": chain, "s": fb.cols("a").udf("f").as_stored()})
    assert fb.Plan.from_dict(plan.to_dict()).to_dict() == plan.to_dict()


class Source:
    """A source with a length and a state."""

    def __init__(self) -> None:
        self.next = 0

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> int:
        if self.next == 4:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["next"]


def test_map_batches_keeps_order_length_and_state():
    mapped = fb.map_batches(Source(), lambda value: value * 10)
    assert len(mapped) == 4
    batches = iter(mapped)
    assert [next(batches), next(batches)] == [0, 10]
    # Nothing is read ahead.
    state = mapped.state_dict()
    assert state == {"next": 2}
    resumed = fb.map_batches(Source(), lambda value: value * 10)
    resumed.load_state_dict(state)
    assert list(resumed) == [20, 30]


def test_map_batches_ends_at_the_batch_that_fails():
    def fails(value: int) -> float:
        return 1 / (2 - value)

    seen: list[float] = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(fb.map_batches(Source(), fails))
    with pytest.raises(TypeError, match="list has no state_dict"):
        fb.map_batches([1], fails).state_dict()
