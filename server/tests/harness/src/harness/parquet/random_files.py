"""Random Parquet files: columns of every flat type, stored by pyarrow, DuckDB or Polars in any encoding.

A seed determines the rows and how they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = (0, 1, 2, 7, 127, 1009, 1009, 5003, 5003, 20_011)
HUGE_ROWS = 150_001

# Float bits: signed zeros, infinities, NaN with payloads, subnormals.
SPECIAL_32 = (0x80000000, 0, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 1, 0x80000001, 0x7F7FFFFF)
SPECIAL_64 = (
    1 << 63,
    0,
    0x7FF << 52,
    0xFFF << 52,
    0x7FF8 << 48,
    (0xFFF8 << 48) + 1,
    (0x7FF << 52) + 1,
    1,
    (1 << 63) + 1,
)

# Types that every writer stores as they are.
PORTABLE = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
)
OTHERS = (
    pa.float16(),
    pa.timestamp("ms"),
    pa.timestamp("ns", "UTC"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.duration("us"),
    pa.large_string(),
    pa.large_binary(),
    pa.decimal128(9, 2),
    pa.decimal128(30, 3),
    pa.binary(5),
    pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.int32()),
)

CODECS = ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")


@dataclass(frozen=True)
class RandomFiles:
    """A table, and how it is stored; its repr is what a failure reports."""

    seed: int
    writer: str
    files: int
    options: dict[str, Any]
    table: pa.Table

    def __repr__(self) -> str:
        return f"seed {self.seed}: {self.table.num_rows} rows in {self.files} files, {self.writer} {self.options}"

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        rows = self.table.num_rows
        cuts = [rows * file // self.files for file in range(self.files + 1)]
        for number, (start, end) in enumerate(pairwise(cuts)):
            path, piece = folder / f"{number:02}.parquet", self.table.slice(start, end - start)
            if self.writer == "pyarrow":
                pq.write_table(piece, path, **self.options)
            elif self.writer == "polars":
                pl.DataFrame(pl.from_arrow(piece)).write_parquet(path, **self.options)
            else:
                options = ", ".join(f"{name} {value}" for name, value in self.options.items())
                with duckdb.connect() as connection:
                    connection.register("given", piece)
                    connection.execute(f"COPY given TO '{path}' (FORMAT parquet, {options})")


def draw_files(seed: int) -> RandomFiles:
    random = Random(f"files {seed}")
    writer = random.choice(["pyarrow", "pyarrow", "duckdb", "polars"])
    is_huge = random.random() < 0.04
    rows = HUGE_ROWS if is_huge else random.choice(ROWS)
    types = [random.choice(PORTABLE) for _ in range(3 if is_huge else random.randint(3, 12))]
    if writer == "pyarrow":
        types += [random.choice(OTHERS) for _ in range(random.randint(0, 4))]
    # Each row's number comes first.
    columns, fields = [pa.array(np.arange(rows), pa.int64())], [pa.field("id", pa.int64())]
    for number, kind in enumerate(types):
        nulls = random.choice([0.0, 0.0, 0.05, 0.5, 0.99, 1.0])
        fields.append(pa.field(f"c{number}", kind, nullable=nulls > 0 or random.random() < 0.5))
        columns.append(draw_column(random, kind, rows, nulls, is_narrow=writer == "duckdb"))
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    options = {"pyarrow": pyarrow_options, "duckdb": duckdb_options, "polars": polars_options}[writer]
    return RandomFiles(seed, writer, random.choice([1, 1, 2, 3]), options(random, table), table)


def draw_column(random: Random, kind: pa.DataType, rows: int, nulls: float, *, is_narrow: bool) -> pa.Array:
    """Values of which few or many are distinct, at random or in ascending order, with nulls alone or in long runs."""
    numbers = np.random.default_rng(random.getrandbits(32))
    distinct = random.choice([1, 2, 5, 40, 1000, 1 << 40])
    codes = (
        np.arange(rows) // random.choice([1, 3, 700]) if random.random() < 0.25 else numbers.integers(0, 1 << 40, rows)
    )
    codes = codes % distinct
    if nulls in (0.0, 1.0) or random.random() < 0.5:
        gaps = numbers.random(rows) < nulls
    else:
        gaps = np.repeat(numbers.random(rows // 100 + 1) < nulls, 100)[:rows]
    # Spreads the codes over all bits; DuckDB's DELTA_BINARY_PACKED of differences beyond 31 bits is broken.
    bits = 30 if is_narrow else random.choice([1, 7, 31, 40, 64])
    words = (codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits)
    return make_array(kind, words, gaps, numbers)


def make_array(kind: pa.DataType, words: np.ndarray, gaps: np.ndarray, numbers: np.random.Generator) -> pa.Array:
    """The array of a type for random words."""
    if pa.types.is_dictionary(kind):
        return make_array(kind.value_type, words % np.uint64(50), gaps, numbers).dictionary_encode().cast(kind)
    if pa.types.is_list(kind):
        lists = [None if gap else list(range(int(word % 4))) for word, gap in zip(words, gaps, strict=True)]
        return pa.array(lists, kind)
    if pa.types.is_decimal(kind):
        limit = 10 ** min(kind.precision - kind.scale, 18)
        values = pa.array((words % np.uint64(limit)).astype(np.int64), pa.int64(), mask=gaps)
        return values.cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, kind.scale)).cast(kind, safe=False)
    if pa.types.is_boolean(kind):
        return pa.array((words & np.uint64(1)).astype(bool), kind, mask=gaps)
    if kind.id == pa.binary(5).id:
        return pa.array(
            [None if gap else int(word).to_bytes(8, "little")[:5] for word, gap in zip(words, gaps, strict=True)], kind
        )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = [
            None if gap else f"{word:x}wört{'x' * int(word % 60)}"[: word % 23]
            for word, gap in zip(words.tolist(), gaps, strict=True)
        ]
        return pa.array(texts, kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(
            [
                None if gap else int(word).to_bytes(8, "little")[: word % 9]
                for word, gap in zip(words.tolist(), gaps, strict=True)
            ],
            kind,
        )
    width = kind.bit_width
    bits = words.astype(f"u{width // 8}")
    if pa.types.is_floating(kind) and width > 16:
        special = np.array(SPECIAL_32 if width == 32 else SPECIAL_64, bits.dtype)
        bits = np.where(numbers.random(len(bits)) < 0.2, numbers.choice(special, len(bits)), bits)
    if pa.types.is_time(kind):
        bits = bits % bits.dtype.type(86_400_000)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        bits = bits >> bits.dtype.type(8)  # Every writer knows the year.
    integers = pa.array(
        bits.view(f"i{width // 8}"), {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width], mask=gaps
    )
    return integers.view(kind)


def pyarrow_options(random: Random, table: pa.Table) -> dict[str, Any]:
    version = random.choice(["1.0", "2.0"])
    in_dictionaries = [
        field.name for field in table.schema if random.random() < 0.5 and not pa.types.is_boolean(field.type)
    ]
    encodings = {
        field.name: encoding
        for field in table.schema
        if field.name not in in_dictionaries and (encoding := random.choice(pyarrow_encodings(field.type, version)))
    }
    # Columns of lists are addressed by their items.
    encodings = {
        name: kind for name, kind in encodings.items() if not pa.types.is_nested(table.schema.field(name).type)
    }
    return {
        "row_group_size": row_group_size(random, table),
        "use_dictionary": in_dictionaries,
        "column_encoding": encodings or None,
        "compression": {name: random.choice(CODECS) for name in table.column_names},
        "data_page_version": version,
        "data_page_size": random.choice([1, 300, 4000, 1 << 20]),
        "dictionary_pagesize_limit": random.choice([200, 3000, 1 << 20]),
        "write_batch_size": random.choice([1, 64, 1024]) if table.num_rows < HUGE_ROWS else 1024,
        "write_statistics": random.random() < 0.8,
        "write_page_index": random.random() < 0.3,
        "write_page_checksum": random.random() < 0.3,
        "store_schema": random.random() < 0.9,
        "store_decimal_as_integer": random.random() < 0.3,
    }


def pyarrow_encodings(kind: pa.DataType, version: str) -> list[str | None]:
    """The encodings that pyarrow writes for a type; None is its default."""
    if pa.types.is_boolean(kind):
        return [None, "PLAIN", *(["RLE"] if version == "2.0" else [])]
    if pa.types.is_floating(kind):
        return [None, "PLAIN", "BYTE_STREAM_SPLIT"]
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return [None, "PLAIN", "BYTE_STREAM_SPLIT", "DELTA_BINARY_PACKED"]
    if kind.id == pa.binary(5).id:
        return [None, "PLAIN", "BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY"]
    if pa.types.is_decimal(kind) or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return [None, "PLAIN"]
    return [None, "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]


def duckdb_options(random: Random, table: pa.Table) -> dict[str, Any]:
    return {
        "PARQUET_VERSION": random.choice(["v1", "v2"]),
        "COMPRESSION": random.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli"]),
        "ROW_GROUP_SIZE": row_group_size(random, table),
        "DICTIONARY_SIZE_LIMIT": random.choice([1, 100, 100_000]),
    }


def polars_options(random: Random, table: pa.Table) -> dict[str, Any]:
    return {
        "compression": random.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"]),
        "row_group_size": row_group_size(random, table),
        "data_page_size": random.choice([None, 100, 3000]),
        "statistics": random.choice([True, False, "full"]),
    }


def row_group_size(random: Random, table: pa.Table) -> int:
    """A prime, or one row group for the whole table."""
    sizes = [97, 1009] if table.num_rows < HUGE_ROWS else [65_537]
    return random.choice([*sizes, max(table.num_rows, 1)])
