"""The dtypes of outputs: every number is rounded once, to nearest even, and integer outputs are exact."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import forebay as fb
from harness.ops.tables import domain, features, nulls, numbers, same_bits, write
from harness.serving import Serve

TABLE = numbers(2003)
ARRAYS: dict[str, pa.Array[Any]] = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}
FILL = 3


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("outputs")
    write(root / "numbers", TABLE)
    edges = {
        "f_fraction": [0.5],
        "f_nan": [float("nan")],
        "f_inf": [float("inf")],
        "f_2_31": [2.0**31],
        "f_2_63": [2.0**63],
        "f_below": [-(2.0**63) - 2048],
        "i_256": [256],
        "i_minus": [-1],
        "i_2_31": [2**31],
        "i_below": [-(2**31) - 1],
    }
    single = pa.table(
        {**edges, "u_2_63": pa.array([2**63], pa.uint64()), "f32_2_31": pa.array([2.0**31], pa.float32())}
    )
    write(root / "edges", single)
    with fb.connect(serve({place.name: place for place in root.iterdir()}).url) as connected:
        yield connected


def filled(name: str) -> np.ndarray:
    values = domain(ARRAYS[name])
    values[nulls(ARRAYS[name])] = FILL
    return values


def to_odd(values: np.ndarray) -> np.ndarray:
    """float32 bits of which the last says whether anything was cut off: rounding these again is rounding once."""
    with np.errstate(all="ignore"):
        near = values.astype(np.float32)
        cut = np.where(np.abs(near.astype(values.dtype)) > np.abs(values), np.nextafter(near, np.float32(0)), near)
        bits = cut.astype(np.float32).view(np.uint32)
        return bits | (cut.astype(values.dtype) != values).astype(np.uint32)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16; of whole numbers through fractions, of floats through rounding to odd."""
    if values.dtype.kind != "f":
        found = [nearest(Fraction(int(value)), 8) for value in values]
        return (np.array(found, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    bits = values.view(np.uint32) if values.dtype == np.float32 else to_odd(values)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def nearest(value: Fraction, digits: int) -> float:
    """The nearest number of so many binary digits, ties to even."""
    if not value:
        return 0.0
    unit = Fraction(2) ** (int(abs(value)).bit_length() - digits)
    return float(round(value / unit) * unit)


@pytest.mark.parametrize("name", TABLE.column_names)
def test_floats_are_rounded_once(client: fb.Client, name: str):
    outputs = {
        dtype: fb.output(fb.cols(name).fill_null(FILL), dtype=dtype) for dtype in ("float32", "float16", "bfloat16")
    }
    got, values = features(client, "numbers", outputs), filled(name)
    with np.errstate(all="ignore"):
        same_bits(got["float32"], values.astype(np.float32), name)
        # A whole number that a float16 reaches is one of float64's.
        halves = (values if values.dtype.kind == "f" else values.astype(np.float64)).astype(np.float16)
    same_bits(got["float16"], halves, name)
    want, found = bfloat16(values), got["bfloat16"]
    gone = (found & 0x7FFF) > 0x7F80
    assert np.array_equal(gone, np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool))
    same_bits(found[~gone], want[~gone], name)
    if values.dtype == np.float32:
        theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        same_bits(found[~gone], theirs[~gone], name)


@pytest.mark.parametrize("name", TABLE.column_names)
def test_integer_outputs_hold_whole_numbers_exactly(client: fb.Client, name: str):
    values = filled(name)
    for dtype, low, high in (("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1), ("int64", -(2**63), 2**63 - 1024)):
        if values.dtype == np.float32:
            high = min(high, 2**63 - 2**39) if dtype == "int64" else min(high, 2**31 - 128)
        chain = fb.cols(name).fill_null(FILL)
        # Fractions and numbers outside are the next test's.
        chain = chain.clip(low, high).bucketize([0.5, 100]) if values.dtype.kind == "f" else chain.clip(low, high)
        got = features(client, "numbers", {"o": fb.output(chain, dtype=dtype)})["o"]
        if values.dtype.kind == "f":
            with np.errstate(all="ignore"):
                want = np.digitize(np.clip(values.astype(np.float64), low, high), [0.5, 100])
        else:
            want = np.array([min(max(int(value), low), high) for value in values])
        same_bits(got, want.astype(got.dtype), f"{name} as {dtype}")


def test_whole_floats_become_integers(client: fb.Client):
    quarters = fb.cols("int16").fill_null(0).standardize(mean=0, std=0.25)
    got = features(client, "numbers", {"o": fb.output(quarters, dtype="int64")})["o"]
    values = domain(ARRAYS["int16"])
    same_bits(got, np.where(nulls(ARRAYS["int16"]), 0, values * 4))


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("f_fraction", ["uint8", "int32", "int64"]),
        ("f_nan", ["uint8", "int32", "int64"]),
        ("f_inf", ["uint8", "int32", "int64"]),
        ("f_2_31", ["uint8", "int32"]),
        ("f_2_63", ["uint8", "int32", "int64"]),
        ("f_below", ["uint8", "int32", "int64"]),
        ("f32_2_31", ["uint8", "int32"]),
        ("i_256", ["uint8"]),
        ("i_minus", ["uint8"]),
        ("i_2_31", ["uint8", "int32"]),
        ("i_below", ["uint8", "int32"]),
        ("u_2_63", ["uint8", "int32", "int64"]),
    ],
)
def test_integer_overflow_is_an_error_naming_the_column(client: fb.Client, name: str, dtypes: list[str]):
    for dtype in ("uint8", "int32", "int64"):
        outputs = {"o": fb.output(fb.cols(name), dtype=dtype)}
        if dtype in dtypes:
            with pytest.raises(fb.InvalidRequest, match=f'"{name}".*{dtype.upper()}'):
                features(client, "edges", outputs)
        else:
            assert len(features(client, "edges", outputs)["o"]) == 1
