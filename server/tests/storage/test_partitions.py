"""Hive partitions: `key=value` folders are columns of the files in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.faults import outcome
from harness.metrics import scrape
from harness.object_store import Store, s3_server
from harness.serving import Serve, Server, fit, info, plan_of, raw_table, stored

DAYS = [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1)]
CITIES = ["Zürich", "São Paulo/Centro", None, "a=b%"]
ROWS = 40


def table() -> pa.Table:
    rows = [
        {"day": day, "city": city, "hour": hour, "x": float(n * 100 + row)}
        for n, (day, city, hour) in enumerate((d, c, h) for d in DAYS for c in CITIES for h in (0, 7))
        for row in range(ROWS)
    ]
    types = {"day": pa.date32(), "city": pa.string(), "hour": pa.int64(), "x": pa.float64()}
    data = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
    return data.append_column("id", pa.array(range(data.num_rows), pa.int64()))


KEYS = ["day", "city", "hour"]


def by_pyarrow(folder: Path) -> None:
    flavor = ds.partitioning(table().select(KEYS).schema, flavor="hive")
    ds.write_dataset(table(), folder, format="parquet", partitioning=flavor)


def by_duckdb(folder: Path) -> None:
    duckdb.arrow(table()).write_parquet(str(folder), partition_by=KEYS)


def by_polars(folder: Path) -> None:
    pl.from_arrow(table()).write_parquet(folder, partition_by=KEYS)  # pyright: ignore[reportAttributeAccessIssue]


WRITERS: dict[str, Callable[[Path], None]] = {"pyarrow": by_pyarrow, "duckdb": by_duckdb, "polars": by_polars}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("partitions")
    for name, write in WRITERS.items():
        write(root / name)
    return root


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    flat = root / "flat"
    flat.mkdir()
    pq.write_table(table(), flat / "a.parquet")
    return serve({name: root / name for name in (*WRITERS, "flat")})


def rows_of(client: fl.FlightClient, dataset: str, plan: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    found = info(client, {"dataset": dataset, "plan": plan, "batch_size": 64, **more})
    return sorted(client.do_get(found.endpoints[0].ticket).read_all().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("writer", WRITERS)
def test_folders_are_typed_columns(server: Server, writer: str):
    with fl.connect(server.url) as client:
        got = raw_table(client, writer)
        assert got.schema.names == ["x", "id", *KEYS]
        assert got.schema.types[2:] == [pa.date32(), pa.string(), pa.int64()]
        # Nulls of DuckDB's and pyarrow's city are folders named __HIVE_DEFAULT_PARTITION__.
        assert [field.nullable for field in got.schema][2:] == [False, True, False]
        assert got.sort_by("id").select(table().column_names).cast(table().schema).equals(table())
        assert client.get_schema(fl.FlightDescriptor.for_path(writer)).schema.equals(got.schema)


FILTERS = [
    "day = DATE '2024-02-29'",
    "day > DATE '2024-02-28' AND hour = 7 AND x > 500",
    "city IS NULL",
    "city LIKE 'S%' OR hour + 1 = 8",
    "city IN ('Zürich', 'a=b%') AND id % 3 = 0",
    "date_part('month', day) = 3",
]


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_filters_and_streams_use_them_as_columns(server: Server, writer: str, text: str):
    plan = plan_of(
        stored("id", "day", "city", "hour", "late"), filter=text, derive=[{"name": "late", "expr": "hour * 2 + x"}]
    )
    want = [row["id"] for row in duckdb.arrow(table()).filter(text).order("id").arrow().read_all().to_pylist()]
    with fl.connect(server.url) as client:
        for order in ({}, {"shuffle": True, "seed": 3}):
            got = rows_of(client, writer, plan, **order)
            assert [row["id"] for row in got] == want
            assert got == rows_of(client, "flat", plan, **order)


@pytest.mark.parametrize("writer", WRITERS)
def test_fits_groups_and_descriptions_use_them(server: Server, writer: str):
    chain = [{"fill_null": {"text": "?"}}, {"vocab": {}}]
    outputs = [
        {"name": "city", "dtype": "INT64", "parts": [{"columns": ["city"], "ops": chain}]},
        {"name": "hour", "dtype": "FLOAT64", "parts": [{"columns": ["hour"], "ops": [{"standardize": {}}]}]},
        *stored("id"),
    ]
    with fl.connect(server.url) as client:
        fitted = [fit(client, name, {"outputs": outputs})[-1]["result"]["plan"] for name in (writer, "flat")]
        assert fitted[0] == fitted[1]
        got = rows_of(client, writer, fitted[0], shuffle=True, seed=4)
        assert got == rows_of(client, "flat", fitted[0])
    with fb.connect(server.url) as client:
        described, flat = client.describe(writer), client.describe("flat")
        assert all(described[name] == flat[name] for name in KEYS)
        plan = fb.Plan(outputs={"id": fb.cols("id")})
        kept = [{group.key: group.rows for group in client.groups(name, plan, by="day")} for name in (writer, "flat")]
        assert kept[0] == kept[1]
        assert len(kept[0]) == len(DAYS)
        assert set(client.head(writer, 5).column_names) == {"x", "id", *KEYS}


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_types_and_names_of_odd_folders(tmp_path: Path, serve: Serve):
    """Keys that some files lack, in a file too, percent-encoded, or with values of several kinds."""
    write(tmp_path / "t/n=007/a%20b=x%2Fy/a.parquet", x=[1], n=["shadowed"])
    write(tmp_path / "t/n=-2/b.parquet", x=[2])
    write(tmp_path / "t/n=__HIVE_DEFAULT_PARTITION__/mixed=2024-01-01/c.parquet", x=[3])
    write(tmp_path / "t/n=9/mixed=5/z=/d.parquet", x=[4])
    write(tmp_path / "t/plain/e.parquet", x=[5], n=["hidden"])
    with fl.connect(serve({"t": tmp_path / "t"}).url) as client:
        got = raw_table(client, "t").sort_by("x")
        assert got.schema.field("n").type == pa.int64()
        assert got.to_pylist() == [
            {"x": 1, "n": 7, "a b": "x/y", "mixed": None, "z": None},
            {"x": 2, "n": -2, "a b": None, "mixed": None, "z": None},
            {"x": 3, "n": None, "a b": None, "mixed": "2024-01-01", "z": None},
            {"x": 4, "n": 9, "a b": None, "mixed": "5", "z": ""},
            {"x": 5, "n": None, "a b": None, "mixed": None, "z": None},
        ]


def test_a_glob_selects_folders_and_keeps_their_columns(root: Path, serve: Serve):
    with fl.connect(serve({"t": f"{root}/pyarrow/day=2024-02-*/**/*.parquet"}).url) as client:
        got = raw_table(client, "t")
        assert set(got["day"].to_pylist()) == set(DAYS[:2])
        assert got.num_rows == table().num_rows * 2 // 3


def test_a_pinned_schema_declares_types_and_columns(tmp_path: Path, serve: Serve):
    write(tmp_path / "t/zip=00501/day=1/a.parquet", x=[1])
    schema = pa.schema([("zip", pa.string()), ("x", pa.float64())])
    pq.write_table(schema.empty_table(), tmp_path / "schema")
    with fl.connect(serve({"t": tmp_path / "t"}, "--dataset-schema", f"t={tmp_path}/schema").url) as client:
        assert raw_table(client, "t").to_pylist() == [{"zip": "00501", "x": 1.0}]
        # A value that the declared type cannot hold.
        write(tmp_path / "t/zip=x/a.parquet", x=[2])
        assert raw_table(client, "t").num_rows == 2
    pq.write_table(pa.schema([("zip", pa.int32())]).empty_table(), tmp_path / "numbers")
    with fl.connect(serve({"t": tmp_path / "t"}, "--dataset-schema", f"t={tmp_path}/numbers").url) as client:
        code, text = outcome(lambda: raw_table(client, "t"))
        assert code == "FAILED_PRECONDITION", text
        for word in ('"zip"', '"x"', "zip=x/a.parquet", "--dataset-schema"):
            assert word in text


# === Pruning ===


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    running: list[Daemon] = []

    def start(*flags: str) -> Daemon:
        running.append(Daemon(*LOOPBACK, "--state", str(tmp_path / "state"), *flags))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def gets(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_storage_requests_total", operation="get", status="ok")


@pytest.mark.parametrize("remote", [False, True])
def test_a_filter_reads_pages_of_matching_folders_only(tmp_path: Path, daemon: Callable[..., Daemon], remote: bool):
    """200 folders, of which the filter passes 2."""
    for day in range(200):
        write(tmp_path / f"t/day={day}/a.parquet", id=[day, 1000 + day], x=[0.5, None])
    with s3_server() as endpoint:
        store = Store(endpoint, "partitions")
        for path in sorted((tmp_path / "t").rglob("*.parquet")) if remote else []:
            store.put(str(path.relative_to(tmp_path)), path.read_bytes())
        started = daemon("--dataset", f"t={store.url('t/') if remote else tmp_path / 't'}")
        with fl.connect(started.url) as client:
            opened = gets(started)
            assert opened == 200
            for text, want in (("day IN (7, 8)", [7, 8, 1007, 1008]), ("day >= 198 AND x IS NULL", [1198, 1199])):
                plan = plan_of(stored("id", "day"), filter=text)
                before = gets(started)
                got = rows_of(client, "t", plan)
                assert [row["id"] for row in got] == want
                # Each of the 2 files is read once for the rows, and once more to count those that pass another column.
                assert 2 <= gets(started) - before <= 4


# === Lists of files ===


def test_a_list_names_the_files_and_their_order(root: Path, tmp_path: Path, serve: Serve):
    write(tmp_path / "data/day=2/b.parquet", x=[2])
    write(tmp_path / "data/day=1/a.parquet", x=[1])
    write(tmp_path / "data/day=1/c.parquet", x=[3])
    listed = tmp_path / "data/list.txt"
    listed.write_text(f"# newest first\n\nday=2/b.parquet\n{tmp_path}/data/day=1/c.parquet\n")
    with fl.connect(serve({"t": f"@{listed}"}).url) as client:
        assert raw_table(client, "t").to_pylist() == [{"x": 2, "day": 2}, {"x": 3, "day": 1}]
        # Read again at every listing.
        listed.write_text("day=1/a.parquet\n")
        assert raw_table(client, "t").to_pylist() == [{"x": 1, "day": 1}]
        listed.write_text("day=1/a.parquet\nday=1/missing.parquet\n")
        code, text = outcome(lambda: raw_table(client, "t"))
        assert code == "FAILED_PRECONDITION", text
        for word in ("list.txt", "line 2", "missing.parquet"):
            assert word in text


def test_a_list_in_a_bucket(tmp_path: Path, serve: Serve):
    for day in (1, 2):
        write(tmp_path / f"day={day}/a.parquet", x=[day])
    with s3_server() as endpoint:
        store = Store(endpoint, "listed")
        for day in (1, 2):
            store.put(f"day={day}/a b.parquet", (tmp_path / f"day={day}/a.parquet").read_bytes())
        (tmp_path / "list").write_text(f"{store.url('day=2/a b.parquet')}\n{store.url('day=1/a b.parquet')}\n")
        with fl.connect(serve({"t": f"@{tmp_path}/list"}).url) as client:
            assert raw_table(client, "t").to_pylist() == [{"x": 2, "day": 2}, {"x": 1, "day": 1}]
            store.delete("day=1/a b.parquet")
            code, text = outcome(lambda: raw_table(client, "t"))
            assert (code, "line 2" in text) == ("FAILED_PRECONDITION", True), text


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "lists no files"), ("# nothing\n", "lists no files"), ("s3://\n", "line 1"), (None, "No such")],
)
def test_a_list_that_names_nothing_stops_the_server(tmp_path: Path, serve: Serve, text: str | None, words: str):
    if text is not None:
        (tmp_path / "list").write_text(text)
    with pytest.raises(RuntimeError, match=words):
        serve({"t": f"@{tmp_path}/list"})
