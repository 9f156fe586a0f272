"""Iceberg tables by `pyiceberg`: snapshots, schemas that changed, partitions, stores, and files that expired."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, DecimalType, DoubleType, LongType, NestedField, StringType

from harness.iceberg import catalog, commit, data_file, expected, opened, path_of, plain
from harness.object_store import KEY_ID, SECRET, Store, s3_server
from harness.refusals import check, refusal
from harness.serving import Serve, info, plan_of, raw_table, read, stored

NUMBERS = pa.schema([("id", pa.int64()), ("x", pa.float64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "x": [number / 2 for number in ids]}, schema=NUMBERS)


def snapshots(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]


def ids(table: pa.Table) -> list[int]:
    return table["id"].to_pylist()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two appends, a deletion that rewrites a file, and an overwrite."""
    made = catalog(tmp_path / "lake ü%20").create_table("lake.events", schema=NUMBERS)
    made.append(rows(1, 2, 3))
    made.append(rows(4, 5))
    made.delete("id = 2")
    made.overwrite(rows(9))
    return made


def test_every_snapshot_is_read_as_pyiceberg_reads_it(table: Table, serve: Serve):
    root, metadata = path_of(table.location()), path_of(table.metadata_location)
    pinned = {f"s{snapshot}": f"iceberg+{root}@snapshot={snapshot}" for snapshot in snapshots(table)}
    places = {"folder": f"iceberg+{root}", "file": f"iceberg+{metadata}", "url": f"iceberg+{root.as_uri()}"}
    server = serve({**places, **pinned})
    with fl.connect(server.url) as client:
        for snapshot in snapshots(table):
            want, name = expected(table, snapshot), f"s{snapshot}"
            if want.num_rows:
                assert plain(raw_table(client, name)).equals(want), snapshot
            else:
                empty = refusal(lambda name=name: raw_table(client, name))
                check(empty, "FAILED_PRECONDITION", f"snapshot {snapshot} of the table")
        for place in places:
            assert plain(raw_table(client, place)).equals(expected(table)), place
    assert any("table_version" in line and str(snapshots(table)[-1]) in line for line in server.log)


def test_a_digest_pins_the_snapshot_after_later_commits(table: Table, serve: Serve):
    server = serve({"t": f"iceberg+{path_of(table.location())}"})
    request = {"dataset": "t", "plan": plan_of(stored("id")), "batch_size": 2}
    with fl.connect(server.url) as client:
        first = json.loads(info(client, request).app_metadata)["snapshot"]
        assert json.loads(info(client, request).app_metadata)["snapshot"] == first
        table.append(rows(10))
        second = json.loads(info(client, request).app_metadata)["snapshot"]
        assert second != first
        for snapshot, want in ((first, [9]), (second, [9, 10])):
            found = info(client, {**request, "snapshot": snapshot})
            assert sorted(ids(client.do_get(found.endpoints[0].ticket).read_all())) == want
        # Another snapshot of the same files is another digest.
        table.delete("id = 10")
        table.append(rows(10))
        assert json.loads(info(client, request).app_metadata)["snapshot"] not in (first, second)


def test_an_expired_file_ends_calls_that_name_its_snapshot(table: Table, serve: Serve):
    first = snapshots(table)[0]
    url = f"iceberg+{path_of(table.location())}@snapshot={first}"
    server = serve({"old": url})
    gone = path_of(next(iter(table.scan(snapshot_id=first).plan_files())).file.file_path)
    with fl.connect(server.url) as client:
        assert ids(raw_table(client, "old")) == [1, 2, 3]
        gone.unlink()
        for _ in range(2):
            check(refusal(lambda: raw_table(client, "old")), "ABORTED", f"snapshot {first} of", gone.name)
    # A server that never read the snapshot finds that the file is missing before it reads any.
    with fl.connect(serve({"old": url}).url) as client:
        check(
            refusal(lambda: raw_table(client, "old")),
            "ABORTED",
            f"snapshot {first} of the table does not exist",
            gone.name,
        )


# === Schemas ===


