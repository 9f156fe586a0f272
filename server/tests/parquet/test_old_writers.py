"""Footers and pages as old writers left them, which pyarrow reads: the same values, with and without a filter."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.parquet.surgery import (
    Chunk,
    DataHeader,
    DataHeaderV2,
    FileMeta,
    Header,
    Page,
    Parquet,
    RowGroup,
    SchemaElement,
    dissect,
    with_footer,
)
from harness.parquet.thrift_compact import BINARY, I32, I64, LIST, STRUCT, TRUE, Items, Reader, Struct, encode
from harness.serving import Serve, plan_of, raw_table, read, stored

ROWS = 60
REPEATED, MAP_KEY_VALUE = 2, 2
# The length of definition levels, and none.
LEVELS_OF_NOTHING = bytes(4)
BLOOM_FILTER_BYTES, SIZE_STATISTICS = 15, 16


def table() -> pa.Table:
    rows = range(ROWS)
    gaps = [None if i % 5 == 1 else i for i in rows]
    return pa.table(
        {
            "n": pa.array(rows, pa.int64()),
            "gaps": pa.array(gaps, pa.int64()),
            "word": pa.array([None if i is None else f"w{i % 7}" for i in gaps]),
            "money": pa.array([None if i is None else Decimal(i) for i in gaps], pa.decimal128(9, 0)),
            "wide": pa.array([None if i is None else Decimal(i) for i in gaps], pa.decimal128(30, 0)),
            "list": pa.array([None if i is None else [i, None][: i % 3] for i in gaps], pa.list_(pa.int32())),
            "struct": pa.array([None if i is None else {"a": i, "b": None} for i in gaps]),
        }
    )


def same(tmp_path: Path, serve: Serve, body: bytes, want: pa.Table | None = None) -> pa.Table:
    """Check the rows of a file against pyarrow's, also with a filter."""
    path = tmp_path / "a.parquet"
    path.write_bytes(body)
    want = pq.ParquetFile(path).read() if want is None else want
    with fl.connect(serve({"t": path}).url) as client:
        got = raw_table(client, "t")
        assert got.to_pylist() == want.to_pylist()
        if "n" in got.column_names:
            rows = read(client, "t", plan_of(stored(*got.column_names), filter="n >= 40"))
            assert rows.to_pylist() == want.filter(pa.compute.greater_equal(want["n"], 40)).to_pylist()
    return got


@pytest.mark.parametrize("declared", [-1, 0, 5, 1000])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_levels_decide_which_values_are_null(
    tmp_path: Path, serve: Serve, declared: int, dictionary: bool, compression: str
):
    options: dict[str, Any] = {"data_page_version": "2.0", "write_statistics": False, "compression": compression}
    file = dissect(table(), options, use_dictionary=dictionary, row_group_size=25, data_page_size=50)
    for pages in file.pages.values():
        for page in pages:
            if Header.DATA_V2 in page.header:
                page.header[Header.DATA_V2][DataHeaderV2.NULLS] = declared
    same(tmp_path, serve, file.build(), table())


def test_columns_that_may_not_be_null_have_no_nulls(tmp_path: Path, serve: Serve):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    file = dissect(pa.table([range(ROWS)], schema), data_page_version="2.0", write_statistics=False)
    file.page(0, "n", 0).own[DataHeaderV2.NULLS] = 3
    same(tmp_path, serve, file.build())


@pytest.mark.parametrize("kind", [22, 24, 25, 100, -1])
def test_unknown_converted_types(tmp_path: Path, serve: Serve, kind: int):
    nothing = pa.table({"n": range(ROWS), "x": pa.array([None] * ROWS, pa.int32())})
    file = dissect(nothing, store_schema=False)
    file.element("x").add(SchemaElement.CONVERTED, I32, kind)
    # pyarrow reads other unknown types as none, too, but fails for some of them.
    got = same(tmp_path, serve, file.build(), nothing)
    assert got.schema.field("x").type == (pa.null() if kind in (24, 25) else pa.int32())


def test_decimals_without_a_scale(tmp_path: Path, serve: Serve):
    file = dissect(table().select(["n", "money", "wide"]), store_schema=False)
    for name in ("money", "wide"):
        element = file.element(name)
        element.remove(SchemaElement.SCALE)
        element.remove(SchemaElement.LOGICAL)
    got = same(tmp_path, serve, file.build())
    assert got.schema.field("wide").type == pa.decimal128(30, 0)


def numbers_as_values(file: Parquet) -> None:
    """Key-value metadata with numbers as values, as fastparquet 0.8 wrote it."""
    pairs = [Struct({1: (BINARY, b"number"), 2: (I64, 1)}), Struct({1: (BINARY, b"flag"), 2: (TRUE, True)})]
    file.footer.add(FileMeta.KEY_VALUES, LIST, Items(STRUCT, pairs))


def other_fields(file: Parquet) -> None:
    """Under ids that the format has given to others since, as Dremio wrote them."""
    for group in file.groups:
        for chunk in group[RowGroup.COLUMNS].values:
            parts = Items(STRUCT, [Struct({1: (I64, 22)})])
            chunk[Chunk.META].add(BLOOM_FILTER_BYTES, LIST, parts)
            chunk[Chunk.META].add(SIZE_STATISTICS, I64, 7)


