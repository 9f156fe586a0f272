"""`forebay convert` of CSV: random tables written by pyarrow and DuckDB, types, nulls, and errors with their line."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pytest

from harness.convert import convert

TEXTS = [
    "plain",
    'a "quoted" word',
    "comma, comma",
    "two\nlines",
    "cr\r\nlf",
    "ünï 漢字 🦀",
    " spaces ",
    "007",
    "NaN",
    "-",
]


def random_table(seed: int, rows: int) -> pa.Table:
    """Columns of every type that CSV stores exactly, a tenth of them null."""
    random = Random(seed)

    def column(kind: pa.DataType, value: Any) -> pa.Array:
        values = [None if random.random() < 0.1 else value() for _ in range(rows)]
        return pa.array(values, kind)

    start = dt.datetime(1900, 1, 1)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "int": column(pa.int64(), lambda: random.randint(-(2**63), 2**63 - 1)),
            "unsigned": column(pa.uint64(), lambda: random.randint(2**63, 2**64 - 1)),
            "float": column(pa.float64(), lambda: random.choice([random.gauss(0, 1e10), 0.1, -0.0, 1e-310, 1.5e308])),
            "bool": column(pa.bool_(), lambda: random.random() < 0.5),
            "date": column(pa.date32(), lambda: start.date() + dt.timedelta(days=random.randint(0, 80_000))),
            "time": column(
                pa.timestamp("us"),
                lambda: (
                    start + dt.timedelta(seconds=random.randint(0, 10**10), microseconds=random.randint(0, 999_999))
                ),
            ),
            "text": column(pa.string(), lambda: random.choice(TEXTS)),
        }
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "crlf"])
def test_random_tables_survive(tmp_path: Path, seed: int, writer: str):
    table = random_table(seed, rows=[20, 7, 1000, 8191, 8192, 9000][seed])
    source = tmp_path / "a.csv"
    if writer == "pyarrow":
        pa_csv.write_csv(table, source)
    elif writer == "duckdb":
        duckdb.from_arrow(table).write_csv(str(source))
    else:
        with source.open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\r\n")
            rows.writerow(table.column_names)
            rows.writerows(row.values() for row in table.to_pylist())
    done = convert(source, tmp_path / "out", "--infer-rows", "20000")
    expected = table.combine_chunks()
    for index, (name, values) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if values.null_count == table.num_rows:
            # Nothing says the type of a column of nulls.
            expected = expected.set_column(index, name, pa.nulls(table.num_rows, pa.string()))
    got = done.table()
    assert got.schema.types == expected.schema.types
    assert got.combine_chunks() == expected, "values"
    assert done.result["rows"] == table.num_rows


def test_the_result_is_the_same_for_duckdb(tmp_path: Path):
    table = random_table(9, 5000)
    pa_csv.write_csv(table, tmp_path / "a.csv")
    done = convert(tmp_path / "a.csv", tmp_path / "out")
    read = duckdb.read_parquet(f"{tmp_path}/out/*.parquet").to_arrow_table()
    assert read.cast(table.schema) == table
    assert done.code == 0


def test_files_of_a_folder_keep_the_order_of_their_paths(tmp_path: Path):
    root = tmp_path / "in"
    (root / "b").mkdir(parents=True)
    for number, name in enumerate(["a.csv", "b.csv", "b/1.csv", "b/2.csv.gz", "c.csv"]):
        text = f"x,name\n{number},{name}\n".encode()
        (root / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    (root / "notes.txt").write_text("not data")
    (root / "_tmp.csv").write_text("not data")
    table = convert(root, tmp_path / "out").table()
    assert table["x"].to_pylist() == [0, 1, 2, 3, 4]
    # Files that are named keep their order.
    table = convert([root / "c.csv", root / "a.csv"], tmp_path / "named").table()
    assert table["name"].to_pylist() == ["c.csv", "a.csv"]


def test_columns_are_matched_by_name(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text("y,z,x\nb,2.5,2\n")
    table = convert([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "out").table()
    assert table.to_pylist() == [{"x": 1, "y": "a", "z": None}, {"x": 2, "y": "b", "z": 2.5}]


def test_options(tmp_path: Path):
    source = tmp_path / "a.csv"
    source.write_text("1;'it''s; fine';NA;0.10\n2;x;;3\n")
    flags = ["--delimiter", ";", "--quote", "'", "--no-header", "--null", "NA", "--null", ""]
    done = convert(source, tmp_path / "out", *flags, "--type", "column_3=decimal128(10, 2)", "--type", "column_0=int8")
    rows = done.table().to_pylist()
    assert [list(row.values()) for row in rows] == [
        [1, "it's; fine", None, Decimal("0.10")],
        [2, "x", None, Decimal(3)],
    ]
    assert done.table().schema.field("column_0").type == pa.int8()


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["9223372036854775808"], pa.uint64()),
        (["-1", "123456789012345678901234567890"], pa.decimal128(38, 0)),
        (["1" * 40], pa.string()),
        (["1", "2.5"], pa.float64()),
        (["9007199254740993", "0.5"], pa.string()),
        (["nan", "-inf", "1"], pa.float64()),
        (["2024-02-29"], pa.date32()),
        (["2024-02-29", "2024-02-29 10:00:00"], pa.timestamp("us")),
        (["2024-02-29T10:00:00.123456789"], pa.timestamp("ns")),
        (["2024-02-29T10:00:00+02:00"], pa.timestamp("us", "UTC")),
        (["", ""], pa.string()),
    ],
)
def test_inferred_types_hold_the_texts(tmp_path: Path, texts: list[str], kind: pa.DataType):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{text},1\n" for text in texts))
    got = convert(tmp_path / "a.csv", tmp_path / "out").table()["x"]
    assert got.type == kind
    if not pa.types.is_temporal(kind) and "nan" not in texts:
        expected = pc.cast(pa.array([text or None for text in texts], pa.string()), kind)
        assert got.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("x,y\n1,a\n\n2,b\nz,c\n", ["--infer-rows", "2"], 'line 5, column "x": "z" is not Int64: it is not an integer'),
        ("x,y\r\n1,a\r\nz,c\r\n", ["--infer-rows", "1"], 'line 3, column "x"'),
        ('x,y\n1,"a\nb"\nz,c', ["--infer-rows", "1"], 'line 4, column "x"'),
        ("x,y\n1,a\n2\n", [], "line 3: the record has 1 fields, the file has 2 columns"),
        ("x,y\n1,a\n2,b,c\n", [], "line 3: the record has 3 fields"),
        ("x,x\n1,2\n", [], 'line 1: two columns have the name "x"'),
        ("x,\n1,2\n", [], "line 1: column 2 has no name"),
        ("", [], "it is empty"),
        ("x\n300\n", ["--type", "x=int8"], 'line 2, column "x": "300" is not Int8: it is out of range'),
        ("x\n1.005\n", ["--type", "x=decimal128(10,2)"], "more digits after the point than the scale"),
        ("x\n1\n", ["--type", "y=int8"], "--type y=…: no file has this column; they have x"),
        ("x\n1\n", ["--type", "x=int9"], "--type x=int9: unknown type"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, text: str, flags: list[str], message: str):
    source = tmp_path / "a.csv"
    source.write_bytes(text.encode())
    done = convert(source, tmp_path / "out", *flags)
    assert done.code in (1, 2)
    assert message in done.error, done.error
    assert message.startswith("--type") or str(source) in done.error
    assert not (tmp_path / "out").exists()


def test_text_that_is_not_utf8_is_named(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,caf\xe9\n")
    done = convert(tmp_path / "a.csv", tmp_path / "out")
    assert (done.code, 'line 2, column "y": it is not UTF-8' in done.error) == (1, True), done.error


def test_a_quote_that_is_not_closed_ends_in_bounded_memory(tmp_path: Path):
    with (tmp_path / "a.csv").open("w") as file:
        file.write('x,y\n1,"open\n')
        for _ in range(17):
            file.write("2,b\n" * (1 << 20))
    done = convert(tmp_path / "a.csv", tmp_path / "out")
    assert (done.code, "is a quote not closed" in done.error) == (1, True), done.error
