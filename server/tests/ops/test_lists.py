"""Lists: ops on their elements, and their layout as matrix columns or as values and offsets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import forebay as fb
from forebay.torch import FlightDataset
from harness.ops.conformance import ELEMENT_CASES, FILL, KINDS, LEARNING_CASES, LIST_CASES, NUMERIC
from harness.ops.hashes import bucket, bytes_of, components, tuple_bucket
from harness.ops.oracles import first_of
from harness.ops.tables import INT64_MAX, PRIME, domain, features, floats, nulls, same_bits, whole_numbers, write
from harness.serving import Serve, Server


def elements(name: str, rows: int) -> pa.Array[Any]:
    """Hard values of a type, some of them null."""
    random = np.random.default_rng(sorted(KINDS).index(name))
    kind, gaps = KINDS[name], random.random(rows) < 0.1
    if pa.types.is_floating(kind):
        return pa.array(floats(random, rows, kind.to_pandas_dtype()), mask=gaps)
    if pa.types.is_integer(kind):
        return pa.array(whole_numbers(random, rows, kind.to_pandas_dtype()), mask=gaps)
    if name in ("text", "bytes"):
        words = ["".join(random.choice(list("abé🦀"), random.integers(0, 9))) for _ in range(50)]
        drawn = [None if gap else str(word) for word, gap in zip(random.choice(words, rows), gaps, strict=True)]
        return pa.array(
            [None if w is None or name == "text" else w.encode() for w in drawn] if name == "bytes" else drawn
        )
    if name == "bool":
        return pa.array(random.random(rows) < 0.5, mask=gaps)
    whole = random.integers(-(10**5), 10**5, rows)
    if name == "date":
        return pa.array(whole.astype(np.int32), mask=gaps).view(kind)
    return pa.array(whole, mask=gaps).cast(pa.decimal128(21, 2)).cast(kind)


def lists(values: pa.Array[Any], rows: int, seed: int = 3) -> pa.Array[Any]:
    """Lists of 0 to 6 elements, one of 500, some of them null; the elements are all used up."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 7, rows)
    if rows > 10:
        sizes[[0, 4]] = [500, 0]
    absent = random.random(rows) < 0.1
    absent[: min(rows, 2)] = False
    sizes[absent] = 0
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    assert offsets[-1] <= len(values)
    return pa.ListArray.from_arrays(pa.array(offsets), values.slice(0, offsets[-1]), mask=pa.array(absent))


MOST = 7 * PRIME + 500
FLAT = {name: elements(name, MOST) for name in KINDS}
LISTS: dict[str, pa.Array[Any]] = {name: lists(values, PRIME) for name, values in FLAT.items()}


def others() -> dict[str, pa.Array[Any]]:
    """The same lists in the other ways that Arrow has for them, and lists of one size."""
    text = LISTS["text"]
    coded = pa.ListArray.from_arrays(text.offsets, text.values.dictionary_encode(), mask=text.is_null())
    random = np.random.default_rng(8)
    triples = pa.array(random.normal(size=3 * PRIME).astype(np.float32), mask=random.random(3 * PRIME) < 0.1)
    gone = pa.array(random.random(PRIME) < 0.1)
    return {
        "coded": coded,
        "large": LISTS["int64"].cast(pa.large_list(pa.int64())),
        "large_text": text.cast(pa.large_list(pa.large_string())),
        "triples": pa.FixedSizeListArray.from_arrays(triples, 3, mask=gone),
        "empty": pa.array([[]] * PRIME, pa.list_(pa.int32())),
        "no_lists": pa.nulls(PRIME, pa.list_(pa.float32())),
        "no_elements": pa.array([[None, None]] * PRIME, pa.list_(pa.int64())),
    }


OTHERS = others()
ALL = {**LISTS, **OTHERS}


def huge() -> dict[str, list[Any]]:
    """Lists that are far longer than what is worked on at once, and elements of up to 1 MiB."""
    random = np.random.default_rng(20)
    many = pa.array(random.integers(0, 99, 100_003), mask=random.random(100_003) < 0.1).to_pylist()
    long = ["".join(random.choice(list("abé"), size)) for size in (2**20, 0, 4096, 4097, 65_535)]
    return {
        "numbers": [[], many, None, [1], many[::-1]],
        "text": [long, [], [*long, None, *long], ["a"], None],
    }


