"""Tables whose logs name files outside of their folder: never read, unless the operator names the folder."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from forebay.errors import ForebayError
from harness.daemon import run_to_end
from harness.delta import LOG, add, commit, field, start, stored_vectors
from harness.iceberg import catalog, data_file, path_of, position_deletes, write_metadata
from harness.iceberg import commit as commit_iceberg
from harness.object_store import Store, s3_server
from harness.refusals import check, refusal
from harness.serving import Serve, raw_table

SECRET = pa.table([[666]], pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})]))
ROWS = pa.table({"id": [1, 2, 3]})
ID = field("id", "long")
REFUSED = ("UNIMPLEMENTED", "PERMISSION_DENIED", "DATA_LOSS", "ABORTED")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    pq.write_table(SECRET, tmp_path / "secret/s.parquet")
    return tmp_path / "secret/s.parquet"


def delta(root: Path, *paths: str) -> Path:
    """A Delta table of files as the log spells them."""
    root.mkdir(parents=True)
    pq.write_table(ROWS, root / "a.parquet")
    actions = [{"add": {**add(root, "a.parquet")["add"], "path": path}} for path in paths]
    for action in actions:
        action["add"].pop("stats")
    commit(root, 0, *start([ID]), *actions)
    return root


def refused_all(serve: Serve, tables: dict[str, str]) -> dict[str, ForebayError]:
    with fl.connect(serve(tables).url) as client:
        return {name: refusal(lambda name=name: raw_table(client, name)) for name in tables}


def test_delta_logs_name_no_files_elsewhere(tmp_path: Path, secret: Path, serve: Serve):
    spellings: list[Callable[[Path], str]] = [
        lambda _: "../secret/s.parquet",
        lambda _: "%2e%2e/secret/s.parquet",
        lambda _: "..%2Fsecret/s.parquet",
        lambda _: str(secret),
        lambda _: f"file://{secret}",
        lambda _: f"file:{secret}",
        lambda _: f"file://localhost{secret}",
        lambda root: f"file://{root}/../secret/s.parquet",
        lambda root: f"file://{root}/%2e%2e/secret/s.parquet",
        lambda _: "link.parquet",
        lambda _: "dir/s.parquet",
        lambda root: f"file://{root}/dir/s.parquet",
        lambda root: f"file://{root}-other/s.parquet",
        lambda _: "http://127.0.0.1:1/s.parquet",
    ]
    tables: dict[str, str] = {}
    for number, spelling in enumerate(spellings):
        root = delta(tmp_path / f"t{number}", spelling(tmp_path / f"t{number}"))
        (root / "link.parquet").symlink_to(secret)
        (root / "dir").symlink_to(secret.parent)
        (tmp_path / f"t{number}-other").symlink_to(secret.parent)
        tables[f"t{number}"] = f"delta+{root}"
    for name, error in refused_all(serve, tables).items():
        assert error.code in REFUSED, (name, error)


def test_checkpoints_and_deletion_vectors_name_no_files_elsewhere(tmp_path: Path, secret: Path, serve: Serve):
    # A checkpoint has the path instead of a commit.
    checkpointed = tmp_path / "checkpoint"
    write_deltalake(checkpointed, ROWS)
    DeltaTable(checkpointed).create_checkpoint()
    (file,) = (checkpointed / LOG).glob("*.checkpoint.parquet")
    actions = pq.read_table(file)
    adds = [a and {**a, "path": f"file://{secret}"} for a in actions["add"].to_pylist()]
    place = actions.schema.get_field_index("add")
    pq.write_table(actions.set_column(place, "add", pa.array(adds, actions.schema.field("add").type)), file)
    # A deletion vector at another place of the disk; a log that is a link.
    vectors = delta(tmp_path / "vectors", "a.parquet")
    (tmp_path / "elsewhere").mkdir()
    vector = stored_vectors(tmp_path / "elsewhere", [[0]])[0]
    (stored,) = (tmp_path / "elsewhere").iterdir()
    vector |= {"storageType": "p", "pathOrInlineDv": f"file://{stored}"}
    commit(vectors, 0, *start([ID], features=["deletionVectors"]), add(vectors, "a.parquet", vector=vector))
    linked = delta(tmp_path / "linked", "a.parquet")
    (linked / LOG).rename(tmp_path / "elsewhere/log")
    (linked / LOG).symlink_to(tmp_path / "elsewhere/log")
    tables = {name: f"delta+{tmp_path / name}" for name in ("checkpoint", "vectors", "linked")}
    for name, error in refused_all(serve, tables).items():
        assert error.code in REFUSED, (name, error)
    # The operator may name the places.
    roots = f"@root={tmp_path / 'elsewhere'}"
    allowed = {name: f"{url}{roots}@root={secret.parent}" for name, url in tables.items()}
    with fl.connect(serve(allowed).url) as client:
        assert raw_table(client, "vectors")["id"].to_pylist() == [2, 3]
        assert raw_table(client, "linked").equals(ROWS)


def test_a_further_root_is_read_and_nothing_beside_it(tmp_path: Path, serve: Serve):
    """As after a shallow clone, whose log names the files of the original."""
    original = delta(tmp_path / "original", "a.parquet")
    clone = tmp_path / "clone"
    action = {"add": {**add(original, "a.parquet")["add"], "path": f"file://{original}/a.parquet"}}
    (clone / LOG).mkdir(parents=True)
    commit(clone, 0, *start([ID]), action)
    (tmp_path / "by-link").symlink_to(original)
    places = {
        "alone": f"delta+{clone}",
        "rooted": f"delta+{clone}@root={original}",
        "linked": f"delta+{clone}@root={tmp_path / 'by-link'}",
        "pinned": f"delta+{clone}@root={tmp_path / 'nothing'}@version=0@root=file://{original}",
    }
    with fl.connect(serve(places).url) as client:
        check(refusal(lambda: raw_table(client, "alone")), "UNIMPLEMENTED", "@root=URL", str(clone))
        for name in ("rooted", "linked", "pinned"):
            assert raw_table(client, name).equals(ROWS), name
    ended = run_to_end("--dataset", f"t=delta+{clone}@root=s3://bucket/original")
    assert ended.returncode == 2
    assert "is not in the store of the table" in ended.stderr


def test_iceberg_metadata_names_no_files_elsewhere(tmp_path: Path, secret: Path, serve: Serve):
    schema = pa.schema([("id", pa.int64())])
    made = catalog(tmp_path / "house").create_table("lake.t", schema=schema)
    made.append(ROWS)
    root = path_of(made.location())
    (root / "data/link.parquet").symlink_to(secret)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    tables: dict[str, str] = {}
    for name, url in {
        "absolute": f"file://{secret}",
        "plain": str(secret),
        "above": f"{made.location()}/data/../../../../secret/s.parquet",
        "link": f"{made.location()}/data/link.parquet",
    }.items():
        file = data_file(url, rows=1)
        tables[name] = f"iceberg+{commit_iceberg(made, [file])}"
    # Its list of manifests, through a link.
    text: dict[str, Any] = json.loads(path_of(made.metadata_location).read_text())
    for snapshot in text["snapshots"]:
        listed = path_of(snapshot["manifest-list"])
        (elsewhere / listed.name).write_bytes(listed.read_bytes())
        link = root / "metadata" / f"{uuid.uuid4()}.avro"
        link.symlink_to(elsewhere / listed.name)
        snapshot["manifest-list"] = f"file://{link}"
    tables["list"] = f"iceberg+{write_metadata(root, text)}"
    for name, error in refused_all(serve, tables).items():
        assert error.code in REFUSED, (name, error)
    rooted = {name: f"{url}@root={secret.parent}@root={elsewhere}" for name, url in tables.items()}
    with fl.connect(serve(rooted).url) as client:
        assert sorted(raw_table(client, "absolute")["id"].to_pylist()) == [1, 2, 3, 666]
        assert raw_table(client, "list")["id"].to_pylist() == [1, 2, 3]


def test_tables_of_a_bucket_stay_in_their_prefix(tmp_path: Path, serve: Serve):
    with s3_server() as endpoint:
        bucket = Store(endpoint, "lake")
        table = delta(tmp_path / "t", "a.parquet", "s3://lake/other/s.parquet")
        for file in (table / "a.parquet", table / LOG / f"{0:020d}.json"):
            bucket.put(f"t/{file.relative_to(table)}", file.read_bytes())
        bucket.put("other/s.parquet", (table / "a.parquet").read_bytes())
        with fl.connect(
            serve({"t": "delta+s3://lake/t", "both": "delta+s3://lake/t@root=s3://lake/other/"}).url
        ) as client:
            check(refusal(lambda: raw_table(client, "t")), "UNIMPLEMENTED", "s3://lake/other/s.parquet", "@root=URL")
            assert raw_table(client, "both").num_rows == 6


def test_position_deletes_may_name_files_that_are_gone(tmp_path: Path, serve: Serve):
    """A delete file names data files as text: those of other folders are not opened."""
    made = catalog(tmp_path).create_table("lake.t", schema=pa.schema([("id", pa.int64())]))
    made.append(ROWS)
    (task,) = made.scan().plan_files()
    deletes = position_deletes(made, "d.parquet", {task.file.file_path: [1], "file:///gone/x.parquet": [0]})
    metadata = commit_iceberg(made, [deletes])
    with fl.connect(serve({"t": f"iceberg+{metadata}"}).url) as client:
        assert raw_table(client, "t")["id"].to_pylist() == [1, 3]
