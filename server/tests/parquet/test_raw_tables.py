"""Raw tables, value by value against pyarrow's own reading, for all that pyarrow writes."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.serving import Serve, Server, raw_table

ROWS = 300
PYARROW_MAJOR = int(pa.__version__.split(".")[0])
CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
LAYOUTS = list(itertools.product(CODECS, ("1.0", "2.0"), (True, False)))


def values(make: Callable[[int], Any], *, kinds: int = ROWS, offset: int = 0) -> list[Any]:
    """Values of which every seventh is null; `kinds` different ones."""
    return [None if i % 7 == offset else make(i % kinds) for i in range(ROWS)]


def whole(kind: pa.DataType) -> pa.Array:
    limits = np.iinfo(kind.to_pandas_dtype())
    return pa.array(values(lambda i: [limits.min, limits.max, i % 100][i % 3]), kind)


def real(kind: pa.DataType) -> pa.Array:
    special = [float("inf"), float("-inf"), float("nan"), -0.0]
    made = values(lambda i: special[i % 5] if i % 5 < 4 else i / 8)
    return pa.array([None if v is None else kind.to_pandas_dtype()(v) for v in made], kind)


def instant(i: int) -> dt.datetime:
    return dt.datetime(1960, 1, 1) + dt.timedelta(days=i * 97, seconds=i * 31)


def columns() -> dict[str, pa.Array]:
    made: dict[str, pa.Array] = {}
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        made[kind] = whole(getattr(pa, kind)())
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        made[str(kind)] = real(kind)
    made["bool"] = pa.array(values(lambda i: i % 3 == 0))
    for kind, digits in (
        (pa.decimal32(7, 2), 7),
        (pa.decimal64(15, 3), 15),
        (pa.decimal128(9, 0), 9),
        (pa.decimal128(38, 5), 38),
        (pa.decimal256(60, 10), 60),
    ):
        made[str(kind)] = pa.array(
            values(lambda i, kind=kind, digits=digits: Decimal((i % 2, (9,) * (digits - i % 4), -kind.scale))), kind
        )
    made["date32"] = pa.array(values(lambda i: instant(i).date()), pa.date32())
    made["date64"] = pa.array(values(lambda i: instant(i).date()), pa.date64())
    for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        made[str(kind)] = pa.array(values(lambda i: i * 250), pa.int32() if kind.bit_width == 32 else pa.int64()).cast(
            kind
        )
    for unit, zone in itertools.product(("s", "ms", "us", "ns"), (None, "UTC", "Europe/Paris", "+05:30")):
        made[f"timestamp {unit} {zone}"] = pa.array(values(instant), pa.timestamp(unit, tz=zone))
    for unit in ("s", "ms", "us", "ns"):
        made[f"duration {unit}"] = pa.array(values(lambda i: i * 1000 - 9000), pa.int64()).cast(pa.duration(unit))
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        made[str(kind)] = pa.array(values(lambda i: "" if i % 11 == 0 else f"wört {i}" * (i % 5), kinds=40), kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        made[str(kind)] = pa.array(values(lambda i: bytes([i % 256, 0, 255]) * (i % 6)), kind)
    made["fixed"] = pa.array(values(lambda i: i.to_bytes(5, "big")), pa.binary(5))
    made["null"] = pa.nulls(ROWS)
    made["no nulls"] = pa.array(range(ROWS), pa.int32())
    made["few strings"] = pa.array(values(lambda i: f"k{i}", kinds=3))
    made["dictionary int32"] = pa.array(values(lambda i: f"k{i}", kinds=9)).dictionary_encode()
    made["dictionary int8"] = made["dictionary int32"].cast(pa.dictionary(pa.int8(), pa.string()))
    made["dictionary int64"] = pa.array(values(lambda i: i * 10**12, kinds=9)).dictionary_encode()
    made["list"] = pa.array(values(lambda i: [None if j == 2 else i + j for j in range(i % 5)]), pa.list_(pa.int32()))
    made["large list"] = pa.array(values(lambda i: [f"s{j}" for j in range(i % 4)]), pa.large_list(pa.string()))
    made["fixed list"] = pa.array([[i, i / 2, None] for i in range(ROWS)], pa.list_(pa.float32(), 3))
    if PYARROW_MAJOR >= 26:  # Earlier ones cannot read back a null among them.
        made["gappy fixed list"] = pa.array(values(lambda i: [i, i / 2, None]), pa.list_(pa.float32(), 3))
    struct = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.struct([("d", pa.float64())]))])
    made["struct"] = pa.array(
        values(lambda i: {"a": i, "b": None if i % 2 else "b", "c": None if i % 3 else {"d": i / 4}}), struct
    )
    made["map"] = pa.array(values(lambda i: [(f"k{j}", j) for j in range(i % 3)]), pa.map_(pa.string(), pa.int64()))
    deep = pa.list_(pa.struct([("a", pa.list_(pa.int8()))]))
    made["list of structs of lists"] = pa.array(
        values(lambda i: [{"a": None if j else [i % 100, None]} for j in range(i % 3)]), deep
    )
    return made


@pytest.fixture(scope="module")
def written() -> pa.Table:
    return pa.table(columns())


@pytest.fixture(scope="module")
def folder(written: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dataset a layout, each of two files of several row groups and pages."""
    root = tmp_path_factory.mktemp("raw")
    for codec, pages, dictionary in LAYOUTS:
        place = root / name_of(codec, pages, dictionary)
        place.mkdir()
        for file, part in (("a", written.slice(0, 170)), ("b", written.slice(170))):
            pq.write_table(
                part,
                place / f"{file}.parquet",
                row_group_size=64,
                compression=codec,
                data_page_version=pages,
                use_dictionary=dictionary,
                data_page_size=128,
                write_batch_size=16,
            )
    return root


