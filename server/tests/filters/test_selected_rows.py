"""Filters that few, many or no rows pass: only the columns of a condition are decoded for the other rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.serving import Serve, info, read, stored

ROWS = 20_011
F = pc.field
WRITERS: dict[str, dict[str, Any]] = {
    "one page": {"compression": "none"},
    "small pages": {"data_page_size": 3_000, "compression": "zstd", "data_page_version": "2.0"},
    "plain": {"use_dictionary": False, "data_page_size": 9_000, "compression": "snappy"},
    "differences": {"use_dictionary": False, "column_encoding": {"row": "DELTA_BINARY_PACKED"}},
}
# With the rows that pass; rows without a value do not.
FILTERS: dict[str, pc.Expression] = {
    "k = 3": F("k") == 3,
    "near BETWEEN 70 AND 72": (F("near") >= 70) & (F("near") <= 72),
    "near < 0": F("near") < 0,
    "near >= 0": F("near") >= 0,
    "word = 'w3'": F("word") == "w3",
    "word <> 'w3' AND score > 0": (F("word") != "w3") & (F("score") > 0),
    "word IS NULL": F("word").is_null(),
    "word IN ('w1', 'w2') AND flag AND near < 150": (F("word").isin(["w1", "w2"]) & F("flag")) & (F("near") < 150),
    "word = text": F("word") == F("text"),
    "text LIKE '%xxx' OR word = 'w7'": pc.ends_with(F("text"), "xxx") | (F("word") == "w7"),
    "array_length(tags) = 2": pc.list_value_length(F("tags")) == 2,
    "at < TIMESTAMP '2020-01-01 00:30:00'": F("at") < pa.scalar(dt.datetime(2020, 1, 1, 0, 30)),
    "__row_id % 977 = 5": pc.is_in(F("row"), pa.array(range(5, ROWS, 977))),
}


def table() -> pa.Table:
    random = np.random.default_rng(11)
    rows = np.arange(ROWS)

    def gappy(values: Any, share: float, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, kind, mask=random.random(ROWS) < share)

    return pa.table(
        {
            "row": rows,
            "k": gappy(random.integers(0, 50, ROWS), 0.1),
            "near": rows // 100,
            "score": gappy(random.normal(size=ROWS).astype(np.float32), 0.3),
            "word": gappy([f"w{n}" for n in random.integers(0, 30, ROWS)], 0.05),
            "text": [f"{n}-{'x' * (n % 17)}" for n in random.integers(0, 10**6, ROWS)],
            "flag": gappy(random.random(ROWS) < 0.5, 0.2),
            "at": pa.array([dt.datetime(2020, 1, 1) + dt.timedelta(seconds=int(n)) for n in rows], pa.timestamp("us")),
            "tags": pa.array([[int(n)] * (n % 3) for n in rows], pa.list_(pa.int32())),
        }
    )


TABLE = table()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> fl.FlightClient:
    folders: dict[str, Path] = {}
    for number, options in enumerate(WRITERS.values()):
        folder = tmp_path_factory.mktemp(f"writer{number}")
        pq.write_table(TABLE.slice(0, 9_001), folder / "a.parquet", row_group_size=9_001, **options)
        pq.write_table(TABLE.slice(9_001), folder / "b.parquet", row_group_size=5_003, **options)
        folders[f"rows{number}"] = folder
    return fl.connect(serve(folders).url)


def passing(expected: pc.Expression) -> pa.Table:
    return TABLE.filter(expected).combine_chunks()


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("writer", range(len(WRITERS)), ids=list(WRITERS))
def test_passing_rows_keep_every_column(client: fl.FlightClient, writer: int, text: str) -> None:
    got = read(client, f"rows{writer}", {"filter": text, "outputs": stored(*TABLE.column_names)}).combine_chunks()
    assert got.equals(passing(FILTERS[text]))


@pytest.mark.parametrize("text", FILTERS)
def test_derived_columns_and_matrices_of_passing_rows(client: fl.FlightClient, text: str) -> None:
    vocab = {"vocab": {"values": {"strings": ["w1", "w3"]}}}
    outputs = [
        *stored("twice"),
        {
            "name": "m",
            "dtype": "FLOAT64",
            "parts": [{"columns": ["score", "k"], "ops": [{"fill_null": {"value": -1}}]}],
        },
        {"name": "w", "dtype": "INT64", "parts": [{"columns": ["word"], "ops": [vocab]}]},
    ]
    plan = {"filter": text, "derive": [{"name": "twice", "expr": "row * 2 + near"}], "outputs": outputs}
    expected, got = passing(FILTERS[text]), read(client, "rows1", plan)
    twice = pc.add(pc.multiply(expected["row"], 2), expected["near"])
    assert got["twice"].to_pylist() == twice.to_pylist()
    filled = [expected[name].cast(pa.float64()).fill_null(-1).to_numpy() for name in ("score", "k")]
    matrix = np.array(got["m"].to_pylist(), np.float64).reshape(-1, 2)
    assert np.array_equal(matrix, np.column_stack(filled))
    assert got["w"].to_pylist() == [{"w1": 1, "w3": 2}.get(word, 0) for word in expected["word"].to_pylist()]


@pytest.mark.parametrize("sampled", [False, True], ids=["all", "sampled"])
@pytest.mark.parametrize("text", ["", "k = 3", "word = 'w3'", "near < 0"])
def test_shuffled_and_sampled_rows_have_their_ids(client: fl.FlightClient, text: str, sampled: bool) -> None:
    request = {"dataset": "rows1", "plan": {"filter": text, "outputs": stored("row", "text")}, "batch_size": 50}
    request |= {"with_row_ids": True, "shuffle": True, "seed": 4, **({"sample": 0.25} if sampled else {})}
    got = client.do_get(info(client, request).endpoints[0].ticket).read_all()
    expected = passing(FILTERS[text])["row"].to_pylist() if text else list(range(ROWS))
    assert got["row"].to_pylist() == got["__row_id"].to_pylist()
    assert set(got["row"].to_pylist()) <= set(expected)
    assert len(set(got["row"].to_pylist())) == got.num_rows
    if not sampled:
        assert got.num_rows == len(expected)
    texts = TABLE["text"].to_pylist()
    assert got["text"].to_pylist() == [texts[row] for row in got["row"].to_pylist()]
