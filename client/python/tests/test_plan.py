from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay as fb
from forebay._plan.plan_digest import plan_digest


def ops_of(columns: fb.Columns) -> list[Any]:
    plan = fb.Plan(outputs={"o": columns}).to_dict()
    return plan["outputs"][0]["parts"][0].get("ops", [])  # type: ignore[index]


def test_contract_plan_gives_the_contract_json():
    plan = fb.Plan(
        filter="arr_delay IS NOT NULL",
        derive={"late": "arr_delay > 15"},
        outputs={
            "dense": [fb.cols("dep_delay", "distance").fill_null("mean").standardize().clip(-3, 3)],
            "cats": [fb.cols("carrier", "origin", "dest").vocab(min_count=10)],
            "label": fb.cols("late"),
        },
    )
    assert plan.to_dict() == {
        "filter": "arr_delay IS NOT NULL",
        "derive": [{"name": "late", "expr": "arr_delay > 15"}],
        "outputs": [
            {
                "name": "dense",
                "parts": [
                    {
                        "columns": ["dep_delay", "distance"],
                        "ops": [
                            {"fill_null": {"stat": "MEAN"}},
                            {"standardize": {}},
                            {"clip": {"min": -3.0, "max": 3.0}},
                        ],
                    }
                ],
            },
            {
                "name": "cats",
                "parts": [{"columns": ["carrier", "origin", "dest"], "ops": [{"vocab": {"min_count": 10}}]}],
            },
            {"name": "label", "parts": [{"columns": ["late"]}]},
        ],
    }
    assert plan.needs_fit


@pytest.mark.parametrize(
    ("columns", "op"),
    [
        (fb.cols("a").fill_null("median"), {"fill_null": {"stat": "MEDIAN"}}),
        (fb.cols("a").fill_null(stat="mode"), {"fill_null": {"stat": "MODE"}}),
        (fb.cols("a").fill_null(0), {"fill_null": {"value": 0.0}}),
        (fb.cols("a").fill_null(np.float32(0.5)), {"fill_null": {"value": 0.5}}),
        (fb.cols("a").fill_null(float("nan")), {"fill_null": {"value": "NaN"}}),
        (fb.cols("a").fill_null(2**60 + 1), {"fill_null": {"integer": 2**60 + 1}}),
        (fb.cols("a").fill_null(text="mean"), {"fill_null": {"text": "mean"}}),
        (fb.cols("a").fill_null(text=""), {"fill_null": {"text": ""}}),
        (fb.cols("a").clip(0), {"clip": {"min": 0.0}}),
        (fb.cols("a").clip(max=1), {"clip": {"max": 1.0}}),
        (fb.cols("a").log1p(), {"log1p": {}}),
        (fb.cols("a").standardize(mean=1, std=2), {"standardize": {"mean": 1.0, "std": 2.0}}),
        (fb.cols("a").min_max(), {"min_max": {}}),
        (fb.cols("a").min_max(min=0, max=10), {"min_max": {"min": 0.0, "max": 10.0}}),
        (fb.cols("a").bucketize([1, 2.5]), {"bucketize": {"boundaries": [1.0, 2.5]}}),
        (fb.cols("a").bucketize(quantiles=4), {"bucketize": {"quantiles": 4}}),
        (fb.cols("a").vocab(), {"vocab": {}}),
        (
            fb.cols("a").vocab(min_count=2, max_size=9, oov_buckets=3),
            {"vocab": {"min_count": 2, "max_size": 9, "oov_buckets": 3}},
        ),
        (fb.cols("a").vocab(values=["x", "y"]), {"vocab": {"values": {"strings": ["x", "y"]}}}),
        (fb.cols("a").vocab(values=[3, 1]), {"vocab": {"values": {"integers": [3, 1]}}}),
        (fb.cols("a").vocab(values=[2**63]), {"vocab": {"values": {"unsigned": [2**63]}}}),
        (fb.cols("a").vocab(values=[0.5]), {"vocab": {"values": {"floats": [0.5]}}}),
        (fb.cols("a").hash_bucket(100, seed=7), {"hash_bucket": {"buckets": 100, "seed": 7}}),
        (fb.cols("a").one_hot(4), {"one_hot": {"size": 4}}),
    ],
)
def test_ops_round_trip_through_the_servers_json(columns: fb.Columns, op: dict[str, Any]):
    assert ops_of(columns) == [op]
    plan = fb.Plan(outputs={"o": columns})
    assert fb.Plan.from_json(plan.to_json()).to_dict() == plan.to_dict()


