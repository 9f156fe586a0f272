"""Ops on lists."""

from __future__ import annotations

from harness.ops.oracles import first_of, last_of

from .cases import FILL, ListCase, OpCases, ShuffledCase

SIZES = ((1, 0.0), (3, 5.0), (7, 0.5), (512, 2.0))
LENGTHS = (1, 2, 6, 1000)


def pad(n: int, value: float) -> ListCase:
    """Columns, padded at the end."""
    return ListCase(lambda c: c.fill_null(FILL).pad(n, value), lambda rows: first_of(rows, n, value))


def pad_left(n: int, value: float) -> ListCase:
    """Columns, padded at the start."""
    return ListCase(lambda c: c.fill_null(FILL).pad(n, value, side="left"), lambda rows: last_of(rows, n, value))


def first_columns(n: int, value: float) -> ListCase:
    """Columns of the first elements."""
    return ListCase(lambda c: c.fill_null(FILL).first_n(n, value=value), lambda rows: first_of(rows, n, value))


def last_columns(n: int, value: float) -> ListCase:
    """Columns of the last elements."""
    return ListCase(lambda c: c.fill_null(FILL).last_n(n, value=value), lambda rows: last_of(rows, n, value))


def first_elements(n: int) -> ListCase:
    """Lists of the first elements, filled afterwards."""
    return ListCase(lambda c: c.first_n(n).fill_null(FILL), lambda rows: [row[:n] for row in rows])


def last_elements(n: int) -> ListCase:
    """Lists of the last elements, filled afterwards."""
    return ListCase(lambda c: c.last_n(n).fill_null(FILL), lambda rows: [row[-n:] for row in rows])


LISTS: dict[str, OpCases] = {
    "pad": OpCases(
        lists={
            **{f"pad to {n} with {value}": pad(n, value) for n, value in SIZES},
            **{f"pad to {n} with {value} at the start": pad_left(n, value) for n, value in SIZES},
        },
        shuffled=[ShuffledCase("padded", ["scores"], lambda c: c.pad(3, -1).standardize(mean=2, std=2))],
    ),
    "first_n": OpCases(
        lists={
            **{f"first {n}, padded with {value}": first_columns(n, value) for n, value in SIZES},
            **{f"first {n}": first_elements(n) for n in LENGTHS},
        },
        shuffled=[
            ShuffledCase("first", ["basket"], lambda c: c.hash_bucket(97).fill_null(0).first_n(2, value=0)),
        ],
    ),
    "last_n": OpCases(
        lists={
            **{f"last {n}, padded with {value}": last_columns(n, value) for n, value in SIZES},
            **{f"last {n}": last_elements(n) for n in LENGTHS},
        },
        shuffled=[
            ShuffledCase("last", ["basket"], lambda c: c.hash_bucket(97).fill_null(0).last_n(2, value=0)),
        ],
    ),
    "multi_hot": OpCases(
        results="ops/test_lists.py",
        shuffled=[ShuffledCase("hot", ["basket"], lambda c: c.hash_bucket(97).fill_null(0).multi_hot())],
    ),
    "ngram": OpCases(
        results="ops/test_lists.py",
        shuffled=[ShuffledCase("ngrams", ["basket"], lambda c: c.ngram(2, buckets=1000).fill_null(0))],
    ),
}
