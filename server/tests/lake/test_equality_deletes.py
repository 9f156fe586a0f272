"""Equality deletes, as writers of streams make them: against their definition, row by row."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType

from harness.iceberg import (
    catalog,
    commit,
    data_file,
    equality_deletes,
    opened,
    path_of,
    plain,
    position_deletes,
    written,
)
from harness.object_store import Store, s3_server
from harness.refusals import check, refusal
from harness.serving import Serve, info, plan_of, raw_table, read, stored

UTC = dt.timezone.utc
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("word", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
        ("blob", pa.binary()),
        ("key", pa.binary(4)),
        ("x", pa.float64()),
    ]
)
KEYS = [["id"], ["word"], ["id", "word"], ["day", "at", "price", "flag"], ["blob"], ["key", "id"], ["flag", "word"]]


@dataclass
class Written:
    """A data file, or the rows of a delete file."""

    sequence: int
    spec: int
    partition: tuple[Any, ...]
    rows: pa.Table


def rows_of(chance: random.Random, count: int, word: str | None = None) -> pa.Table:
    def some(values: Sequence[Any]) -> list[Any]:
        return [chance.choice([*values, None]) for _ in range(count)]

    columns = {
        "id": some(range(6)),
        "word": some(["a", "b", ""]) if word is None else [None if word == "null" else word] * count,
        "day": some([dt.date(2024, 2, 29), dt.date(1969, 12, 31)]),
        "at": some([dt.datetime(2024, 2, 29, 1, 2, 3, 4, UTC), dt.datetime(1969, 12, 31, tzinfo=UTC)]),
        "price": some([Decimal("1.10"), Decimal("-0.01")]),
        "flag": some([True, False]),
        "blob": some([b"", b"\x00", b"\xff"]),
        "key": some([bytes(4), b"abcd"]),
        "x": some([0.5, float("nan")]),
    }
    return pa.table(columns, schema=SCHEMA)


def left(files: Sequence[Written], deletes: Sequence[Written], unpartitioned: Sequence[int]) -> list[pa.Table]:
    """The rows of each file that no delete is about, by the definition."""
    kept = []
    for file in files:
        mask = [True] * file.rows.num_rows
        for delete in deletes:
            is_of_all = delete.spec in unpartitioned
            is_of_partition = (delete.spec, delete.partition) == (file.spec, file.partition)
            if file.sequence >= delete.sequence or not (is_of_all or is_of_partition):
                continue
            names = delete.rows.column_names
            gone = {tuple(row[name] for name in names) for row in delete.rows.to_pylist()}
            for index, row in enumerate(file.rows.select(names).to_pylist()):
                mask[index] &= tuple(row[name] for name in names) not in gone
        kept.append(file.rows.filter(pa.array(mask)))
    return kept


def served(serve: Serve, metadata: Path | str) -> pa.Table:
    with fl.connect(serve({"t": f"iceberg+{metadata}"}).url) as client:
        return raw_table(client, "t")


def same(found: pa.Table, want: pa.Table) -> None:
    """NaN is not equal to itself, so that texts are compared."""
    assert str(plain(found).to_pylist()) == str(plain(want).to_pylist())


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_equal_a_delete_of_a_later_commit_are_gone(seed: int, tmp_path: Path, serve: Serve):
    chance = random.Random(seed)
    table: Table | StaticTable = catalog(tmp_path).create_table("lake.t", schema=SCHEMA)
    files, deletes = list[Written](), list[Written]()
    metadata: Path | None = None
    for number in range(14):
        sequence, added = table.metadata.last_sequence_number + 1, []
        if number % 3 < 2:
            rows = rows_of(chance, chance.choice([1, 20, 50]))
            group = chance.choice([7, 1000])
            added.append(written(table, f"{number:02}.parquet", rows, row_group_size=group))
            files.append(Written(sequence, 0, (), rows))
        # Some commits replace rows: their deletes are not about their own rows.
        if number % 3 > 0:
            rows = rows_of(chance, chance.choice([0, 1, 3])).select(chance.choice(KEYS))
            added.append(equality_deletes(table, f"{number:02}-d.parquet", rows))
            deletes.append(Written(sequence, 0, (), rows))
        metadata = commit(table, added)
        table = opened(metadata)
    assert metadata
    want = pa.concat_tables(left(files, deletes, [0]))
    assert 0 < want.num_rows < sum(file.rows.num_rows for file in files)
    same(served(serve, metadata), want)


def test_deletes_are_about_their_partition_or_all(tmp_path: Path, serve: Serve):
    chance = random.Random(7)
    made = catalog(tmp_path).create_table("lake.t", schema=SCHEMA)
    with made.update_spec() as update:
        update.add_identity("word")
    table: Table | StaticTable = made
    [by_none, by_word] = sorted(spec.spec_id for spec in made.metadata.partition_specs)
    files, deletes = list[Written](), list[Written]()
    metadata: Path | None = None
    for number in range(24):
        sequence, name = table.metadata.last_sequence_number + 1, f"{number:02}.parquet"
        word = chance.choice(["a", "b", "null"])
        value = None if word == "null" else word
        is_delete, is_global = number % 4 == 3, number % 8 == 7
        spec_id, partition = (by_none, ()) if is_global else (by_word, (value,))
        if is_delete:
            rows = rows_of(chance, 2, word).select(["id"])
            file = equality_deletes(table, name, rows, partition)
        else:
            rows = rows_of(chance, 20, word)
            file = written(table, name, rows, partition)
        (deletes if is_delete else files).append(Written(sequence, spec_id, partition, rows))
        metadata = commit(table, [file], spec=spec_id)
        table = opened(metadata)
    assert metadata
    want = pa.concat_tables(left(files, deletes, [by_none]))
    assert want.num_rows < sum(file.rows.num_rows for file in files) - 10
    same(served(serve, metadata), want)


def test_deletes_by_position_and_by_value_are_both_done(tmp_path: Path, serve: Serve):
    made = catalog(tmp_path).create_table("lake.t", schema=pa.schema([("id", pa.int64()), ("x", pa.float64())]))
    rows = pa.table({"id": pa.array(range(5000), pa.int64()), "x": pa.array([n / 2 for n in range(5000)])})
    # Of many row groups, so that the columns are not at the end of the file.
    table = opened(commit(made, [written(made, "a.parquet", rows, row_group_size=100, compression="none")]))
    [url] = [task.file.file_path for task in table.scan().plan_files()]
    table = opened(commit(table, [position_deletes(table, "p.parquet", {url: [0, 1, 4999]})]))
    ids = pa.array([1, 2, 777, 4998, 10**12], pa.int64())
    metadata = commit(table, [equality_deletes(table, "e.parquet", pa.table({"id": ids}))])
    want = [n for n in range(5000) if n not in (0, 1, 2, 777, 4998, 4999)]
    server = serve({"t": f"iceberg+{metadata}"})
    with fl.connect(server.url) as client:
        assert raw_table(client, "t")["id"].to_pylist() == want
        even = read(client, "t", plan_of(stored("id"), filter="x = floor(x)"))["id"].to_pylist()
        assert even == [n for n in want if n % 2 == 0]
        request = {"dataset": "t", "plan": plan_of(stored("id")), "batch_size": 64, "shuffle": True, "world_size": 3}
        found = info(client, request)
        seen = [client.do_get(one.ticket).read_all()["id"].to_pylist() for one in found.endpoints]
        assert sorted(n for of_rank in seen for n in of_rank) == want


def test_columns_have_the_values_of_the_tables_schema(tmp_path: Path, serve: Serve):
    """Widened, added, renamed and dropped columns, and a file of another order."""
    old = pa.schema([("id", pa.int32()), ("word", pa.string()), ("gone", pa.int64())])
    made = catalog(tmp_path).create_table("lake.t", schema=old)
    first = pa.table({"id": [1, 2, 3, None], "word": ["a", "b", "c", "d"], "gone": [7, 8, 9, 7]}, schema=old)
    made.append(first)
    with made.update_schema() as update:
        update.update_column("id", LongType())
        update.rename_column("word", "text")
        update.add_column("added", LongType())
    table = opened(Path(path_of(made.metadata_location)))
    later = pa.table({"added": [5, None], "text": ["b", "e"], "id": [2, 2**40], "gone": [8, 7]})
    table = opened(commit(table, [written(table, "z.parquet", later)]))
    number = pa.int64()
    for name, rows in {
        "id": pa.table({"id": pa.array([2, 2**40, None], number), "added": pa.array([None, None, 1], number)}),
        "text": pa.table({"text": ["c"]}),
    }.items():
        table = opened(commit(table, [equality_deletes(table, f"{name}.parquet", rows)]))
    by_gone = equality_deletes(table, "gone.parquet", pa.table({"gone": pa.array([9], number)}))
    text = json.loads(commit(table, [by_gone]).read_text())
    # The column is dropped: the delete file keeps its ID.
    current = next(one for one in text["schemas"] if one["schema-id"] == text["current-schema-id"])
    without = {**current, "schema-id": 99, "fields": [field for field in current["fields"] if field["name"] != "gone"]}
    text |= {"schemas": [*text["schemas"], without], "current-schema-id": 99}
    metadata = path_of(table.metadata.location) / "metadata/00099-made.metadata.json"
    metadata.write_text(json.dumps(text))
    # Rows of the old file have null for `added`.
    assert sorted(served(serve, metadata)["text"].to_pylist()) == ["a", "b", "d"]
    assert [row["id"] for row in served(serve, metadata).to_pylist() if row["text"] == "b"] == [2]


def test_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path, serve: Serve):
    made = catalog(tmp_path).create_table("lake.t", schema=pa.schema([("id", pa.int64())]))
    file = tmp_path / "lake/t/data/plain.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64())}), file)
    made.add_files([file.as_uri()])
    metadata = commit(made, [equality_deletes(made, "e.parquet", pa.table({"id": pa.array([2], pa.int64())}))])
    assert served(serve, metadata)["id"].to_pylist() == [1, 3]


def test_tables_in_a_bucket_are_read(tmp_path: Path, serve: Serve):
    made = catalog(tmp_path).create_table("lake.t", schema=pa.schema([("id", pa.int64())]))
    numbers = pa.table({"id": pa.array(range(50_000), pa.int64())})
    table = opened(commit(made, [written(made, "a.parquet", numbers, row_group_size=10_000)]))
    metadata = commit(
        table, [equality_deletes(table, "e.parquet", pa.table({"id": pa.array([3, 49_999], pa.int64())}))]
    )
    root = path_of(made.location())
    with s3_server() as endpoint:
        bucket = Store(endpoint, "equality")
        moved = metadata.read_text().replace(made.location(), "s3://equality/t")
        for path in root.rglob("*"):
            if path.suffix in (".parquet", ".avro"):
                bucket.put(f"t/{path.relative_to(root)}", path.read_bytes())
        bucket.put("t/metadata/00001-made.metadata.json", moved.encode())
        for path in (root / "metadata").glob("*.avro"):
            bucket.put(f"t/metadata/{path.name}", renamed(path, made.location(), "s3://equality/t"))
        url = "iceberg+s3://equality/t"
        with fl.connect(serve({"t": url}).url) as client:
            assert raw_table(client, "t")["id"].to_pylist() == [n for n in range(50_000) if n not in (3, 49_999)]


def renamed(path: Path, old: str, new: str) -> bytes:
    """An Avro file that names the files of another folder; lists have the lengths of the new manifests."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        records, schema, header = list(reader), reader.writer_schema, reader.metadata
    for record in records:
        if "manifest_path" in record:
            manifest = path.parent / Path(record["manifest_path"]).name
            record["manifest_length"] = len(renamed(manifest, old, new))
            record["manifest_path"] = record["manifest_path"].replace(old, new)
        else:
            record["data_file"]["file_path"] = record["data_file"]["file_path"].replace(old, new)
    sink = io.BytesIO()
    kept = {key: value for key, value in header.items() if not key.startswith("avro.")}
    fastavro.writer(sink, schema, records, metadata=kept, sync_marker=bytes(16))
    return sink.getvalue()


