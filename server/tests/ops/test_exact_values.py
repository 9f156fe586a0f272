"""Parameters that are values of a column keep all their digits: integers beyond 2^53 and 2^63, the largest floats."""

from __future__ import annotations

import bisect
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.ops.hashes import bucket
from harness.ops.tables import INT64_MAX, INT64_MIN, UINT64_MAX, features
from harness.serving import Serve, info

ROWS = 601
# float64 rounds each of them, except the small ones, to another.
SIGNED = [
    *(0, 1, -1, 7, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3, -(2**53) - 1, -(2**53)),
    *(2**62 + 1, 2**62 + 3, INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1),
]
UNSIGNED = [0, 1, 7, 2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3, 2**63 - 1, 2**63, 2**63 + 1, UINT64_MAX - 1, UINT64_MAX]
VALUES = {"int64": SIGNED, "uint64": UNSIGNED}


def column(kind: str, seed: int) -> list[int | None]:
    """Integers drawn unevenly, every tenth a null."""
    source = random.Random(f"{kind} {seed}")
    values = VALUES[kind]
    weights = [source.random() ** 3 for _ in values]
    drawn = source.choices(values, weights, k=ROWS)
    return [None if source.random() < 0.1 else value for value in drawn]


DATA = {f"{kind} {seed}": column(kind, seed) for kind in VALUES for seed in range(6)}
NAMES = list(DATA)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("exact")
    fields = {name: pa.array(values, pa.type_for_alias(name.split()[0])) for name, values in DATA.items()}
    pq.write_table(pa.table(fields), root / "rows.parquet", row_group_size=97)
    with fb.connect(serve({"rows": root / "rows.parquet"}).url) as connected:
        yield connected


def learned(client: fb.Client, dataset: str, chain: fb.Columns) -> dict[str, Any]:
    """The last op of a chain after its fit."""
    return ops_of(client, dataset, fb.output(chain, dtype="int64"))[0][-1]


def ops_of(client: fb.Client, dataset: str, output: fb.Columns | list[fb.Columns] | fb.Output) -> list[list[Any]]:
    """The ops of every part of an output after its fit."""
    fitted = client.fitted(dataset, fb.Plan(outputs={"o": output}))
    assert isinstance(fitted, fb.FittedPlan)
    return [part["ops"] for part in fitted.plan.to_dict()["outputs"][0]["parts"]]  # type: ignore[index]


def by_count(values: list[int]) -> list[int]:
    counts = Counter(values)
    return sorted(counts, key=lambda value: (-counts[value], value))


@pytest.mark.parametrize("name", NAMES)
def test_mode_is_a_value_of_the_column_and_later_ops_see_it(client: fb.Client, name: str):
    present = [value for value in DATA[name] if value is not None]
    mode = by_count(present)[0]
    fill = learned(client, "rows", fb.cols(name).fill_null("mode"))["fill_null"]
    assert list(fill.values()) == [mode]
    assert next(iter(fill)) in (("unsigned", "integer") if name.startswith("u") else ("integer",))
    filled = [mode if value is None else value for value in DATA[name]]
    vocab, hashed = fb.cols(name).fill_null("mode").vocab(), fb.cols(name).fill_null("mode").hash_bucket(10**6)
    values = learned(client, "rows", vocab)["vocab"]["values"]
    assert next(iter(values.values())) == by_count(filled), "no value that the data does not have"
    got = features(client, "rows", {"v": vocab, "h": hashed})
    places = {value: place for place, value in enumerate(by_count(filled), 1)}
    assert got["v"].tolist() == [places[value] for value in filled]
    signed = not name.startswith("u")
    assert got["h"].tolist() == [bucket(value.to_bytes(8, "little", signed=signed), 10**6) for value in filled]


@pytest.mark.parametrize("name", NAMES)
def test_integer_medians_are_exact(client: fb.Client, name: str):
    present = sorted(value for value in DATA[name] if value is not None)
    low, high = statistics.median_low(present), statistics.median_high(present)
    found = next(iter(learned(client, "rows", fb.cols(name).fill_null("median"))["fill_null"].values()))
    if (low + high) % 2 == 0:
        assert int(found) == (low + high) // 2
    else:
        assert found == np.float64(low) / 2 + np.float64(high) / 2


@pytest.mark.parametrize("name", NAMES)
def test_clip_and_bucketize_compare_integers_with_integers(client: fb.Client, name: str):
    source, values = random.Random(name), VALUES[name.split()[0]]
    taken = [0 if value is None else value for value in DATA[name]]
    chain = fb.cols(name).fill_null(0)
    for _ in range(4):
        low, high = sorted(source.sample(values, 2))
        edges = sorted(set(source.sample(values, 4)))
        outputs = {
            # Each clipped value is one of the column's, so a vocabulary tells which.
            "clip": chain.clip(low, high).vocab(values=np.array(values, name.split()[0])),
            "edges": chain.bucketize(edges),
        }
        got = features(client, "rows", outputs)
        assert got["clip"].tolist() == [values.index(min(max(value, low), high)) + 1 for value in taken], (low, high)
        assert got["edges"].tolist() == [bisect.bisect_right(edges, value) for value in taken], edges


