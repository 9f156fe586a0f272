"""forebay-prepare computes what DuckDB does, within its memory, and writes files that the server reads."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.prepare import MANIFEST, manifest, prepare, written
from harness.serving import Serve, raw_table

ROWS, KEYS = 60_000, 5_000


def random_tables(seed: int) -> dict[str, pa.Table]:
    """Two tables with nulls, NaN, infinities, negative zero and duplicates."""
    random = np.random.default_rng(seed)

    def nulls(count: int) -> np.ndarray:
        return random.random(count) < 0.1

    x = random.normal(size=ROWS).round(3)
    x[random.random(ROWS) < 0.05] = math.nan
    x[random.random(ROWS) < 0.01] = math.inf
    x[random.random(ROWS) < 0.01] = -0.0
    facts = pa.table(
        {
            "k": pa.array(random.integers(0, KEYS, ROWS), mask=nulls(ROWS)),
            "x": pa.array(x, mask=nulls(ROWS)),
            "s": pa.array([f"text {n}" for n in random.integers(0, 200, ROWS)], mask=nulls(ROWS)),
            "t": pa.array(random.integers(0, 10**9, ROWS), pa.timestamp("us"), mask=nulls(ROWS)),
            "id": np.arange(ROWS),
        }
    )
    facts = pa.concat_tables([facts, facts.slice(0, 500)])
    names = pa.table(
        {
            "k": pa.array(random.integers(0, KEYS, KEYS), mask=nulls(KEYS)),
            "name": pa.array([f"name {n}" for n in range(KEYS)], mask=nulls(KEYS)),
            "Weight": random.normal(size=KEYS),
            "day": pa.array(random.integers(0, 20_000, KEYS).astype("int32"), pa.date32()),
        }
    )
    return {"facts": facts, "names": names}


@pytest.fixture(scope="module", params=[1, 2])
def tables(request: pytest.FixtureRequest) -> dict[str, pa.Table]:
    return random_tables(request.param)


@pytest.fixture(scope="module")
def folders(tables: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("inputs")
    for name, table in tables.items():
        (root / name).mkdir()
        half = table.num_rows // 2
        pq.write_table(table.slice(0, half), root / name / "a.parquet", row_group_size=10_000)
        pq.write_table(table.slice(half), root / name / "b.parquet", row_group_size=7_000)
    return {name: root / name for name in tables}


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in a fixed order. NaN is equal to NaN, and floats are rounded: sums have no order."""

    def value(cell: Any) -> Any:
        if isinstance(cell, float):
            return "NaN" if math.isnan(cell) else round(cell, 6) + 0.0
        return cell

    cells = [column.to_pylist() for column in table.columns]
    return sorted((tuple(value(cell) for cell in row) for row in zip(*cells, strict=True)), key=repr)