HUGE = huge()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("lists")
    table = pa.table({**ALL, "id": np.arange(PRIME)})
    write(root / "lists", table)
    write(root / "plain", table, use_dictionary=False)
    write(root / "one", table.slice(0, 1))
    used = LISTS["int64"].offsets[-1].as_py()
    write(root / "flat", pa.table({name: values.slice(0, used) for name, values in FLAT.items()}))
    write(root / "huge", pa.table(HUGE))
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected


def same_lists(got: np.ndarray, want: list[np.ndarray], about: object = "") -> None:
    assert [len(row) for row in got] == [len(row) for row in want], about
    same_bits(np.concatenate(list(got)), np.concatenate(want), about)


def rows_of(name: str) -> list[pa.Array[Any] | None]:
    """Each list as an array of its elements; None for a null list."""
    return [row.values if row.is_valid else None for row in ALL[name]]


def numbers_of(name: str, fill: float) -> list[np.ndarray]:
    """The elements as a chain holds them, null ones filled; a null list is an empty one."""
    kind = ALL[name].type.value_type
    empty = domain(pa.array([], kind))
    found: list[np.ndarray] = []
    for row in rows_of(name):
        values = empty if row is None else domain(row)
        if row is not None:
            values[nulls(row)] = fill
        found.append(values)
    return found


# float32 holds no larger integers.
LARGE = ("int64", "uint64", "large")
LARGEST = 2**24


def small(name: str) -> fb.Columns:
    """The column, integers clipped to those that float32 holds."""
    return fb.cols(name).clip(-LARGEST, LARGEST) if name in LARGE else fb.cols(name)


def small_numbers_of(name: str, fill: float) -> list[np.ndarray]:
    """`numbers_of` after `small`."""
    rows = numbers_of(name, fill)
    least = 0 if rows[0].dtype == np.uint64 else -LARGEST
    return [np.clip(row, row.dtype.type(least), row.dtype.type(LARGEST)) for row in rows] if name in LARGE else rows


# Columns that ops on lists of numbers take.
LISTED = [*NUMERIC, "large", "triples", "empty", "no_lists", "no_elements"]


@pytest.mark.parametrize("dataset", ["lists", "plain"])
@pytest.mark.parametrize("name", LIST_CASES)
def test_ops_on_lists_match_numpy(client: fb.Client, name: str, dataset: str):
    case = LIST_CASES[name]
    got = features(client, dataset, {c: fb.output(case.op(small(c)), dtype="float32") for c in LISTED})
    for column in LISTED:
        want, about = case.oracle(small_numbers_of(column, FILL)), f"{name} of {column}"
        with np.errstate(all="ignore"):
            if isinstance(want, np.ndarray):
                want = want.astype(np.float32)
                same_bits(got[column], want[:, 0] if want.shape[1] == 1 else want, about)
            else:
                same_lists(got[column], [row.astype(np.float32) for row in want], about)


def test_pads_that_the_column_cannot_hold_widen_to_float64(client: fb.Client):
    chains = {
        "uint64": (small("uint64").fill_null(0).pad(5, -1), -1.0),
        "int64": (small("int64").fill_null(0).pad(5, 0.5), 0.5),
        "nan": (small("int64").fill_null(0).pad(5, float("nan")), np.nan),
        "float32": (fb.cols("float32").fill_null(0).pad(5, 0.1), 0.1),
    }
    with np.errstate(all="ignore"):
        got = features(
            client, "lists", {name: fb.output(chain, dtype="float32") for name, (chain, _) in chains.items()}
        )
        for name, (_, value) in chains.items():
            source = small_numbers_of("int64" if name == "nan" else name, 0)
            kind = np.float32 if name == "float32" else np.float64
            want = first_of([row.astype(kind) for row in source], 5, value).astype(np.float32)
            same_bits(got[name], want, name)
    for chain in (fb.cols("int64").fill_null(0).pad(5, 0.5), small("int64").fill_null(0).pad(5, 1e300)):
        with pytest.raises(fb.InvalidRequest, match='"int64", row .* is not a float32'):
            features(client, "lists", {"o": chain})


@pytest.mark.parametrize("n", [1, 2, 6, 1000])
def test_first_n_and_last_n_take_the_lists_of_other_ops(client: fb.Client, n: int):
    chain = small("int8").fill_null(3).abs()
    outputs = {"both": chain.last_n(3).first_n(n), "later": chain.ngram(2, buckets=7).last_n(n)}
    outputs |= {"all": chain.ngram(2, buckets=7)}
    got = features(client, "lists", outputs)
    whole = [np.abs(row.astype(np.float32)) for row in small_numbers_of("int8", 3)]
    same_lists(got["both"], [row[-3:][:n] for row in whole], "both")
    same_lists(got["later"], [np.asarray(row)[-n:] for row in got["all"]], "later")


