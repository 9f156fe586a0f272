"""Every op in Python: JSON round trip, dtype, and errors that need no data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay as fb

A = fb.cols("a")


def ops_of(columns: fb.Columns) -> list[Any]:
    plan = fb.Plan(outputs={"o": columns}).to_dict()
    return plan["outputs"][0]["parts"][0].get("ops", [])  # type: ignore[index]


WRITTEN: list[tuple[fb.Columns, dict[str, Any]]] = [
    (A.sqrt(), {"sqrt": {}}),
    (A.abs(), {"abs": {}}),
    (A.logit(), {"logit": {}}),
    (A.logit(1e-6), {"logit": {"eps": 1e-6}}),
    (A.logit(0), {"logit": {"eps": 0.0}}),
    (A.box_cox(0.5), {"box_cox": {"lambda": 0.5}}),
    (A.box_cox(lambda_=0), {"box_cox": {"lambda": 0.0}}),
    (A.max_abs(), {"max_abs": {}}),
    (A.max_abs(max_abs=3), {"max_abs": {"max_abs": 3.0}}),
    (A.robust(), {"robust": {}}),
    (A.robust(center=1, scale=2), {"robust": {"center": 1.0, "scale": 2.0}}),
    (A.cross("b", "c", buckets=10), {"cross": {"columns": ["b", "c"], "buckets": 10}}),
    (A.cross("b", buckets=2**62, seed=2**64 - 1), {"cross": {"columns": ["b"], "buckets": 2**62, "seed": 2**64 - 1}}),
    (A.multi_hot(5), {"multi_hot": {"size": 5}}),
    (A.first_n(3), {"first_n": {"n": 3}}),
    (A.first_n(3, value=0), {"first_n": {"n": 3, "value": 0.0}}),
    (A.last_n(3), {"last_n": {"n": 3}}),
    (A.last_n(3, value=-1), {"last_n": {"n": 3, "value": -1.0}}),
    (A.pad(4), {"pad": {"n": 4, "value": 0.0}}),
    (A.pad(4, side="left"), {"pad": {"n": 4, "value": 0.0, "side": "LEFT"}}),
    (A.attention_mask(4, side="left"), {"attention_mask": {"n": 4, "side": "LEFT"}}),
    (A.pad(4, -1), {"pad": {"n": 4, "value": -1.0}}),
    (A.pad(4, float("nan")), {"pad": {"n": 4, "value": "NaN"}}),
    (
        A.lookup("items", "id", ["price", "brand"]),
        {"lookup": {"table": "items", "key": "id", "columns": ["price", "brand"]}},
    ),
    (A.ngram(2, buckets=100), {"ngram": {"n": 2, "buckets": 100}}),
    (A.ngram(3, buckets=100, seed=7), {"ngram": {"n": 3, "buckets": 100, "seed": 7}}),
    (A.sigrid_hash(max_value=100), {"sigrid_hash": {"max_value": 100}}),
    (A.sigrid_hash(salt=-(2**63), max_value=2**63 - 1), {"sigrid_hash": {"salt": -(2**63), "max_value": 2**63 - 1}}),
    (A.map_id({7: 1, -9: 2}), {"map_id": {"ids": [7, -9], "values": [1, 2]}}),
    (A.map_id({7: 1}, default=0), {"map_id": {"ids": [7], "values": [1], "default": 0}}),
    (A.map_id({2**63: 1}), {"map_id": {"unsigned": [2**63], "values": [1]}}),
    (A.fill_null(2**64 - 1), {"fill_null": {"unsigned": 2**64 - 1}}),
    (A.clip(0, 2**53 + 1), {"clip": {"min": 0.0, "max_integer": 2**53 + 1}}),
    (A.clip(2**63 + 1), {"clip": {"min_unsigned": 2**63 + 1}}),
    (A.bucketize([-1, 2**53 + 1]), {"bucketize": {"integers": [-1, 2**53 + 1]}}),
    (A.bucketize([0, 2**64 - 1]), {"bucketize": {"unsigned": [0, 2**64 - 1]}}),
    (A.map_id(ids=[2**62], values=np.array([-3])), {"map_id": {"ids": [2**62], "values": [-3]}}),
    (A.positive_mod(10), {"positive_mod": {"modulus": 10}}),
    (A.tokenize("gpt2"), {"tokenize": {"tokenizer": "gpt2", "add_special_tokens": True}}),
    (
        A.tokenize('{"version": "1.0"}', max_length=8, truncation="left", add_special_tokens=False),
        {
            "tokenize": {
                "json": '{"version": "1.0"}',
                "max_length": 8,
                "truncation": "LEFT",
                "add_special_tokens": False,
            }
        },
    ),
    (A.attention_mask(4), {"attention_mask": {"n": 4}}),
    (A.decode_image(4, 6), {"decode_image": {"height": 4, "width": 6, "channels": 3}}),
    (
        A.decode_image(
            4, 6, channels=1, resize="box", crop="random", scale=(0.5, 1), flip=True, seed=2, on_error="skip"
        ),
        {
            "decode_image": {
                "height": 4,
                "width": 6,
                "channels": 1,
                "resize": "BOX",
                "crop": "RANDOM",
                "scale_min": 0.5,
                "scale_max": 1.0,
                "ratio_min": 3 / 4,
                "ratio_max": 4 / 3,
                "flip": True,
                "seed": 2,
                "on_error": "SKIP",
            }
        },
    ),
    (
        A.decode_image(4, 6, crop="center", normalize=([0, 0.5, 1], [1, 2, 3])),
        {
            "decode_image": {
                "height": 4,
                "width": 6,
                "channels": 3,
                "crop": "CENTER",
                "normalize": {"mean": [0.0, 0.5, 1.0], "std": [1.0, 2.0, 3.0]},
            }
        },
    ),
    (
        A.decode_image(4, 6, encoded=True),
        {"decode_image": {"height": 4, "width": 6, "channels": 3, "encoded": True}},
    ),
]


@pytest.mark.parametrize(("columns", "op"), WRITTEN)
def test_ops_round_trip_through_the_servers_json(columns: fb.Columns, op: dict[str, Any]):
    assert ops_of(columns) == [op]
    plan = fb.Plan(outputs={"o": columns})
    assert fb.Plan.from_json(plan.to_json()).to_dict() == plan.to_dict()
    # As proto3's JSON spells it: camelCase, 64-bit numbers as text.
    ((name, fields),) = op.items()
    spelled = {camel(name): {camel(key): as_text(value) for key, value in fields.items()}}
    read = fb.Plan.from_dict({"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": [spelled]}]}]})
    assert read.to_dict()["outputs"][0]["parts"][0]["ops"] == [op]  # type: ignore[index]


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_empty_fields_read_like_absent_ones():
    ops = [
        {"first_n": {"n": 2, "value": None}},
        {"map_id": {"ids": ["1"], "values": [2], "default": None}},
        {"logit": {"eps": None}},
        {"max_abs": {"max_abs": None}},
        {"robust": {"center": None, "scale": None}},
        {"multi_hot": {"size": 0}},
        {"box_cox": {}},
        {"pad": {"n": 3}},
    ]
    plan = fb.Plan.from_dict({"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": ops}]}]})
    assert plan.to_dict()["outputs"][0]["parts"][0]["ops"] == [  # type: ignore[index]
        {"first_n": {"n": 2}},
        {"map_id": {"ids": [1], "values": [2]}},
        {"logit": {}},
        {"max_abs": {}},
        {"robust": {}},
        {"multi_hot": {}},
        {"box_cox": {"lambda": 0.0}},
        {"pad": {"n": 3, "value": 0.0}},
    ]


def test_the_server_chooses_a_dtype_that_is_not_named():
    for columns in (A.sqrt(), A.vocab(), A.hash_bucket(2**40).first_n(4, value=0)):
        assert fb.output(columns).dtype is None
        assert "dtype" not in fb.Plan(outputs={"o": columns}).to_dict()["outputs"][0]  # type: ignore[index, operator]
        assert fb.output(columns, dtype="float64").dtype == "FLOAT64"


@pytest.mark.parametrize(
    ("columns", "needs"),
    [
        (A.max_abs(), True),
        (A.max_abs(max_abs=1), False),
        (A.robust(), True),
        (A.robust(center=0, scale=1), False),
        (A.first_n(2).hash_bucket(5).multi_hot(), False),
        (A.lookup("t", "k", ["x"]), False),
    ],
)
def test_needs_fit_lists_unfitted_ops(columns: fb.Columns, needs: bool):
    assert fb.Plan(outputs={"o": columns}).needs_fit is needs


def test_one_hot_accepts_filled_or_clipped_indices():
    assert ops_of(A.hash_bucket(5).fill_null(0).one_hot())[-1] == {"one_hot": {}}
    assert ops_of(A.vocab().first_n(3).multi_hot())[-1] == {"multi_hot": {}}
    assert ops_of(A.first_n(3).vocab().pad(2).one_hot())[-1] == {"one_hot": {}}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: A.logit(0.6), "from 0 to 0.5"),
        (lambda: A.logit(-1e-9), "from 0 to 0.5"),
        (lambda: A.logit(float("nan")), "finite"),
        (lambda: A.box_cox(float("inf")), "finite"),
        (lambda: A.box_cox("half"), "must be a number"),
        (lambda: A.max_abs(max_abs=-1), "0 or more"),
        (lambda: A.robust(center=1), "both center and scale"),
        (lambda: A.robust(scale=1), "both center and scale"),
        (lambda: A.robust(center=0, scale=-1), "0 or more"),
        (lambda: A.cross(buckets=3), "cross requires a column"),
        (lambda: A.cross("b", buckets=0), "from 1"),
        (lambda: A.cross("b", buckets=2**63), "from 1 to 9223372036854775807"),
        (lambda: A.cross(["b"], buckets=3), "name must be text"),
        (lambda: A.cross("b", buckets=3, seed=-1), "seed must be from 0"),
        (lambda: A.multi_hot(), "pass size"),
        (lambda: A.vocab().log1p().multi_hot(), "pass size"),
        (lambda: A.multi_hot(0), "from 1"),
        (lambda: A.first_n(0), "from 1"),
        (lambda: A.first_n(2.0), "whole number"),
        (lambda: A.first_n(2, value="0"), "must be a number"),
        (lambda: A.pad(0), "from 1 to 65536"),
        (lambda: A.pad(65_537), "from 1 to 65536"),
        (lambda: A.first_n(65_537), "from 1 to 65536"),
        (lambda: A.last_n(65_537), "from 1 to 65536"),
        (lambda: A.pad(3, side="start"), "right, left"),
        (lambda: A.pad(3, None), "must be a number"),
        (lambda: A.pad(3, 2**53 + 1), "exact in float64"),
        (lambda: A.lookup("items", "id", "price"), r"columns=\['price'\]"),
        (lambda: A.lookup("items", "id", []), "one or more columns"),
        (lambda: A.lookup("", "id", ["price"]), "table must be text"),
        (lambda: A.lookup("items", None, ["price"]), "key must be text"),
        (lambda: A.ngram(0, buckets=3), "from 1"),
        (lambda: A.ngram(257, buckets=3), "from 1 to 256"),
        (lambda: A.ngram(2, buckets=0), "from 1"),
        (lambda: A.sigrid_hash(max_value=0), "from 1"),
        (lambda: A.sigrid_hash(max_value=2**63), "to 9223372036854775807"),
        (lambda: A.sigrid_hash(max_value=5, salt=2**63), "to 9223372036854775807"),
        (lambda: A.map_id(), "either a mapping, or both"),
        (lambda: A.map_id(ids=[1]), "either a mapping, or both"),
        (lambda: A.map_id({1: 2}, ids=[1], values=[2]), "either a mapping, or both"),
        (lambda: A.map_id({}), "empty"),
        (lambda: A.map_id(ids=[1, 2], values=[3]), "2 ids and 1 values"),
        (lambda: A.map_id(ids=[1, 2, 1], values=[3, 4, 5]), "id 1 is given twice"),
        (lambda: A.map_id({1.5: 2}), "whole number"),
        (lambda: A.map_id({-1: 2, 2**63: 3}), "from 0 to"),
        (lambda: A.bucketize([0.5, 2**53 + 1]), "must be a whole number"),
        (lambda: A.bucketize([-1, 2**63 + 1]), "no integer type"),
        (lambda: A.clip(max=2**64 + 1), "from -9223372036854775808 to 18446744073709551615"),
        (lambda: A.map_id({1: 2**63}), "to 9223372036854775807"),
        (lambda: A.positive_mod(0), "from 1"),
        (lambda: A.positive_mod(2.5), "whole number"),
        (lambda: A.as_stored().sqrt(), "no other ops"),
        (lambda: A.log1p().decode_image(1, 1), "must be the first op"),
        (lambda: fb.cols("a", "b").decode_image(1, 1), "a single column"),
        (lambda: A.decode_image(0, 1), "height must be from 1 to 16384"),
        (lambda: A.decode_image(4000, 4000), "at most 16777216 values"),
        (lambda: A.decode_image(1, 1, channels=4), "1 .greyscale. or 3"),
        (lambda: A.decode_image(1, 1, crop="centre"), "one of none, center, random"),  # type: ignore[arg-type]
        (lambda: A.decode_image(1, 1, scale=(0.1, 1)), 'pass crop="random"'),
        (lambda: A.decode_image(1, 1, crop="random", ratio=(2, 1)), "least, greatest"),
        (lambda: A.decode_image(1, 1, normalize=([0], [1])), "3 mean value"),
        (lambda: A.decode_image(1, 1, normalize=([0] * 3, [1, 0, 1])), "deviation of 0"),
        (lambda: A.decode_image(1, 1, encoded=True, on_error="null"), "as stored"),
        (lambda: A.decode_image(1, 1).as_stored(), "an encoded image"),
    ],
)
def test_misuse_errors_name_the_remedy(wrong: Any, words: str):
    with pytest.raises((TypeError, ValueError), match=words):
        wrong()


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"sqrt": {"x": 1}}, "no field 'x'"),
        ({"cross": {"columns": "b"}}, "must be a list"),
        ({"cross": {"columns": [1]}}, "must be text"),
        ({"map_id": {"ids": [1.5]}}, "whole numbers"),
        ({"pad": {"n": "many"}}, "whole numbers"),
        ({"lookup": {"table": 3}}, "must be text"),
        ({"logit": {"eps": "small"}}, "hold numbers"),
        ({"decode_image": {"crop": "centre"}}, "one of NONE, CENTER, RANDOM"),
        ({"decode_image": {"flip": 1}}, "true or false"),
        ({"decode_image": {"orientation": "UPRIGHT"}}, "one of APPLY, IGNORE"),
        ({"pad": {"side": "START"}}, "one of RIGHT, LEFT"),
    ],
)
def test_rejects_invalid_json_with_its_field_path(op: dict[str, Any], words: str):
    plan = {"outputs": [{"name": "o", "parts": [{"columns": ["a"], "ops": [op]}]}]}
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        fb.Plan.from_dict(plan)
    assert f"outputs[0].parts[0].ops[0].{next(iter(op))}" in str(caught.value)


@pytest.mark.parametrize("op", ["first_n", "last_n", "pad"])
def test_a_negative_length_says_how_to_keep_the_last_elements(op: str):
    with pytest.raises(ValueError, match=f"{op}: n must be from 1 to 65536, not -4: .*last_n.*pad"):
        getattr(fb.cols("history"), op)(-4)


def test_a_path_to_a_tokenizer_may_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "tokenizer.json"
    file.write_text('{"model": {}}', encoding="utf-8")
    inline = fb.cols("text").tokenize(file)
    assert fb.cols("text").tokenize(str(file)) == inline
    monkeypatch.chdir(tmp_path)
    assert fb.cols("text").tokenize("tokenizer.json") == inline
    assert fb.cols("text").tokenize("gpt2.json").to_dict() == fb.cols("text").tokenize("gpt2.json").to_dict()
    assert fb.cols("text").tokenize("gpt2.json").to_dict()["ops"][0]["tokenize"]["tokenizer"] == "gpt2.json"
    with pytest.raises(FileNotFoundError, match="no file .*gone/tokenizer.json"):
        fb.cols("text").tokenize("gone/tokenizer.json")
    with pytest.raises(IsADirectoryError, match="pass the path of its tokenizer.json"):
        fb.cols("text").tokenize(f"{tmp_path}/")