def duck(sql: str, tables: dict[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


QUERIES = {
    "inner join": 'SELECT f.id, f.x, n.name, n."Weight" FROM facts f JOIN names n ON f.k = n.k',
    "left join": "SELECT f.id, f.s, n.day FROM facts f LEFT JOIN names n ON f.k = n.k AND f.x > 0",
    "full join": "SELECT f.id, n.name FROM facts f FULL JOIN names n ON f.k = n.k",
    "join on nulls": "SELECT count(*) AS n FROM facts f JOIN names n ON f.k IS NOT DISTINCT FROM n.k",
    "anti join": "SELECT id, s FROM facts f WHERE NOT EXISTS (SELECT 1 FROM names n WHERE n.k = f.k)",
    "distinct": "SELECT DISTINCT k, s FROM facts",
    "distinct floats": "SELECT DISTINCT x FROM facts WHERE x <> 0",
    "row_number": """
        SELECT id, k, x FROM (
            SELECT *, row_number() OVER (PARTITION BY k ORDER BY t DESC NULLS LAST, id) AS r FROM facts
        ) WHERE r = 1""",
    "windows": """
        SELECT id, lag(id) OVER (PARTITION BY s ORDER BY id, t) AS before,
               count(*) OVER (PARTITION BY k) AS n,
               sum(id) OVER (PARTITION BY s ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS recent
        FROM (SELECT DISTINCT * FROM facts)""",
    "groups": """
        SELECT k, count(*) AS n, count(x) AS known, sum(id) AS ids, min(s) AS first, max(t) AS last,
               count(DISTINCT s) AS texts
        FROM facts GROUP BY k HAVING count(*) > 2""",
    "union and CTE": """
        WITH late AS (SELECT id, s FROM facts WHERE t > TIMESTAMP '1970-01-01 00:10:00')
        SELECT id, s FROM late UNION ALL SELECT k AS id, name AS s FROM names""",
    "expressions": """
        SELECT id, upper(s) AS upper, CASE WHEN x > 1 THEN 'high' WHEN x IS NULL THEN NULL ELSE 'low' END AS level,
               coalesce(k, -1) AS k, date_part('year', day) AS year
        FROM facts LEFT JOIN names USING (k)""",
    "values": "VALUES (1, 'a'), (2, NULL)",
}


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_results_equal_those_of_duckdb(sql: str, tables: dict[str, pa.Table], folders: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    result = prepare(sql, folders, out).result
    table, expected = written(out), duck(sql, tables)
    assert result["rows"] == table.num_rows == expected.num_rows
    assert rows(table) == rows(expected)


SPILLING = """
    SELECT f.id, f.x, f.s, n.name, g.s AS other, repeat(f.s, 60) AS long
    FROM facts f JOIN names n ON f.k = n.k JOIN facts g ON g.id = f.id
    ORDER BY f.s NULLS FIRST, f.id, n.name NULLS FIRST, other NULLS FIRST"""


def test_a_join_larger_than_the_memory_spills_and_keeps_its_order(
    tables: dict[str, pa.Table], folders: dict[str, Path], tmp_path: Path
):
    spill = tmp_path / "spill"
    spill.mkdir()
    small = prepare(SPILLING, folders, tmp_path / "small", "--memory-bytes", "16MiB", "--spill-dir", str(spill)).result
    large = prepare(SPILLING, folders, tmp_path / "large").result
    assert small["spilled_bytes"] > 1_000_000
    assert large["spilled_bytes"] == 0
    assert list(spill.iterdir()) == []
    expected = duck(SPILLING, tables)
    for out in ("small", "large"):
        table = written(tmp_path / out)
        assert table.select(["s", "id", "name", "other"]).equals(
            expected.select(["s", "id", "name", "other"]).cast(table.select(["s", "id", "name", "other"]).schema)
        )
        assert rows(table) == rows(expected)


def test_groups_and_windows_spill(tables: dict[str, pa.Table], folders: dict[str, Path], tmp_path: Path):
    sql = """SELECT id, x, s, count(*) AS n, row_number() OVER (PARTITION BY s ORDER BY id) AS r
             FROM facts GROUP BY id, x, s"""
    result = prepare(sql, folders, tmp_path / "out", "--memory-bytes", "16MiB").result
    assert result["spilled_bytes"] > 0
    assert rows(written(tmp_path / "out")) == rows(duck(sql, tables))


def test_files_have_the_shape_that_the_flags_ask_for(folders: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    sql = "SELECT id, sqrt(id) AS noise, s FROM facts ORDER BY id"
    result = prepare(sql, folders, out, "--row-group-rows", "5000", "--file-bytes", "1MiB").result
    files = sorted(out.glob("*.parquet"))
    assert len(files) == result["files"] > 1 or result["bytes"] < 2**20
    described = manifest(out)
    assert [file["path"] for file in described["files"]] == [file.name for file in files]
    sizes: list[int] = []
    for file, record in zip(files, described["files"], strict=True):
        footer = pq.read_metadata(file)
        sizes += [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        column = footer.row_group(0).column(0)
        assert column.compression == "ZSTD"
        assert column.statistics.has_min_max
        assert column.has_column_index
        assert column.has_offset_index
        assert record["rows"] == footer.num_rows
        assert record["bytes"] == file.stat().st_size
        assert record["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert set(sizes[:-1]) == {5_000}
    assert sum(sizes) == result["rows"] == described["rows"]
    assert written(out)["id"].to_pylist() == sorted(written(out)["id"].to_pylist())


def test_a_result_larger_than_file_bytes_is_several_files(tmp_path: Path):
    random = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": random.random(400_000)}), tmp_path / "in/a.parquet")
    flags = ("--row-group-rows", "50000", "--file-bytes", "1MiB")
    result = prepare("SELECT x FROM t ORDER BY x", {"t": tmp_path / "in"}, tmp_path / "out", *flags).result
    assert result["files"] == 3
    assert written(tmp_path / "out")["x"].to_pylist() == sorted(written(tmp_path / "out")["x"].to_pylist())


def test_the_manifest_names_what_the_dataset_was_made_from(folders: dict[str, Path], tmp_path: Path):
    out = tmp_path / "out"
    sql = "SELECT k, name FROM names"
    prepare(sql, folders, out)
    described = manifest(out)
    assert described["sql"] == sql
    assert described["program"].startswith("forebay-prepare ")
    assert [(column["name"], column["type"]) for column in described["schema"]] == [("k", "Int64"), ("name", "Utf8")]
    inputs = {entry["name"]: entry for entry in described["inputs"]}
    assert set(inputs) == set(folders)
    for name, folder in folders.items():
        files = sorted(folder.iterdir())
        assert [file["path"] for file in inputs[name]["files"]] == [str(file) for file in files]
        assert [file["bytes"] for file in inputs[name]["files"]] == [file.stat().st_size for file in files]
        assert all(file["etag"] and file["modified"].endswith("Z") for file in inputs[name]["files"])


def test_the_server_reads_the_result_like_any_dataset(
    serve: Serve, tables: dict[str, pa.Table], folders: dict[str, Path], tmp_path: Path
):
    out = tmp_path / "joined"
    sql = "SELECT f.id, f.x, n.name FROM facts f JOIN names n ON f.k = n.k ORDER BY f.id, n.name"
    prepare(sql, folders, out)
    assert sorted(path.name for path in out.iterdir()) == [MANIFEST, "part-00000.parquet"]
    with fl.connect(serve({"joined": out}).url) as client:
        assert rows(raw_table(client, "joined")) == rows(duck(sql, tables))


def test_a_result_without_rows_has_a_schema(serve: Serve, folders: dict[str, Path], tmp_path: Path):
    result = prepare("SELECT id, s FROM facts WHERE id < 0", folders, tmp_path / "out").result
    assert (result["rows"], result["files"]) == (0, 1)
    assert written(tmp_path / "out").schema.names == ["id", "s"]


def test_inputs_are_files_folders_and_globs(folders: dict[str, Path], tmp_path: Path):
    inputs = {"one": folders["facts"] / "a.parquet", "all": folders["facts"], "some": folders["facts"] / "b*.parquet"}
    sql = 'SELECT (SELECT count(*) FROM one) + (SELECT count(*) FROM some) = (SELECT count(*) FROM "all") AS equal'
    prepare(sql, inputs, tmp_path / "out")
    assert written(tmp_path / "out")["equal"].to_pylist() == [True]