def test_fixed_size_lists_are_matrices(client: fb.Client):
    triples = ALL["triples"]
    filled = np.full((PRIME, 3), 3.0, np.float32)
    for i, row in enumerate(triples.to_pylist()):
        filled[i] = [3.0 if row is None or value is None else value for value in row or [None] * 3]
    chains = {
        "plain": (lambda c: c.fill_null(3), filled),
        "scaled": (lambda c: c.fill_null(3).standardize(mean=1, std=2), ((filled - 1.0) / 2).astype(np.float32)),
        "late": (lambda c: c.abs().fill_null(3), np.abs(filled)),
        "indices": (lambda c: c.fill_null(3).bucketize([0]), (filled >= 0).astype(np.int32)),
    }
    got = features(client, "lists", {name: op(fb.cols("triples")) for name, (op, _) in chains.items()})
    for name, (_, want) in chains.items():
        same_bits(got[name], want, name)
    side_by_side = [fb.cols("triples").fill_null(3), fb.cols("id"), fb.cols("triples").fill_null(3)]
    both = features(client, "plain", {"o": side_by_side})["o"]
    assert both.shape == (PRIME, 7)
    same_bits(both[:, :3], filled)
    same_bits(both[:, 4:], filled)
    # Ops that take lists still do.
    assert [len(row) for row in features(client, "lists", {"o": fb.cols("triples").first_n(2).fill_null(3)})["o"][:2]]
    with pytest.raises(fb.InvalidRequest, match='column "triples": element .* is null'):
        features(client, "lists", {"o": fb.cols("triples")})


def test_a_fit_over_fixed_size_lists_learns_from_every_element(client: fb.Client):
    plan = fb.Plan(outputs={"o": fb.cols("triples").fill_null(0).standardize()})
    got = features(client, "lists", client.fit("lists", plan).plan.outputs)["o"]
    assert abs(float(got.mean())) < 1e-3
    assert abs(float(got.std()) - 1) < 1e-3


@pytest.mark.parametrize("batch_size", [1, 2, 211, 5000])
def test_lists_of_every_batch_size(client: fb.Client, batch_size: int):
    chain = fb.output(fb.cols("int64").fill_null(3), dtype="int64")
    got = features(client, "lists", {"o": chain}, batch_size=batch_size)["o"]
    same_lists(got, numbers_of("int64", 3))


@pytest.mark.parametrize("name", ["empty", "no_lists"])
def test_lists_without_elements(client: fb.Client, name: str):
    got = features(client, "lists", {"o": fb.cols(name).fill_null(3)})["o"]
    assert [len(row) for row in got] == [0] * PRIME
    assert got[0].dtype == np.float32


def test_one_row(client: fb.Client):
    got = features(client, "one", {"o": fb.cols("int8").fill_null(0), "p": fb.cols("int8").fill_null(0).pad(3)})
    assert [len(row) for row in got["o"]] == [500]
    assert got["p"].shape == (1, 3)


DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "int32": np.int32, "int64": np.int64}


@pytest.mark.parametrize("dtype", [*DTYPES, "uint8", "bfloat16"])
def test_lists_support_every_dtype(client: fb.Client, dtype: str):
    chain = fb.output(fb.cols("int8").fill_null(3).abs(), dtype=dtype)
    got = features(client, "lists", {"o": chain})["o"]
    rows = [np.abs(row) for row in numbers_of("int8", 3)]
    if dtype == "bfloat16":
        want = [torch.from_numpy(row).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16) for row in rows]
    else:
        want = [row.astype(DTYPES.get(dtype, np.uint8)) for row in rows]
    same_lists(got, want, dtype)


# === Every op of single values does to elements what it does to a column of them ===


@pytest.mark.parametrize("name", ELEMENT_CASES)
def test_list_elements_are_computed_like_single_values(client: fb.Client, name: str):
    case = ELEMENT_CASES[name]
    chains = {kind: case.op(small(kind) if case.is_integer else fb.cols(kind)).fill_null(1) for kind in case.kinds}
    outputs = {kind: fb.output(chain, dtype="float32") for kind, chain in chains.items()}
    got, want = features(client, "lists", outputs), features(client, "flat", outputs)
    for kind in case.kinds:
        same_bits(np.concatenate(list(got[kind])), want[kind], f"{name} of {kind}")
        sizes = [0 if row is None else len(row) for row in rows_of(kind)]
        assert [len(row) for row in got[kind]] == sizes


