"""`forebay convert` of Arrow and Parquet, the shape of its files, and results that are complete or absent."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.big_endian import big_endian_file, big_endian_stream
from harness.convert import command, convert, parts, peak_bytes
from harness.parquet.random_files import draw_files
from harness.serving import Serve, raw_table
from harness.tfrecords import tfrecord_bytes


def sample(rows: int) -> pa.Table:
    random = Random(rows)
    texts = [None if number % 7 == 0 else f"text {random.randint(0, 50)}" for number in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int32()),
            "text": pa.array(texts),
            "words": pa.array([["a", None, text or ""] for text in texts]),
            "kind": pa.array(texts).dictionary_encode(),
            "time": pa.array(range(rows), pa.timestamp("s", "Europe/Berlin")),
            "x": pa.array(np.random.default_rng(rows).standard_normal(rows)),
        }
    )


def as_written(table: pa.Table) -> pa.Table:
    """Parquet has no timestamps in seconds."""
    index = table.schema.get_field_index("time")
    return table.set_column(index, "time", table["time"].cast(pa.timestamp("ms", "Europe/Berlin")))


def bits(column: pa.ChunkedArray) -> pa.Array:
    """Values whose floats compare by their bits, so that NaN equals itself."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])
    return values


@pytest.mark.parametrize("kind", ["file", "stream", "lz4", "zstd", "feather", "polars"])
def test_arrow_files_survive(tmp_path: Path, kind: str):
    table = sample(10_000)
    source = tmp_path / ("a.feather" if kind == "feather" else "a.arrow")
    options = pa.ipc.IpcWriteOptions(compression=kind if kind in ("lz4", "zstd") else None)
    if kind == "feather":
        feather.write_feather(table, str(source), chunksize=999)
    elif kind == "polars":
        table = table.drop_columns(["kind"])
        pl.from_arrow(table).write_ipc(source)  # type: ignore[union-attr]
        table = pa.ipc.open_file(source).read_all()
    else:
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with new(source, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=777)
    got = convert(source, tmp_path / "out").table()
    assert got.to_pylist() == table.to_pylist()
    if kind != "polars":
        assert got.schema.remove_metadata() == as_written(table).schema.remove_metadata()


def days_and_seconds() -> pa.Table:
    days = pa.array([dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)], pa.date64())
    seconds = pa.array([0, None, 86_399], pa.time32("s"))
    return pa.table(
        {
            "day": days,
            "second": seconds,
            "days": pa.ListArray.from_arrays([0, 1, 1, 3], days),
            "both": pa.StructArray.from_arrays([days, seconds], ["day", "second"]),
            "map": pa.MapArray.from_arrays([0, 1, 2, 3], ["a", "b", "c"], seconds),
            "key": days.dictionary_encode(),
        }
    )


@pytest.mark.parametrize("kind", ["arrow", "arrows"])
def test_days_and_seconds_keep_their_meaning(tmp_path: Path, kind: str):
    table = days_and_seconds()
    source = tmp_path / f"a.{kind}"
    new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
    with new(source, table.schema) as writer:
        writer.write_table(table)
    result = convert(source, tmp_path / "out")
    assert result.table().to_pylist() == table.to_pylist()
    # Readers that know nothing of Arrow's schema see days and times, too.
    found = duckdb.sql(f"SELECT day, second, days, \"both\" FROM '{tmp_path}/out/*.parquet'")
    assert [str(kind) for kind in found.types] == ["DATE", "TIME", "DATE[]", 'STRUCT("day" DATE, "second" TIME)']
    assert [row[:2] for row in found.fetchall()] == [(row["day"], row["second"]) for row in table.to_pylist()]


def test_a_date64_with_a_time_is_refused(tmp_path: Path):
    table = pa.table({"day": pa.array([86_400_000, 86_400_001], pa.int64()).view(pa.date64())})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    failed = convert(tmp_path / "a.arrow", tmp_path / "out")
    assert failed.code == 1
    assert '"day"' in failed.error
    assert "not a whole day" in failed.error


