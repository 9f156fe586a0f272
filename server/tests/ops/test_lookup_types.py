"""lookup over every pair of types: the same number, instant, day or text is found in every type, and nothing else."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve

ROWS = 211
TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_MS = 86_400_000
WIDE = Context(prec=80)

# Close to what the types can hold and to where float64 has gaps, and values that are another's in a smaller unit.
WHOLE = [
    *(0, 1, -1, 5, 5_000, 5_500, 5_000_000, 18_262, 18_262 * DAY_MS, 127, 128, 255, 256, -128, 2**31 - 1, 2**31),
    *(2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**63 - 2, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2),
    *(-(2**31), -(2**53) - 1, -(2**53), -(2**63), -(2**63) + 1),
]
TEXTS = ["", "a", "b", "wörd", "x" * 40, "5", "18262"]
DOUBLES = [0.0, -0.0, 1.0, -1.5, 0.1, float(np.float32(0.1)), 2.0**53, 5.0, float("inf"), float("-inf"), float("nan")]

KINDS: dict[str, pa.DataType] = {
    **{str(kind): kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "half": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    **{f"wall {unit}": pa.timestamp(unit) for unit in ("ms", "us", "ns")},
    "utc us": pa.timestamp("us", "UTC"),
    "vienna ms": pa.timestamp("ms", "Europe/Vienna"),
    "utc ns": pa.timestamp("ns", "+05:30"),
    "time32": pa.time32("ms"),
    "time64 us": pa.time64("us"),
    "time64 ns": pa.time64("ns"),
    **{f"duration {unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
    "string": pa.string(),
    "large": pa.large_string(),
    "coded": pa.dictionary(pa.int16(), pa.string()),
    "decimal 9 2": pa.decimal128(9, 2),
    "decimal 18 0": pa.decimal128(18, 0),
    "decimal 38 10": pa.decimal128(38, 10),
    "decimal 70 5": pa.decimal256(70, 5),
}


def drawn(kind: pa.DataType, seed: str) -> list[Any]:
    """Distinct values of a type, each as Python holds it; counts of time as whole numbers."""
    source = random.Random(seed)
    if pa.types.is_boolean(kind):
        return [True] if source.random() < 0.5 else [False, True]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return source.sample(TEXTS, 5)
    if pa.types.is_floating(kind):
        narrow = {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width]
        with np.errstate(over="ignore"):
            values = [float(narrow(value)) for value in DOUBLES]
        return list({meaning(kind, value): value for value in values}.values())
    if pa.types.is_decimal(kind):
        most, step = 10**kind.precision, Decimal(1).scaleb(-kind.scale)
        near = [most - 1, 1 - most, *(10**power + 1 for power in range(0, kind.precision, 3)), *(WHOLE[:12])]
        near += [value * 10**kind.scale for value in WHOLE if kind.scale > 0]
        unscaled = {value for value in near if abs(value) < most}
        chosen = source.sample(sorted(unscaled), len(unscaled) * 3 // 4)
        return [WIDE.multiply(Decimal(value), step) for value in chosen]
    if pa.types.is_integer(kind):
        signed = not pa.types.is_unsigned_integer(kind)
        most = 2 ** (kind.bit_width - signed) - 1
        least = -most - 1 if signed else 0
    elif pa.types.is_date32(kind):
        least, most = -(2**31), 2**31 - 1
    elif pa.types.is_time(kind):
        least, most = 0, 86_400 * 10**9 // TICKS[kind.unit] - 1
    else:
        least, most = -(2**63), 2**63 - 1
    values = [value for value in WHOLE if least <= value <= most]
    if pa.types.is_date64(kind):
        # Parquet has days alone.
        values = [value * DAY_MS for value in (0, 1, -1, 18_262, 5)]
    chosen = set(source.sample(values, max(3, len(values) * 3 // 4)))
    if not pa.types.is_date64(kind):
        # The same moment in the other units, where this one has it.
        chosen |= {other for value in chosen for other in (value * 1000, value // 1000) if least <= other <= most}
    return sorted(chosen)


def meaning(kind: pa.DataType, value: Any) -> tuple[str, object]:
    """What a value is, so that equal meanings are equal keys."""
    if pa.types.is_boolean(kind):
        return "bool", value
    if pa.types.is_floating(kind):
        return "number", "nan" if value != value else value + 0.0
    if pa.types.is_decimal(kind):
        return "decimal", Fraction(value)
    if pa.types.is_integer(kind):
        return "integer", value
    if pa.types.is_date32(kind):
        return "day", value * DAY_MS
    if pa.types.is_date64(kind):
        return "day", value
    if pa.types.is_timestamp(kind):
        return "instant" if kind.tz else "wall", value * TICKS[kind.unit]
    if pa.types.is_time(kind):
        return "time", value * TICKS[kind.unit]
    if pa.types.is_duration(kind):
        return "span", value * TICKS[kind.unit]
    return "text", value


def array(kind: pa.DataType, values: list[Any]) -> pa.Array[Any]:
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if pa.types.is_float16(kind):
        return pa.array([None if value is None else np.float16(value) for value in values], kind)
    return pa.array(values, kind)


KEYS = {name: drawn(kind, f"keys {name}") for name, kind in KINDS.items()}
COLUMNS: dict[str, list[Any]] = {}
for _name, _kind in KINDS.items():
    _source, _values = random.Random(f"rows {_name}"), [*drawn(_kind, f"rows {_name}"), *KEYS[_name], None]
    COLUMNS[_name] = [*_values, *_source.choices(_values, k=ROWS)][:ROWS]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    root = tmp_path_factory.mktemp("types")
    pq.write_table(pa.table({name: array(kind, COLUMNS[name]) for name, kind in KINDS.items()}), root / "rows.parquet")
    for name, kind in KINDS.items():
        keys = KEYS[name]
        table = pa.table({"k": array(kind, keys), "v": pa.array(range(len(keys)), pa.int32())})
        pq.write_table(table, root / f"{name.replace(' ', '_')}.parquet", row_group_size=7)
    running = serve({path.stem: path for path in root.glob("*.parquet")})
    with fb.connect(running.url) as connected:
        yield connected


def is_comparable(column: str, key: str) -> bool:
    return meaning(KINDS[column], COLUMNS[column][0])[0] == meaning(KINDS[key], KEYS[key][0])[0]


@pytest.mark.parametrize("column", KINDS)
def test_equal_values_match_across_types(client: fb.Client, column: str):
    kinds = [key for key in KINDS if is_comparable(column, key)]
    outputs = {
        key: fb.output(fb.cols(column).lookup(key.replace(" ", "_"), "k", ["v"]).fill_null(-1), dtype="int32")
        for key in kinds
    }
    batches = list(client.stream("rows", fb.Plan(outputs=outputs), batch_size=100))
    for key in kinds:
        rows = {meaning(KINDS[key], value): row for row, value in enumerate(KEYS[key])}
        assert len(rows) == len(KEYS[key])
        want = [-1 if value is None else rows.get(meaning(KINDS[column], value), -1) for value in COLUMNS[column]]
        got = np.concatenate([batch[key] for batch in batches]).tolist()
        wrong = [(COLUMNS[column][i], got[i], want[i]) for i in range(ROWS) if got[i] != want[i]]
        assert not wrong, f"{column} in {key}: (value, row found, row wanted): {wrong[:5]}"


def test_rejects_incomparable_types_naming_both(client: fb.Client):
    pairs = [pair for pair in itertools.product(KINDS, KINDS) if not is_comparable(*pair)]
    for column, key in random.Random(3).sample(pairs, 150):
        table = key.replace(" ", "_")
        plan = fb.Plan(outputs={"o": fb.cols(column).lookup(table, "k", ["v"]).fill_null(-1)})
        with pytest.raises(fb.ForebayError, match=r"does not compare.*cast one of the two") as caught:
            list(client.stream("rows", plan, batch_size=100))
        assert caught.value.code == "INVALID_ARGUMENT"
        for word in (f'column "{column}"', f'the key "k" of "{table}"', "op lookup"):
            assert word in str(caught.value), f"{column} in {key}: {caught.value}"