def dictionaries_at_zero(file: Parquet) -> None:
    for group in file.groups:
        for chunk in group[RowGroup.COLUMNS].values:
            if Chunk.DICTIONARY_PAGE not in chunk[Chunk.META]:
                chunk[Chunk.META].add(Chunk.DICTIONARY_PAGE, I64, 0)


@pytest.mark.parametrize("damage", [numbers_as_values, other_fields, dictionaries_at_zero])
def test_footers_with_other_values(tmp_path: Path, serve: Serve, damage: Callable[[Parquet], None]):
    file = dissect(table(), use_dictionary=["word"], row_group_size=25, store_schema=False)
    same(tmp_path, serve, file.build(damage), table())


@pytest.mark.parametrize("version", ["1.2.5-cdh4.5.0", "1.2.8"])
def test_sizes_without_the_header_of_the_dictionary(tmp_path: Path, serve: Serve, version: str):
    file = dissect(table(), data_page_version="1.0", version="1.0", row_group_size=25, store_schema=False)

    def leave_out(file: Parquet) -> None:
        file.footer[FileMeta.CREATED_BY] = f"parquet-mr version {version} (build x)".encode()
        for (group, name), pages in file.pages.items():
            header = pages[0].header
            meta = file.chunk(group, name)
            if Header.DICTIONARY in header:
                meta[Chunk.COMPRESSED] -= len(encode(header))
                meta[Chunk.DATA_PAGE] = meta[Chunk.DICTIONARY_PAGE]
                meta.remove(Chunk.DICTIONARY_PAGE)

    same(tmp_path, serve, file.build(leave_out), table())


@pytest.mark.parametrize("rest", [b"\0", b"\x15", bytes(range(1, 60)), bytes([0x26, 2, 0x1C]) + bytes(20)])
def test_bytes_after_the_last_page(tmp_path: Path, serve: Serve, rest: bytes):
    """Impala counted empty pages that it did not write."""
    file = dissect(table(), row_group_size=25, store_schema=False)
    for pages in file.pages.values():
        pages[-1].body += rest
    same(tmp_path, serve, file.build(), table())


def empty_page(page: Page) -> Page:
    header = Reader(encode(page.header)).struct()
    own = Page(header, b"")
    own.own[DataHeader.VALUES] = 0
    own.store(LEVELS_OF_NOTHING)
    return own


def test_pages_without_values(tmp_path: Path, serve: Serve):
    file = dissect(table().select(["n", "gaps"]), use_dictionary=False, row_group_size=25)
    for pages in file.pages.values():
        pages[:] = [empty_page(pages[0]), pages[0], empty_page(pages[0])]
    same(tmp_path, serve, file.build(), table().select(["n", "gaps"]))


def test_maps_that_are_the_items_of_a_list(tmp_path: Path, serve: Serve):
    item = pa.field("element", pa.map_(pa.string(), pa.int32()), nullable=False)
    maps = [[[("a", i), ("b", None)][: i % 3]] * (i % 4) for i in range(ROWS)]
    given = pa.table({"n": range(ROWS), "maps": pa.array(maps, pa.list_(item))})
    file = dissect(given, store_schema=False)

    def without_group(file: Parquet) -> None:
        names = [element[SchemaElement.NAME] for element in file.schema]
        group = names.index(b"list")
        assert names[group + 1] == b"element"
        file.schema[group + 1][SchemaElement.REPETITION] = REPEATED
        file.schema[group + 1][SchemaElement.NAME] = b"array"
        file.schema[group + 2].add(SchemaElement.CONVERTED, I32, MAP_KEY_VALUE)
        del file.schema[group]
        for chunk in file.groups[0][RowGroup.COLUMNS].values[1:]:
            path = chunk[Chunk.META][Chunk.PATH].values
            path[1:3] = [b"array"]

    body = file.build(without_group)
    assert b"array" in body
    same(tmp_path, serve, body, given)


def test_chunks_with_fewer_rows_than_their_pages_are_still_corrupt(tmp_path: Path, serve: Serve):
    file = dissect(table().select(["n"]), use_dictionary=False, data_page_size=100, write_batch_size=10)
    assert len(file.pages[0, "n"]) > 1

    def fewer(file: Parquet) -> None:
        rows = 10
        file.footer[FileMeta.ROWS] = rows
        file.groups[0][RowGroup.ROWS] = rows
        file.chunk(0, "n")[Chunk.VALUES] = rows

    (tmp_path / "a.parquet").write_bytes(file.build(fewer))
    with fl.connect(serve({"t": tmp_path}).url) as client, pytest.raises(fl.FlightError, match="CORRUPT_DATA"):
        raw_table(client, "t")


def test_a_footer_longer_than_its_file_is_no_panic(tmp_path: Path, serve: Serve):
    body = dissect(table()).build()
    (tmp_path / "a.parquet").write_bytes(body[:-8] + b"\xf0\xff\xff\x7f" + b"PAR1")
    (tmp_path / "b.parquet").write_bytes(with_footer(b"PAR1", b"")[:4] + b"\xff\xff\xff\xff" + b"PAR1")
    server = serve({"a": tmp_path / "a.parquet", "b": tmp_path / "b.parquet"})
    with fl.connect(server.url) as client:
        for name in ("a", "b"):
            with pytest.raises(fl.FlightError, match="CORRUPT_DATA.*its footer declares"):
                raw_table(client, name)
    assert not any("panicked" in line for line in server.log), server.log
