"""Write the seeds of the corpus that pyarrow makes: `python server/fuzz/parquet_seeds.py`."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CORPUS = Path(__file__).parent / "corpus" / "parquet"
ROWS = range(30)


def columns() -> dict[str, pa.Array]:
    """Columns of most kinds, with nulls."""
    return {
        "n": pa.array([row * row for row in ROWS], pa.int32()),
        "x": pa.array([None if row % 3 == 0 else row / 7 for row in ROWS], pa.float32()),
        "text": pa.array([None if row % 4 == 1 else f"käse {row % 5}" for row in ROWS]),
        "kind": pa.array(["ab"[row % 2] for row in ROWS]).dictionary_encode(),
        "list": pa.array([None if row % 5 == 0 else [row] * (row % 3) for row in ROWS], pa.list_(pa.int16())),
    }


def others() -> dict[str, pa.Array]:
    """Types that are rarer."""
    return {
        "day": pa.array([date(2020, 1, 1 + row) for row in ROWS]),
        "at": pa.array([datetime(2020, 1, 1, row % 24) for row in ROWS], pa.timestamp("ns", "UTC")),
        "price": pa.array([Decimal(row) / 4 for row in ROWS], pa.decimal128(12, 2)),
        "half": pa.array([float(row) for row in ROWS], pa.float16()),
        "raw": pa.array([bytes([row]) * (row % 4) for row in ROWS]),
        "fixed": pa.array([bytes([row]) * 3 for row in ROWS], pa.binary(3)),
        "flag": pa.array([row % 2 == 0 for row in ROWS]),
        "nested": pa.array([{"a": row, "b": [str(row)]} for row in ROWS]),
        "map": pa.array([[("k", row)] for row in ROWS], pa.map_(pa.string(), pa.int64())),
    }


def write(name: str, table: dict[str, pa.Array], **options: object) -> None:
    """Write one file."""
    pq.write_table(pa.table(table), CORPUS / f"pyarrow_{name}.parquet", **options)


write("snappy", columns())
for codec in ("gzip", "zstd", "lz4", "brotli"):
    write(codec, columns(), compression=codec)
write("v1_plain", columns(), compression="none", use_dictionary=False, version="1.0", store_schema=False)
write("v2_pages", columns(), compression="none", data_page_version="2.0", write_page_checksum=True)
write("groups", {"n": columns()["n"], "text": columns()["text"]}, row_group_size=7, data_page_size=16)
write("int96", {"at": others()["at"]}, use_deprecated_int96_timestamps=True)
write("types", others(), compression="zstd", store_schema=False)
write(
    "delta",
    {"n": columns()["n"], "text": columns()["text"]},
    use_dictionary=False,
    compression="none",
    column_encoding={"n": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"},
)
write("split", {"x": columns()["x"]}, use_dictionary=False, column_encoding={"x": "BYTE_STREAM_SPLIT"})
