"""A fault of a cluster ends in the right rows or in an error that names it, never in a wrong or partial dataset."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cluster import Cluster, free_ports
from harness.daemon import poll
from harness.prepare import Start, command, ended, prepare, written

# Counts pairs for some seconds, in tasks of several stages.
SLOW = """
SELECT a.id % 16 AS part, count(*) AS n, sum(b.id) AS ids
FROM t a JOIN t b ON a.id % 1009 < b.id % 7 AND a.x <> b.x
GROUP BY 1 ORDER BY 1
"""
ROWS = 8_000


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "in"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part in range(4):
        first = part * ROWS // 4
        rows = pa.table({"id": np.arange(first, first + ROWS // 4), "x": random.random(ROWS // 4)})
        pq.write_table(rows, folder / f"{part}.parquet", row_group_size=5_000)
    return {"t": folder}


def assert_nothing(out: Path) -> None:
    """There is no dataset, and there are no files of a run."""
    assert not out.exists()
    assert not list(out.parent.glob(f".{out.name}.preparing-*"))


def test_no_scheduler_is_an_error_that_names_the_address(table: dict[str, Path], tmp_path: Path):
    (port,) = free_ports(1)
    began = time.monotonic()
    run = prepare("SELECT * FROM t", table, tmp_path / "out", "--engine", f"ballista://127.0.0.1:{port}")
    assert run.code == 1
    assert f"--engine ballista://127.0.0.1:{port}: the scheduler cannot be reached: " in run.error
    assert time.monotonic() - began < 30
    assert_nothing(tmp_path / "out")


def test_an_address_that_does_not_answer_is_an_error(table: dict[str, Path], tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        run = prepare("SELECT * FROM t", table, tmp_path / "out", "--engine", f"ballista://127.0.0.1:{port}")
    assert run.code == 1
    assert f"--engine ballista://127.0.0.1:{port}: " in run.error
    assert_nothing(tmp_path / "out")


def running(start_program: Start, cluster: Cluster, table: dict[str, Path], out: Path) -> subprocess.Popen[str]:
    """A run whose job has begun tasks on every executor."""
    process = start_program(*command(SLOW, table, out, *cluster.flags, "--json"))
    cluster.wait_for_tasks_of(process)
    return process


def test_the_tasks_of_a_killed_executor_are_repeated(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    assert prepare(SLOW, table, tmp_path / "here").code == 0
    process = running(start_program, own_cluster, table, tmp_path / "there")
    own_cluster.executors[0].kill()
    run = ended(process, 120)
    assert run.code == 0, run.error + own_cluster.log
    assert written(tmp_path / "there").equals(written(tmp_path / "here"))


def test_a_cluster_without_executors_ends_the_job(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path / "out")
    for executor in own_cluster.executors:
        executor.kill()
    run = ended(process, 120)
    assert run.code == 1, run.stdout
    assert "executor" in run.error
    assert_nothing(tmp_path / "out")


def test_a_killed_scheduler_is_an_error(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path / "out")
    own_cluster.scheduler.kill()
    run = ended(process, 30)
    assert run.code == 1
    assert f"--engine {own_cluster.url}: the connection to the scheduler was lost: " in run.error
    assert_nothing(tmp_path / "out")


def test_an_interrupted_run_cancels_its_job(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    process = running(start_program, own_cluster, table, tmp_path / "out")
    process.send_signal(signal.SIGTERM)
    run = ended(process, 30)
    assert run.code == 1
    assert "interrupted" in run.error
    assert poll(lambda: own_cluster.scheduler.logs("Job cancelled")), own_cluster.log
    assert_nothing(tmp_path / "out")


def test_a_file_that_is_replaced_during_a_job_is_an_error(
    start_program: Start, own_cluster: Cluster, table: dict[str, Path], tmp_path: Path
):
    file = table["t"] / "2.parquet"
    other = tmp_path / "other.parquet"
    shutil.copy(file, other)
    process = running(start_program, own_cluster, table, tmp_path / "out")
    os.replace(other, file)
    run = ended(process, 120)
    assert run.code == 1
    assert "an input changed during the run, nothing was written: " in run.error
    assert str(file) in run.error
    assert_nothing(tmp_path / "out")


@pytest.fixture
def namespaces() -> None:
    """A mount that only one process sees needs user namespaces."""
    ended = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True)
    if ended.returncode:
        pytest.skip("this machine does not allow user namespaces")


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("seen", ["nothing", "a copy"])
def test_an_executor_that_sees_other_files_is_an_error(seen: str, table: dict[str, Path], tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    if seen == "a copy":
        for file in table["t"].iterdir():
            shutil.copy2(file, other)
    mount = 'mount --bind "$0" "$1" && shift && exec "$@"'
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(other), str(table["t"])]
    cluster = Cluster(tmp_path / "cluster", executors=1, before=unshared)
    try:
        run = prepare("SELECT sum(id) FROM t", table, tmp_path / "out", *cluster.flags)
    finally:
        cluster.stop()
    assert run.code == 1
    assert f"--engine {cluster.url}: an executor cannot read the same file as this machine: " in run.error
    assert str(table["t"]) in run.error
    assert_nothing(tmp_path / "out")


def test_an_error_of_the_data_is_an_error_of_the_run(own_cluster: Cluster, table: dict[str, Path], tmp_path: Path):
    run = prepare("SELECT 1 / (id - 7999) AS x FROM t", table, tmp_path / "out", *own_cluster.flags)
    assert run.code == 1
    assert "DivideByZero" in run.error
    assert_nothing(tmp_path / "out")


def test_too_little_memory_of_an_executor_is_an_error_that_names_its_flag(table: dict[str, Path], tmp_path: Path):
    cluster = Cluster(tmp_path / "cluster", executors=1, memory="16MiB")
    try:
        sql = "SELECT array_agg(repeat('x', 5000) || id) AS texts FROM t"
        run = prepare(sql, table, tmp_path / "out", *cluster.flags)
    finally:
        cluster.stop()
    assert run.code == 1
    assert f"--engine {cluster.url}: an executor ran out of memory" in run.error
    assert "--memory-pool-size" in run.error
    assert_nothing(tmp_path / "out")
