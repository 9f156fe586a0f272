"""Timestamps stored as INT96, as Spark, Hive and Impala write them: every date as pyarrow reads it, none wrapped."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.faults import outcome
from harness.parquet.surgery import Chunk, dissect
from harness.parquet.thrift_compact import BINARY, STRUCT, Struct
from harness.serving import Serve, Server, plan_of, raw_table, read, stored

US = pa.timestamp("us")
DATES = [
    dt.datetime(1, 1, 1),
    dt.datetime(1600, 2, 29, 23, 59, 59, 999_999),
    dt.datetime(1677, 9, 21),
    None,
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29, 12, 30, 15, 123_456),
    dt.datetime(2262, 4, 12),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
ROWS = 180
JULIAN_EPOCH = 2_440_588


def dates(rows: int = ROWS) -> list[dt.datetime | None]:
    return [DATES[i % len(DATES)] for i in range(rows)]


def table() -> pa.Table:
    """INT96 as a column, in a list, in a struct, in a map, and in an Arrow dictionary."""
    ts = pa.array(dates(), US)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "ts": ts,
            "zoned": ts.cast(pa.timestamp("us", "UTC")),
            "list": pa.array([[date, None] * (i % 3) for i, date in enumerate(dates())], pa.list_(US)),
            "struct": pa.array([{"ts": date, "n": i} for i, date in enumerate(dates())]),
            "map": pa.array([[("k", date)] for date in dates()], pa.map_(pa.string(), US)),
            "arrow dictionary": ts.dictionary_encode(),
        }
    )


FILTERS = (
    "ts > TIMESTAMP '2100-01-01'",
    "ts = TIMESTAMP '2024-02-29 12:30:15.123456'",
    "ts >= CAST('9999-01-01' AS TIMESTAMP(6))",
    "date_part('year', ts) < 1677",
)
LAYOUTS: dict[str, dict[str, Any]] = {
    "dictionary": {"use_dictionary": True},
    "plain": {"use_dictionary": False},
    "pages v2": {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
    "no arrow schema": {"store_schema": False},
    "no arrow schema, plain": {"store_schema": False, "use_dictionary": False},
}


def write(path: Path, data: pa.Table, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = {"row_group_size": 64, "data_page_size": 256, "write_batch_size": 16, **options}
    pq.write_table(data, path, use_deprecated_int96_timestamps=True, **layout)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("int96")
    for name, options in LAYOUTS.items():
        write(root / name / "a.parquet", table(), **options)
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({name: root / name for name in LAYOUTS})


@pytest.fixture
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_date_matches_pyarrow(client: fl.FlightClient, root: Path, layout: str):
    want = pq.read_table(root / layout / "a.parquet", coerce_int96_timestamp_unit="us")
    for got in (raw_table(client, layout), read(client, layout, plan_of(stored(*want.column_names)))):
        for name in want.column_names:
            plain = want[name].cast(US) if name == "arrow dictionary" else want[name]
            assert got[name].cast(plain.type).equals(plain), name
        assert got["ts"].type == US
        assert got["list"].type.value_type == US
        assert got["struct"].type.field("ts").type == US
        assert got["map"].type.item_type == US


@pytest.mark.parametrize("layout", LAYOUTS)
def test_filters_and_expressions_see_the_stored_date(client: fl.FlightClient, root: Path, layout: str):
    path = root / layout / "a.parquet"
    for text in FILTERS:
        plan = plan_of(stored("id"), filter=text)
        want = duckdb.sql(f"SELECT id FROM '{path}' WHERE {text} ORDER BY id").fetchall()
        assert 0 < len(want) < ROWS
        assert read(client, layout, plan)["id"].to_pylist() == [row[0] for row in want], text
    years = plan_of(stored("year"), derive=[{"name": "year", "expr": "date_part('year', ts)"}])
    assert read(client, layout, years)["year"].to_pylist() == [date and date.year for date in dates()]


def test_a_dataset_may_mix_int96_with_the_timestamps_that_replaced_it(tmp_path: Path, serve: Serve):
    data = table().select(["id", "ts", "list", "struct"])
    write(tmp_path / "mixed" / "a.parquet", data, store_schema=False)
    pq.write_table(data, tmp_path / "mixed" / "b.parquet", store_schema=False)
    with fl.connect(serve({"mixed": tmp_path / "mixed"}).url) as client:
        got = raw_table(client, "mixed")
        assert got["ts"].to_pylist() == dates() * 2
        assert got["struct"].to_pylist() == data["struct"].to_pylist() * 2


def int96(day: int, nanoseconds: int) -> bytes:
    return struct.pack("<Qi", nanoseconds, day + JULIAN_EPOCH)


def with_value(day: int, nanoseconds: int, *, dictionary: bool = False, nested: bool = False) -> bytes:
    """200 rows, of which row 150 has this day and time of day."""
    values = [dt.datetime(2000, 1, 1) + dt.timedelta(hours=i) for i in range(200)]
    column = pa.array([[value] for value in values]) if nested else pa.array(values, US)
    data = pa.table({"id": range(200), "ts": column})
    file = dissect(data, use_dictionary=dictionary, use_deprecated_int96_timestamps=True, store_schema=False)
    name = "ts.list.element" if nested else "ts"
    page = file.dictionary(0, name) if dictionary else file.page(0, name, 0)
    start = 150 * 12 if dictionary else len(page.body) - 50 * 12
    page.body = page.body[:start] + int96(day, nanoseconds) + page.body[start + 12 :]
    return file.build()


@pytest.mark.parametrize("nanoseconds", [0, 999, 1000, 86_399_999_999_999])
@pytest.mark.parametrize("day", [-719_162, -1, 0, 20_000])
def test_parts_of_a_microsecond_are_rounded_down(tmp_path: Path, serve: Serve, day: int, nanoseconds: int):
    (tmp_path / "a.parquet").write_bytes(with_value(day, nanoseconds))
    want = pq.read_table(tmp_path / "a.parquet", coerce_int96_timestamp_unit="us")["ts"]
    with fl.connect(serve({"t": tmp_path}).url) as client:
        got = raw_table(client, "t")["ts"]
    assert got.equals(want)
    assert got.cast(pa.int64())[150].as_py() == day * 86_400_000_000 + nanoseconds // 1000
    assert duckdb.sql(f"SELECT epoch_us(ts) FROM '{tmp_path}/a.parquet' WHERE id = 150").fetchall() == [
        (got.cast(pa.int64())[150].as_py(),)
    ]


def test_arrow_schema_of_nanoseconds_does_not_wrap_dates(tmp_path: Path, serve: Serve):
    near = pa.array([dt.datetime(2000, 1, 1)] * 20, US)
    data = pa.table({"ts": near.cast(pa.timestamp("ns")), "zoned": near.cast(pa.timestamp("ns", "Europe/Paris"))})
    file = dissect(data, use_dictionary=False, use_deprecated_int96_timestamps=True)
    for name in data.column_names:
        page = file.page(0, name, 0)
        page.body = page.body[:-12] + int96(2_932_896, 0)
    (tmp_path / "a.parquet").write_bytes(file.build())
    want = pq.read_table(tmp_path / "a.parquet", coerce_int96_timestamp_unit="us")
    with fl.connect(serve({"t": tmp_path}).url) as client:
        got = raw_table(client, "t")
    assert got["ts"].to_pylist()[-1] == dt.datetime(9999, 12, 31)
    assert got.schema.types == [US, pa.timestamp("us", "Europe/Paris")]
    for name in data.column_names:
        assert got[name].cast(pa.int64()).equals(want[name].cast(pa.int64())), name


def test_nanoseconds_are_available_by_flag(tmp_path: Path, serve: Serve):
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "a.parquet").write_bytes(with_value(20_000, 86_399_999_999_999))
    want = pq.read_table(tmp_path / "near" / "a.parquet")["ts"]
    with fl.connect(serve({"t": tmp_path / "near"}, "--int96-unit", "t=ns").url) as client:
        got = raw_table(client, "t")["ts"]
        assert got.type == pa.timestamp("ns")
        assert got.equals(want)
        assert read(client, "t", plan_of(stored("ts")))["ts"].equals(want)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize(
    ("unit", "day"), [("ns", 2_932_896), ("ns", -200_000), ("us", 106_751_992), ("us", -106_751_992)]
)
def test_rejects_a_date_out_of_range_by_name(
    tmp_path: Path, serve: Serve, unit: str, day: int, dictionary: bool, nested: bool
):
    (tmp_path / "far.parquet").write_bytes(with_value(day, 0, dictionary=dictionary, nested=nested))
    with fl.connect(serve({"t": tmp_path}, "--int96-unit", f"t={unit}").url) as client:
        for request in (lambda: raw_table(client, "t"), lambda: read(client, "t", plan_of(stored("ts")))):
            code, text = outcome(request)
            assert code == "FAILED_PRECONDITION", text
            assert "far.parquet" in text, text
            assert "row group 0" in text, text
            assert '"ts' in text, text
            assert ("--int96-unit" in text) == (unit == "ns"), text
        assert read(client, "t", plan_of(stored("id"))).num_rows == 200


def test_bounds_of_int96_prune_nothing(tmp_path: Path, serve: Serve):
    """Wrong bounds: the order of INT96 is undefined, so that no reader may use them."""
    data = pa.table({"id": range(100), "ts": pa.array([dt.datetime(2300, 1, 1)] * 100, US)})
    file = dissect(data, use_dictionary=False, use_deprecated_int96_timestamps=True, store_schema=False)
    bounds = Struct({number: (BINARY, int96(0, 0)) for number in (1, 2, 5, 6)})
    file.chunk(0, "ts").add(Chunk.STATISTICS, STRUCT, bounds)
    (tmp_path / "a.parquet").write_bytes(file.build())
    with fl.connect(serve({"t": tmp_path}).url) as client:
        plan = plan_of(stored("id"), filter="ts > TIMESTAMP '2200-01-01'")
        assert read(client, "t", plan).num_rows == 100


def test_arrow_schema_of_another_unit_does_not_reinterpret_nanoseconds(tmp_path: Path, serve: Serve):
    """Nanoseconds in INT64 with an Arrow schema of microseconds: Parquet's type takes precedence."""
    data = pa.table({"ts": pa.array([1_700_000_000_000_000_000, 1, None], pa.int64()).cast(pa.timestamp("ns"))})
    microseconds = dissect(pa.table({"ts": pa.array([0, 0, None], pa.int64()).cast(US)}))
    file = dissect(data, store_schema=True)
    file.key_value("ARROW:schema")[2] = microseconds.key_value("ARROW:schema")[2]
    (tmp_path / "a.parquet").write_bytes(file.build())
    want = pq.read_table(tmp_path / "a.parquet")
    with fl.connect(serve({"t": tmp_path}).url) as client:
        got = raw_table(client, "t")
    assert got.schema.types == want.schema.types == [pa.timestamp("ns")]
    assert got.equals(want)
