"""Warnings of fits: results that are valid and probably not meant."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.flight as fl
import pytest

import forebay as fb
from harness.serving import Server, fit

EMPTY = {
    "rare": ({"min_count": 10**9}, "every row gets index 0: no value occurs min_count = 1000000000 times"),
    "hashed": (
        {"min_count": 10**9, "oov_buckets": 3},
        "every value is hashed to one of 3 oov_buckets: no value occurs",
    ),
}


def plan_of(vocab: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"outputs": [{"name": "cats", "parts": [{"columns": ["word", "small"], "ops": [{"vocab": vocab}]}]}], **more}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_vocabulary_is_named(server: Server, name: str):
    vocab, words = EMPTY[name]
    with fl.connect(server.url) as client:
        result = fit(client, "tiny", plan_of(vocab))[-1]["result"]
        shown = json.loads(
            next(
                client.do_action(fl.Action("show", json.dumps({"plan_id": result["plan_id"]}).encode()))
            ).body.to_pybytes()
        )
    for column, warning in zip(("word", "small"), result["warnings"], strict=True):
        assert warning.startswith(f'output "cats", column "{column}": the vocabulary is empty, so {words}')
    assert shown["warnings"] == result["warnings"]


def test_a_vocabulary_of_no_rows_is_named(server: Server):
    with fl.connect(server.url) as client:
        result = fit(client, "tiny", plan_of({}, filter="word IS NULL"))[-1]["result"]
    assert [w.split(": ")[-1] for w in result["warnings"][:1]] == ["the rows that pass the filter hold no value"]


def test_a_usual_fit_warns_of_nothing(server: Server):
    with fl.connect(server.url) as client:
        assert fit(client, "tiny", plan_of({}))[-1]["result"]["warnings"] == []


def test_the_python_client_warns(server: Server):
    plan = fb.Plan(outputs={"cats": fb.cols("word").vocab(min_count=10**9)})
    with fb.connect(server.url) as client, pytest.warns(UserWarning, match='column "word": the vocabulary is empty'):
        assert len(client.fit("tiny", plan).warnings) == 1
