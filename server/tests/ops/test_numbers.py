"""Ops on numbers against NumPy, for every stored type, to the bit."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from harness.ops.conformance import INTEGER_CASES, NUMBER_CASES, OPS, Scaler
from harness.ops.oracles import divided, real
from harness.ops.tables import PRIME, domain, features, is_exact, narrowest, nulls, numbers, same_bits, write
from harness.serving import Serve

FILL = 7.0
SHAPES = {"one": 1, "prime": PRIME, "many": 10_007}
TABLE = numbers()
COLUMNS = TABLE.column_names
FLOATING = [name for name in COLUMNS if domain(TABLE[name].combine_chunks()).dtype.kind == "f"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("numbers")
    for name, rows in SHAPES.items():
        write(root / name, numbers(max(rows, 64)).slice(0, rows))
    write(root / "plain", TABLE, use_dictionary=False, compression="none")
    write(root / "full", table("full"))
    with fb.connect(serve({place.name: place for place in root.iterdir()}).url) as connected:
        yield connected


@functools.cache
def table(dataset: str) -> pa.Table:
    if dataset == "full":
        return numbers(share_null=0)
    return TABLE if dataset == "plain" else numbers(max(SHAPES[dataset], 64)).slice(0, SHAPES[dataset])


@pytest.mark.parametrize("dataset", [*SHAPES, "plain", "full"])
@pytest.mark.parametrize("name", NUMBER_CASES)
def test_every_type_matches_numpy_bitwise(client: fb.Client, name: str, dataset: str):
    op, oracle = NUMBER_CASES[name]
    wants: dict[str, np.ndarray] = {}
    for column, array in zip(COLUMNS, table(dataset).itercolumns(), strict=True):
        array = array.combine_chunks()
        with np.errstate(all="ignore"):
            wants[column] = oracle(domain(array))
        wants[column][nulls(array)] = FILL
    dtypes = {column: narrowest(want) for column, want in wants.items()}
    chains = {column: op(fb.cols(column)).fill_null(FILL) for column in COLUMNS}
    chosen = {column: fb.output(chains[column], dtype=dtype) for column, dtype in dtypes.items() if dtype}
    got = features(client, dataset, chosen)
    for column, dtype in dtypes.items():
        if dtype:
            with np.errstate(all="ignore"):
                same_bits(got[column], wants[column].astype(dtype), f"{name} of {column}")
        if dtype != "float32":
            with pytest.raises(fb.InvalidRequest, match=f'"{column}", row .* is not a float32'):
                features(client, dataset, {"o": fb.output(chains[column], dtype="float32")})


WHOLE = [name for name in COLUMNS if name not in FLOATING]


@pytest.mark.parametrize("name", INTEGER_CASES)
def test_whole_numbers_stay_whole(client: fb.Client, name: str):
    op, oracle = INTEGER_CASES[name]
    wants = {column: oracle(domain(TABLE[column].combine_chunks())) for column in WHOLE}
    # Integers beyond int64 are an error.
    chosen = [column for column, want in wants.items() if is_exact(want, "int64")]
    assert {*WHOLE} - {*chosen} <= {"uint64"}
    outputs = {c: fb.output(op(fb.cols(c)).fill_null(7), dtype="int64") for c in chosen}
    got = features(client, "prime", outputs)
    for column in chosen:
        want = wants[column].astype(np.int64)
        want[nulls(TABLE[column].combine_chunks())] = 7
        same_bits(got[column], want, f"{name} of {column}")


@pytest.mark.parametrize("column", ["bool", "int8", "uint64", "float16", "float32", "float64", "decimal_9_2", "null"])
def test_nulls_are_filled_in_the_columns_own_type(client: fb.Client, column: str):
    values, gaps = domain(TABLE[column].combine_chunks()), nulls(TABLE[column].combine_chunks())
    fills = [0.5, -1, 2**53, 1e300, float("nan"), float("-inf")]
    for fill in fills:
        with np.errstate(all="ignore"):
            is_float = values.dtype.kind == "f"
            fits = not is_float and float(fill).is_integer() and abs(fill) < 2**63
            fits = fits and (fill >= 0 or values.dtype != np.uint64)
            want = values.copy() if fits else real(values)
            want[gaps] = fill
        # Integers that became float64 with the fill are still the column's.
        whole = want[np.isfinite(want) & (want == np.floor(want))] if not (is_float or fits) else want
        exact = is_float or ((np.abs(whole) <= 2.0**53).all() and (whole == whole.astype(np.float32)).all())
        output = {"o": fb.output(fb.cols(column).fill_null(fill), dtype="float32")}
        if not exact or (fits and narrowest(want) != "float32"):
            with pytest.raises(fb.InvalidRequest, match=f'"{column}", row .* is not a float32'):
                features(client, "prime", output)
            continue
        with np.errstate(all="ignore"):
            same_bits(features(client, "prime", output)["o"], want.astype(np.float32), f"{column} filled with {fill}")


# === What a fit learns ===


def learned(rows: int) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Columns without infinities, and the finite values that a fit sees: no nulls, no NaN."""
    random = np.random.default_rng(rows)
    raw = {
        "normal": random.normal(1e6, 3, rows),
        "wide": random.lognormal(0, 5, rows),
        "single": random.normal(-5, 100, rows).astype(np.float32),
        "whole": random.integers(-(2**31), 2**31, rows),
        "constant": np.full(rows, 4.25),
        "zeros": np.zeros(rows),
        "nearly": 1.0 + 1e-17 * random.random(rows),
        "little": 1e-17 * random.random(rows),
        "least": 5e-324 * random.integers(0, 9, rows),
        "bound": np.where(random.random(rows) < 0.5, 0.0, 10 * 2.0**-52),
    }
    seen: dict[str, np.ndarray] = {}
    columns: dict[str, pa.Array] = {}
    for name, values in raw.items():
        gaps = random.random(rows) < 0.1
        gaps[0] = False
        if values.dtype.kind == "f":
            values = values.copy()
            values[(random.random(rows) < 0.05) & (np.arange(rows) > 0)] = np.nan
        columns[name] = pa.array(values, mask=gaps)
        seen[name] = values[~gaps & ~np.isnan(values)].astype(np.float64)
    return pa.table(columns), seen


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("fits")
    for rows in (1, 2, 3, 4, PRIME):
        write(root / f"rows{rows}", learned(rows)[0])
    write(root / "null", pa.table({"x": pa.nulls(5, pa.float64()), "nan": np.full(5, np.nan)}))
    with fb.connect(serve({place.name: place for place in root.iterdir()}).url) as connected:
        yield connected


