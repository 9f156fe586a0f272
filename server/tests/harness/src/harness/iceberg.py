"""Iceberg tables by PyPI's `pyiceberg`, and the commits that it does not make: delete files and deletion vectors."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import StaticTable, Table
from pyiceberg.typedef import Record

from harness.delta import roaring

VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
PUFFIN_MAGIC = b"PFA1"
# The portable form of a bitmap of 64-bit numbers starts after the magic number that Delta puts before it.
DELTA_MAGIC_BYTES = 4
UNCOMPRESSED = "null"


def catalog(folder: Path, **properties: str) -> SqlCatalog:
    """A catalog in a SQLite file, with a namespace `lake`; its tables are in `folder`/lake."""
    folder.mkdir(parents=True, exist_ok=True)
    database = str(folder / "catalog.db").replace("%", "%25")
    place = {"uri": f"sqlite:///{database}", "warehouse": f"file://{folder}"}
    made = SqlCatalog("tests", **{**place, **properties})
    made.create_namespace_if_not_exists("lake")
    return made


def path_of(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def expected(table: Table | StaticTable, snapshot: int | None = None) -> pa.Table:
    """The rows as `pyiceberg` reads them, file by file in the order of their paths."""
    scan = table.scan(snapshot_id=snapshot)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    files = [plain(reader.to_table([task])) for task in tasks]
    return pa.concat_tables(files).combine_chunks() if files else plain(scan.to_arrow())


def plain(rows: pa.Table) -> pa.Table:
    """Rows in the types that both readers can have."""
    return rows.cast(pa.schema([plain_field(field) for field in rows.schema])).combine_chunks()


def plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type))


def plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([plain_field(field) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_field(kind.value_field.with_name("element")))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


# === Commits ===


class FileWriter(ManifestWriterV2):
    """Writes manifests of either content and of version 2 or 3."""

    content_of_files = ManifestContent.DATA
    format_version: int = 2

    def content(self) -> ManifestContent:
        return self.content_of_files

    @property
    def version(self) -> Any:
        return self.format_version

    @property
    def _meta(self) -> dict[str, str]:
        name = "data" if self.content_of_files == ManifestContent.DATA else "deletes"
        return {**super()._meta, "content": name}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(self.version)
        return AvroOutputFile(
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def data_file(
    url: str,
    content: DataFileContent = DataFileContent.DATA,
    *,
    rows: int = 1,
    partition: Sequence[Any] = (),
    file_format: FileFormat = FileFormat.PARQUET,
    version: int = 2,
    **more: Any,
) -> DataFile:
    """A manifest entry's description of a file that exists."""
    return DataFile.from_args(
        version,
        content=content,
        file_path=url,
        file_format=file_format,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=path_of(url).stat().st_size,
        **more,
    )


def commit(table: Table | StaticTable, files: Sequence[DataFile], *, version: int = 2, spec: int | None = None) -> Path:
    """A metadata file of `table` with a snapshot that adds `files`. Not in the catalog."""
    metadata = table.metadata
    current = metadata.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    folder, sequence = f"{metadata.location}/metadata", metadata.last_sequence_number + 1
    # Commits to one table that do not follow each other are other snapshots, too.
    number = len(list(path_of(folder).iterdir()))
    snapshot = (current.snapshot_id if current else 0) + number
    schema, specs = table.schema(), metadata.specs()
    for content in (ManifestContent.DATA, ManifestContent.DELETES):
        is_data = content == ManifestContent.DATA
        of_content = [file for file in files if (file.content == DataFileContent.DATA) == is_data]
        if not of_content:
            continue
        output = table.io.new_output(f"{folder}/{snapshot}-m{content}.avro")
        of_spec = specs[metadata.default_spec_id if spec is None else spec]
        writer = FileWriter(of_spec, schema, output, snapshot, UNCOMPRESSED)
        writer.content_of_files, writer.format_version = content, version
        with writer:
            for file in of_content:
                writer.add(ManifestEntry.from_args(version, snapshot_id=snapshot, data_file=file))
        manifests = [*manifests, writer.to_manifest_file()]
    listed = table.io.new_output(f"{folder}/snap-{snapshot}.avro")
    parent = current.snapshot_id if current else None
    with write_manifest_list(2, listed, snapshot, parent, sequence, UNCOMPRESSED) as manifest_list:
        manifest_list.add_manifests(manifests)
    text = json.loads(metadata.model_dump_json())
    change = {"snapshot-id": snapshot, "sequence-number": sequence, "timestamp-ms": metadata.last_updated_ms + 1}
    change |= {"manifest-list": listed.location, "schema-id": metadata.current_schema_id}
    text["snapshots"] = [*text["snapshots"], {**change, "summary": {"operation": "overwrite"}}]
    text["current-snapshot-id"], text["last-sequence-number"] = snapshot, sequence
    text["format-version"] = version
    if version == 3:
        text["next-row-id"] = 0
    if "refs" in text:
        text["refs"]["main"] = {"snapshot-id": snapshot, "type": "branch"}
    return write_metadata(path_of(metadata.location), text)