def test_chains_are_immutable():
    base = fb.cols("a", "b")
    longer = base.log1p()
    assert base.ops == ()
    assert len(longer.ops) == 1
    assert longer.clip(0).ops[0] is longer.ops[0]


@pytest.mark.parametrize(
    ("parts", "dtype"),
    [
        (fb.cols("a").as_stored(), "AS_STORED"),
        (fb.output(fb.cols("a"), dtype="float16"), "FLOAT16"),
        (fb.output([fb.cols("a"), fb.cols("b")], dtype="BFLOAT16"), "BFLOAT16"),
        (fb.output(fb.cols("a").vocab(), dtype="int64"), "INT64"),
        (fb.output(fb.cols("a"), dtype="as_stored"), "AS_STORED"),
    ],
)
def test_dtypes_are_sent_as_named(parts: Any, dtype: str):
    plan = fb.Plan(outputs={"o": parts}).to_dict()
    assert plan["outputs"][0]["dtype"] == dtype  # type: ignore[index]


@pytest.mark.parametrize(
    ("columns", "needs"),
    [
        (fb.cols("a").log1p().clip(0), False),
        (fb.cols("a").fill_null(1.0), False),
        (fb.cols("a").fill_null("mode"), True),
        (fb.cols("a").standardize(), True),
        (fb.cols("a").standardize(mean=1, std=1), False),
        (fb.cols("a").min_max(), True),
        (fb.cols("a").bucketize([1]), False),
        (fb.cols("a").bucketize(quantiles=3), True),
        (fb.cols("a").vocab(), True),
        (fb.cols("a").vocab(values=[]), False),
        (fb.cols("a").hash_bucket(3).one_hot(), False),
    ],
)
def test_needs_fit_lists_unfitted_ops(columns: fb.Columns, needs: bool):
    assert fb.Plan(outputs={"o": columns}).needs_fit is needs


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: fb.cols(), "column name"),
        (lambda: fb.cols(["a", "b"]), "separate column names"),
        (lambda: fb.cols("a").fill_null(), "one of"),
        (lambda: fb.cols("a").fill_null("avg"), "text=\"?'?avg|fill_null\\(text="),
        (lambda: fb.cols("a").fill_null(1.0, text="a"), "one of"),
        (lambda: fb.cols("a").fill_null([1]), "not \\[1\\]"),
        (lambda: fb.cols("a").fill_null(text=3), "must be text"),
        (lambda: fb.cols("a").clip(), "min, max or both"),
        (lambda: fb.cols("a").clip(3, 1), "above max"),
        (lambda: fb.cols("a").clip("low"), "must be a number"),
        (lambda: fb.cols("a").clip(0, float("inf")), "omit an open bound"),
        (lambda: fb.cols("a").standardize(mean=1), "both mean and std"),
        (lambda: fb.cols("a").min_max(max=1), "both min and max"),
        (lambda: fb.cols("a").bucketize(), "either boundaries or quantiles"),
        (lambda: fb.cols("a").bucketize([2, 1]), "ascend"),
        (lambda: fb.cols("a").bucketize([]), "empty"),
        (lambda: fb.cols("a").bucketize(quantiles=1), "from 2"),
        (lambda: fb.cols("a").vocab(min_count=-1), "min_count must be from 0"),
        (lambda: fb.cols("a").vocab(min_count=1.5), "whole number"),
        (lambda: fb.cols("a").vocab(values="abc"), "list of values"),
        (lambda: fb.cols("a").vocab(values=["a", 1]), "all text, all integers, all floats or all Decimal"),
        (lambda: fb.cols("a").vocab(values=[Decimal("1.5"), 1.5]), "all text, all integers, all floats or all Decimal"),
        (lambda: fb.cols("a").fill_null(Decimal("Infinity")), "Infinity is not a value of a decimal column"),
        (lambda: fb.cols("a").vocab(values=[Decimal("NaN")]), "NaN is not a value of a decimal column"),
        (lambda: fb.cols("a").hash_bucket(0), "from 1"),
        (lambda: fb.cols("a").one_hot(), "pass size"),
        (lambda: fb.cols("a", "b").as_stored(), "single column"),
        (lambda: fb.cols("a").log1p().as_stored(), "no op other than udf"),
        (lambda: fb.cols("a").as_stored().log1p(), "no other ops"),
        (lambda: fb.output([]), "at least one part"),
        (lambda: fb.output("a"), "chains"),
        (lambda: fb.output(fb.cols("a"), dtype="float"), "not one of FLOAT32"),
        (lambda: fb.output(fb.cols("a").as_stored(), dtype="float32"), "column's type"),
        (lambda: fb.output([fb.cols("a"), fb.cols("b")], dtype="as_stored"), "one part"),
        (lambda: fb.Plan(outputs={}), "must map names"),
        (lambda: fb.Plan(outputs={"o": "a"}), "outputs: 'o'"),
        (lambda: fb.Plan(filter=3, outputs={"o": fb.cols("a")}), "filter must be"),
        (lambda: fb.Plan(derive={"d": 3}, outputs={"o": fb.cols("a")}), "'d' must be a string with an SQL"),
    ],
)
def test_misuse_errors_name_the_remedy(wrong: Any, words: str):
    with pytest.raises((TypeError, ValueError), match=words):
        wrong()


