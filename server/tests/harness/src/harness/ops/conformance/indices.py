"""Ops that make indices or ids of values."""

from __future__ import annotations

import pyarrow as pa

from harness.ops.hashes import bucket, sigrid_hash
from harness.ops.tables import INT64_MAX

from .cases import KINDS, ElementCase, IndexCase, OpCases, ShuffledCase

MAPPING = {0: 5, 1: INT64_MAX, -1: -7, 127: 0, 2**31: 1, -(2**63): 2, INT64_MAX: 3, 99: 99}


def is_any(kind: pa.DataType) -> bool:
    """Every type."""
    return True


def is_id(kind: pa.DataType) -> bool:
    """Integers, and booleans as 0 and 1."""
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def is_whole(kind: pa.DataType) -> bool:
    """Types that are stored as integers."""
    return is_id(kind) or pa.types.is_temporal(kind)


def hashed(buckets: int, seed: int) -> IndexCase:
    """XXH3-64 of any value."""
    return IndexCase(is_any, lambda c: c.hash_bucket(buckets, seed), lambda value, data: bucket(data, buckets, seed))


def sigrid(salt: int, most: int) -> IndexCase:
    """Velox's hash of the integer that is stored."""
    return IndexCase(
        is_whole,
        lambda c: c.sigrid_hash(salt=salt, max_value=most),
        lambda value, data: sigrid_hash(value, salt, most),
    )


def mapped(default: int | None) -> IndexCase:
    """A Python dict."""
    return IndexCase(
        is_id, lambda c: c.map_id(MAPPING, default=default), lambda value, data: MAPPING.get(value, default)
    )


INDICES: dict[str, OpCases] = {
    "hash_bucket": OpCases(
        indices={
            f"hash_bucket {buckets}, seed {seed}": hashed(buckets, seed)
            for buckets, seed in ((1000, 0), (1, 7), (INT64_MAX, 2**64 - 1), (2**31 + 11, 1))
        },
        elements={"hash_bucket": ElementCase([*KINDS], lambda c: c.hash_bucket(1009, seed=5))},
        shuffled=[
            ShuffledCase("indices", ["int32", "word"], lambda c: c.hash_bucket(1000).fill_null(-1)),
            ShuffledCase("ragged", ["basket"], lambda c: c.hash_bucket(97).fill_null(0)),
        ],
    ),
    "sigrid_hash": OpCases(
        indices={
            f"sigrid_hash {most}, salt {salt}": sigrid(salt, most)
            for salt in (0, 1, -1, 2**62, -(2**63))
            for most in (1, 100, 2**31, INT64_MAX)
        },
        elements={
            "sigrid_hash": ElementCase(
                ["int64", "int8", "uint64", "bool", "date"], lambda c: c.sigrid_hash(salt=9, max_value=101)
            )
        },
        shuffled=[
            ShuffledCase("indices", ["int64", "uint8"], lambda c: c.sigrid_hash(salt=1, max_value=77).fill_null(-1))
        ],
    ),
    "map_id": OpCases(
        indices={f"map_id, default {default}": mapped(default) for default in (None, 0, -(2**63))},
        elements={
            "map_id": ElementCase(
                ["int64", "int8", "uint64", "bool"], lambda c: c.map_id({0: 9, 1: 8, INT64_MAX: 7}, default=3)
            )
        },
        shuffled=[ShuffledCase("indices", ["int8"], lambda c: c.map_id({1: 2, 3: 4}, default=9).fill_null(-1))],
    ),
    "vocab": OpCases(
        results="ops/test_ids.py",
        elements={
            "vocab": ElementCase(["text"], lambda c: c.vocab(values=["", "a", "b", "é"], oov_buckets=7)),
            "vocab of integers": ElementCase(
                ["int64", "int8", "bool", "date"], lambda c: c.vocab(values=[0, 1, -1, INT64_MAX])
            ),
        },
        learning={
            "vocab": ElementCase(
                ["int8", "text", "bool", "date", "int64", "uint64", "float32"], lambda c: c.vocab(max_size=20)
            ),
            "first": ElementCase(["int8", "text"], lambda c: c.vocab(min_count=3, oov_buckets=4)),
        },
        shuffled=[
            ShuffledCase("indices", ["word", "coded"], lambda c: c.vocab(values=["word 1", "word 9"], oov_buckets=5))
        ],
    ),
    "cross": OpCases(
        results="ops/test_ids.py",
        shuffled=[ShuffledCase("indices", ["word"], lambda c: c.cross("int8", "float64", buckets=9973))],
    ),
    "one_hot": OpCases(
        results="ops/test_ids.py",
        shuffled=[ShuffledCase("hot", ["coded"], lambda c: c.vocab(values=["word 2"]).one_hot())],
    ),
}
