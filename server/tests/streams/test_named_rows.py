"""Errors of a value name its row by the index that `__row_id` has, in any order, filter and sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
import xxhash

import forebay as fb
from harness.exchange import exchange
from harness.serving import Serve

ROWS = 50_021
BAD = {"null": 41_003, "id": 33_331, "fraction": 47_777, "bucket": 29_009}


def table() -> pa.Table:
    rows = np.arange(ROWS)
    fractions = rows.astype(np.float64)
    fractions[BAD["fraction"]] += 0.5
    ids, buckets = rows.copy(), rows % 7
    ids[BAD["id"]] = 2**24 + 1
    buckets[BAD["bucket"]] = 7
    return pa.table(
        {
            "row": rows,
            "null": pa.array(rows, mask=rows == BAD["null"]),
            "id": ids,
            "fraction": fractions,
            "bucket": buckets,
        }
    )


OUTPUTS: dict[str, Any] = {
    "null": fb.output(fb.cols("null"), dtype="int64"),
    "id": fb.cols("id"),
    "fraction": fb.output(fb.cols("fraction"), dtype="int32"),
    "bucket": fb.cols("bucket").one_hot(size=7),
}
WORDS = {
    "null": "row {} is null",
    "id": "row {}: 16777217 is not a float32",
    "fraction": r"47777.5 \(row {}\) cannot become INT32",
    "bucket": r"7 \(row {}\) is not an index",
}
# Half of the rows pass, in runs of different lengths.
FILTER = "(row * 7) % 11 < 5 OR row IN (41003, 33331, 47777, 29009)"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> str:
    folder: Path = tmp_path_factory.mktemp("rows")
    for index, start in enumerate(range(0, ROWS, 17_011)):
        part = table().slice(start, 17_011)
        pq.write_table(part, folder / f"{index}.parquet", row_group_size=16_001, data_page_size=5_000)
    return serve({"rows": folder}).url


@pytest.mark.parametrize("column", OUTPUTS)
@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("chosen", ["all", "filtered", "derived", "sampled", "both"])
def test_a_stream_names_the_stored_row(url: str, column: str, shuffled: bool, chosen: str) -> None:
    bad = BAD[column]
    derive = {"twice": "row * 2"} if chosen == "derived" else None
    plan = fb.Plan(
        outputs={column: OUTPUTS[column]} | ({"twice": fb.cols("twice")} if derive else {}),
        filter=FILTER if chosen in {"filtered", "derived", "both"} else None,
        derive=derive,
    )
    options: dict[str, Any] = {"shuffle": shuffled, "seed": 3}
    if chosen in {"sampled", "both"}:
        options |= {"sample": 0.3, "sample_seed": seed_that_draws(bad)}
    with fb.connect(url) as client, pytest.raises(fb.InvalidRequest, match=WORDS[column].format(bad)):
        for _ in client.stream("rows", plan, batch_size=4_096, **options):
            pass


def seed_that_draws(row: int) -> int:
    """A seed whose sample of 30 % has the row."""
    digests = ((seed, xxhash.xxh3_64_intdigest(row.to_bytes(8, "little"), seed=seed)) for seed in range(100))
    return next(seed for seed, digest in digests if digest < 0.3 * 2**64)


def test_an_exchange_names_the_row_of_the_batch(url: str) -> None:
    plan = {"filter": FILTER, "outputs": [{"name": "id", "parts": [{"columns": ["id"]}]}]}
    batch = table().to_batches()[0]
    assert batch.num_rows == ROWS
    with fl.connect(url) as client, pytest.raises(pa.ArrowInvalid, match=WORDS["id"].format(BAD["id"])):
        exchange(client, {"plan": plan}, [batch])
