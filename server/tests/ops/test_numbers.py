"""Ops on numbers against NumPy, for every stored type, to the bit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import forebay as fb
from harness.ops.oracles import bounded, clipped, digitized, divided, real
from harness.ops.tables import PRIME, domain, features, narrowest, nulls, numbers, same_bits, write
from harness.serving import Serve

FILL = 7.0
SHAPES = {"one": 1, "prime": PRIME, "many": 10_007}
TABLE = numbers()
COLUMNS = TABLE.column_names
FLOATING = [name for name in COLUMNS if domain(TABLE[name].combine_chunks()).dtype.kind == "f"]

Op = Callable[[fb.Columns], fb.Columns]
Oracle = Callable[[np.ndarray], np.ndarray]


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


EDGES = [-1e300, -(2.0**53), -3.5, 0.0, 0.1, 0.7, 99.0, 2.0**53, 2.0**63, 1e300]
MANY_EDGES = np.linspace(-50, 50, 301).tolist()

# Every one of these is one and the same sequence of operations in NumPy, so all bits are equal.
BITS: dict[str, tuple[Op, Oracle]] = {
    "nothing": (lambda c: c, lambda x: x),
    "sqrt": (lambda c: c.sqrt(), lambda x: np.sqrt(real(x))),
    "abs": (lambda c: c.abs(), np.abs),
    "clip": (lambda c: c.clip(-3, 12), lambda x: bounded(x, -3.0, 12.0)),
    "clip between whole numbers": (lambda c: c.clip(-0.1, 0.3), lambda x: bounded(x, -0.1, 0.3)),
    "standardize": (lambda c: c.standardize(mean=2013.2, std=0.3), lambda x: divided(x, 2013.2, 0.3)),
    "standardize by 0": (lambda c: c.standardize(mean=2.5, std=0), lambda x: divided(x, 2.5, 1.0)),
    "standardize by little": (lambda c: c.standardize(mean=2.5, std=1e-17), lambda x: divided(x, 2.5, 1e-17)),
    "min_max": (lambda c: c.min_max(min=0.1, max=0.7), lambda x: divided(x, 0.1, 0.7 - 0.1)),
    "min_max of no range": (lambda c: c.min_max(min=3, max=3), lambda x: divided(x, 3.0, 1.0)),
    "min_max of hardly a range": (lambda c: c.min_max(min=0, max=2.2e-15), lambda x: divided(x, 0.0, 1.0)),
    "min_max of little a range": (lambda c: c.min_max(min=0, max=2.3e-15), lambda x: divided(x, 0.0, 2.3e-15)),
    "max_abs": (lambda c: c.max_abs(max_abs=0.3), lambda x: divided(x, 0.0, 0.3)),
    "max_abs of 0": (lambda c: c.max_abs(max_abs=0), lambda x: divided(x, 0.0, 1.0)),
    "max_abs of hardly anything": (lambda c: c.max_abs(max_abs=2.2e-15), lambda x: divided(x, 0.0, 1.0)),
    "max_abs of little": (lambda c: c.max_abs(max_abs=2.3e-15), lambda x: divided(x, 0.0, 2.3e-15)),
    "robust": (lambda c: c.robust(center=-1.7, scale=11.1), lambda x: divided(x, -1.7, 11.1)),
    "robust of no scale": (lambda c: c.robust(center=1.5, scale=0), lambda x: divided(x, 1.5, 1.0)),
    "robust of hardly a scale": (lambda c: c.robust(center=1.5, scale=1e-17), lambda x: divided(x, 1.5, 1.0)),
    "positive_mod": (lambda c: c.positive_mod(7), lambda x: np.mod(x, x.dtype.type(7))),
    "positive_mod of 1": (lambda c: c.positive_mod(1), lambda x: np.mod(x, x.dtype.type(1))),
    "positive_mod of 2^31": (lambda c: c.positive_mod(2**31), lambda x: np.mod(x, x.dtype.type(2**31))),
    "bucketize": (lambda c: c.bucketize(EDGES), lambda x: digitized(x, EDGES)),
    "bucketize, many edges": (lambda c: c.bucketize(MANY_EDGES), lambda x: digitized(x, MANY_EDGES)),
    "a chain": (
        lambda c: c.abs().sqrt().standardize(mean=3, std=7).clip(-3, 3),
        lambda x: clipped(divided(np.sqrt(real(np.abs(x))), 3.0, 7.0), -3.0, 3.0),
    ),
}


@pytest.mark.parametrize("dataset", [*SHAPES, "plain", "full"])
@pytest.mark.parametrize("name", BITS)
def test_every_type_matches_numpy_bitwise(client: fb.Client, name: str, dataset: str):
    op, oracle = BITS[name]
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
KEEPS_WHOLE: dict[str, tuple[Op, Oracle]] = {
    "nothing": (lambda c: c, lambda x: x),
    "abs": (lambda c: c.abs(), np.abs),
    "clip": (lambda c: c.clip(-3, 12), lambda x: bounded(x, -3.0, 12.0)),
    "positive_mod": (lambda c: c.positive_mod(2**40 + 15), lambda x: np.mod(x, x.dtype.type(2**40 + 15))),
    "positive_mod of 2^63 - 1": (lambda c: c.positive_mod(2**63 - 1), lambda x: np.mod(x, x.dtype.type(2**63 - 1))),
    "bucketize": (lambda c: c.bucketize(EDGES), lambda x: digitized(x, EDGES)),
}


@pytest.mark.parametrize("name", KEEPS_WHOLE)
def test_whole_numbers_stay_whole(client: fb.Client, name: str):
    op, oracle = KEEPS_WHOLE[name]
    chosen = [c for c in WHOLE if not (c == "uint64" and name in ("nothing", "abs"))]
    outputs = {c: fb.output(op(fb.cols(c)).fill_null(7), dtype="int64") for c in chosen}
    got = features(client, "prime", outputs)
    for column in chosen:
        array = TABLE[column].combine_chunks()
        want = oracle(domain(array)).astype(np.int64)
        want[nulls(array)] = 7
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


SCALERS = {
    "standardize": (lambda c: c.standardize(), StandardScaler),
    "min_max": (lambda c: c.min_max(), MinMaxScaler),
    "max_abs": (lambda c: c.max_abs(), MaxAbsScaler),
    "robust": (lambda c: c.robust(), RobustScaler),
}


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
    chain, scaler = SCALERS[op]
    table, seen = learned(rows)
    dataset = f"rows{rows}"
    plan = fb.Plan(outputs={name: fb.output(chain(fb.cols(name)).fill_null(0)) for name in table.column_names})
    fitted = fits.fitted(dataset, plan)
    got = features(fits, dataset, fitted.plan.outputs)
    for name in table.column_names:
        oracle = scaler().fit(seen[name].reshape(-1, 1))
        found, about = parameters(fitted.plan, name), f"{op} of {name}, {rows} rows"
        if op == "standardize":
            scale = float(np.ptp(seen[name])) or 1.0
            assert found["mean"] == pytest.approx(oracle.mean_[0], rel=1e-14, abs=1e-15 * scale), about
            # sklearn's squares are 0 below 2.2e-162, the root of the smallest float; ours are exact.
            least = max(1e-15 * scale, 3e-162)
            assert found["std"] == pytest.approx(oracle.var_[0] ** 0.5, rel=1e-12, abs=least), about
        elif op == "min_max":
            assert [found["min"], found["max"]] == [oracle.data_min_[0], oracle.data_max_[0]], about
        elif op == "max_abs":
            assert found["max_abs"] == oracle.max_abs_[0], about
        else:
            low, middle, high = np.percentile(seen[name], [25, 50, 75])
            rounding = 2 * np.spacing(max(abs(low), abs(high)))
            assert found["center"] == pytest.approx(middle, rel=1e-15, abs=rounding), about
            assert found["scale"] == pytest.approx(high - low, rel=1e-15, abs=rounding), about
        check_scaled(got[name], table[name].combine_chunks(), oracle, found, op, about)


def check_scaled(got: np.ndarray, array: pa.Array, oracle: object, found: dict[str, float], op: str, about: str):
    """The numbers are those of what was learned, to the bit, and sklearn's within rounding."""
    values, gaps = domain(array), nulls(array)
    shift = found.get("mean", found.get("center", found["min"] if op == "min_max" else 0.0))
    divisor = {
        "standardize": lambda: found["std"],
        "min_max": lambda: found["max"] - found["min"],
        "max_abs": lambda: found["max_abs"],
        "robust": lambda: found["scale"],
    }[op]()
    zero = divisor == 0 if op == "standardize" else divisor < 10 * 2.0**-52
    want = divided(values, shift, 1.0 if zero else divisor).astype(np.float32)
    want[gaps] = 0
    same_bits(got, want, about)
    theirs = oracle.transform(values.astype(np.float64).reshape(-1, 1))[:, 0]  # type: ignore[attr-defined]
    differ = op == "standardize" and 0 < divisor < 10 * 2.0**-52 * max(1.0, abs(shift))
    if not differ:
        # sklearn treats a deviation as zero if it is rounding error relative to the mean; Forebay only an exact zero.
        theirs[gaps] = 0
        np.testing.assert_allclose(got, theirs.astype(np.float32), rtol=1e-6, atol=1e-6, err_msg=about)


@pytest.mark.parametrize("op", SCALERS)
@pytest.mark.parametrize("column", ["x", "nan"])
def test_missing_training_values_are_an_error_naming_the_column(fits: fb.Client, op: str, column: str):
    with pytest.raises(fb.ForebayError) as caught:
        fits.fit("null", fb.Plan(outputs={"o": SCALERS[op][0](fb.cols(column)).fill_null(0)}))
    assert f'"{column}"' in str(caught.value)
