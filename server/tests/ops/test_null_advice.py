"""The error of a null says what to do, and each way out that it names works."""

from __future__ import annotations

import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tokenizers import Tokenizer, models

import forebay as fb
from harness.serving import Serve


def picture() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), "u1")).save(out, "PNG")
    return out.getvalue()


def table() -> pa.Table:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table({
        "x": pa.array([1.0, None, 3.0]),
        "Dep Delay": pa.array([1, None, 3]),
        "order": pa.array([1, None, 3]),
        'a "b" c': pa.array([1, None, 3]),
        "k": pa.array([1, 2, 3]),
        "numbers": pa.array([[1, 2], [1, None], [3]], pa.list_(pa.int32())),
        "lists": pa.array([[1, 2], None, [3]], pa.list_(pa.int32())),
        "texts": pa.array([["a"], ["b", None], []], pa.list_(pa.string())),
        "pair": pa.array([[1.0, 2.0], [1.0, None], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        "pairs": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        "text": pa.array(["a", None, "a a"]),
        "raw": pa.array([picture(), None, picture()], pa.binary()),
        "image": pa.array([{"bytes": picture()}, {"bytes": None, "path": "cat.jpg"}, {"bytes": picture()}], image),
    })  # fmt: skip


@pytest.fixture(scope="module")
def client(serve: Serve, tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("nulls")
    pq.write_table(table(), root / "t.parquet")
    pq.write_table(pa.table({"k": [1, 2], "price": pa.array([1.0, None])}), root / "prices.parquet")
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(root / "t.json"))  # pyright: ignore[reportCallIssue]
    server = serve(
        {"t": root / "t.parquet", "prices": root / "prices.parquet"}, "--tokenizer", f"words={root / 't.json'}"
    )
    with fb.connect(server.url) as opened:
        yield opened


PRICE = fb.cols("k").lookup("prices", "k", ["price"])

IMAGE_SIZE = (8, 8)
# By name: a chain that reaches a null in row 1, and the same chain with nulls filled.
CHAINS: dict[str, tuple[fb.Columns, fb.Columns]] = {
    "number": (fb.cols("x"), fb.cols("x").fill_null(0)),
    "clipped": (fb.cols("x").clip(0, 9), fb.cols("x").fill_null(0).clip(0, 9)),
    "spaces": (fb.cols("Dep Delay"), fb.cols("Dep Delay").fill_null(0)),
    "keyword": (fb.cols("order"), fb.cols("order").fill_null(0)),
    "quotes": (fb.cols('a "b" c'), fb.cols('a "b" c').fill_null(0)),
    "derived": (fb.cols("double"), fb.cols("double").fill_null(0)),
    "derived of derived": (fb.cols("more"), fb.cols("more").fill_null(0)),
    "joined": (fb.cols("price"), fb.cols("price").fill_null(0)),
    "lookup": (PRICE, PRICE.fill_null(0)),
    "list": (fb.cols("lists"), fb.cols("lists").fill_null(0)),
    "padded list": (fb.cols("lists").pad(2), fb.cols("lists").fill_null(0).pad(2)),
    "element": (fb.cols("numbers"), fb.cols("numbers").fill_null(0)),
    "padded element": (fb.cols("numbers").pad(3), fb.cols("numbers").fill_null(0).pad(3)),
    "hashed element": (fb.cols("texts").hash_bucket(8), fb.cols("texts").fill_null(text="").hash_bucket(8)),
    "element of a matrix": (fb.cols("pair"), fb.cols("pair").fill_null(0)),
    "row of a matrix": (fb.cols("pairs"), fb.cols("pairs").fill_null(0)),
    "tokens": (fb.cols("text").tokenize("words"), fb.cols("text").fill_null(text="").tokenize("words")),
    "filled tokens": (fb.cols("text").tokenize("words"), fb.cols("text").tokenize("words").fill_null(0)),
    "image": (fb.cols("image").decode_image(*IMAGE_SIZE), fb.cols("image").decode_image(*IMAGE_SIZE).fill_null(0)),
    "bytes of an image": (
        fb.cols("raw").decode_image(*IMAGE_SIZE),
        fb.cols("raw").decode_image(*IMAGE_SIZE).fill_null(0),
    ),
    "image that may fail": (
        fb.cols("raw").decode_image(*IMAGE_SIZE, on_error="null"),
        fb.cols("raw").decode_image(*IMAGE_SIZE, on_error="null").fill_null(0),
    ),
}  # fmt: skip
# No filter over stored columns excludes these.
WITHOUT_FILTER = {
    "derived of derived", "lookup", "element", "padded element", "hashed element", "element of a matrix",
    "image that may fail",
}  # fmt: skip


def plan(chain: fb.Columns, filter: str = "") -> fb.Plan:  # noqa: A002 (the contract's name)
    return fb.Plan(
        filter=filter,
        derive={"double": "x * 2", "more": "double + 1"},
        join=fb.join("prices", on="k", columns=["price"]),
        outputs={"o": chain},
    )


def rows(client: fb.Client, chain: fb.Columns, filter: str = "") -> int:  # noqa: A002 (the contract's name)
    return sum(batch.header.rows for batch in client.stream("t", plan(chain, filter)))


@pytest.mark.parametrize("name", CHAINS)
def test_every_way_out_that_the_error_names_works(client: fb.Client, name: str):
    chain, filled = CHAINS[name]
    with pytest.raises(fb.InvalidRequest, match=r"row 1 is null; fill null\w* (elements )?with fill_null") as caught:
        rows(client, chain)
    assert caught.value.reason == "INVALID_VALUE"
    advised = re.search(r"the filter `([^`]+)`", str(caught.value))
    assert (advised is None) == (name in WITHOUT_FILTER), str(caught.value)
    if advised:
        kept = 1 if name == "joined" else 2
        assert rows(client, chain, advised[1]) == kept
        assert rows(client, chain, f"k > 1 AND {advised[1]}") == kept - 1
    assert rows(client, filled) == 3


def test_the_error_names_the_element(client: fb.Client):
    words = "element 1 of the list in row 1 is null; fill null elements with fill_null"
    for name in ("element", "padded element", "hashed element", "element of a matrix"):
        with pytest.raises(fb.InvalidRequest, match=words):
            rows(client, CHAINS[name][0])
    exchange = client.exchange(fb.Plan(outputs={"o": fb.cols("numbers")}))
    with exchange, pytest.raises(fb.InvalidRequest, match="element 0 of the list in row 2 is null"):
        exchange({"numbers": pa.array([[1], [], [None]], pa.list_(pa.int32()))})
