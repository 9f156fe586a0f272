"""The columns of the filter search: every stored type, with values that are likely to expose a defect.

A value is what the type stores: an int for integers, dates, times and timestamps (in the stored unit), else a float, a
Decimal, a bool, a str or bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

# Days and seconds from 1970 to the first and the last day that a four-digit year can name.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY_SECONDS = 86_400
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]

Draw = Callable[[Random], Any]


@dataclass(frozen=True)
class Column:
    """A column's name, Arrow type, kind of expression and generator of values."""

    name: str
    type: pa.DataType
    kind: str
    draw: Draw
    # DuckDB and Polars store the type as pyarrow does.
    portable: bool = False

    def array(self, values: list[Any]) -> pa.Array:
        """The stored values, None among them, as an array of the type."""
        if pa.types.is_temporal(self.type):
            width = pa.int32() if self.type.bit_width == 32 else pa.int64()
            return pa.array(values, width).view(self.type)
        if pa.types.is_floating(self.type):
            gaps = [value is None for value in values]
            numbers = np.array([0.0 if value is None else value for value in values], np.float64)
            # Overflow to infinity is what a narrower float does.
            with np.errstate(over="ignore"):
                return pa.array(numbers.astype(self.type.to_pandas_dtype()), mask=np.array(gaps))
        if pa.types.is_dictionary(self.type):
            return pa.array(values, self.type.value_type).dictionary_encode()
        return pa.array(values, self.type)


def integers(low: int, high: int) -> Draw:
    """The limits, zero and its neighbours, and the first integers that float64 cannot represent."""
    edges = [low, low + 1, -1, 0, 1, 2, 7, high - 1, high, 2**24 + 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**31, 2**63 - 1]
    inside = [value for value in edges if low <= value <= high]

    def draw(random: Random) -> int:
        if random.random() < 0.4:
            return random.choice(inside)
        return random.randint(max(low, -9), min(high, 9)) if random.random() < 0.7 else random.randint(low, high)

    return draw


def floats(smallest: float, largest: float) -> Draw:
    """NaN of both signs, infinities, both zeros, the smallest denormal, and halves."""
    edges = [0.0, -0.0, float("nan"), NEGATIVE_NAN, float("inf"), float("-inf"), smallest, -smallest, largest, -largest]

    def draw(random: Random) -> float:
        if random.random() < 0.5:
            return random.choice(edges)
        return random.randint(-12, 12) / 4 if random.random() < 0.7 else random.uniform(-1e4, 1e4)

    return draw


def decimals(precision: int, scale: int) -> Draw:
    most = 10**precision - 1

    def draw(random: Random) -> Decimal:
        unscaled = (
            random.choice([0, 1, -1, most, -most, most - 1]) if random.random() < 0.3 else random.randint(-900, 900)
        )
        # A tuple is exact at any precision of the context.
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return draw


def days(unit: int) -> Draw:
    def draw(random: Random) -> int:
        edges = [FIRST_DAY, LAST_DAY, -1, 0, 1, -106_752, 106_751, 11_016, 19_782]
        return unit * (random.choice(edges) if random.random() < 0.5 else random.randint(-400, 20_000))

    return draw


def instants(unit: str) -> Draw:
    """The limits of four-digit years (of int64 for nanoseconds), values around 1970, and whole days."""
    per_second = 10**9 // UNIT_NS[unit]
    low, high = FIRST_DAY * DAY_SECONDS * per_second, (LAST_DAY + 1) * DAY_SECONDS * per_second - 1
    if unit == "ns":
        # One less at each end: the last values are NaT to pandas and infinity to DuckDB.
        low, high = -(2**63) + 2, 2**63 - 2

    def draw(random: Random) -> int:
        chance = random.random()
        if chance < 0.3:
            return random.choice([low, low + 1, high, high - 1, -1, 0, 1, per_second, -per_second])
        if chance < 0.6:
            return random.randint(-400, 20_000) * DAY_SECONDS * per_second
        return random.randint(1_500_000_000, 1_500_100_000) * per_second + random.randint(-3, 3)

    return draw


def set_back(random: Random) -> int:
    """Milliseconds near 2020-10-25 01:00 UTC, when clocks in Berlin go back an hour, or any other instant."""
    if random.random() < 0.5:
        return 1_603_587_600_000 + random.randint(-8, 8) * 900_000
    return instants("ms")(random)


