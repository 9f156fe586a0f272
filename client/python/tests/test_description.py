"""Descriptions of columns as Python shows them; their values are checked in server/tests/looking."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

import forebay as fb
from forebay._client.description import DatasetDescription
from forebay._show.progress import FitProgress
from harness.serving import Server


def column(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "nulls": 0,
        "nans": 0,
        "distinct_is_exact": False,
        "quantiles": [],
        "quantiles_are_exact": False,
        "top": [],
        "top_is_complete": False,
        "note": "",
    }
    return {"name": name, "type": kind, **empty, **fields}


def described(*columns: dict[str, Any], rows: int = 10) -> DatasetDescription:
    fields = {"dataset": "t", "snapshot": "ab", "filter": "", "rows": rows, "columns": list(columns)}
    return DatasetDescription.of(fields)


DIGITS = "123456789012345678901234567890.25"

VALUES: list[tuple[str, dict[str, Any], object]] = [
    ("int64", {"integer": 0}, 0),
    ("int64", {"integer": "-9223372036854775808"}, -(2**63)),
    ("uint64", {"unsigned": 2**64 - 1}, 2**64 - 1),
    ("double", {"number": "-Infinity"}, -np.inf),
    ("bool", {"boolean": False}, False),
    (
        "decimal128(38, 2)",
        {"decimal": "123456789012345678901234567890.25"},
        Decimal("123456789012345678901234567890.25"),
    ),
    ("string", {"text": ""}, ""),
    ("string", {"text": "abc", "is_cut": True}, "abc…"),
    ("date32[day]", {"integer": -1}, np.datetime64("1969-12-31")),
    ("timestamp[ns]", {"integer": -1}, np.datetime64("1969-12-31T23:59:59.999999999")),
    ("timestamp[us, tz=Europe/Paris]", {"integer": 1}, np.datetime64("1970-01-01T00:00:00.000001")),
    ("dictionary<values=timestamp[s], indices=int32, ordered=0>", {"integer": 0}, np.datetime64("1970-01-01T00:00:00")),
    ("time64[us]", {"integer": 5}, np.timedelta64(5, "us")),
    ("duration[ms]", {"integer": -5}, np.timedelta64(-5, "ms")),
]


@pytest.mark.parametrize(("kind", "value", "expected"), VALUES)
def test_values_have_the_types_of_the_column(kind: str, value: dict[str, Any], expected: object):
    found = described(column("a", kind, min=value))["a"].min
    assert found == expected
    assert type(found) is type(expected)


def test_class_weights_are_ordered_by_value():
    top = [{"value": {"integer": one}, "count": count} for one, count in ((2, 6), (0, 3), (1, 1))]
    found = described(column("y", "int64", distinct=3, distinct_is_exact=True, top=top, top_is_complete=True))
    weights = found.class_weights("y")
    assert weights == {0: pytest.approx(10 / 9), 1: pytest.approx(10 / 3), 2: pytest.approx(10 / 18)}
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor(list(weights.values())))
    assert loss(torch.zeros(2, 3), torch.tensor([0, 2])).item() == pytest.approx(np.log(3), rel=1e-5)


def test_columns_without_classes_are_refused():
    long = [{"value": {"text": "x" * 128, "is_cut": True}, "count": 1}] * 2
    with pytest.raises(ValueError, match="texts with one beginning"):
        described(column("t", "string", distinct=2, top=long, top_is_complete=True)).class_weights("t")
    found = described(column("id", "int64", distinct=5000), column("img", "binary"))
    with pytest.raises(ValueError, match="column 'id' has 5,000 distinct values: .* at most 100"):
        found.class_weights("id")
    with pytest.raises(ValueError, match="'img' has values that are not compared"):
        found.class_weights("img")
    with pytest.raises(KeyError, match="no column 'image': did you mean img"):
        found.class_weights("image")


def test_a_description_is_a_mapping():
    found = described(column("a", "int64"), column("b", "string"))
    assert (list(found), len(found), "a" in found, "c" in found) == (["a", "b"], 2, True, False)
    assert found.get("c") is None
    assert found == described(column("a", "int64"), column("b", "string"))


def test_no_columns_and_no_rows():
    found = described(rows=0)
    assert repr(found).startswith("t: 0 rows, 0 columns, snapshot ab\n")
    assert len(found.to_frame()) == 0
    assert found.to_arrow().num_rows == 0


def test_hostile_names_and_values_keep_their_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    names = ["a\nb", "\x1b[2J", "日本語" * 20, "x" * 500]
    found = described(*(column(name, "string", min={"text": "<b>\n"}, max={"text": "é\u200b" * 64}) for name in names))
    lines = repr(found).splitlines()
    assert len(lines) == 2 + len(names)
    assert all(line.isprintable() for line in lines)
    assert "<b>" not in found._repr_html_()
    monkeypatch.setenv("COLUMNS", "3")
    assert max(map(len, repr(found).splitlines())) <= 3


def test_many_columns_are_counted_at_the_end():
    found = described(*(column(f"c{i}", "int64") for i in range(250)))
    assert repr(found).splitlines()[-1] == "… 50 more columns: name them, or use to_frame()"
    assert len(found.to_frame()) == 250


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"columns": "id"}, TypeError, "columns must be a list of names"),
    ({"columns": []}, ValueError, "columns must name at least one column"),
    ({"columns": [1]}, TypeError, "columns must be names, not 1"),
    ({"filter": 3}, TypeError, "filter must be an SQL expression or None, not 3"),
    ({"filter": "id >"}, fb.InvalidRequest, "^filter: "),
    ({"columns": ["wrd"]}, fb.InvalidRequest, 'no column "wrd": did you mean "word"'),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_wrong_arguments_are_named(client: fb.Client, options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        client.describe("tiny", **options)


def test_progress_is_reported(client: fb.Client):
    seen: list[FitProgress] = []
    client.describe("tiny", filter="id >= 0", progress=seen.append)
    assert (seen[-1].rows_done, seen[-1].rows_total, seen[-1].pass_number) == (100, 100, 1)


def test_another_replica_answers(server: Server):
    with fb.connect([server.url, "grpc://127.0.0.1:1"]) as client:
        assert client.describe("tiny")["id"].max == 99
        assert client.head("tiny", 3, columns=["id"])["id"].to_pylist() == [0, 1, 2]
