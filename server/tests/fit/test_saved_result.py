"""Saved fit results: equal fits give equal bytes, every client reads them, and edited ones are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import forebay as fb
from forebay._plan.plan_digest import plan_digest
from harness.serving import Server, fit

PLAN: dict[str, Any] = {
    "filter": "id >= 3",
    "derive": [{"name": "even", "expr": "id % 2 = 0"}],
    "outputs": [
        {
            "name": "dense",
            "parts": [
                {
                    "columns": ["gappy", "x"],
                    "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}, {"clip": {"min": -3}}],
                },
                {"columns": ["small"], "ops": [{"fill_null": {"stat": "MODE"}}, {"min_max": {}}]},
                {"columns": ["unit"], "ops": [{"log1p": {}}, {"bucketize": {"quantiles": 4}}, {"one_hot": {}}]},
            ],
        },
        {
            "name": "cats",
            "dtype": "INT64",
            "parts": [
                {"columns": ["word"], "ops": [{"fill_null": {"text": "é"}}, {"vocab": {"oov_buckets": 3}}]},
                {"columns": ["small"], "ops": [{"vocab": {"max_size": 4}}]},
                {"columns": ["id"], "ops": [{"hash_bucket": {"buckets": 2**40, "seed": 2**64 - 1}}]},
                {"columns": ["id"], "ops": [{"bucketize": {"boundaries": [-1.5, 0, 1e300]}}]},
                {"columns": ["word"], "ops": [{"vocab": {"min_count": 1000}}]},
            ],
        },
        {"name": "raw", "dtype": "AS_STORED", "parts": [{"columns": ["word"]}]},
        {"name": "even", "dtype": "UINT8", "parts": [{"columns": ["even"]}]},
    ],
}


@pytest.fixture(scope="module")
def flight(server: Server) -> fl.FlightClient:
    return fl.connect(server.url)


@pytest.fixture(scope="module")
def result(flight: fl.FlightClient) -> dict[str, Any]:
    return fit(flight, "tiny", PLAN)[-1]["result"]


def show(flight: fl.FlightClient, plan_id: str) -> dict[str, Any]:
    body = json.dumps({"plan_id": plan_id}).encode()
    (answer,) = flight.do_action(fl.Action("show", body))
    return json.loads(answer.body.to_pybytes())


def test_plan_digest_matches_the_server(result: dict[str, Any]):
    assert result["version"] == 1
    assert plan_digest(result["plan"]) == result["plan_id"]


def test_show_returns_the_fitted_plan(flight: fl.FlightClient, result: dict[str, Any]):
    assert {**show(flight, result["plan_id"]), "cached": False} == result


def test_show_suggests_similar_ids(flight: fl.FlightClient, result: dict[str, Any]):
    plan_id = result["plan_id"]
    near = plan_id[:-1] + ("0" if plan_id[-1] != "0" else "1")
    with pytest.raises(pa.ArrowKeyError, match=plan_id):
        show(flight, near)
    with pytest.raises(pa.ArrowKeyError):
        show(flight, "../../etc/passwd")
    with pytest.raises(pa.ArrowInvalid, match="plan_id: missing"):
        show(flight, "")


def test_every_client_reads_a_saved_result(
    client: fb.Client, flight: fl.FlightClient, result: dict[str, Any], tmp_path: Path
):
    with pytest.warns(UserWarning, match="the vocabulary is empty"):
        fitted = client.fit("tiny", fb.Plan.from_dict(PLAN), progress=False)
    assert fitted.plan_id == result["plan_id"]
    with pytest.warns(UserWarning, match="the vocabulary is empty"):
        again = client.fit("tiny", fb.Plan.from_dict(PLAN), refit=True, progress=False)
    assert fitted.to_json() == again.to_json()
    for name, text in (("ours.json", fitted.to_json()), ("servers.json", json.dumps(result))):
        path = tmp_path / name
        path.write_text(text)
        read = fb.FittedPlan.from_json(path)
        assert read.plan_id == result["plan_id"]
        assert read.to_json() == fitted.to_json()
        assert fb.Plan.from_json(path).to_json() == fitted.plan.to_json()
        # A server that has never fitted it takes the plan, and knows it by the same id.
        assert fit(flight, "tiny", read.plan.to_dict())[-1]["result"]["plan_id"] == result["plan_id"]


@pytest.mark.parametrize("reader", [fb.FittedPlan.from_json, fb.Plan.from_json])
def test_rejects_an_edited_or_foreign_result_with_a_remedy(result: dict[str, Any], reader: Any):
    text = json.dumps(result)
    edited = text.replace('"min": -3.0', '"min": -2.0')
    assert edited != text
    with pytest.raises(ValueError, match=f"{result['plan_id']}.*edited.*fit again"):
        reader(edited)
    with pytest.raises(ValueError, match="version 2.*reads version 1.*fit the plan again"):
        reader(text.replace('"version": 1', '"version": 2'))
    assert reader(text)


def test_bare_plan_is_not_a_fit_result(result: dict[str, Any]):
    with pytest.raises(ValueError, match="missing plan_id"):
        fb.FittedPlan.from_json(json.dumps(result["plan"]))
