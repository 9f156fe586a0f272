"""Invalid plans are rejected with the field path of the error."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from forebay.errors import translate
from harness.ops.tables import write
from harness.serving import Serve, Server, info
from harness.tables import tiny_table

HUGE = 10**9
DEEP = 10**6

# Column, op, and words of the error in addition to the op's path.
BAD: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "clip: min above max": ("x", {"clip": {"min": 2, "max": 1}}, ["min", "max"]),
    "clip: NaN": ("x", {"clip": {"min": "NaN"}}, ["NaN"]),
    "clip: nothing": ("x", {"clip": {}}, ["min"]),
    "clip: text": ("word", {"clip": {"min": 1}}, ["word"]),
    "standardize: NaN": ("x", {"standardize": {"mean": "NaN", "std": 1}}, ["mean"]),
    "standardize: negative": ("x", {"standardize": {"mean": 0, "std": -1}}, ["std"]),
    "standardize: infinite": ("x", {"standardize": {"mean": 0, "std": "Infinity"}}, ["std"]),
    "min_max: max below min": ("x", {"min_max": {"min": 1, "max": 0}}, ["max", "min"]),
    "min_max: NaN": ("x", {"min_max": {"min": "NaN", "max": 1}}, ["min"]),
    "min_max: range beyond float64": ("x", {"min_max": {"min": -1e308, "max": 1e308}}, ["range"]),
    "bucketize: nothing": ("x", {"bucketize": {}}, ["boundar"]),
    "bucketize: unsorted": ("x", {"bucketize": {"boundaries": [1, 3, 2]}}, ["boundaries"]),
    "bucketize: NaN": ("x", {"bucketize": {"boundaries": [1, "NaN"]}}, ["NaN"]),
    "bucketize: text": ("word", {"bucketize": {"boundaries": [1]}}, ["word"]),
    "hash_bucket: none": ("x", {"hash_bucket": {"buckets": 0}}, ["buckets"]),
    "hash_bucket: too many": ("x", {"hash_bucket": {"buckets": 2**63}}, ["buckets"]),
    "one_hot: 10^9": ("id", {"one_hot": {"size": HUGE}}, ["65536"]),
    "one_hot: no size": ("id", {"one_hot": {}}, ["size"]),
    "one_hot: text": ("word", {"one_hot": {"size": 3}}, ["word"]),
    "vocab: twice": ("id", {"vocab": {"values": {"integers": [1, 1]}}}, ["1", "twice"]),
    "vocab: of another type": ("word", {"vocab": {"values": {"integers": [1]}}}, ["integers"]),
    "logit: eps above a half": ("x", {"logit": {"eps": 0.6}}, ["eps"]),
    "logit: eps below 0": ("x", {"logit": {"eps": -1e-9}}, ["eps"]),
    "logit: eps NaN": ("x", {"logit": {"eps": "NaN"}}, ["eps"]),
    "logit: text": ("word", {"logit": {}}, ["word"]),
    "sqrt: text": ("word", {"sqrt": {}}, ["word"]),
    "abs: text": ("word", {"abs": {}}, ["word"]),
    "box_cox: NaN": ("x", {"box_cox": {"lambda": "NaN"}}, ["lambda"]),
    "box_cox: infinite": ("x", {"box_cox": {"lambda": "-Infinity"}}, ["lambda"]),
    "max_abs: negative": ("x", {"max_abs": {"max_abs": -1}}, ["max_abs"]),
    "max_abs: infinite": ("x", {"max_abs": {"max_abs": "Infinity"}}, ["max_abs"]),
    "max_abs: NaN": ("x", {"max_abs": {"max_abs": "NaN"}}, ["max_abs"]),
    "robust: NaN": ("x", {"robust": {"center": "NaN", "scale": 1}}, ["center"]),
    "robust: negative": ("x", {"robust": {"center": 0, "scale": -1}}, ["scale"]),
    "robust: infinite": ("x", {"robust": {"center": 0, "scale": "Infinity"}}, ["scale"]),
    "robust: half": ("x", {"robust": {"center": 0}}, ["scale"]),
    "cross: none": ("id", {"cross": {"columns": ["x"], "buckets": 0}}, ["buckets"]),
    "cross: too many": ("id", {"cross": {"columns": ["x"], "buckets": 2**63}}, ["buckets"]),
    "cross: with nothing": ("id", {"cross": {"columns": [], "buckets": 3}}, ["columns"]),
    "cross: unknown": ("id", {"cross": {"columns": ["xx"], "buckets": 3}}, ['"xx"', '"x"']),
    "multi_hot: 10^9": ("lists", {"multi_hot": {"size": HUGE}}, ["65536"]),
    "multi_hot: no size": ("lists", {"multi_hot": {}}, ["size"]),
    "multi_hot: of numbers": ("id", {"multi_hot": {"size": 3}}, ["list"]),
    "first_n: 0": ("lists", {"first_n": {"n": 0}}, [".n: must be from 1"]),
    "first_n: 10^9 columns": ("lists", {"first_n": {"n": HUGE, "value": 0}}, ["65536"]),
    "first_n: of numbers": ("id", {"first_n": {"n": 3}}, ["list"]),
    "last_n: 0": ("lists", {"last_n": {"n": 0}}, [".n: must be from 1"]),
    "last_n: of numbers": ("id", {"last_n": {"n": 3}}, ["list"]),
    "pad: side": ("lists", {"pad": {"n": 3, "side": 7}}, ["pad.side", "RIGHT, LEFT"]),
    "attention_mask: side": ("lists", {"attention_mask": {"n": 3, "side": 7}}, ["attention_mask.side", "RIGHT, LEFT"]),
    "pad: 0": ("lists", {"pad": {"n": 0}}, [".n: must be from 1"]),
    "pad: 10^9": ("lists", {"pad": {"n": HUGE}}, ["65536"]),
    "pad: of numbers": ("id", {"pad": {"n": 3}}, ["list"]),
    "lookup: unknown table": ("id", {"lookup": {"table": "tinny", "key": "id", "columns": ["x"]}}, ["tinny", "tiny"]),
    "lookup: unknown key": ("id", {"lookup": {"table": "tiny", "key": "idd", "columns": ["x"]}}, ["idd", '"id"']),
    "lookup: unknown column": ("id", {"lookup": {"table": "tiny", "key": "id", "columns": ["xx"]}}, ["xx", '"x"']),
    "lookup: of nothing": ("id", {"lookup": {"table": "tiny", "key": "id", "columns": []}}, ["columns"]),
    "lookup: no table": ("id", {"lookup": {"key": "id", "columns": ["x"]}}, ["table"]),
    "lookup: no key": ("id", {"lookup": {"table": "tiny", "columns": ["x"]}}, ["key"]),
    "ngram: 0": ("lists", {"ngram": {"n": 0, "buckets": 3}}, [".n: must be from 1"]),
    "ngram: 257": ("lists", {"ngram": {"n": 257, "buckets": 3}}, ["256"]),
    "ngram: no buckets": ("lists", {"ngram": {"n": 2, "buckets": 0}}, ["buckets"]),
    "ngram: of numbers": ("id", {"ngram": {"n": 2, "buckets": 3}}, ["list"]),
    "sigrid_hash: 0": ("id", {"sigrid_hash": {"max_value": 0}}, ["max_value"]),
    "sigrid_hash: negative": ("id", {"sigrid_hash": {"max_value": -5}}, ["max_value"]),
    "sigrid_hash: of fractions": ("x", {"sigrid_hash": {"max_value": 5}}, ["whole numbers"]),
    "sigrid_hash: of text": ("word", {"sigrid_hash": {"max_value": 5}}, ["numbers"]),
    "map_id: unequal": ("id", {"map_id": {"ids": [1, 2], "values": [3]}}, ["ids", "values"]),
    "map_id: nothing": ("id", {"map_id": {"ids": [], "values": []}}, ["ids"]),
    "map_id: twice": ("id", {"map_id": {"ids": [1, 2, 1], "values": [3, 4, 5]}}, ["1", "twice"]),
    "map_id: of fractions": ("x", {"map_id": {"ids": [1], "values": [3]}}, ["whole numbers"]),
    "positive_mod: 0": ("id", {"positive_mod": {"modulus": 0}}, ["modulus"]),
    "positive_mod: negative": ("id", {"positive_mod": {"modulus": -3}}, ["modulus"]),
    "positive_mod: of text": ("word", {"positive_mod": {"modulus": 3}}, ["word"]),
    "fill_null: nothing": ("gappy", {"fill_null": {}}, ["value"]),
    "fill_null: text": ("gappy", {"fill_null": {"text": "a"}}, ["text"]),
    "fill_null: number": ("word", {"fill_null": {"value": 1}}, ["number"]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("refused") / "tiny"
    table = tiny_table()
    write(folder, table.append_column("lists", pa.array([[i, 1] for i in range(table.num_rows)])))
    return serve({"tiny": folder})


@pytest.fixture(scope="module")
def flight(server: Server) -> fl.FlightClient:
    return fl.connect(server.url)


def plan(column: str, *ops: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {
        "outputs": [
            {"name": "fine", "dtype": "FLOAT32", "parts": [{"columns": ["x"]}]},
            {
                "name": "o",
                "dtype": "INT64",
                "parts": [{"columns": ["id"]}, {"columns": [column], "ops": list(ops)}],
            },
        ],
        **rest,
    }


def refusal(flight: fl.FlightClient, requested: dict[str, Any]) -> str:
    """What GetFlightInfo says: a plan is checked before a row is read."""
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        info(flight, {"dataset": "tiny", "plan": requested})
    error = translate(caught.value)
    assert error.code in ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"), error
    assert len(str(error)) < 2000
    return str(error)


@pytest.mark.parametrize("name", BAD)
def test_rejects_invalid_parameters_with_their_field_path(flight: fl.FlightClient, name: str):
    column, op, words = BAD[name]
    text = refusal(flight, plan(column, op))
    for word in ["outputs[1].parts[1].ops[0]", next(iter(op)), *words]:
        assert word in text, f"{word!r} is not in: {text}"


@pytest.mark.parametrize("name", BAD)
def test_fit_rejects_what_a_stream_rejects(server: Server, name: str):
    column, op, words = BAD[name]
    body = {"dataset": "tiny", "plan": plan(column, op)}
    with fl.connect(server.url) as client, pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        list(client.do_action(fl.Action("fit", json.dumps(body).encode())))
    if name in ("robust: half", "bucketize: nothing"):
        return
    assert any(word in str(caught.value) for word in words), str(caught.value)


def test_rejects_a_million_parentheses(flight: fl.FlightClient, server: Server):
    deep = "(" * DEEP + "x > 1" + ")" * DEEP
    assert "filter" in refusal(flight, plan("id", filter=deep))
    assert "derive[0]" in refusal(flight, plan("id", derive=[{"name": "d", "expr": deep}]))
    assert "filter" in refusal(flight, plan("id", filter="NOT " * DEEP + "x > 1"))
    assert "filter" in refusal(flight, plan("id", filter="-" * DEEP + "x > 1"))
    assert "filter" in refusal(flight, plan("id", filter="x > 1" + " AND x > 1" * DEEP))
    assert server.alive


@pytest.mark.parametrize(
    ("op", "field"),
    [
        ({"sqrt": {"x": 1}}, "x"),
        ({"box_cox": {"lambda_": 1}}, "lambda_"),
        ({"pad": {"n": -1}}, "n"),
        ({"pad": {"n": 2**32}}, "n"),
        ({"pad": {"n": 1.5}}, "n"),
        ({"cross": {"columns": "x", "buckets": 3}}, "columns"),
        ({"map_id": {"ids": [2**63], "values": [1]}}, "ids"),
        ({"map_id": {"ids": ["one"], "values": [1]}}, "ids"),
        ({"sigrid_hash": {"salt": 2**63, "max_value": 3}}, "salt"),
        ({"lookup": {"table": 3}}, "table"),
    ],
)
def test_rejects_fields_of_the_wrong_type_by_name(flight: fl.FlightClient, op: dict[str, Any], field: str):
    assert field in refusal(flight, plan("id", op))


def test_rejects_ops_after_one_hot(flight: fl.FlightClient):
    text = refusal(flight, plan("id", {"one_hot": {"size": 100}}, {"abs": {}}))
    assert "outputs[1].parts[1].ops[1]" in text
    assert "one_hot" in text


def test_number_of_output_columns_is_limited(flight: fl.FlightClient):
    text = refusal(flight, plan("lists", {"pad": {"n": 60_000}}, {"one_hot": {"size": 60_000}}))
    assert "outputs[1]" in text