def times(per_second: int) -> Draw:
    last = DAY_SECONDS * per_second - 1
    return lambda random: (
        random.choice([0, 1, last, last // 2]) if random.random() < 0.4 else random.randint(0, 23) * 3600 * per_second
    )


TEXT_PIECES = ["a", "b", "A", "B", "ab", "%", "_", "\\", " ", "é", "日本", "\0", "z", "1", "-7", "2.5", "'"]


def texts(prefix: str = "") -> Draw:
    def draw(random: Random) -> str:
        return "" if random.random() < 0.1 else prefix + "".join(random.choices(TEXT_PIECES, k=random.randint(0, 4)))

    return draw


def blobs(random: Random) -> bytes:
    return b"".join(
        random.choices([b"", b"\0", b"\xff", b"\x7f", b"\x80", b"ab", b"\xff" * 70], k=random.randint(0, 3))
    )


# Longer than the bounds of a page index, which writers truncate at 64 bytes.
LONG_PREFIX = "the same seventy letters begin every text of this column, or nearly so: "

TYPES: list[Column] = [
    Column("i8", pa.int8(), "narrow", integers(-(2**7), 2**7 - 1), portable=True),
    Column("i16", pa.int16(), "narrow", integers(-(2**15), 2**15 - 1), portable=True),
    Column("i32", pa.int32(), "narrow", integers(-(2**31), 2**31 - 1), portable=True),
    Column("i64", pa.int64(), "i64", integers(-(2**63), 2**63 - 1), portable=True),
    Column("j64", pa.int64(), "i64", integers(-(2**63), 2**63 - 1), portable=True),
    Column("u8", pa.uint8(), "narrow", integers(0, 2**8 - 1), portable=True),
    Column("u16", pa.uint16(), "narrow", integers(0, 2**16 - 1), portable=True),
    Column("u32", pa.uint32(), "narrow", integers(0, 2**32 - 1), portable=True),
    Column("u64", pa.uint64(), "u64", integers(0, 2**64 - 1), portable=True),
    Column("f16", pa.float16(), "f16", floats(2.0**-24, 65504.0)),
    Column("f32", pa.float32(), "f32", floats(2.0**-149, float(np.finfo(np.float32).max)), portable=True),
    Column("f64", pa.float64(), "f64", floats(2.0**-1074, float(np.finfo(np.float64).max)), portable=True),
    Column("g64", pa.float64(), "f64", floats(2.0**-1074, float(np.finfo(np.float64).max)), portable=True),
    Column("dec7_2", pa.decimal32(7, 2), "decimal", decimals(7, 2)),
    Column("dec15_3", pa.decimal64(15, 3), "decimal", decimals(15, 3)),
    Column("dec9_2", pa.decimal128(9, 2), "decimal", decimals(9, 2), portable=True),
    Column("dec18_0", pa.decimal128(18, 0), "decimal", decimals(18, 0), portable=True),
    Column("dec38_10", pa.decimal128(38, 10), "decimal", decimals(38, 10), portable=True),
    Column("dec50_5", pa.decimal256(50, 5), "wide", decimals(50, 5)),
    Column("day", pa.date32(), "date", days(1), portable=True),
    Column("day64", pa.date64(), "date", days(DAY_SECONDS * 1000)),
    *(Column(f"at_{unit}", pa.timestamp(unit), "stamp", instants(unit), portable=unit == "us") for unit in UNIT_NS),
    *(
        Column(f"utc_{unit}", pa.timestamp(unit, "UTC"), "zoned", instants(unit), portable=unit == "us")
        for unit in UNIT_NS
    ),
    Column("berlin_ms", pa.timestamp("ms", "Europe/Berlin"), "local", set_back),
    Column("time_s", pa.time32("s"), "time", times(1)),
    Column("time_ms", pa.time32("ms"), "time", times(10**3)),
    Column("time_us", pa.time64("us"), "time", times(10**6)),
    Column("time_ns", pa.time64("ns"), "fine_time", times(10**9)),
    Column("flag", pa.bool_(), "bool", lambda random: random.random() < 0.5, portable=True),
    Column("sign", pa.bool_(), "bool", lambda random: random.random() < 0.8, portable=True),
    Column("word", pa.string(), "text", texts(), portable=True),
    Column("large", pa.large_string(), "text", texts(LONG_PREFIX), portable=True),
    Column("key", pa.dictionary(pa.int32(), pa.string()), "text", texts()),
    Column("blob", pa.binary(), "bytes", blobs, portable=True),
]
