"""ln, log1p, logit and Box-Cox against exact arithmetic: float32 within 1 ulp, float64 within 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import pyarrow as pa
import pytest
import scipy.special
import torch

import forebay as fb
from harness.ops.tables import doubles, features, floats, same_bits, write
from harness.serving import Serve

ROWS = 2003
LAMBDAS = (0.0, 1.0, 0.5, 2.5, -0.5, -2.0, 1e-9, -1e-9, 1e-300, 37.0)
X = fb.cols("x")


def positive(random: np.random.Generator, low: float, high: float) -> np.ndarray:
    return np.exp2(random.uniform(low, high, ROWS))


def data() -> dict[str, np.ndarray]:
    random = np.random.default_rng(23)
    near_1 = 1 + random.choice([-1, 1], ROWS) * positive(random, -50, -2)
    unit = np.concatenate([positive(random, -60, -1)[: ROWS // 2], random.random(ROWS - ROWS // 2)])
    unit[1::3] = 1 - unit[1::3] * np.where(unit[1::3] < 2.0**-50, 2.0**20, 1)
    return {
        "positive": positive(random, -30, 30),
        "near_1": near_1,
        "log1p": np.where(random.random(ROWS) < 0.5, positive(random, -45, 60), -positive(random, -45, 0)),
        "unit": unit,
        "any64": floats(random, ROWS, np.float64),
        "any32": floats(random, ROWS, np.float32),
    }


with np.errstate(all="ignore"):
    DATA = {name: values.astype(np.float64) for name, values in data().items()}
    SINGLES = {name: values.astype(np.float32) for name, values in DATA.items()}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("accuracy")
    for name, values in DATA.items():
        write(root / name, pa.table({"x": values, "x32": SINGLES[name]}))
    with fb.connect(serve({place.name: place for place in root.iterdir()}).url) as connected:
        yield connected


def ulps(got: np.ndarray, exact: list[mpmath.mpf]) -> np.ndarray:
    """The error of numbers in units in the last place of the exact ones, at the numbers' precision."""
    spacing = np.spacing(np.abs(np.array([float(value) for value in exact]).astype(got.dtype)))
    errors = [mpmath.mpf(float(g)) - value for g, value in zip(got, exact, strict=True)]
    return np.array([abs(float(error / float(unit))) for error, unit in zip(errors, spacing, strict=True)])


def exactly(function: Callable[[mpmath.mpf], mpmath.mpf], values: np.ndarray) -> list[mpmath.mpf]:
    with mpmath.workprec(200):
        return [function(mpmath.mpf(float(value))) for value in values]


def check_doubles(
    client: fb.Client, dataset: str, op: Callable[[fb.Columns], fb.Columns], exact: list[mpmath.mpf], most: float
) -> None:
    got = doubles(client, dataset, op(X), low=-60, high=60)
    seen = np.array([2.0**-59 < abs(value) < 2.0**59 for value in exact])
    assert seen.sum() > ROWS * 0.9
    with mpmath.workprec(200):
        errors = ulps(got[seen], [value for value, is_seen in zip(exact, seen, strict=True) if is_seen])
    worst = int(np.argmax(errors))
    assert errors[worst] <= most, f"{errors[worst]} ulp at x = {DATA[dataset][seen][worst].hex()}"


def check_singles(got: np.ndarray, reference: np.ndarray, most: float, about: str) -> None:
    """Against float64, whose own error is 2^-29 of float32's: NaN, infinities, zeros and signs equal, the rest near."""
    with np.errstate(all="ignore"):
        rounded = reference.astype(np.float32)
    usual = np.isfinite(rounded) & (rounded != 0) & np.isfinite(got)
    same_bits(got[~usual], rounded[~usual], about)
    errors = np.abs(got[usual] - reference[usual]) / np.spacing(np.abs(rounded[usual])).astype(np.float64)
    assert errors.max(initial=0) <= most, f"{about}: {errors.max()} ulp at row {np.flatnonzero(usual)[errors.argmax()]}"


@pytest.mark.parametrize("dataset", ["log1p", "positive", "near_1", "unit"])
def test_log1p_of_doubles(client: fb.Client, dataset: str):
    check_doubles(client, dataset, lambda c: c.log1p(), exactly(mpmath.log1p, DATA[dataset]), 2)