@pytest.mark.parametrize("name", ["coded", "large_text"])
def test_text_of_any_encoding_gives_the_same_result(client: fb.Client, name: str):
    encoded = {"hash": lambda c: c.hash_bucket(10**6), "vocab": lambda c: c.vocab(values=["a", "é", "bb"])}
    outputs = {f"{op} {c}": encoded[op](fb.cols(c)).fill_null(0) for op in encoded for c in (name, "text")}
    for dataset in ("lists", "plain"):
        got = features(client, dataset, outputs)
        for op in encoded:
            same_lists(got[f"{op} {name}"], list(got[f"{op} text"]))
    want = [[0 if e is None else bucket(e.encode(), 10**6) for e in row or []] for row in LISTS["text"].to_pylist()]
    assert [row.tolist() for row in got["hash text"]] == want


def test_text_elements_are_filled_with_text(client: fb.Client):
    got = features(client, "lists", {"o": fb.cols("text").fill_null(text="é").hash_bucket(99)})["o"]
    want = [[bucket(("é" if e is None else e).encode(), 99) for e in row or []] for row in LISTS["text"].to_pylist()]
    assert [row.tolist() for row in got] == want


@pytest.mark.parametrize("name", LEARNING_CASES)
def test_fit_learns_from_elements_as_from_single_values(client: fb.Client, name: str):
    case = LEARNING_CASES[name]
    outputs = {kind: case.op(fb.cols(kind)).fill_null(0) for kind in case.kinds}
    of_lists, of_values = (client.fitted(dataset, fb.Plan(outputs=outputs)) for dataset in ("lists", "flat"))
    # All that is learned; the types of the columns differ.
    assert replace(of_lists.plan, types={}) == replace(of_values.plan, types={})
    got = features(client, "lists", of_lists.plan.outputs)
    want = features(client, "flat", of_lists.plan.outputs)
    for kind in case.kinds:
        same_bits(np.concatenate(list(got[kind])), want[kind], kind)


def test_fit_sees_only_what_first_n_keeps(client: fb.Client):
    plan = fb.Plan(outputs={"o": fb.cols("int8").first_n(2).vocab(), "m": fb.cols("int8").pad(2, 9).standardize()})
    ops = {
        out["name"]: out["parts"][0]["ops"][-1]
        for out in client.fitted("lists", plan).plan.to_dict()["outputs"]  # type: ignore[union-attr]
    }
    firsts = [e.as_py() for row in rows_of("int8") if row is not None for e in row[:2] if e.is_valid]
    assert sorted(ops["o"]["vocab"]["values"]["integers"]) == sorted(set(firsts))
    padded = [e for row in rows_of("int8") if row is not None for e in ([*row.to_pylist(), 9, 9])[:2]]
    known = np.array([e for e in padded if e is not None], np.float64)
    assert ops["m"]["standardize"]["mean"] == pytest.approx(known.mean(), rel=1e-14)
    assert ops["m"]["standardize"]["std"] == pytest.approx(known.std(), rel=1e-14)


# === multi_hot, ngram ===


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int32"])
def test_multi_hot_marks_each_index_once(client: fb.Client, dtype: str):
    encoded: dict[str, fb.Columns] = {
        "text": fb.cols("text").hash_bucket(7).fill_null(0).multi_hot(),
        "coded": fb.cols("coded").vocab(values=["a", "b"]).fill_null(0).multi_hot(),
        "int8": fb.cols("int8").fill_null(0).bucketize([0, 9]).multi_hot(5),
    }
    got = features(client, "lists", {name: fb.output(chain, dtype=dtype) for name, chain in encoded.items()})
    codes: dict[str, tuple[int, Callable[[Any], int]]] = {
        "text": (7, lambda e: 0 if e is None else bucket(e.encode(), 7)),
        "coded": (3, lambda e: {"a": 1, "b": 2}.get(e, 0)),
        "int8": (5, lambda e: int((e or 0) >= 0) + int((e or 0) >= 9)),
    }
    for name, (size, code) in codes.items():
        want = np.zeros((PRIME, size), np.dtype(dtype))
        for i, row in enumerate(ALL[name].to_pylist()):
            want[i, [code(e) for e in row or []]] = 1
        same_bits(got[name], want, name)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 256])
