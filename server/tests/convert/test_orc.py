"""`forebay convert` of ORC: types and codecs of pyarrow, files that are damaged, and Pythons that cannot read them."""

from __future__ import annotations

import datetime as dt
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from harness.convert import Conversion, command, convert, peak_bytes

PYTHON = ["--python", sys.executable]
ROWS = 20_011
KINDS: dict[str, Any] = {
    "i8": (pa.int8(), lambda random: random.randint(-128, 127)),
    "i64": (pa.int64(), lambda random: random.choice([random.randint(-(2**63), 2**63 - 1), 5])),
    "f": (pa.float32(), lambda random: random.randint(-(2**24), 2**24) / 8),
    "d": (pa.float64(), lambda random: random.choice([random.random(), math.inf, -0.0])),
    "b": (pa.bool_(), lambda random: random.random() < 0.5),
    "s": (pa.string(), lambda random: random.choice(["", "漢字", "x" * random.randint(0, 50)])),
    "bin": (pa.binary(), lambda random: random.randbytes(random.randint(0, 9))),
    "date": (pa.date32(), lambda random: dt.date(1900, 1, 1) + dt.timedelta(days=random.randint(0, 80_000))),
    "dec": (pa.decimal128(38, 10), lambda random: Decimal(random.randint(-(10**37), 10**37)).scaleb(-10)),
    # Before 1970 with a fraction, as nanoseconds.
    "ts": (pa.timestamp("ns"), lambda random: random.randint(-(2**62), 2**62)),
    "utc": (pa.timestamp("ns", "UTC"), lambda random: random.randint(-(2**62), 2**62)),
    "l": (pa.list_(pa.int32()), lambda random: [random.choice([None, 1]) for _ in range(random.randint(0, 4))]),
    "st": (pa.struct({"x": pa.int32()}), lambda random: {"x": random.choice([None, 1])}),
    "m": (pa.map_(pa.string(), pa.int64()), lambda random: [("k", random.choice([None, 1]))] * random.randint(0, 2)),
}


def table_of(count: int, seed: str = "") -> pa.Table:
    random = Random(seed)
    columns = {
        name: pa.array([None if random.random() < 0.1 else value(random) for _ in range(count)], kind)
        for name, (kind, value) in KINDS.items()
    }
    return pa.table(columns)


def orc_convert(source: Path, out: Path, *flags: str) -> Conversion:
    return convert(source, out, *PYTHON, *flags)


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_types_survive(tmp_path: Path, compression: str):
    table = table_of(ROWS, compression)
    version = "0.11" if compression == "zlib" else "0.12"
    path = tmp_path / "a.orc"
    orc.write_table(table, path, compression=compression, file_version=version, stripe_size=200_000)
    assert orc.ORCFile(path).nstripes > 1
    done = orc_convert(path, tmp_path / "out")
    assert (done.result["format"], done.result["rows"]) == ("orc", ROWS)
    assert done.table().cast(table.schema).equals(table)


def test_files_are_joined_by_name(tmp_path: Path):
    source = tmp_path / "in"
    source.mkdir()
    tables = [table_of(1009, "a"), table_of(0), table_of(1, "b").select(["s", "i8"]), table_of(3, "c")]
    # Hive writes names without an extension.
    for name, table in zip([b"0.orc", b"1.orc", b"000002_0", b"3\xff.orc"], tables, strict=True):
        with open(os.path.join(os.fsencode(source), name), "wb") as file:
            orc.write_table(table, file)
    table = orc_convert(source, tmp_path / "out").table()
    assert table.schema.names == list(KINDS)
    assert table.to_pylist() == [dict.fromkeys(KINDS) | row for part in tables for row in part.to_pylist()]


def test_text_that_begins_as_orc_does_is_text(tmp_path: Path):
    (tmp_path / "a.csv").write_text("ORC,x\n1,2\n")
    assert convert(tmp_path / "a.csv", tmp_path / "out").table().to_pylist() == [{"ORC": 1, "x": 2}]


def test_damaged_files_are_refused_or_read_as_pyarrow_does(tmp_path: Path):
    orc.write_table(table_of(300), tmp_path / "whole.orc", compression="zlib")
    whole = (tmp_path / "whole.orc").read_bytes()
    random, refused = Random(3), 0
    for attempt in range(25):
        damaged = bytearray(whole)
        if attempt % 3 == 0:
            del damaged[random.randrange(4, len(whole)) :]
        else:
            damaged[random.randrange(4, len(whole))] ^= 1 << random.randrange(8)
        (tmp_path / "a.orc").write_bytes(damaged)
        done = orc_convert(tmp_path / "a.orc", tmp_path / "out", "--force")
        if done.code == 0:
            assert done.table().cast(orc.read_table(tmp_path / "a.orc").schema).num_rows == 300
        else:
            refused += 1
            assert (done.code, "a.orc" in done.error) == (1, True), done.error
    assert refused > 8


