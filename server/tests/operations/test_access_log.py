"""The access log: one line for each call at its end, and the counter of refusals."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.certificates import principal
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape

ROWS = 20_000
BATCH = 1000
TOKEN, OTHER, WRONG = "token-of-trainer-0123456789", "token-of-other-0123456789", "no-token-of-anyone-0123456789"
PLAN: dict[str, Any] = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
UNFITTED: dict[str, Any] = {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]}]}
# More than sockets and clients buffer, so that a stream that nothing reads stays open.
WIDE: dict[str, Any] = {"outputs": [{"name": "x", "parts": [{"columns": ["x"] * 500}]}]}
ERRORS = (fl.FlightError, pa.ArrowException, OSError, KeyError)

Start = Callable[..., Daemon]
Fields = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("access") / "data"
    root.mkdir()
    pq.write_table(pa.table({"x": np.arange(ROWS, dtype=np.float64)}), root / "a.parquet", row_group_size=BATCH)
    return root


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as running:

        def begin(*flags: str) -> Daemon:
            daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"data={folder}", *flags)
            running.callback(daemon.stop)
            return daemon

        yield begin


@pytest.fixture
def secured(tmp_path: Path) -> tuple[str, ...]:
    """Flags of a server with two principals, one of which may make a single call."""
    (tmp_path / "principals.toml").write_text(
        principal("trainer", TOKEN, "data") + principal("other", OTHER, "elsewhere") + "calls_per_second = 0.001\n"
    )
    return ("--principals", f"{tmp_path}/principals.toml")


def options(request: str, token: str | None = None) -> fl.FlightCallOptions:
    headers = [(b"x-request-id", request.encode())]
    headers += [(b"authorization", f"Bearer {token}".encode())] if token else []
    return fl.FlightCallOptions(timeout=20, headers=headers)


def request(**more: Any) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps({"dataset": "data", "plan": PLAN, "batch_size": BATCH, **more}))


def action(name: str, **body: Any) -> fl.Action:
    return fl.Action(name, json.dumps(body).encode())


def access_lines(daemon: Daemon) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(daemon.lines) if line.startswith("{")]
    return [line for line in lines if line["target"] == "forebay::access"]


def line_of(daemon: Daemon, name: str) -> Fields:
    """The only line about a request, without what differs between runs."""
    found = poll(lambda: [line for line in access_lines(daemon) if line["span"]["request"] == name])
    assert len(found) == 1, (name, found)
    assert found[0]["level"] == "INFO"
    fields: Fields = found[0]["fields"]
    assert fields.pop("message") == "call ended"
    assert 0 <= fields.pop("seconds") < 60
    return fields


def refusals(daemon: Daemon) -> dict[tuple[str, str], float]:
    """The counter by reason and principal, where it is above 0."""
    now = scrape(daemon)
    series = now.labels("forebay_refusals_total")
    counts = {(each["reason"], each["principal"]): now.value("forebay_refusals_total", **each) for each in series}
    return {key: count for key, count in counts.items() if count}


def test_a_flood_of_refusals_is_counted_and_not_logged_line_by_line(start: Start, secured: tuple[str, ...]):
    daemon = start(*secured)
    with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
        call = channel.unary_unary("/arrow.flight.protocol.FlightService/GetFlightInfo")
        for answer in [call.future(b"", timeout=20) for _ in range(1000)]:
            assert answer.code() == grpc.StatusCode.UNAUTHENTICATED
    with fl.connect(daemon.url) as client:
        list(client.list_flights(options=options("after", TOKEN)))
    assert line_of(daemon, "after")["principal"] == "trainer"
    assert refusals(daemon)["UNAUTHENTICATED", "unknown"] == 1000
    # A hundred in an interval of ten seconds.
    lines = [line for line in access_lines(daemon) if line["fields"].get("reason") == "UNAUTHENTICATED"]
    assert 100 <= len(lines) <= 500
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.end() == 0
    left_out = [line["fields"] for line in access_lines(daemon) if "count" in line["fields"]]
    assert {line["source"] for line in left_out} == {"127.0.0.1"}
    assert sum(line["count"] for line in left_out) == 1000 - len(lines)


def test_every_call_is_one_line_with_its_facts_as_numbers(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        list(client.list_flights(options=options("list")))
        list(client.list_actions(options("actions")))
        client.get_schema(fl.FlightDescriptor.for_path("data"), options("schema"))
        found = client.get_flight_info(request(world_size=2, epoch=3, start_position=2000), options("info"))
        plan_id = json.loads(found.app_metadata)["plan_id"]
        client.do_get(found.endpoints[1].ticket, options("stream")).read_all()
        table = client.get_flight_info(fl.FlightDescriptor.for_path("data"), options("table-info"))
        client.do_get(table.endpoints[0].ticket, options("table")).read_all()
        list(client.do_action(action("fit", dataset="data", plan=UNFITTED), options("fit")))
        list(client.do_action(action("explain", dataset="data", plan=PLAN, epoch=7), options("explain")))
        command = fl.FlightDescriptor.for_command(json.dumps({"plan": PLAN}))
        writer, reader = client.do_exchange(command, options("exchange"))
        writer.begin(pa.schema({"x": pa.float64()}))
        for rows in (3, 4):
            writer.write_batch(pa.record_batch({"x": np.zeros(rows)}))
            assert reader.read_chunk().data.num_rows == rows
        writer.done_writing()
        reader.read_all()
        writer.close()

    lines = {name: line_of(daemon, name) for name in ("list", "actions", "schema", "info", "stream")}
    lines |= {name: line_of(daemon, name) for name in ("table-info", "table", "fit", "explain", "exchange")}
    for name, fields in lines.items():
        assert fields.pop("principal") == "anonymous"
        assert re.fullmatch(r"127\.0\.0\.1:\d+", fields.pop("peer")), name
        assert fields.pop("code") == "OK"
        assert not {"reason", "error"} & fields.keys()
        bytes_sent = fields.pop("bytes")
        assert isinstance(bytes_sent, int)
        assert bytes_sent > 0, name
        names = ("fetch", "queue", "decode", "transform", "udf", "assemble")
        stages = [fields.pop(f"{stage}_seconds", None) for stage in names]
        assert all(isinstance(seconds, float) for seconds in stages) == (name in ("stream", "table")), stages
        fields.pop("send_wait_seconds", None)
    assert lines["list"] == {"call": "ListFlights"}
    assert lines["actions"] == {"call": "ListActions"}
    assert lines["schema"] == {"call": "GetSchema", "dataset": "data"}
    epoch = {"dataset": "data", "epoch": 3, "plan_id": plan_id}
    assert lines["info"] == {"call": "GetFlightInfo", **epoch, "position": 2000}
    # The position is that of the next batch.
    counts = {"rank": 1, "position": ROWS, "batches": 9, "rows": 9 * BATCH}
    assert lines["stream"] == {"call": "DoGet", **epoch, **counts}
    assert lines["table-info"] == {"call": "GetFlightInfo", "dataset": "data"}
    batches = lines["table"].pop("batches")
    assert isinstance(batches, int)
    assert lines["table"] == {"call": "DoGet", "dataset": "data", "position": ROWS, "rows": ROWS}
    assert lines["fit"] == {"call": "DoAction/fit", "dataset": "data"}
    assert lines["explain"] == {"call": "DoAction/explain", "dataset": "data", "epoch": 7, "position": 0}
    assert lines["exchange"].pop("plan_id") == plan_id
    assert lines["exchange"] == {"call": "DoExchange", "batches": 2, "rows": 7}
    assert len(access_lines(daemon)) == len(lines)
    assert refusals(daemon) == {}


def test_refused_calls_have_a_line_and_are_counted(start: Start, secured: tuple[str, ...], tmp_path: Path):
    daemon = start(*secured, "--listen", f"unix:{tmp_path}/socket")
    attempts: dict[str, Callable[[fl.FlightClient], object]] = {
        "none": lambda client: list(client.list_flights(options=options("none"))),
        "wrong": lambda client: list(client.list_flights(options=options("wrong", WRONG))),
        "missing": lambda client: client.get_flight_info(request(dataset="dato"), options("missing", TOKEN)),
        "forged": lambda client: client.do_get(fl.Ticket(b"forged"), options("forged", TOKEN)).read_all(),
        "unfitted": lambda client: client.get_flight_info(request(plan=UNFITTED), options("unfitted", TOKEN)),
        "unknown": lambda client: list(client.do_action(fl.Action("x" * 5000, b""), options("unknown", TOKEN))),
        "ungranted": lambda client: client.get_flight_info(request(), options("ungranted", OTHER)),
        "often": lambda client: client.get_flight_info(request(), options("often", OTHER)),
    }
    with fl.connect(daemon.url) as client:
        for attempt in attempts.values():
            with pytest.raises(ERRORS):
                attempt(client)
    with fl.connect(daemon.urls[1]) as client, pytest.raises(ERRORS):
        list(client.list_flights(options=options("socket", WRONG)))

    def refused(name: str) -> tuple[str, ...]:
        fields = line_of(daemon, name)
        assert fields["error"]
        assert "[request" not in fields["error"]
        return tuple(fields[field] for field in ("principal", "call", "code", "reason"))

    assert refused("none") == ("unknown", "ListFlights", "UNAUTHENTICATED", "UNAUTHENTICATED")
    assert refused("wrong") == ("unknown", "ListFlights", "UNAUTHENTICATED", "UNAUTHENTICATED")
    assert refused("missing") == ("trainer", "GetFlightInfo", "PERMISSION_DENIED", "PERMISSION_DENIED")
    assert refused("forged") == ("trainer", "DoGet", "PERMISSION_DENIED", "PERMISSION_DENIED")
    assert refused("unfitted") == ("trainer", "GetFlightInfo", "FAILED_PRECONDITION", "NOT_FITTED")
    assert refused("unknown") == ("trainer", "DoAction", "UNIMPLEMENTED", "UNIMPLEMENTED")
    assert refused("ungranted") == ("other", "GetFlightInfo", "PERMISSION_DENIED", "PERMISSION_DENIED")
    assert refused("often") == ("other", "GetFlightInfo", "RESOURCE_EXHAUSTED", "OVERLOADED")
    assert line_of(daemon, "missing")["dataset"] == "dato"
    assert line_of(daemon, "socket")["peer"] == "unix"
    assert refusals(daemon) == {
        ("UNAUTHENTICATED", "unknown"): 3,
        ("PERMISSION_DENIED", "trainer"): 2,
        ("NOT_FITTED", "trainer"): 1,
        ("UNIMPLEMENTED", "trainer"): 1,
        ("PERMISSION_DENIED", "other"): 1,
        ("OVERLOADED", "other"): 1,
    }
    text = "".join(daemon.lines)
    assert not any(token in text for token in (TOKEN, OTHER, WRONG, "Bearer " + TOKEN[:4]))


@pytest.mark.parametrize("log_format", ["human", "json"])
def test_client_text_is_truncated_and_escaped(start: Start, log_format: str):
    hostile = "\x1b[31mred\nINFO forged line\u202e" + "y" * 10_000
    daemon = start("--log-format", log_format)
    with fl.connect(daemon.url) as client:
        with pytest.raises(ERRORS):
            client.get_flight_info(request(dataset=hostile, plan_id=hostile, plan=None), options("request"))
        with pytest.raises(ERRORS):
            client.get_flight_info(fl.FlightDescriptor.for_path(hostile), options("path"))

    def lines() -> list[str]:
        return [line for line in list(daemon.lines) if "forebay::access" in line]

    assert poll(lambda: len(lines()) == 2)
    assert not any("\x1b" in line or line.startswith("INFO forged") for line in daemon.lines)
    assert all("[31mred" in line and len(line) < 3000 for line in lines())
    # Callers without a name share their series.
    assert {principal for _, principal in refusals(daemon)} == {"anonymous"}


def test_cancelled_stream_has_its_position_and_is_no_refusal(start: Start):
    daemon = start()
    with fl.connect(daemon.url) as client:
        ticket = client.get_flight_info(request(plan=WIDE), options("info")).endpoints[0].ticket
        reader = client.do_get(ticket, options("stream"))
        reader.read_chunk()
        reader.cancel()
        fields = line_of(daemon, "stream")
    assert (fields["code"], fields["reason"]) == ("CANCELLED", "CANCELLED")
    assert BATCH <= fields["rows"] < ROWS
    assert fields["position"] == fields["rows"] == fields["batches"] * BATCH
    assert refusals(daemon) == {}


def test_calls_that_a_shutdown_ends_have_its_reason(start: Start):
    daemon = start("--drain-seconds", "1")
    with fl.connect(daemon.url) as client:
        ticket = client.get_flight_info(request(plan=WIDE), options("info")).endpoints[0].ticket
        reader = client.do_get(ticket, options("cut"))
        reader.read_chunk()
        unread = client.do_get(ticket, options("unread"))
        unread.read_chunk()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.drains()
        with pytest.raises(ERRORS):
            client.do_get(ticket, options("refused")).read_all()
        # It is read when its time is up, and before the server closes the connection.
        over = time.monotonic() + 1.2
        assert poll(lambda: time.monotonic() > over)
        with pytest.raises(fl.FlightUnavailableError) as cut:
            reader.read_all()
        assert daemon.end(seconds=20) == 0
    for name in ("cut", "unread", "refused"):
        fields = line_of(daemon, name)
        assert (fields["code"], fields["reason"]) == ("UNAVAILABLE", "SHUTTING_DOWN"), name
    resume = re.search(r"start_position (\d+)", str(cut.value))
    assert resume
    assert line_of(daemon, "cut")["position"] == int(resume[1])
    assert "rows" not in line_of(daemon, "refused")


def test_call_over_the_limit_of_connections_has_a_line(start: Start):
    daemon = start("--connections-max", "1")
    with fl.connect(daemon.url) as first:
        list(first.list_flights(options=options("first")))
        with fl.connect(daemon.url) as second, pytest.raises(ERRORS, match="--connections-max"):
            list(second.list_flights(options=options("second")))
        fields = line_of(daemon, "second")
        assert (fields["code"], fields["reason"]) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
        assert (fields["principal"], fields["call"]) == ("unknown", "ListFlights")
        assert refusals(daemon) == {("OVERLOADED", "unknown"): 1}


def test_debug_shows_own_events_and_trace_those_of_libraries(start: Start):
    def targets(level: str) -> set[str]:
        daemon = start("--log", level)
        with grpc.insecure_channel(daemon.url.removeprefix("grpc://")) as channel:
            health = (b"x-request-id", b"health")
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10, metadata=[health])
        with fl.connect(daemon.url) as client:
            ticket = client.get_flight_info(request(), options("info")).endpoints[0].ticket
            client.do_get(ticket, options("stream")).read_all()
        daemon.process.terminate()
        assert daemon.end() == 0
        daemon.stop()
        lines = [json.loads(line) for line in daemon.lines if line.startswith("{")]
        checks = [line for line in lines if line["fields"].get("call") == "Check"]
        # Probes would fill the log at its usual level.
        assert len(checks) == (level != "info")
        return {f"{line['level']} {line['target'].split(':')[0]}" for line in lines}

    info, debug, trace = (targets(level) for level in ("info", "debug", "trace"))
    of_debug = {target.split()[1] for target in debug if target.startswith("DEBUG")}
    assert all(target.split()[1].startswith("forebay") for target in info)
    assert not any(target.startswith("DEBUG") for target in info)
    assert {"forebay", "forebay_server"} <= of_debug
    assert all(target.startswith("forebay") for target in of_debug)
    assert not any(library in target for target in debug for library in ("h2", "hyper", "tower"))
    assert any("h2" in target for target in trace)


def test_access_log_can_be_switched_off(start: Start):
    daemon = start("--log", "info,forebay::access=off")
    with fl.connect(daemon.url) as client:
        list(client.list_flights())
    daemon.process.terminate()
    assert daemon.end() == 0
    daemon.stop()
    assert access_lines(daemon) == []
    assert any("snapshot opened" in line for line in daemon.lines)