def test_deletes_that_are_not_understood_are_refused(tmp_path: Path, serve: Serve):
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("place", pa.struct([("y", pa.int64())]))])
    made = catalog(tmp_path).create_table("lake.t", schema=schema)
    rows = pa.table({"id": [1, 2], "x": [0.5, 1.5], "place": [{"y": 1}, {"y": 2}]}, schema=schema)
    made.append(rows)
    number = pa.table({"id": pa.array([1], pa.int64())})
    field_of_place = made.schema().find_field("place.y").field_id
    root = path_of(made.location())

    def deletes(name: str, values: pa.Table = number, **more: Any):
        return equality_deletes(made, f"{name}.parquet", values, **more)

    def damaged(name: str, change: Any):
        file = deletes(name)
        path = path_of(file.file_path)
        path.write_bytes(change(path.read_bytes()))
        return data_file(file.file_path, DataFileContent.EQUALITY_DELETES, equality_ids=[1])

    missing = deletes("missing")
    path_of(missing.file_path).unlink()
    outside = tmp_path / "outside.parquet"
    pq.write_table(number, outside)
    far = data_file(outside.as_uri(), DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    text = pa.table({"id": pa.array([1], pa.int64()), "x": [0.5]})
    cases: dict[str, tuple[Any, str, list[str]]] = {
        "float": (deletes("float", text), "UNIMPLEMENTED", ['column "x"', "Float64"]),
        "nested": (deletes("nested", equality_ids=[field_of_place]), "UNIMPLEMENTED", ["not a column"]),
        "unknown": (deletes("unknown", equality_ids=[999]), "UNIMPLEMENTED", ["999", "not a column"]),
        "nothing": (deletes("nothing", equality_ids=[]), "DATA_LOSS", ["names no columns"]),
        "lacking": (deletes("lacking", equality_ids=[1, 2]), "UNIMPLEMENTED", ["Float64"]),
        "orc": (deletes("orc", file_format=FileFormat.ORC), "UNIMPLEMENTED", ["format orc"]),
        "missing": (missing, "ABORTED", ["missing.parquet", "there is no"]),
        "outside": (far, "UNIMPLEMENTED", ["outside.parquet", "not in the folder of the table"]),
        "many": (deletes("many", rows=2**26), "UNIMPLEMENTED", ["compact the table"]),
        "rows": (deletes("rows", rows=5), "DATA_LOSS", ["1 rows", "manifest says 5"]),
        "cut": (damaged("cut", lambda body: body[:-9]), "DATA_LOSS", ["cut.parquet"]),
        "empty": (damaged("empty", lambda body: b""), "DATA_LOSS", ["empty.parquet", "not a Parquet file"]),
        "noise": (
            damaged("noise", lambda body: body[:4] + b"\xff" * 40 + body[44:]),
            "DATA_LOSS",
            ["noise.parquet"],
        ),
        "footer": (
            damaged("footer", lambda body: body[:-8] + b"\xff\xff\xff\x7f" + body[-4:]),
            "DATA_LOSS",
            ["its footer has"],
        ),
    }
    server = serve({name: f"iceberg+{commit(made, [file])}" for name, (file, _, _) in cases.items()})
    assert root.is_dir()
    with fl.connect(server.url) as client:
        for name, (_, code, words) in cases.items():
            error = refusal(lambda name=name: raw_table(client, name))
            assert error.code == code, (name, error)
            check(error, code, *words)


def test_a_column_that_a_delete_file_lacks_is_damage(tmp_path: Path, serve: Serve):
    made = catalog(tmp_path).create_table("lake.t", schema=pa.schema([("id", pa.int64()), ("word", pa.string())]))
    made.append(pa.table({"id": [1], "word": ["a"]}))
    file = equality_deletes(made, "e.parquet", pa.table({"id": pa.array([1], pa.int64())}), equality_ids=[1, 2])
    with fl.connect(serve({"t": f"iceberg+{commit(made, [file])}"}).url) as client:
        check(refusal(lambda: raw_table(client, "t")), "DATA_LOSS", "e.parquet", 'no column "word"')