def test_what_cannot_be_converted_is_named(tmp_path: Path):
    orc.write_table(pa.table({"x": pa.array([-(2**62)], pa.timestamp("us"))}), tmp_path / "early.orc")
    done = orc_convert(tmp_path / "early.orc", tmp_path / "out")
    assert (done.code, "out of range for nanosecond resolution" in done.error) == (1, True), done.error
    orc.write_table(pa.table({"x": [1]}), tmp_path / "a.orc")
    orc.write_table(pa.table({"x": ["a"]}), tmp_path / "b.orc")
    done = convert([tmp_path / "a.orc", tmp_path / "b.orc"], tmp_path / "out", *PYTHON)
    assert (done.code, 'column "x" is Utf8, and Int64 in' in done.error) == (1, True), done.error
    done = orc_convert(tmp_path / "a.orc", tmp_path / "out", "--type", "x=int8")
    assert (done.code, "orc files have types" in done.error) == (2, True), done.error
    (tmp_path / "c.orc").write_text("no ORC")
    done = orc_convert(tmp_path / "c.orc", tmp_path / "out")
    assert (done.code, 'c.orc": it is not a readable ORC file: ' in done.error) == (1, True), done.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "cannot be started"),
        ("exit 3", "is not a Python that runs"),
        ("echo hello; cat", "answers as no Python does"),
        (f'exec {shlex.quote(sys.executable)} -S -c "$2"', "cannot import pyarrow.orc"),
    ],
)
def test_a_python_that_cannot_read_them_is_named(tmp_path: Path, script: str | None, message: str):
    orc.write_table(pa.table({"x": [1]}), tmp_path / "a.orc")
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    done = convert(tmp_path / "a.orc", tmp_path / "out", "--python", str(python))
    assert (done.code, message in done.error) == (2, True), done.error
    assert f'"{python}"' in done.error
    assert "with --python" in done.error


def test_a_reader_that_dies_is_an_error(tmp_path: Path):
    orc.write_table(pa.table({"x": [1]}), tmp_path / "a.orc")
    python = tmp_path / "python"
    # It ends by a signal once it is asked for rows, as by a fault of the library.
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    python.write_text(
        f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "
        f"\"$(printf '%s' \"$2\" | sed 's/    for stripe in.*/    if is_whole: {dying}\\n&/')\"\n"
    )
    python.chmod(0o755)
    done = convert(tmp_path / "a.orc", tmp_path / "out", "--python", str(python))
    assert done.code == 1, done.error
    assert 'a.orc": it is not a readable ORC file: pyarrow ended while it read the file (signal: 11' in done.error
    assert not (tmp_path / "out").exists()


def test_modules_of_the_working_directory_are_not_run(tmp_path: Path):
    orc.write_table(pa.table({"x": [1]}), tmp_path / "a.orc")
    for name in ("pyarrow.py", "struct.py"):
        (tmp_path / name).write_text(f"open('{tmp_path}/ran', 'w')\n")
    arguments = command(tmp_path / "a.orc", tmp_path / "out", *PYTHON)
    subprocess.run(arguments, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("ending", [os.kill, os.killpg])
def test_no_process_is_left_after_a_signal(tmp_path: Path, ending: Callable[[int, int], None]):
    orc.write_table(table_of(20_000), tmp_path / "a.orc", stripe_size=50_000)
    python = tmp_path / "python"
    # Every stripe takes a moment, so that the signal arrives in between.
    python.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec {shlex.quote(sys.executable)} -c "
        "\"$(printf '%s' \"$2\" | sed 's/    for stripe in.*/&\\n        import time; time.sleep(0.3)/')\"\n"
    )
    python.chmod(0o755)
    arguments = command(tmp_path / "a.orc", tmp_path / "out", "--python", str(python))
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stderr=pipe, stdout=pipe, text=True, start_new_session=True) as running:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out*")) or not (tmp_path / "pid").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        # A terminal sends its signals to all processes of the group.
        ending(running.pid, signal.SIGINT)
        error = running.communicate(timeout=60)[1]
    assert (running.returncode, "nothing was written" in error) == (1, True), error
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    images = pa.array([Random(1).randbytes(1 << 20)] * 20, pa.binary())
    table = pa.table({"image": images})
    with orc.ORCWriter(tmp_path / "a.orc", compression="uncompressed", stripe_size=8 << 20) as writer:
        for _ in range(20):
            writer.write(table)
    assert (tmp_path / "a.orc").stat().st_size > 400 << 20
    monkeypatch.setenv("FOREBAY_PYTHON", sys.executable)
    peak = peak_bytes(tmp_path / "a.orc", tmp_path / "out")
    assert peak < 400 << 20, f"{peak} bytes of memory for 400 MiB of images"
