"""Every op gives each row the same values shuffled and in file order, at every world size and batch size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from harness.ops.conformance import SHUFFLED_CASES
from harness.ops.tables import features, numbers, write
from harness.serving import Serve

ROWS = 3001


def table() -> pa.Table:
    random = np.random.default_rng(31)
    words = [None if random.random() < 0.1 else f"word {i}" for i in random.integers(0, 50, ROWS)]
    sizes = random.integers(0, 5, ROWS)
    basket = [[words[i] for i in random.integers(0, ROWS, size)] if size else None for size in sizes]
    return (
        numbers(ROWS)
        .append_column("word", pa.array(words))
        .append_column("coded", pa.array(words).dictionary_encode())
        .append_column("basket", pa.array(basket, pa.list_(pa.string())))
        .append_column("scores", pa.array([[float(size)] * size for size in sizes]))
    )


DTYPES = {"hot": "uint8", "scores": "float16", "half": "bfloat16"}


def outputs() -> dict[str, fb.Output]:
    parts: dict[str, list[fb.Columns]] = {}
    for case in SHUFFLED_CASES:
        parts.setdefault(case.output, []).append(case.op(fb.cols(*case.columns)))
    return {name: fb.output(chains, dtype=DTYPES.get(name)) for name, chains in parts.items()}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    folder = tmp_path_factory.mktemp("shuffled") / "rows"
    write(folder, table())
    with fb.connect(serve({"rows": folder}).url) as connected:
        yield connected


DERIVE = {"single": "float32 + 0"}


@pytest.fixture(scope="module")
def in_order(client: fb.Client) -> dict[str, np.ndarray]:
    return features(client, "rows", outputs(), derive=DERIVE, batch_size=ROWS)


def bits(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values).tobytes()


@pytest.mark.parametrize(("world_size", "batch_size", "window_rows"), [(1, 64, 16_384), (2, 37, 200), (4, 1000, 64)])
def test_each_row_is_the_same_in_any_order(
    client: fb.Client, in_order: dict[str, np.ndarray], world_size: int, batch_size: int, window_rows: int
):
    plan = fb.Plan(outputs=outputs(), derive=DERIVE)
    seen: list[int] = []
    for rank in range(world_size):
        options: Any = {"rank": rank, "world_size": world_size, "batch_size": batch_size, "window_rows": window_rows}
        for batch in client.stream("rows", plan, shuffle=True, seed=3, with_row_ids=True, **options):
            ids = batch["__row_id"].astype(np.int64)
            seen += ids.tolist()
            for name, want in in_order.items():
                got = batch[name]
                if isinstance(got, fb.Ragged):
                    rows = np.split(got.values, got.offsets[1:-1])
                    assert len(rows) == len(ids)
                    assert all(bits(row) == bits(want[i]) for row, i in zip(rows, ids, strict=True)), name
                else:
                    assert bits(got) == bits(want[ids]), name
    assert sorted(seen) == list(range(ROWS))
    assert seen != sorted(seen)


def test_batches_of_one_row_are_the_same(client: fb.Client, in_order: dict[str, np.ndarray]):
    late = ROWS - 60
    plan = fb.Plan(outputs=outputs(), derive=DERIVE)
    with client.stream("rows", plan, batch_size=1, start_position=late) as stream:
        for row, batch in enumerate(stream, late):
            for name, want in in_order.items():
                got = batch[name].values if isinstance(batch[name], fb.Ragged) else batch[name]
                assert bits(got) == bits(want[row]), (name, row)
