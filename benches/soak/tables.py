"""The datasets of the soak. Every value is computed from its row's index, so expected results can be computed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TABLE_FILES, TABLE_FILE_ROWS, TABLE_GROUP_ROWS = 4, 50_000, 10_000
TABLE_ROWS = TABLE_FILES * TABLE_FILE_ROWS
FLOATS = [f"v{number}" for number in range(8)]
TEXT_ROWS, TEXT_GROUP_ROWS = 60_000, 6_000
# 1 KB a row, so that a stream is longer than what sockets and clients buffer.
TEXT_REPEATS = 512
WEB_ROWS, WEB_GROUP_ROWS = 40_000, 2_000
SMALL_ROWS = 20_000
DAMAGED_FILE_ROWS = 5_000
# The second of three, so that valid rows precede the damage.
DAMAGED_FILE = "b.parquet"
TORN_FILE = "torn.parquet"


@dataclass(frozen=True)
class Tables:
    """Locations of the data: folders by dataset name, and the bytes of the file that the web server serves."""

    local: dict[str, Path]
    """Folders that the replicas serve."""
    healthy: dict[str, Path]
    """The same with undamaged files, from which the expected streams are read."""
    web: bytes


def columns(first: int, count: int) -> pa.Table:
    """Return rows of `table` and `damaged`."""
    ids = np.arange(first, first + count)
    numbers = {name: np.sin(ids * (at + 1)).astype(np.float32) for at, name in enumerate(FLOATS)}
    x = pa.array(np.sqrt(ids), mask=ids % 20 == 3)
    words = pa.array([f"k{(number * 7919) % 1000}" for number in ids.tolist()])
    return pa.table({"id": ids, "n": (ids * 31) % 1009, "x": x, "word": words, **numbers})  # pyright: ignore[reportArgumentType, reportCallIssue]


def web_columns() -> pa.Table:
    """Return the rows of the web server's file."""
    ids = np.arange(WEB_ROWS)
    return pa.table({"id": ids, **{name: np.sqrt(ids * (at + 2)) for at, name in enumerate("abcd")}})  # pyright: ignore[reportArgumentType, reportCallIssue]


def make(folder: Path) -> Tables:
    """Write all datasets."""
    table, texts, small, damaged, undamaged, torn = (
        folder / name for name in ("table", "texts", "small", "damaged", "undamaged", "torn")
    )
    for each in (table, texts, small, damaged, undamaged, torn):
        each.mkdir(parents=True)
    for number in range(TABLE_FILES):
        rows = columns(number * TABLE_FILE_ROWS, TABLE_FILE_ROWS)
        pq.write_table(rows, table / f"part-{number}.parquet", row_group_size=TABLE_GROUP_ROWS, compression="zstd")
    ids = np.arange(TEXT_ROWS)
    words = [f"{number} " * TEXT_REPEATS for number in range(4)]
    text = pa.DictionaryArray.from_arrays((ids % 4).astype(np.int32), words)  # pyright: ignore[reportArgumentType]
    # Without Arrow's schema the column is read as text, not as a dictionary.
    long = pa.table({"id": ids, "text": text})  # pyright: ignore[reportArgumentType, reportCallIssue]
    pq.write_table(long, texts / "a.parquet", store_schema=False, row_group_size=TEXT_GROUP_ROWS)
    pq.write_table(columns(0, SMALL_ROWS), small / "a.parquet", row_group_size=TABLE_GROUP_ROWS)
    for number, name in enumerate(("a.parquet", DAMAGED_FILE, "c.parquet")):
        rows = columns(number * DAMAGED_FILE_ROWS, DAMAGED_FILE_ROWS)
        pq.write_table(rows, undamaged / name, row_group_size=DAMAGED_FILE_ROWS // 2, compression="zstd")
        shutil.copy(undamaged / name, damaged / name)
    _damage(damaged / DAMAGED_FILE)
    shutil.copy(undamaged / "a.parquet", torn / "a.parquet")
    (torn / TORN_FILE).write_bytes((undamaged / "c.parquet").read_bytes()[:-100])
    same = {"table": table, "texts": texts, "small": small}
    return Tables({**same, "damaged": damaged, "torn": torn}, {**same, "damaged": undamaged}, _web_file())


def _damage(path: Path) -> None:
    """Overwrite part of the first page of `id` in the second row group."""
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 20 : start + 200] = b"\xff" * 180
    path.write_bytes(data)


def _web_file() -> bytes:
    """Return a file of plain, uncompressed numbers: a misplaced byte gives a wrong number, not an error."""
    sink = pa.BufferOutputStream()
    pq.write_table(web_columns(), sink, row_group_size=WEB_GROUP_ROWS, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes()
