"""Delta tables by `deltalake`: values, versions, partitions, drifting schemas, and what VACUUM removes."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from forebay.errors import translate
from harness.delta import LOG
from harness.serving import Serve, info, plan_of, raw_table, read, stored
from harness.stores.s3 import S3Backend

NO_RETENTION: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}


def by_deltalake(table: Path, version: int | None = None) -> pa.Table:
    """The rows as `deltalake` reads them, sorted."""
    return plain(DeltaTable(table, version=version).to_pyarrow_table())


def plain(rows: pa.Table) -> pa.Table:
    """Sorted rows, in the types that both readers can have."""
    fields = [field.remove_metadata().with_nullable(True) for field in rows.schema]
    texts = (pa.large_string(), pa.string_view())
    fields = [field.with_type(pa.string()) if field.type in texts else field for field in fields]
    return rows.cast(pa.schema(fields)).sort_by("id").combine_chunks()


def ids(table: pa.Table) -> list[int]:
    return table["id"].to_pylist()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 3 of a table: two appends, a deletion, and an overwrite."""
    root = tmp_path / "events ü"
    write_deltalake(root, pa.table({"id": [1, 2, 3], "x": [0.5, None, 1.5]}))
    write_deltalake(root, pa.table({"id": [4, 5], "x": [4.0, 5.0]}), mode="append")
    DeltaTable(root).delete("id = 2")
    write_deltalake(root, pa.table({"id": [9], "x": [9.0]}), mode="overwrite")
    return root


def test_every_version_is_read_as_deltalake_reads_it(table: Path, serve: Serve):
    versions = {f"v{version}": f"delta+{table}@version={version}" for version in range(4)}
    server = serve({"newest": f"delta+{table}", "url": f"delta+{table.as_uri()}", **versions})
    with fl.connect(server.url) as client:
        for version in range(4):
            got = raw_table(client, f"v{version}")
            assert plain(got).equals(by_deltalake(table, version)), version
            assert client.get_schema(fl.FlightDescriptor.for_path(f"v{version}")).schema.equals(got.schema)
        assert raw_table(client, "newest").equals(raw_table(client, "v3"))
        assert raw_table(client, "url").equals(raw_table(client, "v3"))
        assert [ids(plain(raw_table(client, f"v{n}"))) for n in range(4)] == [
            [1, 2, 3],
            [1, 2, 3, 4, 5],
            [1, 3, 4, 5],
            [9],
        ]
        listed = [json.loads(flight.app_metadata) for flight in client.list_flights()]
        assert {about["name"]: about["table_version"] for about in listed} == {
            **{f"v{version}": str(version) for version in range(4)},
            "newest": "3",
            "url": "3",
        }
    assert any("table_version" in line for line in server.log)


def test_the_newest_version_is_pinned_by_its_snapshot(table: Path, serve: Serve):
    server = serve({"t": f"delta+{table}"})
    request = {"dataset": "t", "plan": plan_of(stored("id")), "batch_size": 2}
    with fl.connect(server.url) as client:
        first = json.loads(info(client, request).app_metadata)["snapshot"]
        assert json.loads(info(client, request).app_metadata)["snapshot"] == first
        write_deltalake(table, pa.table({"id": [10], "x": [1.0]}), mode="append")
        second = json.loads(info(client, request).app_metadata)["snapshot"]
        assert second != first
        for snapshot, want in ((first, [9]), (second, [9, 10])):
            found = info(client, {**request, "snapshot": snapshot})
            assert sorted(ids(client.do_get(found.endpoints[0].ticket).read_all())) == want


def test_a_vacuumed_file_ends_calls_that_name_its_version(table: Path, serve: Serve):
    server = serve({"old": f"delta+{table}@version=1", "new": f"delta+{table}"})
    with fl.connect(server.url) as client:
        assert len(ids(raw_table(client, "old"))) == 5
        removed = DeltaTable(table).vacuum(**NO_RETENTION)
        assert removed
        assert ids(raw_table(client, "new")) == [9]
        for _ in range(2):
            with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
                raw_table(client, "old")
            error = translate(caught.value)
            assert error.code == "ABORTED"
            assert "version 1 of" in str(error), error
            assert any(Path(unquote(name)).name in str(error) for name in removed)
    # A server that never read the version finds that the file is missing before it reads any.
    with fl.connect(serve({"old": f"delta+{table}@version=1"}).url) as client:
        with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
            raw_table(client, "old")
        error = translate(caught.value)
        assert error.code == "ABORTED"
        assert "version 1 of the table does not exist, as after VACUUM" in str(error)


