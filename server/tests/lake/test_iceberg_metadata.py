"""Metadata of Iceberg tables that is missing, damaged, or of a table that is not supported: each has its error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from pyiceberg.table import Table

from forebay.errors import ForebayError
from harness.daemon import run_to_end
from harness.iceberg import catalog, expected, path_of, plain, write_metadata
from harness.refusals import check, refusal
from harness.serving import Serve, raw_table

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = catalog(tmp_path).create_table("lake.t", schema=SCHEMA)
    made.append(pa.table({"id": [1, 2, 3]}))
    made.append(pa.table({"id": [4]}))
    return made


def refused(serve: Serve, place: Path | str) -> ForebayError:
    with fl.connect(serve({"t": f"iceberg+{place}"}).url) as client:
        return refusal(lambda: raw_table(client, "t"))


def changed(table: Table, **changes: Any) -> Path:
    """Another metadata file, with other values of keys, whose `-` are `_` here."""
    text = json.loads(path_of(table.metadata_location).read_text())
    return write_metadata(path_of(table.location()), {**text, **{k.replace("_", "-"): v for k, v in changes.items()}})


def test_a_folder_without_metadata_is_not_a_table(tmp_path: Path, serve: Serve):
    check(refused(serve, tmp_path), "FAILED_PRECONDITION", "there is no Iceberg table", "version-hint.text")


def test_a_snapshot_that_the_table_does_not_have(table: Table, serve: Serve):
    latest = table.metadata.snapshots[-1].snapshot_id
    check(
        refused(serve, f"{path_of(table.location())}@snapshot=77"),
        "FAILED_PRECONDITION",
        "no snapshot 77",
        f"the latest is {latest}",
    )


def test_a_table_without_rows_has_no_snapshot(tmp_path: Path, serve: Serve):
    made = catalog(tmp_path).create_table("lake.t", schema=SCHEMA)
    check(refused(serve, path_of(made.location())), "FAILED_PRECONDITION", "no current snapshot")


def test_two_files_of_the_highest_number_are_ambiguous(table: Table, serve: Serve):
    current = path_of(table.metadata_location)
    second = current.with_name(current.name[:5] + "-other.metadata.json")
    second.write_bytes(current.read_bytes())
    said = refused(serve, path_of(table.location()))
    check(said, "FAILED_PRECONDITION", second.name, current.name, "same number")


def test_version_hints_and_compressed_metadata(table: Table, serve: Serve):
    """As the tables of Hadoop catalogs."""
    root = path_of(table.location())
    text = path_of(table.metadata_location).read_bytes()
    (root / "metadata/v7.metadata.json").write_bytes(b"an earlier version")
    (root / "metadata/v8.gz.metadata.json").write_bytes(gzip.compress(text))
    (root / "metadata/version-hint.text").write_text("7")
    with fl.connect(serve({"t": f"iceberg+{root}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(table))


@pytest.mark.parametrize("hint", ["", "\n", "3", "00003-gone.metadata.json"])
def test_hints_that_lead_nowhere_are_passed_over(table: Table, serve: Serve, hint: str):
    root = path_of(table.location())
    (root / "metadata/version-hint.text").write_text(hint)
    with fl.connect(serve({"t": f"iceberg+{root}"}).url) as client:
        assert plain(raw_table(client, "t")).equals(expected(table))


def test_encrypted_manifests_and_files_are_named_so(table: Table, serve: Serve):
    root = path_of(table.location())
    current = table.current_snapshot()
    assert current is not None
    manifest = path_of(current.manifests(table.io)[0].manifest_path)
    listed = path_of(current.manifest_list)
    for path in (manifest, listed):
        body = path.read_bytes()
        path.write_bytes(b"AGS1" + body[4:])
        check(refused(serve, root), "UNIMPLEMENTED", path.name, "is encrypted")
        path.write_bytes(body)
    data = next((root / "data").rglob("*.parquet"))
    data.write_bytes(data.read_bytes()[:-4] + b"PARE")
    check(refused(serve, root), "UNIMPLEMENTED", data.name, "it is encrypted")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"format-version": 2, "snapshots": 1}', b"\x1f\x8b\x08damaged"])
def test_damaged_metadata(table: Table, serve: Serve, body: bytes):
    path = path_of(table.location()) / "metadata/00099-x.metadata.json"
    path.write_bytes(body)
    check(refused(serve, path_of(table.location())), "DATA_LOSS", path.name, "is not the metadata of an Iceberg table")


def test_unsupported_tables_are_refused_by_what_is_unsupported(table: Table, serve: Serve):
    schema = json.loads(path_of(table.metadata_location).read_text())["schemas"][0]
    field = {"id": 9, "name": "v", "required": False}

    def with_field(**more: Any) -> Path:
        return changed(table, format_version=3, schemas=[{**schema, "fields": [*schema["fields"], {**field, **more}]}])

    cases = {
        "format version 4": changed(table, format_version=4),
        "encrypted": changed(table, properties={"encryption.key-id": "k"}),
        'column "v" has the unsupported type variant': with_field(type="variant"),
        'column "v" has an initial default': with_field(type="int", **{"initial-default": 5}),
    }
    for word, place in cases.items():
        check(refused(serve, place), "UNIMPLEMENTED", word)


def test_false_manifests(table: Table, serve: Serve):
    """A manifest that is not the one that the list names, is cut, or is missing."""
    current = table.current_snapshot()
    assert current is not None
    manifest = path_of(current.manifests(table.io)[0].manifest_path)
    body = manifest.read_bytes()
    root = path_of(table.location())
    for wrong, word in (
        (body[:-30], "but the manifest list says"),
        (bytes(len(body)), f'{manifest.name}": '),
        (b"Obj\x01" + bytes(len(body) - 4), f'{manifest.name}": '),
    ):
        manifest.write_bytes(wrong)
        check(refused(serve, root), "DATA_LOSS", word)
    manifest.unlink()
    check(refused(serve, root), "ABORTED", f'{manifest.name}", which snapshot {current.snapshot_id} of the table names')
    path_of(current.manifest_list).write_bytes(b"no list")
    check(refused(serve, root), "DATA_LOSS", path_of(current.manifest_list).name)


def test_files_in_another_store_are_refused(table: Table, serve: Serve):
    text = json.loads(path_of(table.metadata_location).read_text())
    for snapshot in text["snapshots"]:
        snapshot["manifest-list"] = "s3://elsewhere/list.avro"
    elsewhere = write_metadata(path_of(table.location()), text)
    check(refused(serve, elsewhere), "UNIMPLEMENTED", '"s3://elsewhere/list.avro" is not in the store of the table')


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("iceberg+/t@snapshot=x", 'the snapshot "x" is not a number'),
        ("iceberg+s3://b/*/t", "a table must be a folder"),
        ("iceberg+https://host/t", "a table must be a folder"),
        ("iceberg+@list.txt", "list.txt"),
    ],
)
def test_urls_that_name_no_table_end_the_start(url: str, word: str):
    ended = run_to_end("--dataset", f"t={url}")
    assert ended.returncode != 0
    assert word in ended.stderr
