"""Vocabulary lookup of dictionary-encoded and plain strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from columns import Array, aligned, arrow, words
from rounds import Goal, Peer, Workload
from runner import Runner, chain, output
from workloads import check

DICTIONARY_ROWS = 4_000_000
PLAIN_ROWS = 1_000_000
# The vocabulary lacks a tenth of the words.
DISTINCT = 1_000
KNOWN = 900
BATCH_ROWS = 65_536
ONE_OF_NULLS = 50


def vocab_dictionary(runner: Runner, seed: int) -> Workload:
    """Prepare the workload on a dictionary-encoded column with 2 % nulls."""
    distinct, vocabulary = _words(seed)
    column = _column(distinct, DICTIONARY_ROWS, seed)
    peers = [
        Peer("pyarrow index_in", lambda: pc.index_in(column, value_set=vocabulary)),
        Peer(
            "pyarrow index_in of the dictionary, then take",
            lambda: pc.take(pc.index_in(column.dictionary, value_set=vocabulary), column.indices),
        ),
    ]
    title = f"vocab of {KNOWN} words on a dictionary-encoded column of {DICTIONARY_ROWS:,} rows, {DISTINCT:,} distinct"
    # The second peer is how index_in could handle dictionaries; the goal is for index_in itself.
    return _work(runner, "vocab-dictionary", title, column, vocabulary, peers, [Goal(peers[0].name, 10)])


def vocab_plain(runner: Runner, seed: int) -> Workload:
    """Prepare the workload on plain strings with 2 % nulls."""
    distinct, vocabulary = _words(seed)
    column = _column(distinct, PLAIN_ROWS, seed).dictionary_decode()
    peers = [Peer("pyarrow index_in", lambda: pc.index_in(column, value_set=vocabulary))]
    title = f"vocab of {KNOWN} words on {PLAIN_ROWS:,} plain strings, {DISTINCT:,} distinct"
    return _work(runner, "vocab-plain", title, column, vocabulary, peers, [])


def _words(seed: int) -> tuple[pa.StringArray, pa.StringArray]:
    generator = np.random.default_rng(seed)
    distinct = pc.unique(words(generator, DISTINCT + 100, 4, 12))[:DISTINCT]
    assert len(distinct) == DISTINCT
    return distinct, distinct.take(pa.array(generator.permutation(DISTINCT)[:KNOWN]))  # pyright: ignore[reportArgumentType]


def _column(distinct: pa.StringArray, rows: int, seed: int) -> pa.DictionaryArray:
    generator = np.random.default_rng([seed, rows])
    keys = aligned(generator.integers(0, DISTINCT, rows, np.int32))
    valid = generator.integers(0, ONE_OF_NULLS, rows) != 0
    return pa.DictionaryArray.from_arrays(arrow(keys, valid), distinct)


def _work(
    runner: Runner,
    key: str,
    title: str,
    column: pa.Array,
    vocabulary: pa.StringArray,
    peers: list[Peer],
    goals: list[Goal],
) -> Workload:
    rows = len(column)
    runner.load(key, {"word": column})
    plan = output("INT32", [chain("word", {"vocab": {"values": vocabulary.to_pylist()}})])
    forebay = [
        runner.prepare(f"Forebay, batches of {BATCH_ROWS:,} rows", key, plan, batch_rows=BATCH_ROWS),
        runner.prepare("Forebay, batches of 8,192 rows", key, plan, batch_rows=8_192),
        runner.prepare("Forebay, one batch", key, plan, batch_rows=rows),
    ]
    # index_in counts from 0 and keeps nulls; converting to Forebay's form (0 for null and unseen) is not timed.
    expected = _indices(peers[0].do())
    checks = [check.equal(each.name, each.result(), expected) for each in forebay]
    checks += [check.equal(each.name, _indices(each.do()), expected) for each in peers[1:]]
    return Workload(key, title, rows, [*forebay, *peers], goals, checks)


def _indices(found: pa.Array) -> Array:
    return (pc.fill_null(found, -1).to_numpy() + 1).astype(np.int32)  # pyright: ignore[reportArgumentType]
