"""Fitted statistics of numbers match exact arithmetic, NumPy and scikit-learn's definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve

# Rows of a row group; every table is fitted under each of them.
ROW_GROUPS = (1_000_000, 7)
PRIME = 1009

Numbers = Sequence[float | None] | Sequence[int | None]

random = np.random.default_rng(5)
TABLES: dict[str, pa.Array] = {
    "one_apart_at_1e9": pa.array([1e9 - 1, 1e9 + 1] * 500),
    "near_1e9": pa.array(1e9 + random.normal(0, 1, PRIME)),
    "huge": pa.array(random.normal(0, 1, PRIME) * 1e300),
    "largest": pa.array([1.7976931348623157e308] * 3 + [-1.7976931348623157e308] * 2),
    "denormal": pa.array(random.integers(1, 1000, PRIME) * 5e-324),
    "every_exponent": pa.array(np.ldexp(random.normal(0, 1, 2000), random.integers(-1060, 1000, 2000))),
    "signs_in_turn": pa.array([1e16, 1.0, -1e16, -1.0] * 250 + [0.1]),
    "one_row": pa.array([0.1]),
    "zero_variance": pa.array([0.1] * PRIME),
    "gaps": pa.array([None if i % 3 == 0 else i / 7 for i in range(PRIME)], pa.float64()),
    "nan_is_missing": pa.array([1.0, float("nan"), 2.0, None]),
    "float32": pa.array(random.normal(1e6, 1, PRIME).astype(np.float32)),
    "int_at_2_53": pa.array([2**53 + 1, 2**53 + 3, -(2**53) - 5] * 7, pa.int64()),
    "int_at_2_63": pa.array([2**63 - 1, -(2**63), 2**63 - 2, 3] * 3, pa.int64()),
    "uint_at_2_64": pa.array([2**64 - 1, 2**64 - 3, 0] * 3, pa.uint64()),
    "small_ints": pa.array(random.integers(-9, 9, PRIME), pa.int8()),
}


def written(folder: Path) -> dict[str, Path]:
    """Each table under each size of row group."""
    paths: dict[str, Path] = {}
    for name, column in TABLES.items():
        for rows in ROW_GROUPS:
            root = folder / f"{name}-{rows}"
            root.mkdir()
            pq.write_table(pa.table({"x": column}), root / "part.parquet", row_group_size=rows)
            paths[root.name] = root
    root = folder / "all_null"
    root.mkdir()
    pq.write_table(pa.table({"x": pa.array([None, None], pa.float64())}), root / "part.parquet")
    return {**paths, "all_null": root}


@pytest.fixture(scope="module")
def client(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> fb.Client:
    return fb.connect(serve(written(tmp_path_factory.mktemp("exact"))).url)


def values_of(name: str) -> list[Fraction]:
    read = TABLES[name].to_pylist()
    return [Fraction(x) for x in read if x is not None and not (isinstance(x, float) and math.isnan(x))]


def learned(client: fb.Client, dataset: str, *chain: Any) -> dict[str, Any]:
    plan = fb.Plan(outputs={f"o{i}": part for i, part in enumerate(chain)})
    outputs = client.fit(dataset, plan, progress=False).plan.to_dict()["outputs"]
    ops = [op for output in outputs for part in output["parts"] for op in part["ops"]]  # type: ignore[union-attr,index]
    return {name: body for op in ops for name, body in op.items()}


def root_of(square: Fraction) -> float:
    """The float nearest to the square root: half-way points are compared without rounding."""
    if square == 0:
        return 0.0
    shift = max(0, 140 - (square.numerator.bit_length() - square.denominator.bit_length())) // 2 + 1200
    whole = math.isqrt((square.numerator << (2 * shift)) // square.denominator)
    # More digits than any float's half-way point has, and a last one for what is behind them.
    return float(Fraction(2 * whole + 1, 2 << shift))


@pytest.mark.parametrize("rows", ROW_GROUPS)
@pytest.mark.parametrize("name", TABLES)
def test_means_and_deviations_are_the_exact_ones_rounded_once(client: fb.Client, name: str, rows: int):
    values = values_of(name)
    mean = sum(values) / len(values)
    variance = sum((x - mean) ** 2 for x in values) / len(values)
    found = learned(client, f"{name}-{rows}", fb.cols("x").fill_null("mean"), fb.cols("x").standardize())
    assert found["fill_null"]["value"] == float(mean)
    assert (found["standardize"]["mean"], found["standardize"]["std"]) == (float(mean), root_of(variance))


# NumPy's own interpolation overflows between the largest floats of both signs.
@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"largest"}))
def test_bounds_medians_and_quantiles_are_numpys(client: fb.Client, name: str):
    values = np.array([float(x) for x in values_of(name)])
    chains = [fb.cols("x").min_max(), fb.cols("x").fill_null("median")]
    quartiles = np.quantile(values, [1 / 4, 2 / 4, 3 / 4])
    spread = len(np.unique(quartiles)) == 3
    if spread:
        chains.append(fb.cols("x").bucketize(quantiles=4))
    found = learned(client, f"{name}-7", *chains)
    assert (found["min_max"]["min"], found["min_max"]["max"]) == (values.min(), values.max())
    if pa.types.is_integer(TABLES[name].type) and np.abs(values).max() > 2**53:
        # NumPy goes through float64, which does not have these integers: they are learned as what they are.
        exact = [quantile(sorted(values_of(name)), Fraction(k, 4)) for k in (1, 2, 3)]
        assert list(found["fill_null"].values()) == [exact[1] if exact[1].denominator == 1 else quartiles[1]]
        if spread:
            edges = found["bucketize"].get("integers") or found["bucketize"]["unsigned"]
            assert edges == [math.ceil(edge) for edge in exact], "integers reach an edge if they reach the next integer"
        return
    assert found["fill_null"]["value"] == quartiles[1]
    if spread:
        assert found["bucketize"]["boundaries"] == list(quartiles)


def quantile(values: list[Fraction], share: Fraction) -> Fraction:
    """Linear between neighbours, without rounding."""
    place = share * (len(values) - 1)
    below = int(place)
    after = values[min(below + 1, len(values) - 1)]
    return values[below] + (after - values[below]) * (place - below)


def test_missing_training_values_are_reported_with_the_op(client: fb.Client):
    for part in (fb.cols("x").standardize(), fb.cols("x").fill_null("median"), fb.cols("x").fill_null("mode")):
        with pytest.raises(fb.FailedPrecondition, match=r"outputs\[0\].*every passing row is null"):
            client.fit("all_null", fb.Plan(outputs={"o": part}), progress=False)


def test_quantiles_are_exact_up_to_a_million_distinct_values_and_within_the_stated_error_above(
    serve: Serve, tmp_path: Path
):
    # The limit is 2^20 distinct values: the first has 1,040,001 of them, a fifth of its rows being 0, the second more.
    below = np.random.default_rng(3).lognormal(0, 3, 1_300_000)
    below[::5] = 0
    above = np.random.default_rng(4).lognormal(0, 3, 1_300_000)
    roots: dict[str, Path] = {}
    for name, values in (("below", below), ("above", above)):
        for rows in (2_000_000, 99_991):
            root = roots[f"{name}-{rows}"] = tmp_path / f"{name}-{rows}"
            root.mkdir()
            pq.write_table(pa.table({"x": values}), root / "part.parquet", row_group_size=rows)
    shares = np.arange(1, 100) / 100
    with fb.connect(serve(roots).url) as connected:
        edges = {
            name: learned(connected, name, fb.cols("x").bucketize(quantiles=100))["bucketize"]["boundaries"]
            for name in ("above-2000000", "above-99991")
        }
        medians = [
            learned(connected, name, fb.cols("x").fill_null("median"))["fill_null"]["value"]
            for name in ("below-2000000", "below-99991")
        ]
    assert medians == [np.median(below)] * 2
    assert edges["above-2000000"] == edges["above-99991"], "the cut into row groups is seen"
    off = np.abs(np.searchsorted(np.sort(above), edges["above-99991"]) / len(above) - shares).max()
    assert 0 < off <= 1e-3, "0 would be exact, and this test none of the error"
