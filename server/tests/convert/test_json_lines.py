"""`forebay convert` of JSON lines: nested values, types, and errors with their line and field."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from harness.convert import convert


def random_value(random: Random, depth: int = 0) -> dict[str, Any]:
    """An object of fixed types, with nulls and missing fields at every level."""
    value: dict[str, Any] = {
        "int": random.randint(-(2**63), 2**63 - 1),
        "big": random.randint(2**63, 2**64 - 1),
        "float": random.choice([random.gauss(0, 1e9), 0.1, 1e-300, -0.5]),
        "bool": random.random() < 0.5,
        "text": random.choice(["plain", 'a "quote"', "line\nbreak", "漢字 🦀", "", "\\u0041"]),
        "list": [random.choice([None, random.randint(0, 9)]) for _ in range(random.randint(0, 3))],
        "deep": [[{"x": random.random(), "tags": ["a", None]}], []],
    }
    if depth == 0:
        value["object"] = random_value(random, 1)
    for name in list(value):
        if random.random() < 0.1:
            del value[name]
        elif random.random() < 0.1:
            value[name] = None
    return value


def filled(value: Any, kind: pa.DataType) -> Any:
    """The value as Arrow reads it back: fields that are missing are null."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {field.name: filled(value.get(field.name), field.type) for field in fields}
    if pa.types.is_list(kind):
        return [filled(item, kind.value_type) for item in value]
    return value


@pytest.mark.parametrize("seed", range(5))
def test_random_objects_survive(tmp_path: Path, seed: int):
    random = Random(seed)
    rows = [random_value(random) for _ in range([3, 100, 500, 8193, 1000][seed])]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row, ensure_ascii=random.random() < 0.5) + "\n" for row in rows))
    table = convert(source, tmp_path / "out").table()
    kind = pa.struct(list(table.schema))
    assert table.to_pylist() == [filled(row, kind) for row in rows]
    if seed:
        assert table.schema.field("big").type == pa.uint64()
        assert table.schema.field("list").type.value_type == pa.int64()


def test_columns_keep_the_order_of_the_text(tmp_path: Path):
    rows = ['{"z": 1, "b": {"y": 1, "a": [{"k": 1, "c": 2}]}}', '{"a": 0, "z": 2}', '{"b": {"a": [], "x": 0}, "z": 3}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    table = convert(tmp_path / "a.jsonl", tmp_path / "out").table()
    assert table.schema.names == ["z", "b", "a"]
    kind = table.schema.field("b").type
    assert [kind.field(index).name for index in range(kind.num_fields)] == ["y", "a", "x"]
    item = kind.field("a").type.value_type
    assert [item.field(index).name for index in range(item.num_fields)] == ["k", "c"]


def test_types_are_set_from_exact_text(tmp_path: Path):
    rows = [
        '{"x": 1.10, "t": "2024-02-29T10:00:00", "n": 12345678901234567890123}',
        '{"x": null, "t": null}',
        "",
        '{"x": 2}',
    ]
    (tmp_path / "a.ndjson.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    flags = ["--type", "x=decimal128(10,2)", "--type", "t=timestamp[ms]", "--type", "n=decimal128(38,0)"]
    table = convert(tmp_path / "a.ndjson.gz", tmp_path / "out", *flags).table()
    assert table["x"].to_pylist() == [Decimal("1.10"), None, Decimal(2)]
    assert table["n"].to_pylist() == [Decimal(12345678901234567890123), None, None]
    assert table.schema.field("t").type == pa.timestamp("ms")


@pytest.mark.parametrize(
    ("lines", "flags", "message"),
    [
        (
            ['{"a": 1}', '{"a": "x"}'],
            [],
            'line 2, column "a": it is a text here, and a number before: set --type a=string',
        ),
        (['{"a": 1}', '{"a": 1.5}'], ["--infer-rows", "1"], 'line 2, column "a": 1.5 is not Int64'),
        (['{"a": 1}', '{"a": "7"}'], ["--infer-rows", "1"], 'line 2, column "a": it is a text'),
        (['{"a": 0.5}', '{"a": 9007199254740993}'], [], "has more digits than a double holds"),
        (['{"a": [{"b": 1}]}', '{"a": [{"b": true}]}'], [], 'line 2, column "a[].b"'),
        (['{"a": 1}', '{"b": 1}'], ["--infer-rows", "1"], 'line 2, column "b": the first 1 lines do not have it'),
        (['{"a": {"b": 1}}', '{"a": {"c": 1}}'], ["--infer-rows", "1"], 'column "a.c": the first lines do not have it'),
        (['{"a": 1}', "{"], [], "line 2: it is not JSON, at byte"),
        (["[1, 2]"], [], "line 1: it begins an array"),
        (["[", '{"a": 1}', "]"], [], "line 1: it begins an array"),
        (["{", '"a": 1', "}"], [], "line 1: the object continues on another line"),
        (["7"], [], "line 1: it is not an object"),
        (['{"a": 1}', '{"b": [{"a": 1, "a": 2}]}'], [], 'line 2: an object has the field "a" twice'),
        ([], [], "it has no line with a field"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, lines: list[str], flags: list[str], message: str):
    (tmp_path / "a.json").write_text("\n".join(lines))
    done = convert(tmp_path / "a.json", tmp_path / "out", *flags)
    assert done.code == 1
    assert message in done.error, done.error
    assert not (tmp_path / "out").exists()
