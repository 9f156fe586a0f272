"""Traces are exported only to the configured OpenTelemetry collector; a stalled one blocks no stream."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as collector_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, poll
from harness.serving import info

ROWS = 20_000
PLAN = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
Start = Callable[..., Daemon]


class Collector(collector_grpc.TraceServiceServicer):
    """Collects exported spans; can delay its callers."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resource: dict[str, Any] = {}
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.was_called = threading.Event()

    def Export(self, request: service.ExportTraceServiceRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.was_called.set()
        self.goes_on.wait(60)
        for sent in request.resource_spans:
            self.resource = attributes(sent.resource)
            for scope in sent.scope_spans:
                self.spans.extend(scope.spans)
        return service.ExportTraceServiceResponse()

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]


def attributes(of: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in of.attributes}


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    kept = Collector()
    collector_grpc.add_TraceServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield kept, f"http://127.0.0.1:{port}"
    finally:
        kept.goes_on.set()
        server.stop(None).wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Numbers, and in `late` a null behind most of them."""
    for name, values in (("data", np.arange(ROWS, dtype=np.float64)), ("late", [1.0] * (ROWS - 1) + [None])):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"x": pa.array(values)}), tmp_path / name / "a.parquet", row_group_size=5000)
    with contextlib.ExitStack() as running:

        def begin(*flags: str, env: dict[str, str] | None = None) -> Daemon:
            datasets = [f"--dataset={name}={tmp_path / name}" for name in ("data", "late")]
            daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", *datasets, *flags, env=env)
            running.callback(daemon.stop)
            return daemon

        yield begin


def read(daemon: Daemon, dataset: str = "data", headers: list[tuple[bytes, bytes]] | None = None, **more: Any) -> int:
    with fl.connect(daemon.url) as client:
        request = {"dataset": dataset, "plan": PLAN, "batch_size": 1000, **more}
        ticket = info(client, request).endpoints[0].ticket
        return client.do_get(ticket, fl.FlightCallOptions(headers=headers or [])).read_all().num_rows


def test_stream_trace_has_a_span_per_stage(start: Start, collector: tuple[Collector, str]):
    kept, url = collector
    daemon = start("--otlp-endpoint", url, env=SOON)
    assert read(daemon, headers=[(b"x-request-id", b"job-1")]) == ROWS
    (call,) = poll(lambda: kept.named("DoGet"))
    assert kept.resource["service.name"] == "forebay-server"
    assert kept.resource["service.version"] == fb.__version__
    assert call.kind == Span.SPAN_KIND_SERVER
    assert call.status.code != Status.STATUS_CODE_ERROR
    call_attributes = attributes(call)
    assert (call_attributes["request"], call_attributes["rpc.system"], call_attributes["rpc.method"]) == (
        "job-1",
        "grpc",
        "DoGet",
    )
    assert {event.name for event in call.events} >= {"call ended"}
    parts = poll(lambda: [s for s in kept.spans if s.trace_id == call.trace_id and s is not call])
    known = {span.span_id for span in parts} | {call.span_id}
    assert all(span.parent_span_id in known for span in parts)
    count = {name: sum(span.name == name for span in parts) for name in ("prepare", "fetch", "decode")}
    assert count["prepare"] == 1
    assert count["fetch"] == ROWS // 5000
    assert count["decode"] >= ROWS // 5000
    assert all(call.start_time_unix_nano <= span.start_time_unix_nano for span in parts)


def test_shuffled_streams_and_fits_name_their_spans(start: Start, collector: tuple[Collector, str]):
    kept, url = collector
    daemon = start("--otlp-endpoint", url, env=SOON)
    assert read(daemon, shuffle=True, window_rows=500, lanes=4) == ROWS
    windows = poll(lambda: len(kept.named("window")) >= ROWS // 500 and kept.named("window"))
    assert {attributes(span)["lane"] for span in windows} == {0, 1, 2, 3}
    with fb.connect(daemon.url) as client:
        client.fit("data", fb.Plan(outputs={"x": fb.cols("x").standardize()}))
    (fit_pass,) = poll(lambda: kept.named("pass"))
    # Spans are exported as they end: the call's span follows its children.
    assert poll(lambda: fit_pass.trace_id in {span.trace_id for span in kept.named("DoAction")})


def test_trace_continues_the_clients_and_log_lines_name_it(start: Start, collector: tuple[Collector, str]):
    kept, url = collector
    daemon = start("--otlp-endpoint", url, env=SOON)
    read(daemon, headers=[(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())])
    (call,) = poll(lambda: kept.named("DoGet"))
    assert (call.trace_id.hex(), call.parent_span_id.hex()) == (TRACE, PARENT)
    assert poll(lambda: [line for line in daemon.lines if "call ended" in line and TRACE in line])
    # Headers that are not a trace, and a trace that is not sampled.
    for header in ("nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "00-" + "a" * 9000):
        assert read(daemon, headers=[(b"traceparent", header.encode())]) == ROWS
    assert len(poll(lambda: len(kept.named("DoGet")) == 5 and kept.named("DoGet"))) == 5
    read(daemon, headers=[(b"traceparent", f"00-{'1' * 32}-{PARENT}-00".encode()), (b"x-request-id", b"unkept")])
    read(daemon, headers=[(b"x-request-id", b"last")])
    assert poll(lambda: [s for s in kept.spans if attributes(s).get("request") == "last"])
    assert not [s for s in kept.spans if attributes(s).get("request") == "unkept"]


def test_failed_stream_span_has_the_reason(start: Start, collector: tuple[Collector, str]):
    kept, url = collector
    daemon = start("--otlp-endpoint", url, env=SOON)
    with pytest.raises(pa.ArrowInvalid, match="null"):
        read(daemon, "late")
    with pytest.raises(KeyError):
        read(daemon, "no-such-dataset")
    (stream,) = poll(lambda: kept.named("DoGet"))
    assert stream.status.code == Status.STATUS_CODE_ERROR
    assert "null" in stream.status.message
    refused = poll(lambda: [s for s in kept.named("GetFlightInfo") if s.status.code == Status.STATUS_CODE_ERROR])
    assert refused[0].status.message == "NOT_FOUND"


def test_remaining_spans_are_exported_at_shutdown(start: Start, collector: tuple[Collector, str]):
    kept, url = collector
    daemon = start("--otlp-endpoint", url, env={"OTEL_BSP_SCHEDULE_DELAY": "3600000"})
    read(daemon)
    assert not kept.was_called.is_set()
    daemon.process.terminate()
    assert daemon.end() == 0
    assert kept.named("DoGet")


def test_unavailable_collector_blocks_no_stream(start: Start, collector: tuple[Collector, str]):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        daemon = start("--otlp-endpoint", f"http://127.0.0.1:{unused.getsockname()[1]}", env=SOON)
        assert [read(daemon) for _ in range(3)] == [ROWS] * 3
    daemon.process.terminate()
    assert daemon.end() == 0
    kept, url = collector
    kept.goes_on.clear()
    daemon = start("--otlp-endpoint", url, env=SOON)
    assert read(daemon) == ROWS
    assert kept.was_called.wait(10)
    # More spans than wait for the collector.
    assert [read(daemon, batch_size=100) for _ in range(20)] == [ROWS] * 20
    daemon.process.terminate()
    assert daemon.end() == 0


def test_without_an_endpoint_nothing_is_sent_and_no_line_names_a_trace(start: Start, collector: tuple[Collector, str]):
    kept, url = collector
    daemon = start(env={"OTEL_EXPORTER_OTLP_ENDPOINT": url, **SOON})
    read(daemon, headers=[(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())])
    ended = poll(lambda: [line for line in daemon.lines if "call ended" in line])
    assert ended
    assert not [line for line in daemon.lines if "trace_id" in line or "otel" in line]
    time.sleep(0.3)
    assert not kept.was_called.is_set()
