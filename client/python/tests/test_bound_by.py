"""`stats` names the bottleneck of a training loop: trainer, CPU, storage or network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client.stages import StageSeconds, bound_by
from forebay.torch import FlightDataset
from harness.proxy import Proxy
from harness.web_server import Files, WebServer

pytestmark = pytest.mark.long

ROWS, COLUMNS = 120_000, 8
Serve = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers: `small` has them in row groups of 2000 rows, `large` in one."""
    root = tmp_path_factory.mktemp("bound")
    rng = np.random.default_rng(5)
    table = pa.table({f"x{column}": rng.random(ROWS, np.float32) for column in range(COLUMNS)})
    for name, rows in (("small", 2000), ("large", ROWS)):
        (root / name).mkdir()
        pq.write_table(table, root / name / "part.parquet", row_group_size=rows)
    return root


def plan() -> fb.Plan:
    return fb.Plan(outputs={"x": [fb.cols(*(f"x{column}" for column in range(COLUMNS))).log1p().clip(-3, 3)]})


def costly_plan() -> fb.Plan:
    """Much to compute for little to send."""
    terms = (f"power(abs(sin(x{column} * {factor})), 1.7)" for column in range(COLUMNS) for factor in range(1, 9))
    return fb.Plan(derive={"y": " + ".join(terms)}, outputs={"x": [fb.cols("y")]})


def stats(url: str, *, step_seconds: float = 0.0, made_by: fb.Plan | None = None, **options: Any) -> dict[str, Any]:
    data = FlightDataset(url, "data", made_by or plan(), batch_size=1000, rank=0, world_size=1, **options)
    rows = 0
    for batch in data:
        rows += len(batch["x"])
        time.sleep(step_seconds)
    assert rows == ROWS
    return data.stats()


def test_slow_training_loop_is_bound_by_the_trainer(serve: Serve, folder: Path):
    report = stats(serve({"data": folder / "small"}).url, step_seconds=0.02)
    assert report["bound_by"] == "trainer", report
    assert "waited for data" in report["because"]


@pytest.mark.parametrize("shuffle", [False, True])
def test_busy_server_is_bound_by_the_cpu(serve: Serve, folder: Path, shuffle: bool):
    report = stats(serve({"data": folder / "large"}).url, made_by=costly_plan(), shuffle=shuffle)
    assert report["bound_by"] == "CPU", report
    assert "computed for" in report["because"]
    assert min(report["transform_seconds"], report["decode_seconds"]) > 0


@pytest.mark.parametrize("shuffle", [False, True])
def test_streams_that_share_a_cpu_thread_wait_in_its_queue(serve: Serve, folder: Path, shuffle: bool):
    url = serve({"data": folder / "large"}, "--cpu-threads", "1").url
    reports: list[dict[str, Any]] = []

    def read() -> None:
        reports.append(stats(url, made_by=costly_plan(), shuffle=shuffle, lanes=2))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report["bound_by"] for report in reports] == ["CPU"] * 6, reports
    computed = sum(
        report["decode_seconds"] + report["transform_seconds"] + report["assemble_seconds"] for report in reports
    )
    # Five of six streams wait at any time.
    assert sum(report["queue_seconds"] for report in reports) > 2 * computed, reports


@pytest.mark.parametrize("shuffle", [False, True])
def test_slow_store_is_bound_by_storage(serve: Serve, folder: Path, shuffle: bool):
    class Slow(Files):
        files: ClassVar[dict[str, bytes]] = {"/part.parquet": (folder / "small/part.parquet").read_bytes()}

        def answer(self, with_body: bool) -> None:
            time.sleep(0.08)
            super().answer(with_body)

    with WebServer(Slow) as url:
        report = stats(serve({"data": f"{url}/part.parquet"}).url, shuffle=shuffle, lanes=2)
    assert report["bound_by"] == "storage", report
    assert "for storage" in report["because"]


def test_slow_network_is_bound_by_the_network(serve: Serve, folder: Path):
    with Proxy(serve({"data": folder / "small"}).url, bytes_per_second=1.5e6) as proxy:
        report = stats(proxy.url)
    assert report["bound_by"] == "wire", report
    assert 0 < report["wait_seconds"] <= report["loop_seconds"]


def test_server_reports_stage_seconds_per_batch(serve: Serve, folder: Path):
    with fb.connect(serve({"data": folder / "small"}).url) as client:
        for shuffle in (False, True):
            headers = [batch.header for batch in client.stream("data", plan(), batch_size=1000, shuffle=shuffle)]
            spent = sum((header.stage_seconds for header in headers), StageSeconds())
            assert min(spent.decode, spent.assemble) > 0
            assert spent.transform >= 0
            # Times are not a property of a batch.
            again = [batch.header for batch in client.stream("data", plan(), batch_size=1000, shuffle=shuffle)]
            assert again == headers


def test_no_measurements_give_no_verdict():
    assert bound_by(StageSeconds(), loop_seconds=0.0, wait_seconds=0.0) == ("", "")
    assert bound_by(StageSeconds(fetch=4.0, decode=3.0), loop_seconds=5.0, wait_seconds=4.0)[0] == "storage"
    assert bound_by(StageSeconds(decode=3.0, send_wait=3.0), loop_seconds=5.0, wait_seconds=4.0)[0] == "wire"
    assert bound_by(StageSeconds(fetch=0.5, decode=0.5), loop_seconds=5.0, wait_seconds=4.0)[0] == "wire"
    # Waiting for CPU threads is not waiting for the wire.
    assert bound_by(StageSeconds(queue=6.0, decode=0.5), loop_seconds=5.0, wait_seconds=4.0)[0] == "CPU"
    assert bound_by(StageSeconds(queue=6.0, decode=0.5), loop_seconds=5.0, wait_seconds=4.0, lanes=8)[0] == "wire"
    # Four lanes that wait side by side.
    assert bound_by(StageSeconds(fetch=4.0, decode=3.0), loop_seconds=5.0, wait_seconds=4.0, lanes=4)[0] == "CPU"