def write_metadata(table: Path, text: Mapping[str, Any]) -> Path:
    """The next metadata file of a table."""
    folder = table / "metadata"
    number = max(int(file.name.split("-")[0]) for file in folder.glob("*.metadata.json")) + 1
    path = folder / f"{number:05d}-made.metadata.json"
    path.write_text(json.dumps(text))
    return path


def opened(metadata: Path) -> StaticTable:
    return StaticTable.from_metadata(metadata.as_posix())


def position_deletes(table: Table | StaticTable, name: str, rows: Mapping[str, Sequence[int]]) -> DataFile:
    """A delete file of the rows of data files, by their URLs."""
    pairs = [(url, row) for url in sorted(rows) for row in sorted(rows[url])]
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    columns = [pa.array([url for url, _ in pairs], pa.string()), pa.array([row for _, row in pairs], pa.int64())]
    url = f"{table.metadata.location}/data/{name}"
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), path_of(url))
    return data_file(url, DataFileContent.POSITION_DELETES, rows=len(pairs))


def deletion_vectors(table: Table | StaticTable, name: str, rows: Mapping[str, Sequence[int]]) -> list[DataFile]:
    """Deletion vectors of data files, by their URLs, in one Puffin file."""
    body, blobs = PUFFIN_MAGIC, list[dict[str, Any]]()
    for url, of_file in rows.items():
        content = VECTOR_MAGIC + roaring(of_file)[DELTA_MAGIC_BYTES:]
        blob = struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
        place = {"type": "deletion-vector-v1", "fields": [2147483546], "snapshot-id": -1, "sequence-number": -1}
        properties = {"referenced-data-file": url, "cardinality": str(len(of_file))}
        blobs.append({**place, "offset": len(body), "length": len(blob), "properties": properties})
        body += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    body += PUFFIN_MAGIC + footer + struct.pack("<I", len(footer)) + bytes(4) + PUFFIN_MAGIC
    url = f"{table.metadata.location}/data/{name}"
    path_of(url).write_bytes(body)
    return [
        data_file(
            url,
            DataFileContent.POSITION_DELETES,
            rows=len(rows[blob["properties"]["referenced-data-file"]]),
            file_format=FileFormat.PUFFIN,
            version=3,
            referenced_data_file=blob["properties"]["referenced-data-file"],
            content_offset=blob["offset"],
            content_size_in_bytes=blob["length"],
        )
        for blob in blobs
    ]


def with_ids(rows: pa.Table, table: Table | StaticTable) -> pa.Table:
    """Rows whose columns have the field IDs of a table's columns, as data files have."""
    known = {field.name: field.field_id for field in table.schema().fields}
    fields = [field.with_metadata({"PARQUET:field_id": str(known[field.name])}) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def written(
    table: Table | StaticTable, name: str, rows: pa.Table, partition: Sequence[Any] = (), **more: Any
) -> DataFile:
    """A data file of rows, which is not yet in the table."""
    url = f"{table.metadata.location}/data/{name}"
    path_of(url).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(with_ids(rows, table), path_of(url), **more)
    return data_file(url, rows=rows.num_rows, partition=partition)


def equality_deletes(
    table: Table | StaticTable, name: str, values: pa.Table, partition: Sequence[Any] = (), **more: Any
) -> DataFile:
    """A delete file of the rows that equal one of these in all of its columns."""
    url = f"{table.metadata.location}/data/{name}"
    of_table = with_ids(values, table)
    pq.write_table(of_table, path_of(url))
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in of_table.schema]
    more = {"equality_ids": ids, "rows": values.num_rows, **more}
    return data_file(url, DataFileContent.EQUALITY_DELETES, partition=partition, **more)
