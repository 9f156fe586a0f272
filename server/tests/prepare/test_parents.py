"""Runs of forebay-prepare that another program starts: checks, pinned inputs, progress, and an end with the parent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import poll
from harness.prepare import command, manifest, prepare, written
from harness.serving import Serve

ENDLESS = "SELECT a.id, b.id AS other FROM t a CROSS JOIN t b"


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": np.arange(20_000)}), tmp_path / "in/a.parquet")
    return {"t": tmp_path / "in"}


@pytest.fixture
def endless(inputs: dict[str, Path], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of minutes with a pipe to its standard input."""
    arguments = command(ENDLESS, inputs, tmp_path / "out", "--exit-with-stdin", "--progress-seconds", "1")
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        yield process
        process.kill()


def test_a_dry_run_checks_the_query_and_writes_nothing(inputs: dict[str, Path], tmp_path: Path):
    run = prepare("SELECT id FROM t", inputs, tmp_path / "out", "--dry-run")
    assert (run.result["status"], run.result["rows"]) == ("checked", 0)
    run = prepare("SELECT ident FROM t", inputs, tmp_path / "out", "--dry-run")
    assert run.code == 2
    assert "line 1, column 8" in run.error
    run = prepare("SELECT INTERVAL '1 day' AS day FROM t", inputs, tmp_path / "out", "--dry-run")
    assert run.code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_dataset_with_another_snapshot_is_an_error(serve: Serve, inputs: dict[str, Path], tmp_path: Path):
    prepare("SELECT id FROM t", inputs, tmp_path / "out")
    digest = manifest(tmp_path / "out")["inputs"][0]["snapshot"]
    # It is the digest that the server names.
    with fl.connect(serve(inputs).url) as client:
        (listed,) = client.list_flights()
        assert json.loads(listed.app_metadata)["snapshot"] == digest
    query = ("SELECT id + 1 AS id FROM t", inputs, tmp_path / "other", "--snapshot")
    assert prepare(*query, f"t={digest}").code == 0
    pq.write_table(pa.table({"id": np.arange(7)}), inputs["t"] / "b.parquet")
    run = prepare(*query, f"t={digest}", "--replace")
    assert run.code == 1
    assert digest in run.error
    assert "changed" in run.error
    assert written(tmp_path / "other").num_rows == 20_000
    run = prepare(*query, f"u={digest}")
    assert run.code == 2
    assert 'no --dataset is named "u"' in run.error


def test_int96_timestamps_are_read_in_the_given_unit(tmp_path: Path):
    table = pa.table({"at": pa.array([1, 2], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    inputs = {"t": tmp_path / "a.parquet"}
    for unit, expected in (("us", pa.timestamp("us")), ("ns", pa.timestamp("ns"))):
        prepare("SELECT at FROM t", inputs, tmp_path / unit, "--int96-unit", f"t={unit}")
        assert written(tmp_path / unit).schema.field("at").type == expected
    run = prepare("SELECT at FROM t", inputs, tmp_path / "ms", "--int96-unit", "t=ms")
    assert run.code == 2
    assert "NAME=us or NAME=ns" in run.error


def test_a_run_prints_progress_and_ends_with_its_parent(endless: subprocess.Popen[str], tmp_path: Path):
    assert endless.stdin
    assert endless.stderr
    assert endless.stderr.readline().startswith("progress: ")
    assert poll(lambda: list(tmp_path.glob(".out.preparing-*")), seconds=60)
    endless.stdin.close()
    assert endless.wait(20) == 1
    assert "interrupted" in endless.stderr.read()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_standard_input_is_not_both_the_query_and_the_parent(tmp_path: Path):
    arguments = command("", {}, tmp_path / "out", "--exit-with-stdin")
    arguments[1:3] = ["--sql-file", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr
        assert "--sql-file -" in process.stderr.read()
        assert process.wait(20) == 2
