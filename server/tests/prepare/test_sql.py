"""A query reads the datasets that it is given and nothing else; errors say where and what to write instead."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.prepare import Run, manifest, prepare, prepare_binary, written


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("inputs")
    for name, column in [("flights", "dep_delay"), ("planes", "Seats")]:
        (root / name).mkdir()
        pq.write_table(pa.table({"id": [1, 2], column: [1.5, None], "text": ["a", "b"]}), root / name / "a.parquet")
    return {"flights": root / "flights", "planes": root / "planes"}


REFUSED = {
    "copy": "COPY flights TO '{folder}/stolen.parquet'",
    "copy of a query": "COPY (SELECT 1) TO '{folder}/stolen.parquet'",
    "external table": "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{folder}'",
    "table": "CREATE TABLE t AS SELECT * FROM flights",
    "view": "CREATE VIEW t AS SELECT * FROM flights",
    "function": "CREATE FUNCTION f(DOUBLE) RETURNS DOUBLE RETURN $1",
    "insert": "INSERT INTO flights VALUES (1, 2, 'x')",
    "delete": "DELETE FROM flights",
    "update": "UPDATE flights SET id = 1",
    "drop": "DROP TABLE flights",
    "into": "SELECT * INTO t FROM flights",
    "insert in WITH": "WITH t AS (INSERT INTO flights VALUES (1, 2, 'x')) SELECT 1 AS one",
    "set": "SET datafusion.execution.batch_size = 1",
    "reset": "RESET datafusion.execution.batch_size",
    "transaction": "BEGIN",
    "prepared": "PREPARE q AS SELECT 1",
    "show": "SHOW TABLES",
    "describe": "DESCRIBE flights",
    "explain": "EXPLAIN SELECT 1",
    "two statements": "SELECT 1 AS one; SELECT 2 AS two",
    "a write after a query": "SELECT 1 AS one; DROP TABLE flights",
    "path": "SELECT * FROM '{folder}/flights/a.parquet'",
    "quoted path": 'SELECT * FROM "{folder}/flights/a.parquet"',
    "path in a join": "SELECT f.id FROM flights f JOIN '{folder}/planes/a.parquet' p ON f.id = p.id",
    "path in a subquery": "SELECT (SELECT max(id) FROM '{folder}/planes/a.parquet') AS m FROM flights",
    "URL": "SELECT * FROM 's3://bucket/a.parquet'",
    "table function": "SELECT * FROM read_parquet('{folder}/flights/a.parquet')",
    "metadata function": "SELECT * FROM parquet_metadata('{folder}/flights/a.parquet')",
    "catalog": "SELECT * FROM information_schema.tables",
    "settings": "SELECT * FROM information_schema.df_settings",
}


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED)
def test_a_query_that_reads_or_writes_more_than_it_is_given_is_refused(
    sql: str, folders: dict[str, Path], tmp_path: Path
):
    before = sorted(folders["flights"].parent.rglob("*"))
    run = prepare(sql.format(folder=folders["flights"].parent), folders, tmp_path / "out")
    assert run.code == 2, run.error
    assert run.error.startswith("error: SQL"), run.error
    assert run.error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    assert sorted(folders["flights"].parent.rglob("*")) == before


ERRORS = {
    "SELEC id FROM flights": (1, 1, "SELEC"),
    "SELECT id\nFROM flights\nWHERE (": (3, 8, "EOF"),
    "SELECT 'abc FROM flights": (1, 8, "unterminated"),
    "SELECT id,\n  dep_dely FROM flights": (2, 3, 'did you mean "dep_delay"?'),
    "SELECT f.seats FROM planes f": (1, 8, 'did you mean "Seats"?'),
    "SELECT id FROM flight": (1, 16, 'no --dataset is named "flight": did you mean "flights"?'),
    "SELECT id FROM flights, planes": (1, 8, "several tables"),
    "SELECT summ(id) AS n FROM flights": (1, 8, 'did you mean "sum"?'),
    "SELECT id,\n sum(text) AS n FROM flights": (2, 2, "'sum'"),
    "SELECT id + text AS n FROM flights WHERE text + id": (1, None, ""),
    "SELECT text, count(*) AS n FROM flights": (1, 8, "GROUP BY"),
    "SELECT * FROM flights f JOIN planes p ON f.id = p.id": (None, None, "USING (id)"),
    "SELECT INTERVAL '1 day' AS day FROM flights": (None, None, '"day"'),
    "": (None, None, "empty"),
    "-- a comment": (None, None, "empty"),
    "SELECT " + "(" * 500 + "1" + ")" * 500 + " AS x": (None, None, "recursion"),
}


@pytest.mark.parametrize(("sql", "expected"), ERRORS.items(), ids=lambda value: str(value)[:40])
def test_errors_name_line_column_and_similar_names(
    sql: str, expected: tuple[int | None, int | None, str], folders: dict[str, Path], tmp_path: Path
):
    query = tmp_path / "query.sql"
    query.write_text(sql)
    run = prepare_file(query, folders, tmp_path / "out")
    assert run.code == 2, run.error
    line, column, words = expected
    assert words in run.error
    assert len(run.error) < 700
    place = re.match(r"error: SQL(?:, line (\d+), column (\d+))?: ", run.error)
    assert place, run.error
    if column is not None:
        assert (place[1], place[2]) == (str(line), str(column)), run.error
    assert not (tmp_path / "out").exists()


def prepare_file(query: Path, folders: dict[str, Path], out: Path) -> Run:
    named = [argument for name, url in folders.items() for argument in ("--dataset", f"{name}={url}")]
    command = [prepare_binary(), "--sql-file", str(query), *named, "--out", str(out), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return Run(ended.returncode, ended.stdout, ended.stderr)


def test_names_match_as_written_or_in_lower_case(folders: dict[str, Path], tmp_path: Path):
    for index, sql in enumerate(['SELECT "Seats" FROM planes', "SELECT Seats FROM planes", "SELECT TEXT FROM PLANES"]):
        out = tmp_path / str(index)
        assert prepare(sql, folders, out).result["rows"] == 2
        assert manifest(out)["sql"] == sql


def test_the_query_may_come_from_standard_input(folders: dict[str, Path], tmp_path: Path):
    inputs = ["--dataset", f"t={folders['flights']}"]
    command = [prepare_binary(), "--sql-file", "-", *inputs, "--out", str(tmp_path / "out")]
    ended = subprocess.run(command, input="SELECT id FROM t;\n", capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("wrote ")
    assert ended.stderr == ""
    assert written(tmp_path / "out")["id"].to_pylist() == [1, 2]


def test_a_query_has_at_most_a_mebibyte(folders: dict[str, Path], tmp_path: Path):
    query = tmp_path / "query.sql"
    query.write_text("SELECT 1 AS x " + " " * (1 << 20))
    run = prepare_file(query, folders, tmp_path / "out")
    assert run.code == 2
    assert str(1 << 20) in run.error


USAGE = {
    "no query": (["--out", "{out}"], "--sql or --sql-file"),
    "two queries": (["--sql", "SELECT 1", "--sql-file", "x", "--out", "{out}"], "--sql-file"),
    "no file": (["--sql-file", "/missing.sql", "--out", "{out}"], "/missing.sql"),
    "no out": (["--sql", "SELECT 1 AS x"], "--out"),
    "a glob as out": (["--sql", "SELECT 1 AS x", "--out", "s3://bucket/*.parquet"], "without wildcards"),
    "a web server as out": (["--sql", "SELECT 1 AS x", "--out", "http://127.0.0.1:1/x"], "expected a directory"),
    "a bucket as out": (["--sql", "SELECT 1 AS x", "--out", "s3://bucket"], "whole bucket"),
    "a bad dataset": (["--sql", "SELECT 1 AS x", "--out", "{out}", "--dataset", "x"], "NAME=URL"),
    "a dataset twice": (["--sql", "SELECT 1 AS x", "--out", "{out}", "--dataset", "x=.", "--dataset", "x=."], "twice"),
    "a missing dataset": (["--sql", "SELECT 1 AS x", "--out", "{out}", "--dataset", "x=/missing"], "/missing"),
    "little memory": (["--sql", "SELECT 1 AS x", "--out", "{out}", "--memory-bytes", "1MiB"], "16MiB"),
    "no spill directory": (["--sql", "SELECT 1 AS x", "--out", "{out}", "--spill-dir", "/missing"], "--spill-dir"),
    "no rows a group": (["--sql", "SELECT 1 AS x", "--out", "{out}", "--row-group-rows", "0"], "--row-group-rows"),
}


@pytest.mark.parametrize(("flags", "words"), USAGE.values(), ids=USAGE)
def test_invalid_usage_is_exit_code_2_with_a_reason(flags: list[str], words: str, tmp_path: Path):
    command = [prepare_binary(), *[flag.format(out=tmp_path / "out") for flag in flags]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert words in ended.stderr
    assert ended.stdout == ""
    assert list(tmp_path.iterdir()) == []