PARTITIONED = pa.table(
    {
        "id": pa.array(range(9), pa.int64()),
        "text": ["a b", "x/y%=é", None, "a b", "z", "..", "'\"", "#?&", "2024-01-01"],
        "day": pa.array([dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)] * 3),
        "at": pa.array(
            [dt.datetime(2024, 1, 1, 2, 3, 4, 5, dt.UTC), None, dt.datetime(1969, 12, 31, 23, 59, 59, 0, dt.UTC)] * 3,
            pa.timestamp("us", "UTC"),
        ),
        "flag": [True, False, None] * 3,
        "price": pa.array([None, Decimal("1.50"), Decimal("12.34")] * 3, pa.decimal128(10, 2)),
        "ratio": [1.5, -2.25, None] * 3,
        "small": pa.array([1, None, -3] * 3, pa.int16()),
        "x": pa.array([float(n) for n in range(9)]),
    }
)
KEYS = ["text", "day", "at", "flag", "price", "ratio", "small"]


def test_partition_values_are_typed_columns_in_the_tables_order(tmp_path: Path, serve: Serve):
    write_deltalake(tmp_path / "t", PARTITIONED, partition_by=KEYS)
    server = serve({"t": f"delta+{tmp_path / 't'}"})
    with fl.connect(server.url) as client:
        got = raw_table(client, "t")
        assert got.schema.names == PARTITIONED.schema.names
        assert plain(got).equals(plain(PARTITIONED))
        assert plain(got).equals(by_deltalake(tmp_path / "t"))
        for text, want in {
            "text = 'a b'": [0, 3],
            "text IS NULL": [2],
            "day < DATE '2000-01-01' AND small = -3": [2, 5, 8],
            "flag": [0, 3, 6],
            "ratio < 0 AND price > 1": [1, 4, 7],
            "at > TIMESTAMP '2000-01-01'": [0, 3, 6],
        }.items():
            for order in ({}, {"shuffle": True, "seed": 5}):
                plan = plan_of(stored("id"), filter=text)
                found = info(client, {"dataset": "t", "plan": plan, "batch_size": 4, **order})
                assert sorted(ids(client.do_get(found.endpoints[0].ticket).read_all())) == want, text


def test_values_of_the_log_win_over_folder_names(tmp_path: Path, serve: Serve):
    """Paths need not say the values of partitions, and may say others."""
    root = tmp_path / "t"
    write_deltalake(root, pa.table({"id": [1], "k": ["a"]}), partition_by=["k"])
    log = root / LOG / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"partitionValues":{"k":"a"}', '"partitionValues":{"k":"other"}'))
    with fl.connect(serve({"t": f"delta+{root}"}).url) as client:
        assert raw_table(client, "t").to_pylist() == [{"id": 1, "k": "other"}]


def test_added_columns_are_null_in_older_files(tmp_path: Path, serve: Serve):
    root = tmp_path / "t"
    write_deltalake(root, pa.table({"id": [1, 2]}))
    later = pa.table({"id": [3], "word": ["w"], "list": pa.array([[1, None]], pa.list_(pa.int32()))})
    write_deltalake(root, later, mode="append", schema_mode="merge")
    with fl.connect(serve({"t": f"delta+{root}", "old": f"delta+{root}@version=0"}).url) as client:
        got = plain(raw_table(client, "t"))
        assert got.to_pylist() == [
            {"id": 1, "word": None, "list": None},
            {"id": 2, "word": None, "list": None},
            {"id": 3, "word": "w", "list": [1, None]},
        ]
        assert raw_table(client, "old").schema.names == ["id"]
        assert ids(read(client, "t", plan_of(stored("id"), filter="word IS NOT NULL"))) == [3]


