"""Ops that make indices of values, against xxhash, Python's Counter, scikit-learn and Velox's arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.preprocessing import OneHotEncoder

import forebay as fb
from harness.ops.conformance import INDEX_CASES
from harness.ops.hashes import bucket, bytes_of, components, tuple_bucket
from harness.ops.tables import INT64_MAX, PRIME, UINT64_MAX, domain, features, nulls, numbers, same_bits, write
from harness.serving import Serve

NULL = -1


def texts() -> pa.Table:
    """Text and bytes of 0 bytes to 1 MiB, in every way that Arrow holds them."""
    random = np.random.default_rng(9)
    alphabet = np.array(list("abcxyzäß日本🦀 \0"))
    short = ["".join(random.choice(alphabet, random.integers(0, 12))) for _ in range(60)]
    words = [None if random.random() < 0.1 else str(word) for word in random.choice(short, PRIME)]
    sizes = [*range(1, 40), *(2**power + step for power in range(6, 20) for step in (-1, 0, 1)), 2**20]
    long = ["".join(random.choice(alphabet[:6], size)) for size in sizes]
    long += [None, "", "é" * 1000] * 5
    long += words[: PRIME - len(long)]
    raw = [None if word is None else word.encode() for word in words]
    return pa.table(
        {
            "text": pa.array(words),
            "long": pa.array(long),
            "large": pa.array(words, pa.large_string()),
            "dictionary": pa.array(words).dictionary_encode(),
            "bytes": pa.array(raw, pa.binary()),
            "fixed": pa.array([None if word is None else (word + b"0123456")[:7] for word in raw], pa.binary(7)),
            "no_text": pa.nulls(PRIME, pa.string()),
            "empty_text": pa.array([""] * PRIME),
        }
    )


def everything() -> pa.Table:
    table = numbers()
    for name, array in zip(texts().column_names, texts().itercolumns(), strict=True):
        table = table.append_column(name, array)
    return table


TABLE = everything()
ARRAYS: dict[str, pa.Array[Any]] = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}
PIECES = {name: components(array) for name, array in ARRAYS.items()}
TEXTS = texts().column_names
WHOLE = [name for name in numbers().column_names if domain(ARRAYS[name]).dtype.kind != "f"]
DATASETS = ("dictionary", "plain", "one")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("ids")
    write(root / "dictionary", TABLE)
    write(root / "plain", TABLE, use_dictionary=False)
    write(root / "one", TABLE.slice(0, 1))
    with fb.connect(serve({place.name: place for place in root.iterdir()}).url) as connected:
        yield connected


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def rows(dataset: str) -> int:
    return 1 if dataset == "one" else PRIME


def keys(name: str) -> list[Any]:
    """The values as the ops see them; None for null."""
    array = ARRAYS[name]
    if pa.types.is_dictionary(array.type):
        array = array.cast(pa.string())
    if name in TEXTS:
        return array.to_pylist()
    return [None if gap else value for value, gap in zip(domain(array).tolist(), nulls(array), strict=True)]


KEYS = {name: keys(name) for name in ARRAYS}


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("name", INDEX_CASES)
def test_indices_of_every_type_match_the_oracle(client: fb.Client, name: str, dataset: str):
    case = INDEX_CASES[name]
    columns = [column for column, array in ARRAYS.items() if case.takes(array.type)]
    assert len(columns) > 5
    outputs = {c: fb.output(case.op(fb.cols(c)).fill_null(NULL), dtype="int64") for c in columns}
    got = features(client, dataset, outputs)
    for column in columns:
        pairs = list(zip(KEYS[column], PIECES[column], strict=True))[: rows(dataset)]
        indices = [None if piece is None else case.oracle(value, piece) for value, piece in pairs]
        want = [NULL if index is None else index for index in indices]
        same_bits(got[column], ints(want), f"{name} of {column}")


@pytest.mark.parametrize("dataset", DATASETS)
def test_cross_is_xxhash_of_the_columns_hashes(client: fb.Client, dataset: str):
    crosses = {
        "two": ("int32", ["text"]),
        "the other way": ("text", ["int32"]),
        "itself": ("text", ["text"]),
        "three": ("dictionary", ["float64", "long"]),
        "numbers": ("uint64", ["int64", "float32", "bool", "decimal_9_2", "timestamp_us"]),
        "nothing": ("null", ["all_null", "no_text"]),
        "bytes": ("bytes", ["large", "fixed"]),
    }
    outputs: dict[str, fb.Output] = {}
    want: dict[str, list[int]] = {}
    for name, (first, others) in crosses.items():
        for buckets, seed in ((1000, 0), (INT64_MAX, 2**64 - 1)):
            key = f"{name} {buckets}"
            outputs[key] = fb.output(fb.cols(first).cross(*others, buckets=buckets, seed=seed), dtype="int64")
            tuples = list(zip(*(PIECES[column] for column in (first, *others)), strict=True))[: rows(dataset)]
            want[key] = [tuple_bucket(pieces, buckets, seed) for pieces in tuples]
    got = features(client, dataset, outputs)
    for key, values in want.items():
        same_bits(got[key], ints(values), key)


def test_cross_takes_the_chains_value_and_derived_columns(client: fb.Client):
    chain = fb.cols("int8").fill_null(0).clip(-5, 5).cross("text", "doubled", buckets=997, seed=3)
    got = features(client, "plain", {"o": chain}, derive={"doubled": "int16 * 2"})["o"]
    firsts = [bytes_of(max(-5, min(5, 0 if v is None else v))) for v in ARRAYS["int8"].to_pylist()]
    doubled = [None if v is None else bytes_of(v * 2) for v in ARRAYS["int16"].to_pylist()]
    tuples = zip(firsts, PIECES["text"], doubled, strict=True)
    same_bits(got, np.array([tuple_bucket(pieces, 997, 3) for pieces in tuples], np.int32))


def test_several_columns_are_each_crossed(client: fb.Client):
    got = features(client, "plain", {"o": fb.cols("int8", "text", "float16").cross("int64", buckets=50)})["o"]
    for place, name in enumerate(("int8", "text", "float16")):
        tuples = zip(PIECES[name], PIECES["int64"], strict=True)
        assert got[:, place].tolist() == [tuple_bucket(pieces, 50) for pieces in tuples]


def test_sigrid_hash_gives_torcharrows_own_numbers(client: fb.Client, tmp_path: Path, serve: Serve):
    write(tmp_path / "sixteen", pa.table({"id": np.arange(16)}))
    with fb.connect(serve({"sixteen": tmp_path / "sixteen"}).url) as other:
        got = features(other, "sixteen", {"o": fb.cols("id").sigrid_hash(salt=0, max_value=100)})["o"]
    assert got.tolist() == [6, 60, 54, 54, 9, 4, 91, 11, 67, 79, 2, 25, 92, 98, 83, 66]


def test_map_id_rejects_dates_and_times(client: fb.Client):
    times = [c for c in WHOLE if pa.types.is_temporal(ARRAYS[c].type)]
    assert len(times) > 5
    for column in times:
        with pytest.raises(
            fb.ForebayError, match=r"ids are whole numbers, but its input is of type .* derive"
        ) as caught:
            features(client, "plain", {"o": fb.cols(column).map_id({0: 1}, default=2)})
        assert caught.value.code == "INVALID_ARGUMENT"


def test_map_id_of_many_ids(client: fb.Client):
    random = np.random.default_rng(1)
    ids = np.unique(np.concatenate([random.integers(-(2**63), INT64_MAX, 200_000), np.arange(-100, 100)]))
    new = random.integers(-(2**63), INT64_MAX, len(ids))
    mapping = dict(zip(ids.tolist(), new.tolist(), strict=True))
    chain = fb.cols("int64").fill_null(0).map_id(ids=ids, values=new, default=4)
    got = features(client, "plain", {"o": chain})["o"]
    assert got.tolist() == [mapping.get(0 if v is None else v, 4) for v in ARRAYS["int64"].to_pylist()]


# === vocab ===


def counted(name: str) -> list[tuple[Any, int]]:
    """Values by count descending, equal counts by value ascending; null and NaN are excluded."""
    array = ARRAYS[name]
    if pa.types.is_dictionary(array.type):
        array = array.cast(pa.string())
    if pa.types.is_binary(array.type) or pa.types.is_large_string(array.type) or pa.types.is_string(array.type):
        values = [value for value in array.to_pylist() if value is not None]
        return sorted(Counter(values).items(), key=lambda item: (-item[1], item[0].encode()))
    values = [value for value, gap in zip(domain(array).tolist(), nulls(array), strict=True) if not gap]
    counts = Counter(value + 0 for value in values if not math.isnan(value))
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


VOCABULARIES = [name for name in ARRAYS if name not in ("bytes", "fixed")]


@pytest.mark.parametrize("dataset", ["dictionary", "plain"])
@pytest.mark.parametrize(
    ("min_count", "max_size", "oov_buckets"), [(0, 0, 0), (2, 0, 0), (0, 10, 0), (3, 7, 5), (10**6, 0, 2)]
)
@pytest.mark.filterwarnings("ignore:.*the vocabulary is empty")
def test_vocab_counts_as_group_by_does(
    client: fb.Client, dataset: str, min_count: int, max_size: int, oov_buckets: int
):
    options = {"min_count": min_count, "max_size": max_size, "oov_buckets": oov_buckets}
    got = features(client, dataset, {c: fb.cols(c).vocab(**options) for c in VOCABULARIES})
    for name in VOCABULARIES:
        kept = [value for value, count in counted(name) if count >= min_count]
        kept = kept[:max_size] if max_size else kept
        places = {value: place for place, value in enumerate(kept, 1)}

        def index(value: Any, piece: bytes | None, places: dict[Any, int] = places) -> int:
            if value is None or piece is None:
                return 0
            unseen = len(places) + 1 + bucket(piece, oov_buckets) if oov_buckets else 0
            return places.get(value, unseen)

        want = [index(value, piece) for value, piece in zip(KEYS[name], PIECES[name], strict=True)]
        same_bits(got[name], np.array(want, np.int32), f"{options} of {name}")


def test_a_given_vocabulary_needs_no_fit(client: fb.Client):
    words = [word for word, _ in counted("text")[:20]][::-1]
    outputs = {
        "text": fb.cols("text").vocab(values=words),
        "int64": fb.cols("int64").vocab(values=[INT64_MAX, -(2**63), 5]),
        "uint64": fb.cols("uint64").vocab(values=[UINT64_MAX, 2**63]),
        "float32": fb.cols("float32").vocab(values=[float("nan"), 0.0, float("inf")]),
    }
    assert not fb.Plan(outputs=outputs).needs_fit
    got = features(client, "plain", outputs)
    for name, values in (("text", words), ("int64", [INT64_MAX, -(2**63), 5]), ("uint64", [UINT64_MAX, 2**63])):
        places = {value: place for place, value in enumerate(values, 1)}
        assert got[name].tolist() == [places.get(value, 0) for value in KEYS[name]], name
    want = [
        0 if v is None else 1 if math.isnan(v) else 2 if v == 0 else 3 if v == math.inf else 0 for v in KEYS["float32"]
    ]
    assert got["float32"].tolist() == want


# === one_hot ===


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bfloat16", "int32"])
def test_one_hot_of_a_vocabulary_is_sklearns(client: fb.Client, dtype: str):
    outputs = {c: fb.output(fb.cols(c).vocab(max_size=9).one_hot(), dtype=dtype) for c in ("text", "int8", "bool")}
    got = features(client, "plain", outputs)
    one = 0x3F80 if dtype == "bfloat16" else 1
    for name in outputs:
        kept = [value for value, _ in counted(name)[:9]]
        place = {value: i for i, value in enumerate(kept)}
        known = [[place.get(value, -1)] for value in KEYS[name]]
        encoder = OneHotEncoder(categories=[list(range(len(kept)))], handle_unknown="ignore", sparse_output=False)
        want = encoder.fit([[i] for i in range(len(kept))]).transform(known)
        assert np.array_equal(got[name][:, 1:], want * one), name
        assert np.array_equal(got[name][:, 0], (want.sum(axis=1) == 0) * one), name


@pytest.mark.filterwarnings("ignore:.*the vocabulary is empty")
def test_one_hot_combines_with_other_parts(client: fb.Client):
    parts = [fb.cols("int8").fill_null(0), fb.cols("bool", "null").vocab().one_hot(), fb.cols("int16").fill_null(1)]
    got = features(client, "plain", {"o": parts})["o"]
    bools = fb.cols("bool").vocab()
    alone = features(client, "plain", {"b": bools})["b"]
    # Two values and the index 0; for all nulls, the index 0 alone.
    want = np.concatenate(
        [
            domain(ARRAYS["int8"])[:, None],
            np.eye(3)[alone],
            np.ones((PRIME, 1)),
            np.where(nulls(ARRAYS["int16"]), 1, domain(ARRAYS["int16"]))[:, None],
        ],
        axis=1,
    )
    same_bits(got, want.astype(np.float32))
