"""Footers with long-form list headers, which few readers accept: read like pyarrow and DuckDB."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.faults import outcome
from harness.parquet.surgery import Chunk, FileMeta, Parquet, RowGroup, dissect
from harness.parquet.thrift_compact import BYTE, I16, I32, I64, LIST, Items, Struct
from harness.serving import Serve, plan_of, raw_table, read, stored

ROWS = 100
ENCODINGS, KEY_VALUES, SIZES, SORTING = 2, 8, 16, 4


def table() -> pa.Table:
    words = [None if i % 7 == 3 else f"w{i % 5}" for i in range(ROWS)]
    return pa.table({"n": range(ROWS), "word": words, "list": [[i] * (i % 3) for i in range(ROWS)]})


def chunks(file: Parquet) -> list[Struct]:
    return [chunk[Chunk.META] for group in file.groups for chunk in group[RowGroup.COLUMNS].values]


def untyped() -> Items:
    """An empty list as fastparquet heads it: without a type."""
    return Items(0, [])


def encodings(kind: int) -> Callable[[Parquet], None]:
    def change(file: Parquet) -> None:
        for chunk in chunks(file):
            chunk[ENCODINGS].kind = kind

    return change


def histograms(file: Parquet) -> None:
    sizes = [chunk[SIZES] for chunk in chunks(file) if SIZES in chunk]
    lists = [items for size in sizes for kind, items in size.fields.values() if kind == LIST]
    assert lists
    for items in lists:
        items.kind = I32 if items.values else 0


def key_values(file: Parquet) -> None:
    file.footer.add(FileMeta.KEY_VALUES, LIST, untyped())
    for chunk in chunks(file):
        chunk.add(KEY_VALUES, LIST, untyped())


def sorting(file: Parquet) -> None:
    for group in file.groups:
        group.add(SORTING, LIST, untyped())


def encoding_stats(file: Parquet) -> None:
    for chunk in chunks(file):
        chunk.add(Chunk.ENCODING_STATS, LIST, untyped())


def everything(file: Parquet) -> None:
    for change in (encodings(I64), histograms, key_values, sorting, encoding_stats):
        change(file)


HEADS: dict[str, Callable[[Parquet], None]] = {
    "encodings of 16 bits": encodings(I16),
    "encodings of 64 bits": encodings(I64),
    "histograms of 32 bits": histograms,
    "no key-values": key_values,
    "no sorting columns": sorting,
    "no encoding statistics": encoding_stats,
    "all of them": everything,
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dictionary", [True, False])
def test_reads_long_form_list_headers(tmp_path: Path, serve: Serve, head: str, dictionary: bool):
    file = dissect(table(), use_dictionary=dictionary, row_group_size=40, store_schema=False)
    path = tmp_path / "a.parquet"
    path.write_bytes(file.build(HEADS[head]))
    want = pq.read_table(path)
    assert want.to_pylist() == table().to_pylist()
    assert len(duckdb.sql(f"FROM '{path}'").fetchall()) == ROWS
    with fl.connect(serve({"t": tmp_path}).url) as client:
        assert raw_table(client, "t").equals(want)
        got = read(client, "t", plan_of(stored("n", "word", "list"), filter="n >= 50 AND word = 'w1'"))
        assert got["n"].to_pylist() == [i for i in range(50, ROWS) if i % 7 != 3 and i % 5 == 1]


def test_a_footer_longer_than_the_first_read(tmp_path: Path, serve: Serve):
    wide = pa.table({f"column {i} {'x' * 200}": [1, 2] for i in range(300)})
    file = dissect(wide, store_schema=False)
    path = tmp_path / "a.parquet"
    path.write_bytes(file.build(everything))
    assert struct.unpack("<I", path.read_bytes()[-8:-4])[0] > 1 << 16
    with fl.connect(serve({"t": tmp_path}).url) as client:
        assert raw_table(client, "t").equals(pq.read_table(path))


def test_rejects_invalid_lists_by_file_name(tmp_path: Path, serve: Serve):
    file = dissect(table(), store_schema=False)
    (tmp_path / "bytes.parquet").write_bytes(file.build(encodings(BYTE)))
    with fl.connect(serve({"t": tmp_path}).url) as client:
        code, text = outcome(lambda: raw_table(client, "t"))
        assert code == "DATA_LOSS", text
        assert "bytes.parquet" in text, text
        assert "I32" in text, text
