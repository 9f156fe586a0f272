"""Tables for the tests of ops: every stored type with its edge values, and NumPy's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay as fb

PRIME = 1009
INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

HARD_FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 10.0, 1e-3, -1e-3, 1e10, -1e10),
    *(float("nan"), float("inf"), float("-inf")),
]

Outputs = Mapping[str, fb.Columns | Sequence[fb.Columns] | fb.Output]


def write(folder: Path, table: pa.Table, **options: Any) -> None:
    """The table in four files: all but its last row in row groups of 211 rows, none twice, and the last one alone."""
    folder.mkdir(parents=True)
    most = max(0, table.num_rows - 1)
    pq.write_table(table.slice(0, 0), folder / "a-empty.parquet", **options)
    pq.write_table(table.slice(0, most), folder / "b.parquet", row_group_size=211, **options)
    pq.write_table(table.slice(0, 0), folder / "c-empty.parquet", **options)
    pq.write_table(table.slice(most), folder / "d.parquet", **options)


def features(
    client: fb.Client, dataset: str, outputs: Outputs, *, batch_size: int = 149, **plan: Any
) -> dict[str, np.ndarray]:
    """The outputs for every row, in order; lists as one array of lists."""
    fitted = client.fitted(dataset, fb.Plan(outputs=outputs, **plan))
    with client.stream(dataset, fitted, batch_size=batch_size) as stream:
        batches = list(stream)
    assert batches, "the stream had no batch"
    return {name: joined([batch[name] for batch in batches]) for name in outputs}


def joined(pieces: list[Any]) -> np.ndarray:
    if not isinstance(pieces[0], fb.Ragged):
        return np.concatenate(pieces)
    rows: list[np.ndarray] = []
    for values, offsets in pieces:
        assert offsets[0] == 0
        assert offsets[-1] == len(values)
        rows += np.split(values, offsets[1:-1]) if len(offsets) > 1 else []
    lists = np.empty(len(rows), object)
    lists[:] = rows
    return lists


def domain(array: pa.Array[Any]) -> np.ndarray:
    """The values as a chain holds them: int64, uint64, float32 or float64. Nulls are 0."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return np.array([0.0 if value is None else float(value) for value in array.to_pylist()])
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    plain = array.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False)
    kept = plain.dtype in (np.float64, np.uint64)
    with np.errstate(invalid="ignore"):
        return plain.astype(plain.dtype if kept else np.float32 if plain.dtype.kind == "f" else np.int64)


def narrowest(values: np.ndarray) -> str | None:
    """The first dtype that holds a chain's values: floats round, and integers are exact. None if no dtype does."""
    if values.dtype.kind == "f":
        return "float32"
    return next((dtype for dtype in ("float32", "int64", "float64") if is_exact(values, dtype)), None)


def is_exact(integers: np.ndarray, dtype: str) -> bool:
    """Whether the dtype holds every integer."""
    if dtype == "int64":
        return max(integers.tolist(), default=0) <= INT64_MAX
    return [int(value) for value in integers.astype(dtype).tolist()] == integers.tolist()


def nulls(array: pa.Array[Any]) -> np.ndarray:
    return array.is_null().to_numpy(zero_copy_only=False)