@pytest.mark.parametrize("dataset", DATA)
def test_log1p_of_singles(client: fb.Client, dataset: str):
    got = features(client, dataset, {"o": fb.cols("x32").log1p()})["o"]
    with np.errstate(all="ignore"):
        check_singles(got, np.log1p(SINGLES[dataset].astype(np.float64)), 1, dataset)


@pytest.mark.parametrize("dataset", ["any64", "any32"])
def test_log1p_of_any_double_rounds_once(client: fb.Client, dataset: str):
    got = features(client, dataset, {"o": X.log1p()})["o"]
    with np.errstate(all="ignore"):
        check_singles(got, np.log1p(DATA[dataset]), 0.5001, dataset)


# === logit ===

EPS = (None, 0.0, 1e-6, 0.1, 0.5)


def odds(values: np.ndarray, eps: float | None) -> np.ndarray:
    """Z / (1 - z) in the column's own precision, as torch.logit computes it."""
    one = values.dtype.type(1)
    if eps is not None:
        low = values.dtype.type(eps)
        values = np.where(values < low, low, np.where(values > one - low, one - low, values))
    with np.errstate(all="ignore"):
        return values / (one - values)


@pytest.mark.parametrize("eps", EPS)
def test_logit_of_doubles(client: fb.Client, eps: float | None):
    exact = exactly(mpmath.log, odds(DATA["unit"], eps))
    if eps == 0.5:
        # Everything is one half.
        assert not features(client, "unit", {"o": X.logit(0.5)})["o"].any()
        return
    check_doubles(client, "unit", lambda c: c.logit(eps), exact, 1)


@pytest.mark.parametrize("dataset", ["unit", "any32", "any64", "near_1"])
@pytest.mark.parametrize("eps", EPS)
def test_logit_of_singles_is_torchs(client: fb.Client, eps: float | None, dataset: str):
    values = SINGLES[dataset]
    with np.errstate(all="ignore"):
        reference = np.log(odds(values, eps).astype(np.float64))
    got = features(client, dataset, {"o": fb.cols("x32").logit(eps)})["o"]
    check_singles(got, reference, 1, f"eps {eps} of {dataset}")
    theirs = torch.logit(torch.from_numpy(values), eps).numpy()
    same = np.isfinite(theirs)
    assert np.array_equal(same, np.isfinite(got))
    np.testing.assert_array_max_ulp(got[same], theirs[same], 2)


@pytest.mark.parametrize("eps", EPS)
def test_logit_of_any_double_rounds_once(client: fb.Client, eps: float | None):
    got = features(client, "any64", {"o": X.logit(eps)})["o"]
    theirs = torch.logit(torch.from_numpy(DATA["any64"]), eps).numpy()
    check_singles(got, theirs, 0.5001, f"eps {eps}")


# === Box-Cox ===


def box_cox(lambda_: float) -> Callable[[mpmath.mpf], mpmath.mpf]:
    power = mpmath.mpf(lambda_)
    return lambda x: mpmath.log(x) if not lambda_ else mpmath.expm1(power * mpmath.log(x)) / power


@pytest.mark.parametrize("lambda_", LAMBDAS)
@pytest.mark.parametrize("dataset", ["positive", "near_1"])
def test_box_cox_of_doubles(client: fb.Client, dataset: str, lambda_: float):
    with mpmath.workprec(200):
        exact = exactly(box_cox(lambda_), DATA[dataset])
    got = doubles(client, dataset, X.box_cox(lambda_), low=-60, high=60)
    seen = np.array([2.0**-59 < abs(value) < 2.0**59 for value in exact])
    assert seen.sum() > ROWS * (0.5 if lambda_ == 37 else 0.9)
    with mpmath.workprec(200):
        errors = ulps(got[seen], [value for value, is_seen in zip(exact, seen, strict=True) if is_seen])
    worst = int(np.argmax(errors))
    assert errors[worst] <= 2, f"{errors[worst]} ulp at x = {DATA[dataset][seen][worst].hex()}"


@pytest.mark.parametrize("lambda_", LAMBDAS)
@pytest.mark.parametrize("dataset", DATA)
def test_box_cox_of_singles_is_scipys(client: fb.Client, dataset: str, lambda_: float):
    got = features(client, dataset, {"o": fb.cols("x32").box_cox(lambda_), "d": X.box_cox(lambda_)})
    with np.errstate(all="ignore"):
        for name, values in (("o", SINGLES[dataset].astype(np.float64)), ("d", DATA[dataset])):
            check_singles(got[name], scipy.special.boxcox(values, lambda_), 0.5001, f"{lambda_} of {dataset} as {name}")
