"""Small requests that are expensive to serve: each is rejected or served, and the server keeps serving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, Server, fit, info, raw_table

ROWS = 20_000


def table() -> pa.Table:
    n = np.arange(ROWS)
    special = np.where(n % 3 == 0, np.inf, n / 7.0)
    return pa.table(
        {
            "a": n.astype(np.float64),
            "id": n,
            "small": (n % 200 - 100).astype(np.int8),
            "infinite": special,
            "word": [f"word {i % 5000}" for i in n],
        }
    )


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    root = tmp_path_factory.mktemp("costly")
    pq.write_table(table(), root / "a.parquet", row_group_size=7000)
    return serve({"data": root})


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
        assert raw_table(connected, "data").num_rows == ROWS
    assert server.alive


def plan(columns: list[str], ops: list[Any], **more: Any) -> dict[str, Any]:
    return {"outputs": [{"name": "x", "parts": [{"columns": columns, "ops": ops}]}], **more}


def refused(client: fl.FlightClient, request: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        client.do_get(info(client, request).endpoints[0].ticket).read_all()
    error = translate(caught.value)
    return error.code, str(error)


def first(client: fl.FlightClient, request: dict[str, Any]) -> pa.RecordBatch:
    return client.do_get(info(client, request).endpoints[0].ticket).read_chunk().data


@pytest.mark.parametrize("operators", [10, 250])
def test_long_expressions_are_streamed_filtered_and_fitted(client: fl.FlightClient, operators: int) -> None:
    total = " + ".join(["a"] * (operators + 1))
    derived = plan(["z"], [], derive=[{"name": "z", "expr": total}])
    batch = first(client, {"dataset": "data", "plan": derived, "batch_size": 5})
    assert np.array_equal(batch["x"].to_numpy(), np.arange(5, dtype=np.float32) * (operators + 1))
    filtered = plan(["a"], [], filter=f"{total} >= {operators + 1}")
    assert info(client, {"dataset": "data", "plan": filtered}).total_records == ROWS - 1
    learned = plan(["z"], [{"standardize": {}}], derive=derived["derive"], filter=filtered["filter"])
    assert fit(client, "data", learned)[-1]["result"]["plan_id"]


def test_pad_does_not_escape_the_limit_of_a_batch(client: fl.FlightClient) -> None:
    wide = plan(["id"], [{"hash_bucket": {"buckets": 1000}}, {"one_hot": {}}], filter="id < 1000")
    request = {"dataset": "data", "plan": wide, "batch_size": 1 << 24, "remainder": "PAD"}
    code, words = refused(client, request)
    assert code == "RESOURCE_EXHAUSTED"
    assert "--batch-bytes-max" in words


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (plan(["a"] * 50_000, [{"log1p": {}}] * 10_000), "--plan-ops-max"),
        (plan(["a"], [{"log1p": {}}] * 65), "limit is 64 (--plan-ops-max)"),
        (plan(["a"] * 70_000, []), "--plan-columns-max"),
        (plan(["z"], [], derive=[{"name": "z", "expr": "length(repeat(word, 2000000000))"}]), "repeat"),
        (plan(["z"], [], derive=[{"name": "z", "expr": "length(lpad(word, 2000000000, 'y'))"}]), "lpad"),
        (plan(["x" * 20_000], []), "no column"),
    ],
    ids=["columns x ops", "ops", "columns", "repeat", "lpad", "a long name"],
)
def test_rejects_small_plans_of_large_cost(client: fl.FlightClient, mistake: dict[str, Any], words: str) -> None:
    code, text = refused(client, {"dataset": "data", "plan": mistake})
    assert code == ("RESOURCE_EXHAUSTED" if "--" in words else "INVALID_ARGUMENT"), text
    assert words in text
    with pytest.raises((pa.ArrowException, fl.FlightError)):
        fit(client, "data", mistake)


def test_hundreds_of_calls_do_not_block_others(client: fl.FlightClient, server: Server) -> None:
    parts = [{"columns": ["word"], "ops": [{"vocab": {"max_size": size}}]} for size in range(1, 201)]
    many = {"outputs": [{"name": "x", "dtype": "INT32", "parts": parts}]}
    body = fl.Action("fit", pa.py_buffer(json.dumps({"dataset": "data", "plan": many}).encode()))
    updates = client.do_action(body)
    next(iter(updates))
    with fl.connect(server.url) as other:
        assert raw_table(other, "data").num_rows == ROWS
    results = [json.loads(update.body.to_pybytes()) for update in updates]
    assert len(results[-1]["result"]["plan"]["outputs"][0]["parts"]) == 200


def test_statistics_with_infinities_are_correct_or_rejected(client: fl.FlightClient) -> None:
    values = table()["infinite"].to_numpy()
    learned = fit(client, "data", plan(["infinite"], [{"fill_null": {"stat": "MEDIAN"}}]))[-1]["result"]["plan"]
    assert learned["outputs"][0]["parts"][0]["ops"][0]["fill_null"]["value"] == np.median(values)
    for ops in ([{"standardize": {}}], [{"bucketize": {"quantiles": 4}}]):
        with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
            fit(client, "data", plan(["infinite"], ops))
        assert translate(caught.value).code == "FAILED_PRECONDITION"
        assert "infinite" in str(caught.value)


def test_fit_rejects_plans_that_cannot_be_streamed(client: fl.FlightClient) -> None:
    too_wide = {
        "outputs": [
            {"name": "x", "parts": [{"columns": ["id"], "ops": [{"vocab": {}}, {"one_hot": {"size": 70_000}}]}]}
        ]
    }
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        fit(client, "data", too_wide)
    assert translate(caught.value).code == "INVALID_ARGUMENT"


def test_narrow_integers_do_not_wrap(client: fl.FlightClient) -> None:
    doubled = plan(["z"], [], derive=[{"name": "z", "expr": "small + small"}])
    doubled["outputs"][0]["dtype"] = "INT32"
    batch = first(client, {"dataset": "data", "plan": doubled, "batch_size": 200})
    assert np.array_equal(batch["x"].to_numpy(), (np.arange(200) - 100) * 2)


def test_computed_text_is_sent_without_the_rest_of_its_buffer(client: fl.FlightClient) -> None:
    cast = plan(["z"], [], derive=[{"name": "z", "expr": "CAST(id AS VARCHAR)"}])
    cast["outputs"][0]["dtype"] = "AS_STORED"
    batch = first(client, {"dataset": "data", "plan": cast, "batch_size": 10})
    assert batch["x"].to_pylist() == [str(i) for i in range(10)]
    assert batch.nbytes < 500