@pytest.mark.parametrize("name", NAMES)
def test_integer_quantiles_split_at_exact_values(client: fb.Client, name: str):
    present = sorted(value for value in DATA[name] if value is not None)
    taken = [present[0] if value is None else value for value in DATA[name]]
    got = features(client, "rows", {"o": fb.cols(name).fill_null(present[0]).bucketize(quantiles=4)})["o"]
    ranked = sorted(taken)
    # 601 rows: the quartiles are those of row 150, 300 and 450 themselves.
    edges = [ranked[150], ranked[300], ranked[450]]
    assert got.tolist() == [bisect.bisect_right(edges, value) for value in taken]


def test_map_id_accepts_ids_of_the_whole_range(client: fb.Client):
    for name in NAMES:
        values = VALUES[name.split()[0]]
        mapping = {value: place for place, value in enumerate(values[::2])}
        got = features(client, "rows", {"o": fb.cols(name).map_id(mapping, default=-1).fill_null(-2)})["o"]
        assert got.tolist() == [-2 if value is None else mapping.get(value, -1) for value in DATA[name]]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"clip": {"min": 1, "min_integer": 2}}, ["clip", "one of min, min_integer and min_unsigned"]),
        ({"clip": {"min_integer": 3, "max_unsigned": 2}}, ["clip", "min 3 is greater than max 2"]),
        ({"bucketize": {"boundaries": [1], "integers": [2]}}, ["bucketize", "only one of"]),
        ({"map_id": {"ids": [1], "unsigned": [2], "values": [3]}}, ["map_id", "only one of ids and unsigned"]),
    ],
)
def test_rejects_parameters_given_twice(client: fb.Client, op: dict[str, Any], words: list[str]):
    part = {"columns": ["int64 0"], "ops": [op]}
    plan = {"outputs": [{"name": "o", "dtype": "INT64", "parts": [part]}]}
    with fl.connect(client.url) as bare, pytest.raises(pa.ArrowInvalid) as caught:
        info(bare, {"dataset": "rows", "plan": plan})
    for word in words:
        assert word in str(caught.value)


HUGE = {
    "pair": [-1e308, 1e308],
    "three": [-1e308, 0.0, 1e308],
    "apart": [-1e308, -1e308, 0.0, 1e308, 1e308],
    "near": [-1e308, -1.0, 0.0, 1.0, 1e308],
    "largest": [-1.7e308, 1.7e308, 1.7e308, 1.7e308],
}


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("huge")
    for name, values in {**HUGE, "infinite": [1.0, 2.0, float("inf")]}.items():
        pq.write_table(pa.table({"x": values}), root / f"{name}.parquet")
    with fb.connect(serve({path.stem: path for path in root.iterdir()}).url) as connected:
        yield connected


def exact_quantile(values: list[float], share: float) -> float:
    """Linear between neighbours, in exact fractions."""
    place = Fraction(share) * (len(values) - 1)
    below = int(place)
    a, b = Fraction(values[below]), Fraction(values[min(below + 1, len(values) - 1)])
    return float(a + (b - a) * (place - below))


@pytest.mark.parametrize("name", HUGE)
def test_quartiles_of_finite_values_are_finite(huge: fb.Client, name: str):
    values = HUGE[name]
    low, center, high = (exact_quantile(values, share) for share in (0.25, 0.5, 0.75))
    if np.isinf(high - low):
        with pytest.raises(fb.ForebayError, match="the distance between its quartiles.*exceeds the range of float64"):
            learned(huge, name, fb.cols("x").robust())
        return
    op = ops_of(huge, name, fb.cols("x").robust())[0][0]["robust"]
    assert (op["center"], op["scale"]) == (center, high - low)


@pytest.mark.parametrize("name", HUGE)
def test_scales_of_finite_values_are_finite_or_report_the_overflow(huge: fb.Client, name: str):
    values = HUGE[name]
    with pytest.raises(fb.ForebayError, match="smallest and its largest value.*exceeds the range of float64"):
        huge.fitted(name, fb.Plan(outputs={"o": fb.cols("x").min_max()}))
    chains = [fb.cols("x").standardize(), fb.cols("x").max_abs(), fb.cols("x").fill_null("median")]
    standardize, max_abs, fill = (ops[0] for ops in ops_of(huge, name, chains))
    mean = sum(map(Fraction, values)) / len(values)
    variance = sum((Fraction(value) - mean) ** 2 for value in values) / len(values)
    assert standardize["standardize"]["mean"] == float(mean)
    assert standardize["standardize"]["std"] == pytest.approx(float(variance / 10**616) ** 0.5 * 1e308, rel=1e-14)
    assert max_abs["max_abs"]["max_abs"] == max(map(abs, values))
    assert fill["fill_null"]["value"] == exact_quantile(values, 0.5)


def test_only_infinite_values_are_reported_as_infinite(huge: fb.Client):
    for chain in (fb.cols("x").standardize(), fb.cols("x").min_max(), fb.cols("x").bucketize(quantiles=4)):
        with pytest.raises(fb.ForebayError, match="has infinite values"):
            huge.fitted("infinite", fb.Plan(outputs={"o": chain}))