FITTED = {
    "filter": "",
    "derive": [],
    "outputs": [
        {
            "name": "o",
            "dtype": "FLOAT32",
            "parts": [
                {
                    "columns": ["a"],
                    "ops": [
                        {"fill_null": {"value": 1.5}},
                        {"clip": {"min": None, "max": 3.0}},
                        {"bucketize": {"boundaries": ["-Infinity", 2], "quantiles": 3}},
                        {
                            "vocab": {
                                "min_count": "10",
                                "max_size": 0,
                                "oov_buckets": 0,
                                "values": {
                                    "strings": [],
                                    "integers": ["7", 8],
                                    "unsigned": [],
                                    "floats": [],
                                    "decimals": [],
                                },
                            }
                        },
                    ],
                }
            ],
        }
    ],
}


@pytest.mark.parametrize(
    "around",
    [
        lambda plan: plan,
        lambda plan: {"plan_id": plan_digest(plan), "plan": plan},
        lambda plan: {"result": {"version": 1, "plan_id": plan_digest(plan), "plan": plan}},
    ],
)
def test_reads_a_plan_from_every_response_that_contains_one(around: Any, tmp_path: Path):
    text = json.dumps(around(FITTED))
    path = tmp_path / "plan.json"
    path.write_text(text)
    plans = [fb.Plan.from_json(source) for source in (text, text.encode(), path, str(path))]
    assert len({plan.to_json() for plan in plans}) == 1
    assert not plans[0].needs_fit
    ops = plans[0].to_dict()["outputs"][0]["parts"][0]["ops"]  # type: ignore[index]
    assert ops[1] == {"clip": {"max": 3.0}}
    assert ops[3] == {"vocab": {"min_count": 10, "values": {"integers": [7, 8]}}}


def test_reads_camel_case_proto3_json():
    read = fb.Plan.from_dict(
        {"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": [{"fillNull": {"stat": "MEAN"}}]}]}]}
    )
    assert read.to_dict()["outputs"][0]["parts"][0]["ops"] == [{"fill_null": {"stat": "MEAN"}}]  # type: ignore[index]


def test_derived_columns_may_be_a_mapping():
    outputs = [{"name": "o", "parts": [{"columns": ["b"]}]}]
    listed = fb.Plan.from_dict({"derive": [{"name": "z", "expr": "a"}, {"name": "b", "expr": "z"}], "outputs": outputs})
    mapped = fb.Plan.from_dict({"derive": {"z": "a", "b": "z"}, "outputs": outputs})
    assert mapped.to_json() == listed.to_json()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('{"derive": {"late": 3}, "outputs": []}', "derive.*late.* must be text"),
        ('{"outputs": [], "filters": ""}', "no field 'filters'"),
        ('{"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": [{"sqare": {}}]}]}]}', "no field 'sqare'"),
        ('{"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": [{"clip": {"low": 1}}]}]}]}', "min, max"),
        ('{"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": [{"clip": {}, "log1p": {}}]}]}]}', "names 2"),
        ('{"outputs": [{"name": "o", "dtype": "F32", "parts": [{"columns": ["a"]}]}]}', "not one of FLOAT32"),
        ('{"outputs": 3}', "must be a list"),
    ],
)
def test_rejects_an_invalid_plan(text: str, words: str):
    with pytest.raises((TypeError, ValueError), match=words):
        fb.Plan.from_json(text)
