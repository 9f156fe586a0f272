"""Page indexes that are not those of their pages: the rows are those of the pages, never others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from harness.damaged_files import Patient, as_stored, ended, options, stream
from harness.parquet.page_index import FIRST_ROW, LOCATIONS, OFFSET, SIZE, locations, with_index, with_index_at
from harness.parquet.surgery import written
from harness.parquet.thrift_compact import Items, Struct, encode
from harness.serving import info

ROWS, GROUP_ROWS = 40_000, 20_000
WORLD = 5
PAGES = {"row_group_size": GROUP_ROWS, "data_page_size": 400, "write_batch_size": 100, "write_page_index": True}


def table() -> pa.Table:
    random = np.random.default_rng(3)
    n = np.arange(ROWS)
    return pa.table(
        {
            "id": random.permutation(n),
            "word": pa.array([f"word {i} {ROWS - i}" for i in n], mask=n % 7 == 3),
            "items": pa.array([[int(i)] * (i % 3) for i in n]),
        }
    )


TABLE = table()
Change = Callable[[list[Struct]], None]


def data(**more: object) -> bytes:
    return written(TABLE, PAGES, use_dictionary=False, **more)


def check(patient: Patient, file: bytes) -> None:
    """Every rank reads its rows, in file order and shuffled."""
    patient.put(file)
    with patient.aftermath() as client:
        for column in TABLE.column_names:
            expected = TABLE[column].combine_chunks()
            order = {"world_size": WORLD, "batch_size": 4096}
            assert stream(client, "ill", as_stored(column), **order)["out"].combine_chunks().equals(expected)
            more = {"shuffle": True, "lanes": WORLD, "with_row_ids": True}
            found = stream(client, "ill", as_stored(column), **order, **more).sort_by("__row_id")
            assert found["out"].combine_chunks().equals(expected)


def shift_rows(pages: list[Struct]) -> None:
    for page in pages[1:-1]:
        page[FIRST_ROW] += 1


def shift_offsets(pages: list[Struct]) -> None:
    for page in pages:
        page[OFFSET] += 1


def overlap(pages: list[Struct]) -> None:
    pages[60][OFFSET] -= 10
    pages[60][SIZE] += 10


def split(pages: list[Struct]) -> None:
    """Two pages where the file has one."""
    whole = pages[60]
    size, rows = whole[SIZE] // 2, (pages[61][FIRST_ROW] - whole[FIRST_ROW]) // 2
    half = Struct(dict(whole.fields))
    half[OFFSET] += size
    half[SIZE] -= size
    half[FIRST_ROW] += rows
    whole[SIZE] = size
    pages.insert(61, half)


def join(pages: list[Struct]) -> None:
    """One page where the file has two, for every two."""
    for place in range(len(pages) // 2):
        second = pages.pop(place + 1)
        pages[place][SIZE] += second[SIZE]


def swap(pages: list[Struct]) -> None:
    pages[60], pages[61] = pages[61], pages[60]


def repeat_rows(pages: list[Struct]) -> None:
    pages[60][FIRST_ROW] = pages[59][FIRST_ROW]


def beyond(pages: list[Struct]) -> None:
    pages[-1][SIZE] += 1 << 30


def negative(pages: list[Struct]) -> None:
    pages[60][SIZE] = -pages[60][SIZE]


def later_rows(pages: list[Struct]) -> None:
    pages[-1][FIRST_ROW] = GROUP_ROWS


def fewer(pages: list[Struct]) -> None:
    del pages[-40:]


def later_start(pages: list[Struct]) -> None:
    """Data pages that are declared a dictionary."""
    del pages[:3]
    for page in pages:
        page[FIRST_ROW] -= pages[0][FIRST_ROW]


CHANGES: list[Change] = [
    shift_rows,
    shift_offsets,
    overlap,
    split,
    join,
    swap,
    repeat_rows,
    beyond,
    negative,
    later_rows,
    fewer,
    later_start,
]


@pytest.mark.parametrize("column", ["word", "items.list.element"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_index_of_other_pages_is_not_used(patient: Patient, change: Change, column: str):
    def changed(index: Struct) -> None:
        change(index[LOCATIONS].values)

    # The headers of pages of version 2 say how many rows lists have.
    check(patient, with_index(data(data_page_version="2.0"), 1, column, changed))
    if column == "word":
        check(patient, with_index(data(), 1, column, changed))


@pytest.mark.parametrize("change", [shift_rows, split, join], ids=lambda change: change.__name__)
def test_index_of_other_rows_of_lists(patient: Patient, change: Change):
    """The headers of pages of version 1 do not say how many rows they have: they are counted in the levels."""

    def changed(index: Struct) -> None:
        change(index[LOCATIONS].values)

    patient.put(with_index(data(), 1, "items.list.element", changed))
    with patient.aftermath() as client:
        wanted = {"dataset": "ill", "plan": as_stored("items"), "world_size": WORLD, "batch_size": 4096}
        codes: list[str] = []
        for rank, endpoint in enumerate(info(client, wanted).endpoints):
            code, message = ended(partial(check_rank, client, rank, endpoint.ticket))
            codes.append(code)
            if code != "OK":
                assert code == "DATA_LOSS", message
                for word in ("a.parquet", "row group 1", 'column "items"', "offset index"):
                    assert word in message, message
        # Ranks that read most of the row group read all of it, and no index.
        assert codes[:2] == ["OK", "OK"]
        assert ("DATA_LOSS" in codes) == (change is shift_rows), codes


def check_rank(client: fl.FlightClient, rank: int, ticket: fl.Ticket) -> None:
    found = client.do_get(ticket, options()).read_all()["out"].combine_chunks()
    start, end = (r * ROWS // WORLD for r in (rank, rank + 1))
    assert found.equals(TABLE["items"].slice(start, end - start).combine_chunks())


def garbage(_: Struct) -> bytes:
    return bytes(range(1, 200))


def truncated(index: Struct) -> bytes:
    return encode(index)[:-100]


def claims_too_many(index: Struct) -> bytes:
    pages: Items = index[LOCATIONS]
    pages.claimed = 2**31 - 1
    return encode(index)


def no_list(index: Struct) -> bytes:
    index.remove(LOCATIONS)
    return encode(index)


@pytest.mark.parametrize("change", [garbage, truncated, claims_too_many, no_list], ids=lambda change: change.__name__)
def test_unreadable_index_is_not_used(patient: Patient, change: Callable[[Struct], bytes]):
    check(patient, with_index(data(), 1, "word", change))


@pytest.mark.parametrize(("offset", "length"), [(1 << 40, 100), (-5, 100), (100, -5), (4, 0), (2**63 - 1, 2**31 - 1)])
def test_index_outside_of_the_file_is_not_used(patient: Patient, offset: int, length: int):
    check(patient, with_index_at(data(), 1, "word", offset, length))


def test_index_of_another_column_is_not_used(patient: Patient):
    file = data()
    other = locations(file, 1, "id")

    def change(index: Struct) -> None:
        index[LOCATIONS].values = other

    check(patient, with_index(file, 1, "word", change))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("column", ["word", "items"])
def test_damaged_page_fails_the_ranks_that_read_it(patient: Patient, column: str, version: str):
    file = bytearray(data(write_page_checksum=True, data_page_version=version, compression="snappy"))
    leaf = "items.list.element" if column == "items" else column
    # A row near the end, of which only the last rank reads the chunk.
    page = next(page for page in locations(bytes(file), 1, leaf) if page[FIRST_ROW] > 18_000)
    file[page[OFFSET] + page[SIZE] - 1] ^= 1
    patient.put(bytes(file))
    with patient.aftermath() as client:
        wanted = {"dataset": "ill", "plan": as_stored(column), "world_size": WORLD, "batch_size": 4096}
        endpoints = info(client, wanted).endpoints
        expected = TABLE[column]
        for rank, endpoint in enumerate(endpoints[:-1]):
            start, end = (r * ROWS // WORLD for r in (rank, rank + 1))
            found = client.do_get(endpoint.ticket, options()).read_all()["out"].combine_chunks()
            assert found.equals(expected.slice(start, end - start).combine_chunks())
        code, message = ended(lambda: client.do_get(endpoints[-1].ticket, options()).read_all())
        assert code == "DATA_LOSS", message
        for word in ("a.parquet", "row group 1", f'column "{column}"'):
            assert word in message, message
