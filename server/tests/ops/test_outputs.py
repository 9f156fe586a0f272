"""The dtypes of outputs: every number is rounded once, to nearest even, and integer outputs are exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
import torch

import forebay as fb
from harness.ops.tables import domain, features, nulls, numbers, same_bits, write
from harness.serving import Serve, fit, info

TABLE = numbers(2003)
ARRAYS: dict[str, pa.Array[Any]] = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}
FILL = 3


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> str:
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
    return serve({place.name: place for place in root.iterdir()}).url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[fb.Client]:
    with fb.connect(url) as connected:
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
    """The bits of the nearest bfloat16, through rounding to odd."""
    bits = values.view(np.uint32) if values.dtype == np.float32 else to_odd(values)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


# Beyond these, an integer is an error: float32 and float64 do not hold all of them, float16 has none.
INTEGER_MAX = {"float32": 2**24, "float16": 65519, "bfloat16": 2**24, "float64": 2**53}


@pytest.mark.parametrize("name", TABLE.column_names)
def test_floats_are_rounded_once(client: fb.Client, name: str):
    values, is_float = filled(name), filled(name).dtype.kind == "f"
    chain = fb.cols(name).fill_null(FILL)
    chains = {dtype: chain if is_float else chain.clip(-most, most) for dtype, most in INTEGER_MAX.items()}
    got = features(client, "numbers", {dtype: fb.output(each, dtype=dtype) for dtype, each in chains.items()})
    want = {
        dtype: values if is_float else np.clip(values.astype(object), -most, most).astype(np.float64)
        for dtype, most in INTEGER_MAX.items()
    }
    with np.errstate(all="ignore"):
        for dtype in ("float64", "float32", "float16"):
            same_bits(got[dtype], want[dtype].astype(dtype), name)
    rounded, found = bfloat16(want["bfloat16"]), got["bfloat16"]
    gone = (found & 0x7FFF) > 0x7F80
    assert np.array_equal(gone, np.isnan(want["bfloat16"]))
    same_bits(found[~gone], rounded[~gone], name)
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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("i_id", 16_778_917, "16778917 is not a float32; use dtype INT64 or FLOAT64, vocab, hash_bucket"),
        ("i_exact", 2**24 + 2, None),
        ("i_minus_id", -(2**24) - 1, "-16777217 is not a float32"),
        ("u_id", 2**64 - 1, "18446744073709551615 is not a float32"),
        ("t_id", 1_700_000_000_000_001, "1700000000000001 is not a float32"),
    ],
)
def test_an_integer_that_float32_merges_with_another_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, serve: Serve, name: str, value: int, words: str | None
):
    types = {"u": pa.uint64(), "t": pa.timestamp("us")}
    column = pa.array([1, value], types.get(name[0], pa.int64()))
    folder = tmp_path_factory.mktemp("ids")
    write(folder / "ids", pa.table({name: column}))
    with fb.connect(serve({"ids": folder / "ids"}).url) as client:
        column = fb.cols(name)
        if words is None:
            assert features(client, "ids", {"o": column})["o"].tolist() == [1.0, value]
            return
        for chain in (column, column.fill_null(0), column.clip(max=2**64 - 1)):
            with pytest.raises(fb.InvalidRequest, match=words) as raised:
                features(client, "ids", {"o": chain})
            assert raised.value.reason == "INVALID_VALUE"
        for dtype in ("float16", "bfloat16"):
            with pytest.raises(fb.InvalidRequest, match=f'"{name}", row .*: .* is not a'):
                features(client, "ids", {"o": fb.output(column, dtype=dtype)})
        kept = features(
            client,
            "ids",
            {
                "scaled": column.standardize(mean=0, std=1),
                "log": column.abs().log1p(),
                "bucket": column.hash_bucket(7),
                "stored": column.as_stored(),
            },
        )
        assert kept["scaled"].tolist() == [1.0, float(np.float32(value))]
        if value < 2**63:
            exact = {dtype: fb.output(column, dtype=dtype) for dtype in ("int64", "float64")}
            assert [found.tolist() for found in features(client, "ids", exact).values()] == [[1, value], [1.0, value]]


@pytest.mark.parametrize(
    ("ops", "dtype"),
    [
        ([], "FLOAT32"),
        ([{"hash_bucket": {"buckets": 2**31 - 1}}], "INT32"),
        ([{"hash_bucket": {"buckets": 2**31}}], "INT64"),
        ([{"bucketize": {"boundaries": [1]}}], "INT32"),
        ([{"vocab": {"values": {"integers": [5]}}}], "INT32"),
        ([{"vocab": {"values": {"integers": [5]}}}, {"one_hot": {}}], "FLOAT32"),
        ([{"hash_bucket": {"buckets": 9}}, {"log1p": {}}], "FLOAT32"),
        ([{"sigrid_hash": {"max_value": 100}}], "INT32"),
        ([{"sigrid_hash": {"max_value": 2**40}}], "INT64"),
        ([{"map_id": {"ids": [1], "values": [2], "default": 0}}], "INT32"),
        ([{"map_id": {"ids": [1], "values": [2**31], "default": 0}}], "INT64"),
        ([{"map_id": {"ids": [1], "values": [2]}}, {"fill_null": {"value": -(2**31)}}], "INT64"),
        ([{"map_id": {"ids": [1], "values": [2]}}, {"fill_null": {"integer": 7}}], "INT32"),
        ([{"positive_mod": {"modulus": 7}}], "INT32"),
        ([{"positive_mod": {"modulus": 2**33}}], "INT64"),
        ([{"hash_bucket": {"buckets": 9}}, {"fill_null": {"value": 0.5}}], "FLOAT32"),
        ([{"cross": {"columns": ["i_256"], "buckets": 10}}], "INT32"),
        ([{"cross": {"columns": ["i_256"], "buckets": 2**40}}], "INT64"),
    ],
)
def test_the_server_chooses_the_dtype_of_indices(url: str, ops: list[dict[str, Any]], dtype: str):
    part: dict[str, Any] = {"columns": ["i_minus"], "ops": ops}
    other = {"columns": ["f_fraction"]}
    with fl.connect(url) as client:
        assert chosen(client, {"name": "o", "parts": [part]}) == dtype
        assert (
            chosen(client, fb.Plan.from_dict({"outputs": [{"name": "o", "parts": [part]}]}).to_dict()["outputs"][0])
            == dtype
        )
        # One part that ends in other values decides for all.
        assert chosen(client, {"name": "o", "parts": [part, other]}) == "FLOAT32"
        assert chosen(client, {"name": "o", "dtype": "FLOAT64", "parts": [part, other]}) == "FLOAT64"


def chosen(client: fl.FlightClient, output: dict[str, Any]) -> str:
    """The dtype of an output in the schema of a stream, and in the plan that a fit returns."""
    plan = {"outputs": [output]}
    field = info(client, {"dataset": "edges", "plan": plan}).schema.field("o").type
    element = field.value_type if isinstance(field, pa.FixedShapeTensorType) else field
    names = {pa.float32(): "FLOAT32", pa.float64(): "FLOAT64", pa.int32(): "INT32", pa.int64(): "INT64"}
    result = fit(client, "edges", plan)[-1]["result"]
    assert result["plan"]["outputs"][0]["dtype"] == names[element]
    # The id of the fitted plan is that of the plan that was sent.
    assert fb.Plan.from_json(json.dumps(result)).outputs["o"].dtype == names[element]
    return names[element]