@pytest.mark.parametrize("write", [big_endian_file, big_endian_stream])
def test_big_endian_arrow_is_refused_by_name(tmp_path: Path, write: Callable[[str, list[int]], bytes]):
    (tmp_path / "a.arrow").write_bytes(write("x", [1, 2, -3]))
    failed = convert(tmp_path / "a.arrow", tmp_path / "out")
    assert failed.code == 1
    assert "a.arrow" in failed.error
    assert "big-endian" in failed.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_unions_are_refused_by_name(tmp_path: Path, mode: str):
    types, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    if mode == "sparse":
        column = pa.UnionArray.from_sparse(types, [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
    else:
        column = pa.UnionArray.from_dense(types, offsets, [pa.array([1, 2]), pa.array(["a"])])
    for name, array in (("plain", column), ("nested", pa.StructArray.from_arrays([column], ["u"]))):
        table = pa.table({"u": array})
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", table.schema) as writer:
            writer.write_table(table)
        failed = convert(tmp_path / f"{name}.arrow", tmp_path / "out")
        assert failed.code == 1
        assert 'Parquet cannot store the column "u"' in failed.error
        assert "panicked" not in failed.error


def test_a_folder_of_files_under_other_names(tmp_path: Path):
    source = tmp_path / "in"
    source.mkdir()
    for value, name in enumerate(["000000_0", "b.parq", "c.parquet", "d.pq"]):
        pq.write_table(pa.table({"v": [value]}), source / name)
    (source / "notes").write_text("text")
    assert convert(source, tmp_path / "out").table()["v"].to_pylist() == [0, 1, 2, 3]


def test_random_parquet_files_survive(tmp_path: Path):
    for seed in range(5):
        files = draw_files(seed)
        source = tmp_path / f"in{seed}"
        files.write(source)
        stored = pa.concat_tables(pq.read_table(path, partitioning=None) for path in parts(source))
        got = convert(source, tmp_path / f"out{seed}").table()
        assert got.schema.names == stored.schema.names
        for name in got.schema.names:
            assert bits(got[name]).equals(bits(stored[name])), f"{name} of {files}"


def test_old_timestamps_keep_every_date(tmp_path: Path):
    times = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), None]
    table = pa.table({"time": pa.array(times, pa.timestamp("us"))})
    pq.write_table(
        pa.table({"time": pa.array(range(3), pa.timestamp("ns"))}),
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    got = convert(tmp_path / "a.parquet", tmp_path / "out").table()
    assert got.schema.field("time").type == pa.timestamp("us")
    pq.write_table(table, tmp_path / "b.parquet")
    assert convert(tmp_path / "b.parquet", tmp_path / "out_b").table() == table


def test_files_have_the_recommended_shape(tmp_path: Path):
    rows = 300_000
    table = pa.table({"x": np.arange(rows), "kind": pa.array(["a", "b", "c"] * (rows // 3))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000, compression="none", use_dictionary=False)
    done = convert(tmp_path / "a.parquet", tmp_path / "out")
    assert (done.result["rows"], done.result["row_groups"], done.result["files"]) == (rows, 3, 1)
    file = pq.ParquetFile(tmp_path / "out/part-00000.parquet")
    metadata = file.metadata
    assert [metadata.row_group(group).num_rows for group in range(3)] == [131_072, 131_072, 37_856]
    for column in range(2):
        chunk = metadata.row_group(0).column(column)
        assert (chunk.compression, chunk.has_offset_index, chunk.has_column_index) == ("ZSTD", True, True)
        assert chunk.statistics.has_min_max
    assert "RLE_DICTIONARY" in metadata.row_group(0).column(1).encodings
    assert done.table() == table
    # Wide rows have smaller groups, and files are bounded.
    random = np.random.default_rng(1)
    wide = pa.table({"image": [random.bytes(100_000) for _ in range(600)]})
    pq.write_table(wide, tmp_path / "wide.parquet", row_group_size=600)
    done = convert(tmp_path / "wide.parquet", tmp_path / "wide", "--file-bytes", "20MiB")
    assert done.result["files"] == len(parts(tmp_path / "wide")) == 2
    groups = [pq.ParquetFile(path).metadata.row_group(0) for path in parts(tmp_path / "wide")]
    assert all(16 << 20 <= group.total_byte_size < 18 << 20 for group in groups[:1])
    assert done.table() == wide


def test_the_summary_serves_the_result(tmp_path: Path, serve: Serve):
    (tmp_path / "clicks.csv").write_text("x,y\n1,a\n2,b\n")
    out = tmp_path / "clicks"
    shown = subprocess.run(command(tmp_path / "clicks.csv", out), capture_output=True, text=True, check=True)
    assert "2 rows in 1 file of 1 row group" in shown.stdout
    name, _, url = shown.stdout.split("--dataset ")[1].strip().partition("=")
    assert (name, Path(url)) == ("clicks", out.resolve())
    with fl.connect(serve({name: url}).url) as client:
        assert raw_table(client, name).to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


def test_nothing_is_replaced_without_force(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    out = tmp_path / "out"
    assert convert(tmp_path / "a.csv", out).table()["x"].to_pylist() == [1]
    (tmp_path / "a.csv").write_text("x\n2\n")
    refused = convert(tmp_path / "a.csv", out)
    assert (refused.code, "it exists: --force replaces it" in refused.error) == (1, True), refused.error
    assert convert(tmp_path / "a.csv", out, "--force").table()["x"].to_pylist() == [2]
    # A conversion that fails leaves the earlier result.
    (tmp_path / "a.csv").write_text("x,x\n")
    assert convert(tmp_path / "a.csv", out, "--force").code == 1
    assert pq.read_table(out)["x"].to_pylist() == [2]
    # Other files are never replaced.
    (out / "notes.txt").write_text("mine")
    (tmp_path / "a.csv").write_text("x\n3\n")
    refused = convert(tmp_path / "a.csv", out, "--force")
    assert 'it has "notes.txt"' in refused.error
    refused = convert(tmp_path / "a.csv", tmp_path / "a.csv")
    assert "it is a file" in refused.error
    assert (out / "notes.txt").read_text() == "mine"


def test_a_signal_leaves_nothing(tmp_path: Path):
    with (tmp_path / "a.csv").open("w") as file:
        file.write("x,y,z\n")
        for start in range(0, 3_000_000, 10_000):
            file.writelines(f"{row},{row * 7},text {row % 100}\n" for row in range(start, start + 10_000))
    out = tmp_path / "out"
    with subprocess.Popen(command(tmp_path / "a.csv", out), stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".out.converting-*/part-00000.parquet")) and time.monotonic() < until:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=60)
    assert (running.returncode, "stopped: nothing was written" in error) == (1, True), error
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_killed_conversion_is_cleaned_up_by_the_next(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    left = tmp_path / ".out.converting-1-1"
    left.mkdir()
    (left / "part-00000.parquet").write_bytes(b"half")
    assert convert(tmp_path / "a.csv", tmp_path / "out").code == 0
    assert not left.exists()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda root: (root / "a.txt").write_text("x"),
            "and no files that end in .csv",
        ),
        (
            lambda root: [(root / name).write_text("x\n1\n") for name in ("a.csv", "b.json")],
            "is csv and",
        ),
        (lambda root: [(root / "day=1").mkdir(), (root / "day=1/a.csv").write_text("x\n1\n")], "key=value"),
        (lambda root: (root / "a.parquet").write_bytes(b"PAR1 but not really PAR1"), "not a readable Parquet file"),
        (lambda root: (root / "a.arrow").write_bytes(b"ARROW1\0\0 and then nothing"), "not a readable Arrow file"),
        (lambda root: (root / "a.feather").write_bytes(b"FEA1 old"), "Feather file of version 1"),
        (
            lambda root: [
                pq.write_table(pa.table({"x": values}), root / name)
                for name, values in {"a.parquet": [1], "b.parquet": ["y"]}.items()
            ],
            'column "x" is Utf8, and Int64 in',
        ),
    ],
)
def test_sources_that_cannot_be_converted_are_named(tmp_path: Path, write, message: str):  # type: ignore[no-untyped-def]
    root = tmp_path / "in"
    root.mkdir()
    write(root)
    done = convert(root, tmp_path / "out")
    assert done.code in (1, 2)
    assert message in done.error, done.error
    assert str(root) in done.error


def test_damaged_arrow_files_never_convert_to_other_rows(tmp_path: Path):
    table = sample(500)
    source = tmp_path / "a.arrow"
    with pa.ipc.new_file(source, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    whole = source.read_bytes()
    random = Random(5)
    for attempt in range(40):
        damaged = bytearray(whole)
        if attempt % 2:
            del damaged[random.randrange(len(whole)) :]
        else:
            damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        source.write_bytes(damaged)
        arguments = command(source, tmp_path / f"out{attempt}", "--json")
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        # A flipped bit in a value is another value: there is no checksum in the format.
        assert ended.returncode in (0, 1), ended.stderr


@pytest.mark.parametrize("names", [[b"a.csv", b"b\xff.csv"], [b"a\xff.csv.gz"], [b"\xff-00000-of-00001"]])
def test_names_that_are_not_utf8_are_read(tmp_path: Path, names: list[bytes]):
    source = tmp_path / "in"
    source.mkdir()
    for name in names:
        data = tfrecord_bytes([{"x": [1]}]) if b"-of-" in name else b"x\n1\n"
        data = gzip.compress(data) if name.endswith(b".gz") else data
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_bytes(data)
    flags = ["--from", "tfrecord"] if b"-of-" in names[0] else []
    assert convert(source, tmp_path / "out", *flags).table()["x"].to_pylist() == [1] * len(names)


@pytest.mark.parametrize(("digits", "value"), [(9, 10**12), (18, 10**30), (20, 10**35)])
@pytest.mark.parametrize("nested", [False, True])
def test_decimals_of_too_many_digits_are_refused(tmp_path: Path, digits: int, value: int, nested: bool):
    # Arrow files may have them, and Parquet would keep their lowest bytes.
    stored = pa.py_buffer(value.to_bytes(16, "little", signed=True))
    column = pa.Array.from_buffers(pa.decimal128(digits, 0), 1, [None, stored])
    if nested:
        column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    table = pa.table({"d": column})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    done = convert(tmp_path / "a.arrow", tmp_path / "out")
    assert (done.code, 'column "d": ' in done.error, (tmp_path / "out").exists()) == (1, True, False), done.error


def test_memory_is_bounded(tmp_path: Path):
    rows = 3_000_000
    duckdb.sql(f"SELECT range AS x, hash(range) AS h, 'text ' || range AS t FROM range({rows})").write_csv(
        str(tmp_path / "a.csv")
    )
    size = (tmp_path / "a.csv").stat().st_size
    peak = peak_bytes(tmp_path / "a.csv", tmp_path / "out")
    assert size > 100_000_000
    assert peak < size, f"{peak} bytes of memory for {size} bytes of CSV"
