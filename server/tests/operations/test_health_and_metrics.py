"""Ready lines, health endpoints and metrics of a running server."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.certificates import Authority
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import Scrape, scrape
from harness.serving import fit, info, raw_table

TYPES = {
    "forebay_streams_active": "gauge",
    "forebay_streams_total": "counter",
    "forebay_batches_sent_total": "counter",
    "forebay_rows_sent_total": "counter",
    "forebay_sent_bytes_total": "counter",
    "forebay_stage_seconds_total": "counter",
    "forebay_batch_seconds": "histogram",
    "forebay_storage_requests_total": "counter",
    "forebay_storage_read_bytes_total": "counter",
    "forebay_memory_reserved_bytes": "gauge",
    "forebay_memory_limit_bytes": "gauge",
    "forebay_build_info": "gauge",
}
STREAM = {"dataset": "wide", "plan": {"outputs": [{"name": "text", "dtype": "AS_STORED", "parts": []}]}}
STREAM["plan"]["outputs"][0]["parts"] = [{"columns": ["text"]}]


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 rows of 1 KB text in a small file; another with a late null; another that is damaged."""
    root = tmp_path_factory.mktemp("operations")
    text = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), [("forebay " * 128)])
    for name in ("wide", "late", "damaged"):
        (root / name).mkdir()
    pq.write_table(pa.table({"text": text}), root / "wide/a.parquet", store_schema=False, row_group_size=10_000)
    x = pa.array([1.0] * 29_999 + [None])
    pq.write_table(pa.table({"x": x}), root / "late/a.parquet", row_group_size=10_000)
    pq.write_table(pa.table({"x": x}), root / "damaged/a.parquet", row_group_size=10_000)
    data = bytearray((root / "damaged/a.parquet").read_bytes())
    data[8:60] = b"\xff" * 52
    (root / "damaged/a.parquet").write_bytes(data)
    return root


@pytest.fixture
def daemon(wide_folder: Path, tiny_folder: Path, tmp_path: Path) -> Iterator[Daemon]:
    datasets = [f"--dataset={name}={wide_folder / name}" for name in ("wide", "late", "damaged")]
    running = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", f"--dataset=tiny={tiny_folder}", *datasets)
    yield running
    # Data goes to stdout, and a server has none.
    assert running.stop() == ""
    assert not any("panic" in line for line in running.lines)


def settled(daemon: Daemon) -> Scrape:
    """The metrics once no stream is open and no memory held."""

    def at_rest() -> bool:
        now = scrape(daemon)
        return now.value("forebay_streams_active") == now.value("forebay_memory_reserved_bytes") == 0

    assert poll(at_rest), "a stream that has ended still counts, or holds memory"
    return scrape(daemon)


def ended(before: Scrape, after: Scrape) -> dict[str, float]:
    name = "forebay_streams_total"
    kinds = ("complete", "cancelled", "failed")
    return {kind: after.value(name, status=kind) - before.value(name, status=kind) for kind in kinds}


def test_every_address_has_its_ready_line(tiny_folder: Path, tmp_path: Path, tiny: pa.Table):
    sockets = ("--listen", f"unix:{tmp_path}/flight", "--listen", "localhost:0", "--listen", "[::1]:0")
    daemon = Daemon(*LOOPBACK, *sockets, "--state", f"{tmp_path}/state", "--dataset", f"tiny={tiny_folder}")
    try:
        kinds = [re.sub(r":\d+$", ":PORT", url) for url in daemon.urls]
        assert sorted(kinds) == sorted(
            ["grpc://127.0.0.1:PORT", "grpc://127.0.0.1:PORT", "grpc://[::1]:PORT", f"grpc+unix://{tmp_path}/flight"]
        )
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", daemon.metrics_url)
        assert not any(url.endswith(":0") for url in [*daemon.urls, daemon.metrics_url.removesuffix("/metrics")])
        for url in daemon.urls:
            with fl.connect(url) as client:
                assert raw_table(client, "tiny").equals(tiny)
        daemon.process.terminate()
        assert daemon.end() == 0
        assert not (tmp_path / "flight").exists()
    finally:
        assert daemon.stop() == ""


def test_health_ready_and_unknown_paths(daemon: Daemon):
    assert daemon.get("/healthz")[0] == 200
    assert daemon.get("/readyz")[0] == 200
    assert daemon.get("/metrics?x=1")[0] == 200
    for path in ("/status", "/metric", "/metrics/", "/healthz/x", "//", "/%2e%2e/etc/passwd"):
        assert daemon.get(path)[0] == 404, path


def test_every_metric_is_exposed_from_the_start(daemon: Daemon):
    now = scrape(daemon)
    for name, kind in TYPES.items():
        assert now.types.get(name) == kind, name
    for name, kind in now.types.items():
        assert name.startswith("forebay_"), name
        assert name.endswith("_total") == (kind == "counter"), name
    for name in TYPES:
        suffix = "_count" if TYPES[name] == "histogram" else ""
        assert now.labels(name + suffix), f"{name} has no sample before the first stream"
    stages = {labels["stage"] for labels in now.labels("forebay_stage_seconds_total")}
    assert stages == {"fetch", "queue", "decode", "transform", "udf", "assemble", "send_wait"}
    statuses = {labels["status"] for labels in now.labels("forebay_streams_total")}
    assert statuses == {"complete", "cancelled", "failed"}
    assert all(set(labels) == {"operation", "status"} for labels in now.labels("forebay_storage_requests_total"))
    assert now.labels("forebay_build_info")[0]["version"]
    assert now.value("forebay_memory_limit_bytes") > 0


