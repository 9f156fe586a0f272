"""Every op gives each row the same values shuffled and in file order, at every world size and batch size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
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


def outputs() -> dict[str, Any]:
    dense = fb.cols("float32", "float64", "int16", "uint64", "decimal_9_2", "bool", "date32")
    basket = fb.cols("basket").hash_bucket(97).fill_null(0)
    return {
        "dense": [
            dense.fill_null(0).log1p().standardize(mean=1, std=3).clip(-3, 3),
            dense.abs().sqrt().max_abs(max_abs=7).fill_null(-1),
            dense.logit(1e-3).fill_null(0),
            dense.box_cox(0.3).robust(center=0, scale=2).fill_null(0),
            dense.min_max(min=0, max=9).fill_null(0),
            dense.positive_mod(5).fill_null(0),
        ],
        "indices": [
            fb.cols("word", "coded").vocab(values=["word 1", "word 9"], oov_buckets=5),
            fb.cols("int32", "word").hash_bucket(1000).fill_null(-1),
            fb.cols("word").cross("int8", "float64", buckets=9973),
            fb.cols("int64", "uint8").sigrid_hash(salt=1, max_value=77).fill_null(-1),
            fb.cols("int8").map_id({1: 2, 3: 4}, default=9).fill_null(-1),
            fb.cols("float32").bucketize([-1, 0, 1]).fill_null(-1),
        ],
        "hot": fb.output([fb.cols("coded").vocab(values=["word 2"]).one_hot(), basket.multi_hot()], dtype="uint8"),
        "padded": fb.cols("scores").pad(3, -1).standardize(mean=2, std=2),
        "first": basket.first_n(2, value=0),
        "ragged": basket,
        "scores": fb.output(fb.cols("scores").log1p(), dtype="float16"),
        "ngrams": fb.cols("basket").ngram(2, buckets=1000).fill_null(0),
        "half": fb.output(fb.cols("float16", "single").fill_null(0), dtype="bfloat16"),
    }


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