@pytest.fixture(scope="module")
def raw(folder: Path, serve: Serve) -> Server:
    return serve({place.name: place for place in folder.iterdir()})


def name_of(codec: str, pages: str, dictionary: bool) -> str:
    return f"{codec}-v{pages[0]}-{'dictionary' if dictionary else 'plain'}"


def assert_same_values(got: pa.Table, want: pa.Table) -> None:
    """Compare column by column; where the file keeps another type than pyarrow reads (date64), cast to that."""
    assert got.column_names == want.column_names
    assert got.num_rows == want.num_rows
    for name in want.column_names:
        g, w = got[name].combine_chunks(), want[name].combine_chunks()
        g = g if g.type == w.type else g.cast(w.type)
        if pa.types.is_floating(w.type):
            # NaN is a value here: compare the bits.
            bits = {16: np.uint16, 32: np.uint32, 64: np.uint64}[w.type.bit_width]
            assert g.is_null().equals(w.is_null()), name
            assert np.array_equal(g.drop_null().to_numpy().view(bits), w.drop_null().to_numpy().view(bits)), name
        else:
            g.validate(full=True)
            assert g.equals(w), name


@pytest.mark.parametrize(("codec", "pages", "dictionary"), LAYOUTS)
def test_every_type_matches_pyarrow(raw: Server, folder: Path, codec: str, pages: str, dictionary: bool):
    name = name_of(codec, pages, dictionary)
    with fl.connect(raw.url) as client:
        got = raw_table(client, name)
    files = [pq.read_table(folder / name / f"{file}.parquet") for file in "ab"]
    assert_same_values(got, pa.concat_tables(files))


def test_types_match_the_file(raw: Server, folder: Path):
    with fl.connect(raw.url) as client:
        got = client.get_schema(fl.FlightDescriptor.for_path(name_of("snappy", "1.0", True))).schema
    want = pq.read_schema(folder / name_of("snappy", "1.0", True) / "a.parquet")
    differing = [
        f"{g.name}: {g.type}, pyarrow reads {w.type}" for g, w in zip(got, want, strict=True) if g.type != w.type
    ]
    # Types that Parquet lacks and the Arrow schema declares: date64, dictionaries of
    # numbers, the zone of seconds (which are stored as milliseconds).
    freer = ("date64", "dictionary int64", "timestamp s ")
    assert [d for d in differing if not d.startswith(freer)] == []
    assert len(differing) <= 5


def test_total_records_and_order_of_files(raw: Server, written: pa.Table):
    with fl.connect(raw.url) as client:
        for info in client.list_flights():
            assert info.total_records == ROWS
        assert raw_table(client, name_of("zstd", "2.0", False))["no nulls"].to_pylist() == list(range(ROWS))


def test_batches_fit_the_messages_of_any_client(serve: Serve, tmp_path: Path):
    """Clients of other languages accept 4 MiB. Only a row that is larger travels in a larger message."""
    rows, large = 20_000, 5_000_000
    texts = [f"{row:05}" * 100 for row in range(rows)]
    texts[7000] = "x" * large
    lists = pa.array([[float(row)] * 50 for row in range(rows)])
    table = pa.table({"text": texts, "list": lists, "number": np.arange(rows, dtype=np.float64)})
    pq.write_table(table, tmp_path / "a.parquet")
    server = serve({"wide": tmp_path})
    with fl.connect(server.url) as client:
        reader = client.do_get(client.get_flight_info(fl.FlightDescriptor.for_path("wide")).endpoints[0].ticket)
        chunks = [chunk.data for chunk in reader]
    assert pa.Table.from_batches(chunks) == table
    sizes = [chunk.get_total_buffer_size() for chunk in chunks]
    assert sorted(sizes)[-2] < 3 << 20
    assert next(chunk.num_rows for chunk, size in zip(chunks, sizes, strict=True) if size > large) == 1
    assert len(chunks) < 40