def test_counters_match_what_the_client_received(daemon: Daemon):
    before = settled(daemon)
    request: dict[str, Any] = {**STREAM, "batch_size": 3000, "world_size": 2}
    batches: list[pa.RecordBatch] = []
    with fl.connect(daemon.url) as client:
        for endpoint in info(client, request).endpoints:
            batches += [chunk.data for chunk in client.do_get(endpoint.ticket)]
    after = settled(daemon)

    def grown(name: str) -> float:
        return after.value(name) - before.value(name)

    assert ended(before, after) == {"complete": 2, "cancelled": 0, "failed": 0}
    assert grown("forebay_batches_sent_total") == len(batches) == 34
    assert grown("forebay_rows_sent_total") == sum(batch.num_rows for batch in batches) == 100_000
    body = sum(batch.nbytes for batch in batches)
    assert body <= grown("forebay_sent_bytes_total") <= body * 1.01 + 2048 * len(batches)
    assert grown("forebay_batch_seconds_count") == len(batches)
    assert grown("forebay_storage_read_bytes_total") > 0
    assert sum(v for (name, _), v in after.samples.items() if name == "forebay_stage_seconds_total") > 0


def test_histogram_buckets_are_cumulative(daemon: Daemon):
    with fl.connect(daemon.url) as client:
        raw_table(client, "wide")
    now = settled(daemon)
    bounds = sorted((float(labels["le"]), labels["le"]) for labels in now.labels("forebay_batch_seconds_bucket"))
    counts = [now.value("forebay_batch_seconds_bucket", le=text) for _, text in bounds]
    assert len(bounds) > 5
    assert bounds[-1][1] == "+Inf"
    assert counts == sorted(counts)
    assert counts[-1] == now.value("forebay_batch_seconds_count") == now.value("forebay_batches_sent_total") > 0
    assert now.value("forebay_batch_seconds_sum") > 0


@pytest.mark.parametrize("how", ["cancel", "close the client", "never read"])
def test_disconnected_client_releases_its_memory(daemon: Daemon, how: str):
    before = settled(daemon)
    with fl.connect(daemon.url) as client:
        reader = client.do_get(info(client, {**STREAM, "batch_size": 500}).endpoints[0].ticket)
        if how != "never read":
            reader.read_chunk()
        during = scrape(daemon)
        assert during.value("forebay_streams_active") == 1
        assert during.value("forebay_memory_reserved_bytes") > 0
        if how == "cancel":
            reader.cancel()
        del reader
    assert ended(before, settled(daemon)) == {"complete": 0, "cancelled": 1, "failed": 0}


@pytest.mark.parametrize("dataset", ["late", "damaged"])
def test_failed_stream_is_counted_and_releases_its_memory(daemon: Daemon, dataset: str):
    before = settled(daemon)
    plan = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
    with fl.connect(daemon.url) as client, pytest.raises((fl.FlightError, pa.ArrowInvalid)):
        client.do_get(info(client, {"dataset": dataset, "plan": plan}).endpoints[0].ticket).read_all()
    assert ended(before, settled(daemon)) == {"complete": 0, "cancelled": 0, "failed": 1}


def gauge(daemon: Daemon, name: str) -> float | None:
    return scrape(daemon).samples.get((name, frozenset()))


def test_the_certificate_expiry_follows_the_file(tiny_folder: Path, tmp_path: Path):
    name = "forebay_tls_certificate_expiry_timestamp_seconds"
    authority = Authority(tmp_path / "certificates")
    first, second = (int(time.time()) + days * 86_400 for days in (10, 400))
    pair = authority.issue("server", "localhost", until=first)
    flags = ("--state", f"{tmp_path}/state", f"--dataset=tiny={tiny_folder}")
    daemon = Daemon(*LOOPBACK, *flags, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    try:
        assert poll(lambda: gauge(daemon, name) == first)
        authority.issue("server", "localhost", until=second)
        assert poll(lambda: gauge(daemon, name) == second, seconds=30)
        # A file that is not a certificate changes nothing.
        pair.cert.write_text("damaged")
        assert poll(lambda: any("cannot reload files" in line for line in daemon.lines), seconds=30)
        assert gauge(daemon, name) == second
    finally:
        daemon.stop()


def test_the_size_of_the_state_follows_its_files(daemon: Daemon, tmp_path: Path):
    def is_measured() -> bool:
        size = sum(path.stat().st_size for path in (tmp_path / "state").rglob("*") if path.is_file())
        plans = len(list((tmp_path / "state/plans").iterdir()))
        return (gauge(daemon, "forebay_state_bytes"), gauge(daemon, "forebay_state_plans")) == (size, plans)

    assert poll(is_measured)
    with fl.connect(daemon.url) as client:
        fit(client, "late", {"outputs": [{"name": "y", "parts": [{"columns": ["x"], "ops": [{"min_max": {}}]}]}]})
    assert len(list((tmp_path / "state/plans").iterdir())) == 1
    assert poll(is_measured, seconds=30)
    assert gauge(daemon, "forebay_tls_certificate_expiry_timestamp_seconds") is None
