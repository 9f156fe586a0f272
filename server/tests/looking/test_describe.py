"""Descriptions of columns, checked against pandas, NumPy and DuckDB, over several files and row groups."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client.description import DatasetDescription
from forebay._show.progress import FitProgress
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server

ROWS = 5000
COMPARED = [
    "id",
    "float",
    "special",
    "float32",
    "half",
    "huge",
    "unsigned",
    "small",
    "flag",
    "decimal",
    "tiny",
    "medium",
]
COMPARED += ["wide", "text", "word", "coded"]
SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def hostile() -> pa.Table:
    """Columns of every kind, with extremes; every seventh value of most is null."""
    random = np.random.default_rng(5)
    indices = np.arange(ROWS)
    gaps = indices % 7 == 3

    def gappy(values: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array([None if gap else value for value, gap in zip(values, gaps, strict=True)], kind)

    floats = random.normal(size=ROWS)
    special = floats.copy()
    special[::11], special[::101], special[::499], special[::13] = np.nan, np.inf, -np.inf, -0.0
    extremes = [[-(2**63), 2**63 - 1, 2**53 + 1, 0][i % 4] for i in indices]
    before = [dt.datetime(1905, 1, 1) + dt.timedelta(hours=int(i) * 97) for i in indices]
    decimals = [Decimal(int(i) - 2000) * Decimal("1e33") / 1000 for i in indices]
    texts = ["" if i % 5 == 0 else f"wört {i % 40}" for i in indices]
    columns = {
        "id": pa.array(indices, pa.int64()),
        "float": gappy(floats),
        "special": gappy(special),
        "float32": pa.array(floats.astype(np.float32)),
        "half": pa.array(floats.astype(np.float16)),
        "huge": gappy(extremes, pa.int64()),
        "unsigned": pa.array([2**64 - 1 - int(i) for i in indices], pa.uint64()),
        "small": pa.array((indices % 9 - 4).astype(np.int8)),
        "flag": gappy([bool(i % 3 == 0) for i in indices]),
        "decimal": gappy(decimals, pa.decimal128(38, 2)),
        "wide": gappy(decimals, pa.decimal256(60, 5)),
        "tiny": gappy([Decimal(int(i)) / 100 for i in indices], pa.decimal32(7, 2)),
        "medium": gappy([Decimal(-int(i)) / 8 for i in indices], pa.decimal64(15, 3)),
        "date": gappy([day.date() for day in before], pa.date32()),
        "time": pa.array([i * 1000 for i in indices.tolist()], pa.int64()).cast(pa.time64("us")),
        "stamp": gappy(before, pa.timestamp("us", tz="Europe/Paris")),
        "nanos": gappy(before, pa.timestamp("ns")),
        "span": pa.array((indices - 300).tolist(), pa.int64()).cast(pa.duration("ms")),
        "text": gappy(texts),
        "long": pa.array(["ä" * 3000 + str(i % 3) for i in indices]),
        "word": gappy([f"k{i % 4}" for i in indices]).dictionary_encode(),
        "coded": gappy([float(i % 4) for i in indices]).dictionary_encode(),
        "binary": gappy([bytes([255, int(i) % 256]) * (int(i) % 5) for i in indices], pa.binary()),
        "list": gappy([[1.5] * (int(i) % 6) for i in indices], pa.list_(pa.float32())),
        "matrix": pa.array([[1.0, 2.0, None]] * ROWS, pa.list_(pa.float32(), 3)),
        "struct": gappy([{"a": int(i)} for i in indices], pa.struct([("a", pa.int64())])),
        "map": pa.array([[("a", 1)] * (int(i) % 3) for i in indices], pa.map_(pa.string(), pa.int32())),
        "nothing": pa.nulls(ROWS),
        "all null": pa.nulls(ROWS, pa.int32()),
        "one": pa.array([42] * ROWS, pa.int16()),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return hostile()


@pytest.fixture(scope="module")
def described_server(table: pa.Table, tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("described")
    cuts = [0, 1, 1700, 1701, ROWS]
    (root / "hostile").mkdir()
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(table.slice(start, end - start), root / f"hostile/{number}.parquet", row_group_size=611)
    (root / "empty").mkdir()
    pq.write_table(table.slice(0, 0), root / "empty/a.parquet")
    (root / "single").mkdir()
    pq.write_table(table.slice(8, 1), root / "single/a.parquet")
    (root / "many").mkdir()
    random = np.random.default_rng(7)
    for number in range(3):
        rows = 100_000
        ids = np.arange(number * rows, (number + 1) * rows)
        frequent = np.where(random.random(rows) < 0.2, 5, np.where(random.random(rows) < 0.01, 6, ids + 1000))
        many = {"id": ids, "rising": ids / 7, "normal": random.normal(size=rows), "frequent": frequent}
        text = pa.array(["often" if one < 1000 else f"text {one}" for one in frequent])
        pq.write_table(pa.table({**many, "text": text}), root / f"many/{number}.parquet", row_group_size=30_000)
    return serve({place.name: place for place in sorted(root.iterdir())})


@pytest.fixture(scope="module")
def looker(described_server: Server):
    with fb.connect(described_server.url) as client:
        yield client


@pytest.fixture(scope="module")
def description(looker: fb.Client) -> DatasetDescription:
    return looker.describe("hostile")


def test_every_column_has_its_type_and_nulls(looker: fb.Client, description: DatasetDescription, table: pa.Table):
    assert description.rows == ROWS
    assert list(description) == table.column_names
    stored = looker.schema("hostile")
    for name, column in description.items():
        assert column.nulls == table[name].null_count, name
        assert column.type == str(stored.field(name).type).replace(" not null", ""), name


def clean(table: pa.Table, name: str) -> list[Any]:
    """The values that a description counts."""
    column = table[name]
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return [value for value in column.to_pylist() if value is not None and value == value]


@pytest.mark.parametrize("name", COMPARED)
def test_bounds_distinct_values_and_counts_are_those_of_python(
    description: DatasetDescription, table: pa.Table, name: str
):
    found, values = description[name], clean(table, name)
    assert found.nans + found.nulls == ROWS - len(values)
    counts = Counter(values)
    assert (found.distinct, found.distinct_is_exact) == (len(counts), True)
    assert (found.min, found.max) == (min(values), max(values))
    assert type(found.min) is type(min(values))
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0] if name != "text" else item[0].encode()))
    assert [tuple(one) for one in found.top] == expected[: 100 if len(counts) <= 100 else 10]
    assert found.top_is_complete == (len(counts) <= 100)


@pytest.mark.parametrize("name", ["id", "float", "float32", "half", "small", "huge"])
def test_moments_and_quantiles_are_those_of_numpy(description: DatasetDescription, table: pa.Table, name: str):
    found, values = description[name], np.array(clean(table, name), dtype=np.float64)
    assert found.mean == pytest.approx(values.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(values.std(), rel=1e-12)
    assert tuple(found.quantiles) == SHARES
    assert found.quantiles_are_exact
    assert [float(value) for value in found.quantiles.values()] == pytest.approx(np.quantile(values, SHARES), rel=1e-12)


def test_pandas_and_duckdb_agree(description: DatasetDescription, table: pa.Table):
    frame = table.select(["float", "small"]).to_pandas()
    for name in ("float", "small"):
        want = frame[name].describe(percentiles=list(SHARES))
        got = description[name]
        assert got.quantiles[0.5] == pytest.approx(want["50%"])
        assert (got.min, got.max, ROWS - got.nulls) == (want["min"], want["max"], want["count"])
    connection = duckdb.connect()
    connection.register("t", table.select(["text", "decimal", "huge", "flag"]))
    for name in ("text", "decimal", "huge", "flag"):
        query = f'select count(distinct "{name}"), min("{name}"), max("{name}"), count(*) - count("{name}") from t'
        assert connection.execute(query).fetchone() == (
            description[name].distinct,
            description[name].min,
            description[name].max,
            description[name].nulls,
        )


def test_nan_and_infinity(description: DatasetDescription, table: pa.Table):
    special = table["special"].to_pylist()
    found = description["special"]
    assert found.nans == sum(value is not None and value != value for value in special)
    assert (found.min, found.max) == (-np.inf, np.inf)
    assert found.mean is not None
    assert np.isnan(found.mean)
    # -0 and 0 are one value.
    assert 0.0 in {one.value for one in found.top}
    assert "-0.0" not in {str(one.value) for one in found.top}


def test_times_are_exact_before_1970(description: DatasetDescription, table: pa.Table):
    for name, unit in (("stamp", "us"), ("nanos", "ns"), ("date", "D")):
        values = np.array(clean_times(table, name), dtype=f"datetime64[{unit}]")
        found = description[name]
        assert (found.min, found.max) == (values.min(), values.max())
        assert isinstance(found.min, np.datetime64)
        assert found.distinct == len(np.unique(values))
        whole = np.sort(values.astype(np.int64))
        assert found.quantiles[0.5].astype(np.int64) == np.ceil(np.median(whole))  # type: ignore[union-attr]
        assert found.mean is None
    assert description["span"].min == np.timedelta64(-300, "ms")
    assert description["time"].max == np.timedelta64((ROWS - 1) * 1000, "us")


def clean_times(table: pa.Table, name: str) -> list[Any]:
    return table[name].drop_null().cast(pa.int32() if name == "date" else pa.int64()).to_pylist()


def test_texts_are_cut(description: DatasetDescription):
    found = description["long"]
    assert (found.distinct, found.lengths) == (3, (6001, 6001.0, 6001))
    assert str(found.max) == "ä" * 64 + "…"
    assert {str(one.value) for one in found.top} == {"ä" * 64 + "…"}
    assert sum(one.rows for one in found.top) == ROWS


def test_nested_and_binary_columns_have_lengths_and_a_note(description: DatasetDescription, table: pa.Table):
    for name, note in (("binary", "binary"), ("list", "list"), ("matrix", "list"), ("map", "map")):
        lengths = [len(value) for value in table[name].to_pylist() if value is not None]
        found = description[name]
        assert found.lengths == (min(lengths), pytest.approx(np.mean(lengths)), max(lengths))
        assert note in found.note
        assert (found.distinct, found.min, found.top, found.quantiles) == (None, None, (), {})
    assert "struct" in description["struct"].note
    for name in ("nothing", "all null"):
        assert (description[name].nulls, description[name].min, description[name].mean) == (ROWS, None, None)


def test_filter_and_columns(looker: fb.Client, table: pa.Table):
    rows = table.filter(pa.compute.less(table["id"], 1234))
    found = looker.describe("hostile", columns=["text", "small"], filter="id < 1234")
    assert (list(found), found.rows, found.filter) == (["text", "small"], 1234, "id < 1234")
    assert found["text"].nulls == rows["text"].null_count
    assert dict(found["small"].top) == Counter(rows["small"].to_pylist())
    nothing = looker.describe("hostile", columns=["small"], filter="id < 0")
    assert (nothing.rows, nothing["small"].distinct, nothing["small"].min) == (0, 0, None)
    same = looker.describe("hostile", columns=["id"], filter="id > 4990")["id"]
    assert (same.min, same.max) == (4991, ROWS - 1)


def test_empty_dataset_and_one_row(looker: fb.Client, table: pa.Table):
    empty = looker.describe("empty")
    assert (empty.rows, list(empty)) == (0, table.column_names)
    assert all(column.nulls == 0 and column.min is None and not column.top for column in empty.values())
    assert "0 rows" in repr(empty)
    single = looker.describe("single")
    row = table.slice(8, 1).to_pylist()[0]
    assert (single["id"].min, single["id"].quantiles[0.99], single["id"].deviation) == (8, 8, 0)
    assert single["text"].top == ((row["text"], 1),)


def test_many_distinct_values_are_estimated_and_frequent_ones_counted(looker: fb.Client, described_server: Server):
    with fl.connect(described_server.url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_path("many"))
        frame = client.do_get(info.endpoints[0].ticket).read_all().to_pandas()
    found = looker.describe("many")
    for name in frame.columns:
        column, values = found[name], frame[name]
        assert not column.distinct_is_exact
        assert column.distinct == pytest.approx(values.nunique(), rel=0.05)
        assert (column.min, column.max) == (values.min(), values.max())
        if name != "text":
            assert not column.quantiles_are_exact
            for share, value in column.quantiles.items():
                below, upto = (values < value).mean(), (values <= value).mean()
                assert below - 0.005 <= share <= upto + 0.005, (name, share)
    counts = frame["frequent"].value_counts()
    assert found["frequent"].top[:2] == ((5, counts[5]), (6, counts[6]))
    assert all(one.rows == counts[one.value] for one in found["frequent"].top)
    assert found["text"].top == (("often", int((frame["text"] == "often").sum())),)
    assert found["id"].top == ()
    with pytest.raises(ValueError, match="at most 100"):
        found.class_weights("id")


def test_class_weights_balance_classes(description: DatasetDescription, table: pa.Table):
    from sklearn.utils.class_weight import compute_class_weight

    for name in ("small", "flag", "word"):
        values = np.array(clean(table, name))
        classes = np.unique(values)
        want = dict(zip(classes.tolist(), compute_class_weight("balanced", classes=classes, y=values), strict=True))
        weights = description.class_weights(name)
        assert list(weights) == classes.tolist()
        assert weights == pytest.approx(want)


def act(client: fl.FlightClient, **request: object) -> list[dict[str, Any]]:
    action = fl.Action("describe", json.dumps(request).encode())
    return [json.loads(update.body.to_pybytes()) for update in client.do_action(action)]


def test_plain_pyarrow_reads_progress_and_json(described_server: Server):
    with fl.connect(described_server.url) as client:
        updates = act(client, dataset="many", columns=["frequent", "id"], filter="id > 5")
    assert all(list(update) == ["progress"] for update in updates[:-1])
    assert updates[-2]["progress"]["rows_done"] == updates[-2]["progress"]["rows_total"]
    result = updates[-1]["result"]
    assert [column["name"] for column in result["columns"]] == ["frequent", "id"]
    assert result["columns"][1]["min"] == {"integer": 6, "is_cut": False}


BAD: list[tuple[dict[str, object], str]] = [
    ({"dataset": "hostil"}, 'UNKNOWN_DATASET: .*"hostile"'),
    ({}, "INVALID_REQUEST: dataset: missing"),
    ({"dataset": "hostile", "columns": ["smal"]}, 'INVALID_REQUEST: columns: no column "smal": did you mean "small"'),
    ({"dataset": "hostile", "columns": ["id", "id"]}, "INVALID_REQUEST: columns: .*listed twice"),
    ({"dataset": "hostile", "filter": "smal > 1"}, "INVALID_REQUEST: filter: .*small"),
    ({"dataset": "hostile", "filter": "id"}, "INVALID_REQUEST: filter: "),
    ({"dataset": "hostile", "filter": "id >"}, "INVALID_REQUEST: filter: "),
    ({"dataset": "hostile", "rows": 5}, "INVALID_REQUEST: .*rows"),
]


@pytest.mark.parametrize(("request_fields", "message"), BAD)
def test_bad_requests_are_refused_by_field(described_server: Server, request_fields: dict[str, object], message: str):
    with fl.connect(described_server.url) as client, pytest.raises((pa.ArrowInvalid, KeyError), match=message):
        act(client, **request_fields)


def test_columns_beyond_the_limit_are_refused(tmp_path: Path, serve: Serve):
    (tmp_path / "wide").mkdir()
    pq.write_table(pa.table({f"c{i}": [i] for i in range(1100)}), tmp_path / "wide/a.parquet")
    server = serve({"wide": tmp_path / "wide"})
    with fb.connect(server.url) as client:
        with pytest.raises(fb.InvalidRequest, match="1100 columns, the limit is 1024"):
            client.describe("wide")
        found = client.describe("wide", columns=[f"c{i}" for i in range(1024)])
        assert (len(found), found["c1023"].max) == (1024, 1023)


def test_memory_that_does_not_suffice_for_one_column_is_refused_with_the_flag(tmp_path: Path, serve: Serve):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "data/a.parquet")
    server = serve({"data": tmp_path / "data"}, "--fit-memory-bytes", "8MiB")
    with fb.connect(server.url) as client, pytest.raises(fb.ResourceExhausted, match="--fit-memory-bytes"):
        client.describe("data")


def test_columns_that_do_not_fit_memory_together_take_several_passes(tmp_path: Path, serve: Serve):
    (tmp_path / "data").mkdir()
    columns = {f"c{i}": np.arange(50) * i for i in range(12)}
    pq.write_table(pa.table(columns), tmp_path / "data/a.parquet", row_group_size=20)
    server = serve({"data": tmp_path / "data"}, "--fit-memory-bytes", "128MiB")
    seen: list[FitProgress] = []
    with fb.connect(server.url) as client:
        found = client.describe("data", progress=seen.append)
    assert [found[name].max for name in columns] == [int(values.max()) for values in columns.values()]
    assert seen[-1].passes > 1
    assert seen[-1].pass_number == seen[-1].passes


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Daemon]:
    """A server whose state survives it."""
    daemon = Daemon(*LOOPBACK, "--dataset", f"data={folder / 'data'}", "--state", str(folder / "state"))
    try:
        yield daemon
    finally:
        daemon.stop()


def test_a_description_is_kept_until_the_files_change(tmp_path: Path):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"a": np.arange(1000)}), tmp_path / "data/a.parquet")

    def read_bytes(daemon: Daemon) -> float:
        return scrape(daemon).value("forebay_storage_read_bytes_total")

    with running(tmp_path) as daemon, fb.connect(daemon.url) as client:
        first = client.describe("data")
        before = read_bytes(daemon)
        assert client.describe("data") == first
        assert read_bytes(daemon) == before
    with running(tmp_path) as daemon, fb.connect(daemon.url) as client:
        client.datasets()
        before = read_bytes(daemon)
        assert client.describe("data") == first
        assert read_bytes(daemon) == before
        assert client.describe("data", filter="a > 1")["a"].min == 2
        assert read_bytes(daemon) > before
        (kept, _) = sorted((tmp_path / "state/descriptions").iterdir(), key=lambda path: path.stat().st_mtime)
        kept.write_bytes(b"damaged" + kept.read_bytes())
        assert client.describe("data") == first
        pq.write_table(pa.table({"a": np.arange(7)}), tmp_path / "data/a.parquet")
        assert client.describe("data")["a"].max == 6


def test_concurrent_requests_share_one_pass(tmp_path: Path):
    (tmp_path / "data").mkdir()
    table = pa.table({"a": np.random.default_rng(1).normal(size=400_000)})
    pq.write_table(table, tmp_path / "data/a.parquet", row_group_size=50_000)
    found: list[DatasetDescription] = []

    def describe(url: str) -> None:
        with fb.connect(url) as client:
            found.append(client.describe("data", progress=False))

    with running(tmp_path) as daemon:
        threads = [threading.Thread(target=describe, args=(daemon.url,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        read = scrape(daemon).value("forebay_storage_read_bytes_total")
    assert len(found) == 6
    assert all(one == found[0] for one in found)
    size = (tmp_path / "data/a.parquet").stat().st_size
    assert read < 1.5 * size


def test_frames_and_tables(description: DatasetDescription):
    frame = description.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc["huge", "min"] == -(2**63)
    assert frame.loc["special", "nans"] == description["special"].nans
    table = description.to_arrow()
    assert table["column"].to_pylist() == list(description)
    assert table["nulls"].to_pylist() == [column.nulls for column in description.values()]
    assert table.filter(pa.compute.equal(table["column"], "decimal"))["min"].to_pylist() == [
        str(description["decimal"].min)
    ]


@pytest.mark.parametrize("width", [40, 72, 100, 200])
def test_the_table_fits_the_terminal(description: DatasetDescription, monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = repr(description).splitlines()
    assert len(lines) == 2 + len(description)
    assert max(map(len, lines)) <= width
    assert all(name in line for name, line in zip(description, lines[2:], strict=True))
    html = description._repr_html_()
    assert html.count("<tr>") == 1 + len(description)
    assert "wört" in html