SCALERS = {name: op.scaler for name, op in OPS.items() if op.scaler}


def parameters(plan: fb.Plan, name: str) -> dict[str, float]:
    """What was learned for a column."""
    ((_, fields),) = next(
        part["ops"][0].items()
        for out in plan.to_dict()["outputs"]  # type: ignore[union-attr]
        for part in out["parts"]
        if part["columns"] == [name]
    )
    return fields


@pytest.mark.parametrize("rows", [1, 2, 3, 4, PRIME])
@pytest.mark.parametrize("op", SCALERS)
def test_learned_statistics_match_sklearn(fits: fb.Client, op: str, rows: int):
    scaler = SCALERS[op]
    table, seen = learned(rows)
    dataset = f"rows{rows}"
    plan = fb.Plan(outputs={name: fb.output(scaler.op(fb.cols(name)).fill_null(0)) for name in table.column_names})
    fitted = fits.fitted(dataset, plan)
    got = features(fits, dataset, fitted.plan.outputs)
    for name in table.column_names:
        oracle = scaler.sklearn().fit(seen[name].reshape(-1, 1))
        found, about = parameters(fitted.plan, name), f"{op} of {name}, {rows} rows"
        assert found == scaler.expected(oracle, seen[name]), about
        check_scaled(got[name], table[name].combine_chunks(), oracle, scaler, found, about)


def check_scaled(got: np.ndarray, array: pa.Array, oracle: object, scaler: Scaler, found: dict[str, float], about: str):
    """The numbers are those of what was learned, to the bit, and sklearn's within rounding."""
    values, gaps = domain(array), nulls(array)
    shift, divisor = scaler.scale(found)
    want = divided(values, shift, 1.0 if divisor < scaler.least_divisor else divisor).astype(np.float32)
    want[gaps] = 0
    same_bits(got, want, about)
    if scaler.is_sklearns(shift, divisor):
        theirs = oracle.transform(values.astype(np.float64).reshape(-1, 1))[:, 0]  # type: ignore[attr-defined]
        theirs[gaps] = 0
        np.testing.assert_allclose(got, theirs.astype(np.float32), rtol=1e-6, atol=1e-6, err_msg=about)


@pytest.mark.parametrize("op", SCALERS)
@pytest.mark.parametrize("column", ["x", "nan"])
def test_missing_training_values_are_an_error_naming_the_column(fits: fb.Client, op: str, column: str):
    with pytest.raises(fb.ForebayError) as caught:
        fits.fit("null", fb.Plan(outputs={"o": SCALERS[op].op(fb.cols(column)).fill_null(0)}))
    assert f'"{column}"' in str(caught.value)