def test_columns_are_found_by_their_field_ids(tmp_path: Path, serve: Serve):
    """Renamed, moved, widened, added, dropped, and added again under the name of a dropped one."""
    old = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "word": ["a", None, "c"],
            "ratio": pa.array([0.5, None, 1.5], pa.float32()),
            "price": pa.array([Decimal("1.25"), None, Decimal("9.99")], pa.decimal128(6, 2)),
            "gone": [10, 20, 30],
            "place": [{"x": 1, "name": "n"}, None, {"x": None, "name": "m"}],
            "tags": [["p", None], [], None],
            "sizes": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
            "key": pa.array([bytes(16), None, bytes(range(16))], pa.uuid()),
            "at": pa.array([0, None, -1], pa.timestamp("us", "UTC")),
            "blob": [b"a", None, b""],
        }
    )
    table = catalog(tmp_path).create_table("lake.t", schema=old.schema)
    table.append(old)
    with table.update_schema() as update:
        update.rename_column("word", "text").rename_column("place.name", "label")
        update.update_column("id", LongType()).update_column("ratio", DoubleType())
        update.update_column("price", DecimalType(12, 2)).update_column(("sizes", "value"), LongType())
        update.add_column(("place", "y"), StringType()).add_column("added", StringType())
        update.delete_column("gone")
        update.move_first("ratio")
    with table.update_schema() as update:
        update.add_column("gone", StringType())
    first = snapshots(table)[0]
    new = pa.table(
        {
            "ratio": [7.5],
            "id": pa.array([2**40], pa.int64()),
            "text": ["later"],
            "price": pa.array([Decimal("1234567890.12")], pa.decimal128(12, 2)),
            "place": [{"x": 5, "label": "l", "y": "new"}],
            "tags": [["q"]],
            "sizes": pa.array([[("big", 2**40)]], pa.map_(pa.string(), pa.int64())),
            "key": pa.array([bytes(16)], pa.uuid()),
            "at": pa.array([10**15], pa.timestamp("us", "UTC")),
            "blob": [b"c"],
            "added": ["yes"],
            "gone": ["again"],
        }
    )
    table.append(new)
    root = path_of(table.location())
    with fl.connect(serve({"t": f"iceberg+{root}", "old": f"iceberg+{root}@snapshot={first}"}).url) as client:
        got = raw_table(client, "t")
        assert got.schema.names == [field.name for field in table.schema().fields]
        assert plain(got).equals(expected(table)), (plain(got).to_pydict(), expected(table).to_pydict())
        by_id = {row["id"]: row for row in got.to_pylist()}
        assert (by_id[1]["text"], by_id[1]["gone"], by_id[1]["added"]) == ("a", None, None)
        assert by_id[1]["place"] == {"x": 1, "label": "n", "y": None}
        # A pinned snapshot has the schema of its time.
        assert plain(raw_table(client, "old")).equals(expected(table, first))
        assert raw_table(client, "old").schema.names == old.schema.names
        # Filters use the statistics of the columns that the IDs name.
        for text, want in {"text = 'a'": [1], "gone = 'again'": [2**40], "ratio > 1": [3, 2**40]}.items():
            assert sorted(ids(read(client, "t", plan_of(stored("id"), filter=text)))) == sorted(want), text


def test_files_without_field_ids_need_a_name_mapping(tmp_path: Path, serve: Serve):
    table = catalog(tmp_path).create_table("lake.t", schema=NUMBERS)
    file = tmp_path / "lake/t/plain.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(1, 2, 3), file)
    table.add_files([file.as_uri()])
    with table.update_schema() as update:
        update.rename_column("x", "y")
    table.append(pa.table({"id": [4], "y": [8.0]}))
    root = path_of(table.location())
    with fl.connect(serve({"t": f"iceberg+{root}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(table))
        with table.transaction() as transaction:
            transaction.remove_properties("schema.name-mapping.default")
        check(refusal(lambda: raw_table(client, "t")), "UNIMPLEMENTED", "plain.parquet", "schema.name-mapping.default")


# === Partitions ===

PARTITIONED = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "text": ["a b", "x/y%=é", None, "a b", "z", ".."],
        "day": pa.array([dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)] * 2),
        "price": pa.array([None, Decimal("-1.50"), Decimal("12.34")] * 2, pa.decimal128(10, 2)),
        "flag": [True, False, None] * 2,
        "small": pa.array([1, None, -3] * 2, pa.int32()),
        "ratio": [1.5, -2.25, None] * 2,
        "half": pa.array([0.1, None, -1e-30] * 2, pa.float32()),
        "at": pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None, dt.datetime(2024, 2, 29)] * 2),
        "zoned": pa.array([0, 10**15 + 1, None] * 2, pa.timestamp("us", "UTC")),
        "hour": pa.array([None, 86_399_999_999, 0] * 2, pa.time64("us")),
    }
)