def test_ngram_is_xxhash_of_the_runs(client: fb.Client, n: int):
    names = [*KINDS, "coded", "large"]
    outputs = {
        f"{name} {buckets}": fb.output(fb.cols(name).ngram(n, buckets=buckets, seed=seed).fill_null(0), dtype="int64")
        for name in names
        for buckets, seed in ((1000, 0), (INT64_MAX, 5))
    }
    got = features(client, "lists", outputs)
    for name in names:
        pieces = [components(row) if row is not None else [] for row in rows_of(name)]
        for buckets, seed in ((1000, 0), (INT64_MAX, 5)):
            want = [
                np.array([tuple_bucket(row[i : i + n], buckets, seed) for i in range(len(row) - n + 1)], np.int64)
                for row in pieces
            ]
            same_lists(got[f"{name} {buckets}"], want, name)


def test_ngrams_are_padded_and_laid_out(client: fb.Client):
    chain = fb.cols("text").ngram(2, buckets=11).fill_null(0)
    got = features(client, "lists", {"o": chain, "pad": chain.pad(3), "hot": chain.multi_hot()})
    assert got["hot"].shape == (PRIME, 11)
    for i, row in enumerate(got["o"]):
        assert got["pad"][i].tolist() == [*row[:3].tolist(), 0, 0, 0][:3]
        assert np.flatnonzero(got["hot"][i]).tolist() == sorted(set(row.tolist()))


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_lists_of_a_hundred_thousand_elements(client: fb.Client, batch_size: int):
    filled = fb.cols("numbers").fill_null(3)
    outputs = {
        "roots": fb.output(filled.sqrt(), dtype="float32"),
        "pairs": fb.cols("numbers").ngram(2, buckets=1009).fill_null(0),
        "pad": fb.output(filled.pad(65_536, -1), dtype="int32"),
        "first": fb.output(filled.first_n(70), dtype="int32"),
        "hot": filled.multi_hot(99),
    }
    got = features(client, "huge", outputs, batch_size=batch_size)
    rows = [np.array([3 if e is None else e for e in row or []], np.int64) for row in HUGE["numbers"]]
    same_lists(got["roots"], [np.sqrt(row).astype(np.float32) for row in rows])
    same_lists(got["first"], [row[:70].astype(np.int32) for row in rows])
    same_bits(got["pad"], first_of(rows, 65_536, -1).astype(np.int32))
    for i, row in enumerate(HUGE["numbers"]):
        pieces = [None if e is None else bytes_of(e) for e in row or []]
        assert got["pairs"][i].tolist() == [tuple_bucket(pair, 1009) for pair in itertools.pairwise(pieces)]
        assert np.flatnonzero(got["hot"][i]).tolist() == sorted(set(rows[i].tolist()))


def test_elements_of_a_mebibyte(client: fb.Client):
    chain = fb.cols("text")
    outputs = {
        "hash": chain.hash_bucket(10**6).fill_null(0),
        "vocab": chain.vocab(values=[HUGE["text"][0][0], "a"]).fill_null(0),
        "pairs": chain.ngram(2, buckets=1009).fill_null(0),
    }
    got = features(client, "huge", outputs)
    for i, row in enumerate(HUGE["text"]):
        elements_of = row or []
        assert got["hash"][i].tolist() == [0 if e is None else bucket(e.encode(), 10**6) for e in elements_of]
        assert got["vocab"][i].tolist() == [{HUGE["text"][0][0]: 1, "a": 2}.get(e, 0) for e in elements_of]
        pieces = [None if e is None else e.encode() for e in elements_of]
        assert got["pairs"][i].tolist() == [tuple_bucket(pair, 1009) for pair in itertools.pairwise(pieces)]


# === The shapes of outputs ===


def test_padded_columns_are_adjacent_and_take_further_ops(client: fb.Client):
    chain = fb.cols("int8", "date").fill_null(0).pad(3, 7).standardize(mean=1, std=2)
    got = features(client, "lists", {"o": [chain, fb.cols("id")]})["o"]
    both = [(first_of(numbers_of(name, 0), 3, 7).astype(np.float64) - 1) / 2 for name in ("int8", "date")]
    same_bits(got, np.concatenate([*both, np.arange(PRIME)[:, None]], axis=1).astype(np.float32))


