"""Ops with numeric results."""

from __future__ import annotations

import numpy as np

from harness.ops.oracles import bounded, clipped, digitized, divided, filled, real

from .cases import DENSE, NUMERIC, ElementCase, OpCases, ShuffledCase, on_values

EDGES = [-1e300, -(2.0**53), -3.5, 0.0, 0.1, 0.7, 99.0, 2.0**53, 2.0**63, 1e300]
MANY_EDGES = np.linspace(-50, 50, 301).tolist()

NUMBERS: dict[str, OpCases] = {
    "fill_null": OpCases(
        # The tests themselves end every chain with fill_null.
        numbers={"nothing": (lambda c: c, lambda x: x)},
        integers={"nothing": (lambda c: c, lambda x: x)},
        elements={"fill_null": ElementCase(NUMERIC, lambda c: c, is_integer=True)},
        learning={
            "fill with the mean": ElementCase(["int8", "date"], lambda c: c.fill_null("mean")),
            "fill with the median": ElementCase(["int8", "date"], lambda c: c.fill_null("median")),
            "fill with the mode": ElementCase(["int8", "text"], lambda c: c.fill_null("mode").hash_bucket(99)),
        },
        step=lambda drawn: (
            lambda c: c.fill_null(drawn.fill),
            lambda state: (filled(*state, drawn.fill), np.zeros(len(state[1]), bool)),
        ),
        shuffled=[ShuffledCase("half", ["float16", "single"], lambda c: c.fill_null(0))],
    ),
    "clip": OpCases(
        numbers={
            "clip": (lambda c: c.clip(-3, 12), lambda x: bounded(x, -3.0, 12.0)),
            "clip between whole numbers": (lambda c: c.clip(-0.1, 0.3), lambda x: bounded(x, -0.1, 0.3)),
        },
        integers={"clip": (lambda c: c.clip(-3, 12), lambda x: bounded(x, -3.0, 12.0))},
        elements={"clip": ElementCase(NUMERIC, lambda c: c.clip(-3, 3))},
        step=lambda drawn: on_values(
            lambda c: c.clip(drawn.low, drawn.high), lambda x: bounded(x, drawn.low, drawn.high)
        ),
        shuffled=[
            ShuffledCase("dense", DENSE, lambda c: c.fill_null(0).log1p().standardize(mean=1, std=3).clip(-3, 3))
        ],
    ),
    "abs": OpCases(
        numbers={"abs": (lambda c: c.abs(), np.abs)},
        integers={"abs": (lambda c: c.abs(), np.abs)},
        elements={"abs": ElementCase(NUMERIC, lambda c: c.abs(), is_integer=True)},
        step=lambda drawn: on_values(lambda c: c.abs(), np.abs),
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.abs().sqrt().max_abs(max_abs=7).fill_null(-1))],
    ),
    "sqrt": OpCases(
        numbers={"sqrt": (lambda c: c.sqrt(), lambda x: np.sqrt(real(x)))},
        elements={"sqrt": ElementCase(NUMERIC, lambda c: c.sqrt())},
        step=lambda drawn: on_values(lambda c: c.sqrt(), lambda x: np.sqrt(real(x))),
        fits_float32=True,
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.sqrt().fill_null(0))],
    ),
    "log1p": OpCases(
        results="ops/test_accuracy.py",
        elements={"log1p": ElementCase(NUMERIC, lambda c: c.log1p())},
        shuffled=[ShuffledCase("scores", ["scores"], lambda c: c.log1p())],
    ),
    "logit": OpCases(
        results="ops/test_accuracy.py",
        elements={"logit": ElementCase(NUMERIC, lambda c: c.logit(1e-3))},
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.logit(1e-3).fill_null(0))],
    ),
    "box_cox": OpCases(
        results="ops/test_accuracy.py",
        elements={"box_cox": ElementCase(NUMERIC, lambda c: c.box_cox(0.3))},
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.box_cox(0.3).robust(center=0, scale=2).fill_null(0))],
    ),
    "positive_mod": OpCases(
        numbers={
            "positive_mod": (lambda c: c.positive_mod(7), lambda x: np.mod(x, x.dtype.type(7))),
            "positive_mod of 1": (lambda c: c.positive_mod(1), lambda x: np.mod(x, x.dtype.type(1))),
            "positive_mod of 2^31": (lambda c: c.positive_mod(2**31), lambda x: np.mod(x, x.dtype.type(2**31))),
        },
        integers={
            "positive_mod": (lambda c: c.positive_mod(2**40 + 15), lambda x: np.mod(x, x.dtype.type(2**40 + 15))),
            "positive_mod of 2^63 - 1": (
                lambda c: c.positive_mod(2**63 - 1),
                lambda x: np.mod(x, x.dtype.type(2**63 - 1)),
            ),
        },
        elements={"positive_mod": ElementCase(NUMERIC, lambda c: c.positive_mod(13))},
        step=lambda drawn: on_values(
            lambda c: c.positive_mod(drawn.whole), lambda x: np.mod(x, x.dtype.type(drawn.whole))
        ),
        shuffled=[ShuffledCase("dense", DENSE, lambda c: c.positive_mod(5).fill_null(0))],
    ),
    "bucketize": OpCases(
        numbers={
            "bucketize": (lambda c: c.bucketize(EDGES), lambda x: digitized(x, EDGES)),
            "bucketize, many edges": (lambda c: c.bucketize(MANY_EDGES), lambda x: digitized(x, MANY_EDGES)),
        },
        integers={"bucketize": (lambda c: c.bucketize(EDGES), lambda x: digitized(x, EDGES))},
        elements={"bucketize": ElementCase(NUMERIC, lambda c: c.bucketize([-1, 0, 0.5, 7]))},
        learning={"quantiles": ElementCase(["int8", "decimal"], lambda c: c.bucketize(quantiles=5))},
        step=lambda drawn: on_values(lambda c: c.bucketize(drawn.edges), lambda x: digitized(x, drawn.edges)),
        fits_float32=True,
        shuffled=[ShuffledCase("indices", ["float32"], lambda c: c.bucketize([-1, 0, 1]).fill_null(-1))],
    ),
}

# Several ops one after the other.
CHAINS = OpCases(
    numbers={
        "a chain": (
            lambda c: c.abs().sqrt().standardize(mean=3, std=7).clip(-3, 3),
            lambda x: clipped(divided(np.sqrt(real(np.abs(x))), 3.0, 7.0), -3.0, 3.0),
        ),
    },
    elements={
        "a chain": ElementCase(
            ["float32", "int8"], lambda c: c.fill_null(0).log1p().clip(-1, 1).standardize(mean=0.1, std=2)
        ),
    },
)