def test_checkpoints_and_cleaned_logs(tmp_path: Path, serve: Serve):
    root = tmp_path / "t"
    for number in range(12):
        write_deltalake(root, pa.table({"id": [number], "k": [number % 3]}), mode="append", partition_by=["k"])
    DeltaTable(root).delete("id = 4")
    DeltaTable(root).create_checkpoint()
    write_deltalake(root, pa.table({"id": [12], "k": [0]}), mode="append")
    # Removes versions before the checkpoint, as does the log's retention.
    for version in range(12):
        (root / LOG / f"{version:020d}.json").unlink()
    server = serve({"t": f"delta+{root}", "old": f"delta+{root}@version=3", "then": f"delta+{root}@version=12"})
    with fl.connect(server.url) as client:
        assert ids(plain(raw_table(client, "t"))) == [0, 1, 2, 3, *range(5, 13)]
        assert plain(raw_table(client, "t")).equals(by_deltalake(root))
        assert ids(plain(raw_table(client, "then"))) == [0, 1, 2, 3, *range(5, 12)]
        with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
            raw_table(client, "old")
        assert "version 3 is no longer in the log" in str(translate(caught.value))


def test_renamed_and_dropped_columns(tmp_path: Path, serve: Serve):
    """Column mapping by name: files have other names than the table."""
    root = tmp_path / "t"
    mapped = {"delta.columnMapping.mode": "name"}
    rows = pa.table({"id": [1, 2, 3], "word": ["a", None, "c"], "x": [1.0, 2.0, 3.0]})
    write_deltalake(root, rows, configuration=mapped, partition_by=["word"])
    names = {name for file in root.rglob("*.parquet") for name in pq.read_schema(file).names}
    assert not names & {"id", "word", "x"}
    log = root / LOG / f"{0:020d}.json"
    with fl.connect(serve({"t": f"delta+{root}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(plain(rows))
        # A rename changes the schema only.
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        metadata = next(line for line in lines if "metaData" in line)
        schema = json.loads(metadata["metaData"]["schemaString"])
        schema["fields"][2]["name"] = "id2"
        schema["fields"][0], schema["fields"][2] = schema["fields"][2], schema["fields"][0]
        metadata["metaData"]["schemaString"] = json.dumps(schema)
        (root / LOG / f"{1:020d}.json").write_text(json.dumps(metadata) + "\n")
        got = raw_table(client, "t")
        assert got.schema.names == ["id2", "word", "id"]
        assert got.sort_by("id").to_pylist() == [
            {"id2": float(n), "word": word, "id": n} for n, word in ((1, "a"), (2, None), (3, "c"))
        ]
        # Pruning uses the statistics of the renamed column.
        plan = plan_of(stored("id"), filter="id2 > 2.5")
        assert ids(read(client, "t", plan)) == [3]


def test_tables_in_a_bucket(table: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    store = S3Backend()
    try:
        assert store.proxy is not None
        for file in table.rglob("*"):
            if file.is_file():
                store.put(f"lake/events/{file.relative_to(table).as_posix()}", file.read_bytes())
        for name, value in store.environment(store.proxy.url).items():
            monkeypatch.setenv(name, value)
        places = {
            "new": f"delta+s3://{store.bucket}/lake/events",
            "old": f"delta+s3://{store.bucket}/lake/events/@version=1",
        }
        server = serve({**places, "none": f"delta+s3://{store.bucket}/lake"})
        with fl.connect(server.url) as client:
            assert ids(raw_table(client, "new")) == [9]
            assert plain(raw_table(client, "old")).equals(by_deltalake(table, 1))
            with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
                raw_table(client, "none")
            assert "not a Delta table" in str(translate(caught.value))
    finally:
        store.close()


def test_file_order_is_the_order_of_paths(table: Path, serve: Serve):
    """A batch is an address: files are in the order of their paths."""
    server = serve({"t": f"delta+{table}@version=1"})
    files = sorted(unquote(path) for path in DeltaTable(table, version=1).get_add_actions().column("path").to_pylist())
    want = pc.list_flatten(pa.array([pq.read_table(table / file)["id"].to_pylist() for file in files]))
    with fl.connect(server.url) as client:
        assert ids(raw_table(client, "t")) == want.to_pylist()