def test_each_padded_column_is_one_hot_encoded(client: fb.Client):
    got = features(client, "lists", {"o": fb.cols("bool").fill_null(0).pad(2).vocab(values=[1]).one_hot()})["o"]
    same_bits(got, np.eye(2)[first_of(numbers_of("bool", 0), 2, 0)].reshape(PRIME, 4).astype(np.float32))


def test_shuffled_stream_moves_whole_lists(server: Server):
    plan = fb.Plan(
        outputs={
            "x": fb.output(fb.cols("int64").fill_null(3), dtype="int64"),
            "id": fb.output(fb.cols("id"), dtype="int64"),
        }
    )
    want = numbers_of("int64", 3)
    seen: list[int] = []
    data = FlightDataset(server.url, "lists", plan, batch_size=64, shuffle=True, seed=4, window_rows=100)
    bag = torch.nn.EmbeddingBag(10, 2, include_last_offset=True)
    for batch in data:
        values, offsets = batch["x"]
        assert values.dtype == torch.int64
        assert bag(values.remainder(10), offsets).shape == (len(offsets) - 1, 2)
        for i, row in enumerate(batch["id"].tolist()):
            assert values[offsets[i] : offsets[i + 1]].tolist() == want[row].tolist()
            seen.append(row)
    assert sorted(seen) == list(range(PRIME))
    assert seen != sorted(seen)


def test_lists_pass_through_as_stored(client: fb.Client):
    with client.stream("lists", fb.Plan(outputs={c: fb.cols(c).as_stored() for c in ALL}), batch_size=500) as stream:
        batches = [batch.data for batch in stream]
    got = pa.Table.from_batches(batches)
    for name, array in ALL.items():
        assert got[name].to_pylist() == array.to_pylist() or name in ("float16", "float32", "float64")


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"o": fb.cols("int8")}, ['"int8"', "null", "fill_null"]),
        ({"o": fb.cols("no_elements")}, ['"no_elements"', "null", "fill_null"]),
        ({"o": fb.cols("no_lists")}, ['"no_lists"', "null", "fill_null"]),
        ({"o": fb.cols("int8").pad(3)}, ['"int8"', "null", "fill_null"]),
        ({"o": [fb.cols("int8").fill_null(0), fb.cols("id")]}, ["pad"]),
        ({"o": fb.cols("int8", "int64").fill_null(0)}, ["pad"]),
        ({"o": fb.cols("text")}, ['"text"']),
        ({"o": fb.cols("text").pad(3)}, ['"text"', "pad", "numbers"]),
        ({"o": fb.cols("bytes").vocab(values=["a"])}, ['"bytes"']),
        ({"o": fb.cols("int8").fill_null(0).one_hot(3)}, ['"int8"', "one_hot", "list"]),
        ({"o": fb.cols("id").multi_hot(3)}, ['"id"', "multi_hot", "list"]),
        ({"o": fb.cols("id").pad(3)}, ['"id"', "pad", "list"]),
        ({"o": fb.cols("id").first_n(3)}, ['"id"', "first_n", "list"]),
        ({"o": fb.cols("id").ngram(2, buckets=3)}, ['"id"', "ngram", "list"]),
        ({"o": fb.cols("int8").pad(3).pad(3)}, ['"int8"', "pad"]),
        ({"o": fb.cols("int8").cross("id", buckets=3)}, ['"int8"', "cross"]),
        ({"o": fb.cols("id").cross("int8", buckets=3)}, ["cross", "list"]),
        ({"o": fb.cols("text").hash_bucket(5).multi_hot()}, ['"text"', "null", "fill_null"]),
        ({"o": fb.cols("int8").fill_null(0).multi_hot(3)}, ['"int8"', "multi_hot"]),
        ({"o": fb.cols("text").hash_bucket(5).fill_null(0).multi_hot().clip(0, 1)}, ["multi_hot"]),
        ({"o": fb.cols("text").multi_hot(3)}, ['"text"', "multi_hot"]),
        ({"o": fb.cols("float32").sigrid_hash(max_value=5)}, ['"float32"', "sigrid_hash"]),
        ({"o": fb.output(fb.cols("float32").fill_null(0), dtype="int32")}, ['"float32"', "INT32"]),
    ],
)
def test_rejects_unsupported_list_outputs_with_a_remedy(client: fb.Client, outputs: dict[str, Any], words: list[str]):
    with pytest.raises(fb.InvalidRequest) as caught:
        features(client, "lists", outputs)
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"
