"""Small requests that are expensive to serve: each is rejected or served, and the server keeps serving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.damaged_files import resident_bytes_max
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


DEEP_TYPE = "arrow_cast(a, '" + "List(" * 9000 + "Int32" + ")" * 9000 + "')"


def derived(text: str) -> dict[str, Any]:
    return {**plan(["y"], []), "derive": [{"name": "y", "expr": text}]}


def exchanged(client: fl.FlightClient, plan: dict[str, Any], batch: pa.RecordBatch) -> pa.Table:
    command = fl.FlightDescriptor.for_command(json.dumps({"plan": plan}).encode())
    writer, reader = client.do_exchange(command)
    writer.begin(batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    return reader.read_all()


@pytest.mark.parametrize(
    "call", ["GetFlightInfo", "GetSchema", "DoExchange", "mixture", "check_plan", "fit", "explain", "filter"]
)
def test_types_nested_in_strings_are_refused(client: fl.FlightClient, call: str) -> None:
    deep = derived(DEEP_TYPE if call != "explain" else DEEP_TYPE.replace("arrow_cast", '"arrow_try_cast"'))
    request = {"dataset": "data", "plan": deep}

    def act() -> None:
        list(client.do_action(fl.Action(call, json.dumps(request).encode())))

    calls = {
        "GetFlightInfo": lambda: info(client, request),
        "GetSchema": lambda: client.get_schema(fl.FlightDescriptor.for_command(json.dumps(request).encode())),
        "DoExchange": lambda: exchanged(client, deep, pa.record_batch({"a": np.zeros(1)})),
        "mixture": lambda: info(client, {"sources": [{**request, "weight": 1}]}),
        "filter": lambda: info(client, {"dataset": "data", "plan": plan(["a"], [], filter=f"{DEEP_TYPE} IS NULL")}),
    }
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        calls.get(call, act)()
    assert "a type of 9000 levels, the limit is 32" in str(caught.value)


def test_types_of_a_few_levels_are_named(client: fl.FlightClient) -> None:
    for text, expected in {
        "arrow_cast(id, 'Int8')": pa.int8(),
        "arrow_cast(word, 'List(List(Utf8))')": pa.list_(pa.list_(pa.string())),
        "CAST(word AS VARCHAR[3])": None,
    }.items():
        stored = {"outputs": [{"name": "x", "dtype": "AS_STORED", "parts": [{"columns": ["y"]}]}]}
        request = {"dataset": "data", "plan": {**derived(text), **stored, "filter": "id < 100"}}
        if expected is None:
            assert "INVALID_ARGUMENT" in refused(client, request)[0]
        else:
            assert first(client, request)["x"].type.equals(expected)


@pytest.mark.parametrize(
    "text",
    [
        "octet_length(arrow_cast(concat(word, 'y'), 'FixedSizeBinary(2147483647)'))",
        "CAST(NULL AS BIGINT[100000000])",
        "arrow_cast(NULL, 'FixedSizeList(10000, FixedSizeList(10000, Int64))')",
    ],
)
def test_sizes_of_named_types_count_before_memory_is_taken(client: fl.FlightClient, text: str) -> None:
    code, words = refused(client, {"dataset": "data", "plan": derived(text)})
    assert code == "INVALID_ARGUMENT"
    assert "one value could need" in words


def test_derived_values_are_reserved_before_they_are_kept(serve: Serve, tmp_path: Path) -> None:
    text = "x" * 1000
    pq.write_table(pa.table({"s": [text] * 8000}), tmp_path / "a.parquet")
    small = serve({"data": tmp_path}, "--memory-limit-bytes", "200MiB")
    # Three columns of 16, 32 and 64 MB of each chunk, then four more of 128 MB.
    doubled = [
        {"name": f"d{i}", "expr": f"concat({f'd{i - 1}' if i else 's'}, {f'd{i - 1}' if i else 's'})"} for i in range(3)
    ]
    copies = [{"name": f"e{i}", "expr": "concat(d2, d2)"} for i in range(4)]
    columns = [derive["name"] for derive in doubled + copies]
    ops = [{"hash_bucket": {"buckets": 10}}]
    with fl.connect(small.url) as client:
        code, words = refused(client, {"dataset": "data", "plan": plan(columns, ops, derive=doubled + copies)})
        assert code == "RESOURCE_EXHAUSTED"
        assert "--memory-limit-bytes" in words
        assert "derived column" in words
        few = plan(["d0"], ops, derive=doubled)
        batch = first(client, {"dataset": "data", "plan": few, "batch_size": 10})
        assert batch.num_rows == 10
    assert resident_bytes_max(small) < 400 << 20


def test_long_names_are_refused_at_once(client: fl.FlightClient) -> None:
    name = "é" * 500_000
    for request in (
        {"dataset": name, "plan": plan(["a"], [])},
        {"dataset": "data", "plan": plan([name], [])},
        {"dataset": "data", "plan_id": name},
        {"dataset": "data", "plan": plan(["a"], []), "group_by": name},
        {"dataset": "data", "plan": plan(["a"], [], join=[{"table": name, "on": "a", "key": "a", "columns": [name]}])},
    ):
        code, text = refused(client, request)
        assert code in ("INVALID_ARGUMENT", "NOT_FOUND")
        assert len(text) < 2000
    # The names of the client's columns are as long as that of the plan.
    wide = pa.record_batch({f"{name[:250_000]}{i}": [1.0] for i in range(20)})
    with pytest.raises((pa.ArrowException, fl.FlightError)):
        exchanged(client, plan([name], []), wide)


def test_many_long_expressions_are_refused_before_they_are_planned(client: fl.FlightClient) -> None:
    derive = [{"name": f"d{i}", "expr": " + ".join(["a"] * 101)} for i in range(1000)]
    for request in (
        {"dataset": "data", "plan": plan(["d9"], [], derive=derive)},
        {
            "sources": [
                {"dataset": "data", "weight": 1, "plan": plan(["d9"], [], derive=derive[i : i + 10])} for i in range(64)
            ]
        },
        {"dataset": "data", "plan": plan(["d9"], [], derive=[{"name": f"d{i}", "expr": "a"} for i in range(20_000)])},
    ):
        code, text = refused(client, request)
        assert code == "RESOURCE_EXHAUSTED"
        assert "--plan-operators-max" in text
    many = [{"name": f"d{i}", "expr": f"a + {i}"} for i in range(2000)]
    batch = first(client, {"dataset": "data", "plan": plan(["d1999"], [], derive=many), "batch_size": 5})
    assert batch["x"].to_pylist() == [1999.0, 2000.0, 2001.0, 2002.0, 2003.0]


def test_tokenizers_with_long_patterns_are_refused(client: fl.FlightClient) -> None:
    # The engine compiles an alternation in time that is quadratic in its length.
    split = {"type": "Split", "pattern": {"Regex": "a|" * 200_000}, "behavior": "Isolated", "invert": False}
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    file = {"version": "1.0", "added_tokens": [], "pre_tokenizer": split, "model": model}
    words = plan(["word"], [{"tokenize": {"json": json.dumps(file), "max_length": 4}}])
    code, text = refused(client, {"dataset": "data", "plan": words})
    assert code == "INVALID_ARGUMENT"
    assert "a pattern has 400000 bytes" in text
