"""Hashing of integers and strings into buckets. Polars uses another hash, so Forebay is checked with xxhash."""

from __future__ import annotations

import struct

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash

from columns import aligned, arrow, words
from rounds import Goal, Peer, Workload
from runner import Runner, chain, output
from workloads import check

ROWS = 4_000_000
BUCKETS = 1_000_003
BATCH_ROWS = 65_536
CHECKED_ROWS = 100_000


def hash_int64(runner: Runner, seed: int) -> Workload:
    """Prepare the workload on int64."""
    values = aligned(np.random.default_rng(seed).integers(-(2**62), 2**62, ROWS))
    return _work(runner, "hash-int64", f"hash_bucket of {ROWS:,} int64 into {BUCKETS:,}", arrow(values))


def hash_strings(runner: Runner, seed: int) -> Workload:
    """Prepare the workload on strings of 7 to 12 characters."""
    column = words(np.random.default_rng(seed), ROWS, 7, 12)
    return _work(runner, "hash-strings", f"hash_bucket of {ROWS:,} strings of 7-12 characters into {BUCKETS:,}", column)


def _work(runner: Runner, key: str, title: str, column: pa.Array) -> Workload:
    runner.load(key, {"id": column})
    plan = output("INT64", [chain("id", {"hash_bucket": {"buckets": BUCKETS, "seed": 0}})])
    forebay = [
        runner.prepare(f"Forebay, batches of {BATCH_ROWS:,} rows", key, plan, batch_rows=BATCH_ROWS),
        runner.prepare("Forebay, one batch", key, plan, batch_rows=ROWS),
    ]
    frame = pl.DataFrame({"id": pl.Series(pl.from_arrow(column))}).lazy()
    query = frame.select(pl.col("id").hash(seed=0) % BUCKETS)
    peer = Peer("Polars hash() % n", lambda: query.collect()["id"])
    texts = column[:CHECKED_ROWS].to_pylist()
    encoded = [text.encode() if isinstance(text, str) else struct.pack("<q", text) for text in texts]
    expected = np.array([xxhash.xxh3_64_intdigest(value) % BUCKETS for value in encoded], np.int64)
    checks = [check.equal(each.name, each.result()[:CHECKED_ROWS], expected) for each in forebay]
    return Workload(key, title, ROWS, [*forebay, peer], [Goal(peer.name, 2)], checks)