def floats(random: np.random.Generator, rows: int, kind: type[np.floating[Any]]) -> np.ndarray:
    """Hard values, then any bit pattern, and numbers as they are in tables."""
    info = np.finfo(kind)
    with np.errstate(over="ignore"):
        hard = np.array(HARD_FLOATS).astype(kind)
    edges = [info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal, info.eps]
    edges += [np.nextafter(kind(1), kind(0)), np.nextafter(kind(1), kind(2)), info.tiny - info.smallest_subnormal]
    left = rows - len(hard) - len(edges)
    bits = np.frombuffer(random.bytes(left // 2 * info.dtype.itemsize), kind)
    usual = random.normal(0, 100, left - left // 2).astype(kind)
    return np.concatenate([hard, np.array(edges, kind), bits, usual])


def whole_numbers(random: np.random.Generator, rows: int, kind: type[np.integer[Any]]) -> np.ndarray:
    """The limits of the type, values around 2^31, 2^53 and 2^63, random bit patterns, and small numbers."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    ends = [low, low + 1, high, high - 1, 0, 1, -1]
    ends += [sign * 2**power + step for power in (24, 31, 53, 63) for step in (-1, 0, 1) for sign in (1, -1)]
    ends = [value for value in ends if low <= value <= high]
    left = rows - len(ends)
    bits = np.frombuffer(random.bytes(left // 2 * np.dtype(kind).itemsize), kind)
    small = random.integers(max(-100, low), 100, left - left // 2).astype(kind)
    return np.concatenate([np.array(ends, kind), bits, small])


def numbers(rows: int = PRIME, seed: int = 5, *, share_null: float = 0.15) -> pa.Table:
    """A column of every numeric type with a share of nulls; without nulls the schema is non-nullable."""
    random = np.random.default_rng(seed)

    def gaps() -> np.ndarray:
        return random.random(rows) < share_null

    def of(values: np.ndarray, kind: pa.DataType | None = None) -> pa.Array[Any]:
        array = pa.array(values, mask=gaps())
        return array if kind is None else array.view(kind)

    ints = {
        f"{kind.__name__}": of(whole_numbers(random, rows, kind))
        for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
    }
    reals = {f"{kind.__name__}": of(floats(random, rows, kind)) for kind in (np.float16, np.float32, np.float64)}
    days = random.integers(-(10**5), 10**5, rows)
    times = {
        "date32": of(days.astype(np.int32), pa.date32()),
        "time32": of(random.integers(0, 86_400_000, rows).astype(np.int32), pa.time32("ms")),
        "time64": of(random.integers(0, 86_400 * 10**6, rows), pa.time64("us")),
        "timestamp_ms": of(random.integers(-(2**45), 2**45, rows), pa.timestamp("ms")),
        "timestamp_us": of(random.integers(-(2**52), 2**52, rows), pa.timestamp("us", "UTC")),
        "timestamp_ns": of(random.integers(-(2**60), 2**60, rows), pa.timestamp("ns")),
        "duration": of(random.integers(INT64_MIN, INT64_MAX, rows), pa.duration("us")),
    }

    def decimals(kind: pa.DataType, most: int, scale: int) -> pa.Array[Any]:
        taken = random.integers(-most, most, rows)
        unscaled = [None if gap else Decimal(int(n)).scaleb(-scale) for n, gap in zip(taken, gaps(), strict=True)]
        return pa.array(unscaled, kind)

    table = pa.table(
        {
            **ints,
            **reals,
            **times,
            "bool": pa.array(random.random(rows) < 0.5, mask=gaps()),
            "decimal_9_2": decimals(pa.decimal128(9, 2), 10**9, 2),
            "decimal_18_6": decimals(pa.decimal128(18, 6), 2**53, 6),
            "decimal256": decimals(pa.decimal256(50, 10), 2**53, 10),
            "constant": pa.array(np.full(rows, 2.5), mask=gaps()),
            "all_null": pa.nulls(rows, pa.float64()),
            "null": pa.nulls(rows),
        }
    )
    if share_null:
        return table
    full = [field.with_nullable(table[field.name].null_count > 0) for field in table.schema]
    return table.cast(pa.schema(full))


def same_bits(got: np.ndarray, want: np.ndarray, about: object = "") -> None:
    """Equal bit for bit, except for NaN payloads."""
    assert got.dtype == want.dtype, f"{about}: {got.dtype} is not {want.dtype}"
    assert got.shape == want.shape, f"{about}: {got.shape} is not {want.shape}"
    if got.dtype.kind == "f":
        bits = np.dtype(f"u{got.dtype.itemsize}")
        differ = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    else:
        differ = got != want
    rows = np.flatnonzero(differ.any(axis=tuple(range(1, differ.ndim))))
    shown = [(int(row), got[row].tolist(), want[row].tolist()) for row in rows[:5]]
    assert not len(rows), f"{about}: {len(rows)} rows differ; (row, got, want): {shown}"


# Doubles of 10 octaves, times a power of two, are all whole numbers that an int64 holds.
OCTAVES = 10


def doubles(client: fb.Client, dataset: str, chain: fb.Columns, *, low: int, high: int) -> np.ndarray:
    """Return all bits of a float64 chain's results from 2^low to 2^high, which no single output has.

    Each band of octaves is clipped and scaled to whole numbers by a power of two, both without rounding. Results
    below 2^low are 0.
    """
    lows = range(low, high, OCTAVES)
    bands = {(sign, e): 2.0 ** (52 - e) for e in lows for sign in (1.0, -1.0)}
    outputs: dict[str, fb.Output] = {}
    for (sign, e), scale in bands.items():
        ends = sorted((sign * 2.0**e, sign * 2.0 ** (e + OCTAVES)))
        clipped = chain.clip(*ends).standardize(mean=0, std=1 / scale)
        outputs[f"{sign}|{e}"] = fb.output(clipped, dtype="int64")
    found = features(client, dataset, outputs)
    result = np.zeros(len(next(iter(found.values()))))
    for (sign, e), scale in bands.items():
        # All bits of a 63-bit whole number that was scaled from a double are the double's 53.
        value = found[f"{sign}|{e}"].astype(np.float64) / scale
        inside = np.abs(value) > 2.0**e
        result[inside] = value[inside]
    return result
