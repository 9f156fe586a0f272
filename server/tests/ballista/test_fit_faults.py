"""A fault of a cluster during a fit ends in the right plan or in an error that names it, never in another plan."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cluster import Cluster, free_ports
from harness.daemon import poll
from harness.prepare import Start, ended
from harness.prepare_fit import fit, fit_command

ROWS = 400_000
COLUMNS = 12
# Some seconds of work: every value of many columns is counted, and sorted.
PLAN: dict[str, Any] = {
    "outputs": [
        {"name": f"c{n}", "parts": [{"columns": [f"c{n}"], "ops": [{"bucketize": {"quantiles": 10}}]}]}
        for n in range(COLUMNS)
    ]
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(5)
    for part in range(4):
        columns = {f"c{n}": random.integers(0, 300_000, ROWS // 4) / 8 for n in range(COLUMNS)}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=10_000)
    return folder


@pytest.fixture
def table(original: Path, tmp_path: Path) -> dict[str, Path]:
    return {"t": Path(shutil.copytree(original, tmp_path / "in"))}


def running(start_program: Start, cluster: Cluster, table: dict[str, Path], folder: Path) -> subprocess.Popen[str]:
    """A fit whose pass has begun on every executor."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps(PLAN))
    flags = (*cluster.flags, "--out", str(folder / "fitted.json"))
    process = start_program(*fit_command(plan, table, *flags))
    cluster.wait_for_tasks_of(process)
    return process


def test_the_tasks_of_a_killed_executor_are_repeated(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path)
    own_cluster.executors[0].kill()
    run = ended(process, 120)
    assert run.code == 0, run.error + own_cluster.log
    assert (tmp_path / "fitted.json").read_text() == fit(PLAN, tmp_path, table).stdout


def test_a_cluster_without_executors_ends_the_fit(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path)
    for executor in own_cluster.executors:
        executor.kill()
    run = ended(process, 120)
    assert run.code == 1, run.stdout
    assert "executor" in run.error
    assert not (tmp_path / "fitted.json").exists()


def test_a_killed_scheduler_is_an_error(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path)
    own_cluster.scheduler.kill()
    run = ended(process, 60)
    assert run.code == 1
    assert f"--engine {own_cluster.url}: the connection to the scheduler was lost: " in run.error
    assert not (tmp_path / "fitted.json").exists()


def test_a_file_that_is_replaced_during_a_fit_is_an_error(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    file = table["t"] / "2.parquet"
    other = tmp_path / "other.parquet"
    shutil.copy(file, other)
    process = running(start_program, own_cluster, table, tmp_path)
    os.replace(other, file)
    run = ended(process, 120)
    assert run.code == 1
    assert "an input changed during the run, nothing was written: " in run.error
    assert str(file) in run.error
    assert not (tmp_path / "fitted.json").exists()


def test_an_interrupted_fit_cancels_its_job(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path)
    process.send_signal(signal.SIGTERM)
    run = ended(process, 30)
    assert run.code == 1
    assert "interrupted" in run.error
    assert poll(lambda: own_cluster.scheduler.logs("Job cancelled")), own_cluster.log


def test_no_scheduler_is_an_error_that_names_the_address(table: dict[str, Path], tmp_path: Path):
    (port,) = free_ports(1)
    run = fit(PLAN, tmp_path, table, "--engine", f"ballista://127.0.0.1:{port}")
    assert run.code == 1
    assert f"--engine ballista://127.0.0.1:{port}: the scheduler cannot be reached: " in run.error
