"""bytes: columns of fixed-length binary values as uint8 matrices, from any encoding, against numpy.frombuffer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.exchange import exchange
from harness.ops.tables import features, same_bits
from harness.serving import Serve, Server, fit

ROWS, SIZE = 3011, 784
PIXELS = np.random.default_rng(0).integers(0, 256, (ROWS, SIZE), np.uint8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("bytes")
    values = [row.tobytes() for row in PIXELS]
    short = [value[:-1] if row == 2003 else value for row, value in enumerate(values)]
    few = [values[row % 5] for row in range(ROWS)]
    table = pa.table(
        {
            "img": pa.array(values, pa.binary()),
            "large": pa.array(values, pa.large_binary()),
            "sized": pa.array(values, pa.binary(SIZE)),
            "few": pa.array(few, pa.binary()),
            "short": pa.array(short, pa.binary()),
            "gaps": pa.array([None if row % 7 == 3 else value for row, value in enumerate(values)], pa.binary()),
            "text": pa.array(["a" * 4] * ROWS),
            "y": pa.array(["cat", "dog", "mouse", "dog"] * (ROWS // 4) + ["cat"] * (ROWS % 4)),
            "kind": pa.array(np.arange(ROWS) % 3),
        }
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=1000)
    return serve({"images": folder})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


@pytest.mark.parametrize("column", ["img", "large", "sized", "few"])
def test_bytes_are_a_uint8_matrix(client: fb.Client, column: str):
    want = PIXELS[np.arange(ROWS) % 5] if column == "few" else PIXELS
    got = features(client, "images", {"x": fb.cols(column).bytes(SIZE)})["x"]
    assert got.dtype == np.uint8
    same_bits(got, want, column)
    scaled = features(client, "images", {"x": fb.cols(column).bytes(SIZE).min_max(min=0, max=255)})["x"]
    assert scaled.dtype == np.float32
    same_bits(scaled, (want / 255).astype(np.float32), column)
    plan = client.fitted("images", fb.Plan(outputs={"x": fb.cols(column).bytes(SIZE)}))
    batch = next(iter(client.stream("images", plan, batch_size=100, shuffle=True, seed=1, with_row_ids=True)))
    same_bits(batch["x"], want[batch["__row_id"].astype(int)], "shuffled")


def test_nulls_and_lengths_are_errors_of_their_row(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match='column "short": row 2003 has 783 bytes, not 784'):
        features(client, "images", {"x": fb.cols("short").bytes(SIZE)})
    with pytest.raises(fb.InvalidRequest, match='column "short": row 2003 has 783 bytes, not 784'):
        list(client.stream("images", fb.Plan(outputs={"x": fb.cols("short").bytes(SIZE)}), shuffle=True))
    with pytest.raises(fb.InvalidRequest, match='column "img": row 0 has 784 bytes, not 783'):
        features(client, "images", {"x": fb.cols("img").bytes(SIZE - 1)})
    with pytest.raises(fb.InvalidRequest, match='column "gaps": row 3 is null'):
        features(client, "images", {"x": fb.cols("gaps").bytes(SIZE)})
    got = features(client, "images", {"x": fb.output(fb.cols("gaps").bytes(SIZE).fill_null(0), dtype="uint8")})["x"]
    same_bits(got, np.where((np.arange(ROWS) % 7 == 3)[:, None], 0, PIXELS).astype(np.uint8), "filled")
    with pytest.raises(fb.InvalidRequest, match="it takes bytes, but its input is text"):
        features(client, "images", {"x": fb.cols("text").bytes(4)})
    with pytest.raises(ValueError, match="bytes: n must be from 1 to 65536"):
        fb.cols("img").bytes(0)


def test_one_rule_chooses_the_dtype(server: Server):
    def dtype(*parts: dict[str, Any]) -> str:
        with fl.connect(server.url) as bare:
            fitted = fit(bare, "images", {"outputs": [{"name": "x", "parts": list(parts)}]})[-1]
        return fitted["result"]["plan"]["outputs"][0]["dtype"]

    image = {"columns": ["img"], "ops": [{"bytes": {"n": SIZE}}]}
    assert dtype(image, {"columns": ["large"], "ops": [{"bytes": {"n": SIZE}}]}) == "UINT8"
    assert dtype(image, {"columns": ["kind"], "ops": []}) == "FLOAT32"
    assert dtype({"columns": ["img"], "ops": [*image["ops"], {"abs": {}}]}) == "FLOAT32"


def test_an_exchange_takes_bytes(server: Server):
    plan = {"outputs": [{"name": "x", "parts": [{"columns": ["img"], "ops": [{"bytes": {"n": 3}}]}]}]}
    rows = pa.record_batch({"img": pa.array([b"abc", b"\x00\x01\xff"], pa.binary())})
    with fl.connect(server.url) as bare:
        (answer,) = exchange(bare, {"plan": plan}, [rows])
    assert json.loads(str(answer["x"].to_pylist())) == [[97, 98, 99], [0, 1, 255]]


def test_a_label_of_another_class_names_the_row(client: fb.Client):
    got = features(client, "images", {"y": fb.label("y", classes=["cat", "dog", "mouse"])})["y"]
    assert got[:4].tolist() == [0, 1, 2, 1]
    with pytest.raises(fb.InvalidRequest, match=r'column "y": row 2 is null, or not among the values that .* list'):
        features(client, "images", {"y": fb.label("y", classes=["cat", "dog"])})
    with pytest.raises(fb.InvalidRequest, match=r'column "kind": row 2 is null, or not among'):
        features(client, "images", {"y": fb.label("kind", classes=[0, 1])})
