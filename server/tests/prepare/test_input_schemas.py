"""SQL over datasets whose files differ in their schemas, or have columns in the names of their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.prepare import prepare, written
from harness.serving import Serve, raw_table


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def drifting(root: Path) -> Path:
    write(root / "a.parquet", id=pa.array([1, 2], pa.int8()), word=pa.array(["x", "y"]).dictionary_encode())
    write(root / "b.parquet", word=pa.array(["z"]), id=pa.array([300], pa.int64()), more=pa.array([1.5], pa.float32()))
    write(root / "c.parquet", id=[4], word=pa.nulls(1), more=pa.array([2.5], pa.float64()))
    return root


UNITED = [
    {"id": 1, "word": "x", "more": None},
    {"id": 2, "word": "y", "more": None},
    {"id": 4, "word": None, "more": 2.5},
    {"id": 300, "word": "z", "more": 1.5},
]


def test_sql_reads_the_union_of_the_schemas(tmp_path: Path):
    inputs = {"t": drifting(tmp_path / "t")}
    assert prepare("SELECT * FROM t ORDER BY id", inputs, tmp_path / "all").code == 0
    assert written(tmp_path / "all").to_pylist() == UNITED
    assert prepare("SELECT id FROM t WHERE more > 1 AND word IS NULL", inputs, tmp_path / "some").code == 0
    assert written(tmp_path / "some")["id"].to_pylist() == [4]


def test_sql_reads_columns_of_folders(tmp_path: Path):
    write(tmp_path / "t/day=2024-01-01/city=a%2Fb/a.parquet", x=[1], city=["hidden"])
    write(tmp_path / "t/day=2024-01-02/a.parquet", x=[2])
    inputs = {"t": tmp_path / "t"}
    assert prepare("SELECT * FROM t ORDER BY x", inputs, tmp_path / "all").code == 0
    got = written(tmp_path / "all")
    assert got.schema.field("day").type == pa.date32()
    assert [[str(value) for value in row.values()] for row in got.to_pylist()] == [
        ["1", "2024-01-01", "a/b"],
        ["2", "2024-01-02", "None"],
    ]
    query = "SELECT city, count(*) AS n FROM t WHERE day > '2024-01-01' GROUP BY city"
    assert prepare(query, inputs, tmp_path / "groups").code == 0
    assert written(tmp_path / "groups").to_pylist() == [{"city": None, "n": 1}]


def test_views_read_what_the_server_reads(tmp_path: Path, serve: Serve):
    """A pinned schema and a list of files are passed on, so that both see one snapshot."""
    drifting(tmp_path / "t/part=7")
    (tmp_path / "t/list").write_text("part=7/c.parquet\npart=7/b.parquet\n")
    schema = pa.schema([("more", pa.float64()), ("part", pa.int32()), ("id", pa.int64()), ("none", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "schema")
    view = "v=SELECT id, part, more, none FROM t ORDER BY id"
    server = serve({"t": f"@{tmp_path}/t/list"}, "--dataset-schema", f"t={tmp_path}/schema", "--view", view)
    want = [{"id": 4, "part": 7, "more": 2.5, "none": None}, {"id": 300, "part": 7, "more": 1.5, "none": None}]
    with fl.connect(server.url) as client:
        assert raw_table(client, "t").select(["id", "part", "more", "none"]).to_pylist() == want
        assert raw_table(client, "v").to_pylist() == want