def spec_of(schema: Schema, *names: str) -> PartitionSpec:
    fields = [schema.find_field(name).field_id for name in names]
    return PartitionSpec(
        *(
            PartitionField(source_id=field, field_id=1000 + index, transform=IdentityTransform(), name=name)
            for index, (field, name) in enumerate(zip(fields, names, strict=True))
        )
    )


def test_partition_values_are_columns_and_filters_use_them(tmp_path: Path, serve: Serve):
    schema = catalog(tmp_path / "s").create_table("lake.s", schema=PARTITIONED.schema).schema()
    spec = spec_of(schema, *PARTITIONED.column_names[1:])
    table = catalog(tmp_path / "t").create_table("lake.t", schema=schema, partition_spec=spec)
    table.append(PARTITIONED)
    with fl.connect(serve({"t": f"iceberg+{path_of(table.location())}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(table))
        for text, want in {
            "text = 'a b'": [0, 3],
            "text IS NULL": [2],
            "day < DATE '2000-01-01' AND small = -3": [2, 5],
            "flag": [0, 3],
            "ratio < 0 AND price < 0": [1, 4],
            "half = CAST(0.1 AS REAL)": [0, 3],
            "at < TIMESTAMP '1970-01-01 00:00:00'": [0, 3],
            "zoned > TIMESTAMP '2000-01-01 00:00:00'": [1, 4],
            "hour > TIME '23:00:00'": [1, 4],
        }.items():
            for order in ({}, {"shuffle": True, "seed": 5}):
                plan = plan_of(stored("id"), filter=text)
                found = info(client, {"dataset": "t", "plan": plan, "batch_size": 4, **order})
                assert sorted(ids(client.do_get(found.endpoints[0].ticket).read_all())) == want, text


def test_partition_specs_may_change(tmp_path: Path, serve: Serve):
    kinds = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("n", pa.int32())])

    def some(start: int) -> pa.Table:
        columns = {"id": range(start, start + 4), "kind": ["a", "b", None, "a"], "n": [1, 2, 2, None]}
        return pa.table(columns, schema=kinds)

    table = catalog(tmp_path).create_table("lake.t", schema=kinds)
    table.append(some(0))
    for start, change in enumerate(
        [
            lambda update: update.add_identity("kind"),
            lambda update: update.add_identity("n"),
            lambda update: update.remove_field("kind"),
        ],
        1,
    ):
        with table.update_spec() as update:
            change(update)
        table.append(some(4 * start))
    with table.update_schema() as update:
        update.rename_column("n", "m")
    table.append(some(16).rename_columns(["id", "kind", "m"]))
    with fl.connect(serve({"t": f"iceberg+{path_of(table.location())}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(table))
        assert sorted(ids(read(client, "t", plan_of(stored("id"), filter="m = 1 AND kind = 'a'")))) == [0, 4, 8, 12, 16]


def test_files_may_lack_partition_columns(tmp_path: Path, serve: Serve):
    """As those of Hive tables that were migrated: the value is in the manifest only."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "kind", StringType()))
    made = catalog(tmp_path)
    table = made.create_table("lake.t", schema=schema, partition_spec=spec_of(schema, "kind"))
    bare = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])

    def without_kind(place: Table, index: int, kind: str | bytes | float | None) -> DataFile:
        url = f"{place.location()}/data/{index}.parquet"
        path_of(url).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [2 * index, 2 * index + 1]}, schema=bare), path_of(url))
        return data_file(url, rows=2, partition=[kind])

    metadata = commit(table, [without_kind(table, index, kind) for index, kind in enumerate(["a", None, "b"])])
    ratio = NestedField(2, "ratio", DoubleType())
    wide = made.create_table(
        "lake.u",
        schema=Schema(schema.fields[0], ratio),
        partition_spec=spec_of(Schema(schema.fields[0], ratio), "ratio"),
    )
    ratios = commit(wide, [without_kind(wide, index, kind) for index, kind in enumerate([0.1, None, float("inf")])])
    # Files of another spec have the column.
    mixed = catalog(tmp_path / "mixed").create_table("lake.t", schema=schema, partition_spec=spec_of(schema, "kind"))
    with mixed.update_spec() as update:
        update.remove_field("kind")
    mixed.append(pa.table({"id": [7], "kind": ["c"]}))
    other = commit(mixed, [without_kind(mixed, 0, "a")], spec=mixed.metadata.partition_specs[0].spec_id)
    # The bytes of a manifest are not read as a column.
    code = NestedField(2, "code", BinaryType())
    coded = made.create_table(
        "lake.v",
        schema=Schema(schema.fields[0], code),
        partition_spec=spec_of(Schema(schema.fields[0], code), "code"),
    )
    codes = commit(coded, [without_kind(coded, 0, b"a")])
    tables = {"t": metadata, "u": ratios, "mixed": other, "v": codes}
    with fl.connect(serve({name: f"iceberg+{of}" for name, of in tables.items()}).url) as client:
        got = raw_table(client, "t")
        assert plain(got).equals(expected(opened(metadata)))
        assert got["kind"].to_pylist() == ["a", "a", None, None, "b", "b"]
        assert ids(read(client, "t", plan_of(stored("id"), filter="kind = 'b'"))) == [4, 5]
        assert raw_table(client, "u")["ratio"].to_pylist() == [0.1, 0.1, None, None, float("inf"), float("inf")]
        assert ids(read(client, "u", plan_of(stored("id"), filter="ratio > 1"))) == [4, 5]
        assert raw_table(client, "mixed").sort_by("id").to_pydict() == {"id": [0, 1, 7], "kind": ["a", "a", "c"]}
        assert ids(read(client, "mixed", plan_of(stored("id"), filter="kind = 'a'"))) == [0, 1]
        assert ids(read(client, "mixed", plan_of(stored("id"), filter="kind > 'a'"))) == [7]
        assert ids(read(client, "mixed", plan_of(stored("id"), filter="kind IS NULL"))) == []
        check(
            refusal(lambda: raw_table(client, "v")),
            "UNIMPLEMENTED",
            "0.parquet",
            'lacks the partition column "code"',
        )


def test_tables_of_version_1(tmp_path: Path, serve: Serve):
    made = catalog(tmp_path).create_table("lake.t", schema=NUMBERS, properties={"format-version": "1"})
    made.append(rows(1, 2))
    made.append(rows(3))
    assert made.metadata.format_version == 1
    assert made.spec() == UNPARTITIONED_PARTITION_SPEC
    with fl.connect(serve({"t": f"iceberg+{path_of(made.location())}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(made))


# === Places ===


def test_tables_in_a_bucket(serve: Serve, tmp_path: Path):
    with s3_server() as endpoint:
        Store(endpoint, "lake")
        access = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": KEY_ID,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }
        made = catalog(tmp_path, warehouse="s3://lake/house", **access).create_table("lake.t", schema=NUMBERS)
        made.append(rows(1, 2))
        first = snapshots(made)[0]
        made.append(rows(3))
        place = f"iceberg+{made.location()}"
        names = {"new": place, "slash": f"{place}/", "old": f"{place}@snapshot={first}"}
        server = serve({**names, "file": f"iceberg+{made.metadata_location}", "none": "iceberg+s3://lake/house"})
        with fl.connect(server.url) as client:
            for name in ("new", "slash", "file"):
                assert plain(raw_table(client, name)).equals(expected(made)), name
            assert ids(raw_table(client, "old")) == [1, 2]
            check(refusal(lambda: raw_table(client, "none")), "FAILED_PRECONDITION", "there is no Iceberg table")
