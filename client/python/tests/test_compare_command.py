"""The command `forebay compare`: its output and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve, Server, server_binary

ROWS = 1003
PLAN = fb.Plan(outputs={"id": fb.cols("id").as_stored(), "x": fb.output(fb.cols("x").standardize(), dtype="float64")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    x = np.random.default_rng(0).normal(5, 2, ROWS)
    (folder / "rows").mkdir()
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": x}), folder / "rows/a.parquet", row_group_size=100)
    scaled = (x - x.mean()) / x.std()
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": scaled}), folder / "same.parquet")
    scaled[[3, 700]] += 0.5
    order = np.random.default_rng(1).permutation(ROWS)
    pq.write_table(pa.table({"id": np.arange(ROWS)[order], "scaled": scaled[order]}), folder / "other.parquet")
    (folder / "plan.json").write_text(PLAN.to_json())
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, serve: Serve) -> Server:
    return serve({"rows": folder / "rows"})


def forebay_compare(
    folder: Path, url: str, *arguments: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    command = [str(Path(server_binary()).with_name("forebay")), "compare", "--plan", "plan.json", *arguments]
    environment = os.environ | {"FOREBAY_SERVER": url, "FOREBAY_PYTHON": python}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def compare(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay._client.comparison", "--plan", "plan.json", *arguments]
    environment = os.environ | {"FOREBAY_SERVER": url}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_equal_columns_exit_with_0(folder: Path, server: Server) -> None:
    done = compare(folder, server.url, "--with", "same.parquet", "--atol", "1e-12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"equal: {ROWS:,} rows in row order")


def test_different_columns_exit_with_1_and_show_the_rows(folder: Path, server: Server) -> None:
    arguments = ["--with", "other.parquet", "--by", "id", "--columns", "x=scaled", "--atol", "1e-12"]
    done = compare(folder, server.url, *arguments, "--dataset", "rows")
    assert done.returncode == 1, done.stderr
    assert "key 3: plan" in done.stdout
    assert "key 700: plan" in done.stdout
    done = compare(folder, server.url, *arguments, "--json", "--examples", "1")
    report = json.loads(done.stdout)
    assert (report["equal"], report["rows"]) == (False, ROWS)
    (column,) = report["columns"]
    assert column["rows_differ"] == 2
    assert len(column["differences"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--with", "absent.parquet"], "absent.parquet"),
        (["--with", "same.parquet", "--plan", "absent.json"], "absent.json"),
        (["--with", "same.parquet", "--dataset", "row"], "rows"),
        (["--with", "same.parquet", "--by", "idd"], "idd"),
        (["--with", "same.parquet", "--ulps", "-1"], "ulps"),
        (["--with", "same.parquet", "--server", "grpc://127.0.0.1:1"], "127.0.0.1:1"),
        (["--plan", "plan.json"], "--with"),
    ],
)
def test_an_error_exits_with_2_and_a_sentence(folder: Path, server: Server, arguments: list[str], words: str) -> None:
    done = compare(folder, server.url, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_runs_it(folder: Path, server: Server) -> None:
    done = forebay_compare(folder, server.url, "--with", "same.parquet", "--atol", "1e-12")
    assert (done.returncode, done.stderr) == (0, "")
    done = forebay_compare(folder, server.url, "--with", "other.parquet", "--by", "id", "--columns", "x=scaled")
    assert done.returncode == 1
    done = forebay_compare(folder, server.url, "--help")
    assert done.returncode == 0
    assert "forebay compare" in done.stdout


def test_a_missing_interpreter_or_package_is_no_difference(folder: Path, server: Server, tmp_path: Path) -> None:
    done = forebay_compare(folder, server.url, "--with", "same.parquet", python="/no/such/python")
    assert done.returncode == 2, done
    assert "/no/such/python" in done.stderr
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)
    done = forebay_compare(folder, server.url, "--with", "same.parquet", python=str(bare))
    assert done.returncode == 2
    assert "needs the Python package forebay" in done.stderr
