"""Invalid streams from a misbehaving Flight server, and the translation of pyarrow's errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import forebay as fb
from forebay.errors import translate

SCHEMA = pa.schema([pa.field("x", pa.float32(), nullable=False)])


class Misbehaving(fl.FlightServerBase):
    """Streams `script`: (header, rows) pairs; a string is raised as an error."""

    script: list[Any] = []  # noqa: RUF012 (set by each test)
    share: dict[str, Any] = {"rank": 0, "rows": 8, "steps": 2}  # noqa: RUF012

    def list_actions(self, context: Any) -> list[Any]:
        return []

    def get_flight_info(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        endpoint = fl.FlightEndpoint(b"0", [], app_metadata=json.dumps(self.share))
        stream = json.dumps({"snapshot": "s", "plan_id": "p", "rows": 8, "steps": 2})
        return fl.FlightInfo(SCHEMA, descriptor, [endpoint], 8, -1, app_metadata=stream)

    def do_get(self, context: Any, ticket: fl.Ticket) -> fl.GeneratorStream:
        return fl.GeneratorStream(SCHEMA, self._batches())

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        for header, rows in self.script:
            if isinstance(rows, str):
                raise fl.FlightUnavailableError(rows)
            batch = pa.record_batch([pa.array([0.0] * rows, pa.float32())], schema=SCHEMA)
            yield batch, header if isinstance(header, bytes) else json.dumps(header).encode()


@pytest.fixture
def misbehaving() -> Iterator[Misbehaving]:
    with Misbehaving("grpc://127.0.0.1:0") as server:
        yield server


def header(step: int, *, rows: int = 4, last: bool = False, position: int | None = None) -> dict[str, Any]:
    at = step * 4 if position is None else position
    return {"epoch": 0, "step": step, "position": at, "rows": rows, "padding_rows": 0, "last": last, "checksum": 0}


def connected(misbehaving: Misbehaving) -> fb.Client:
    """A client without retries: errors of a broken stream are raised unchanged."""
    return fb.connect(f"grpc://127.0.0.1:{misbehaving.port}", retry_seconds=0)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([(header(0), 4), (header(1), 4)], "ended after step 1, without the last batch"),
        ([], "ended before its first batch"),
        ([(header(0), 4), (header(2, last=True), 4)], "step 2 of rank 0: expected step 1"),
        ([(header(0), 4), (header(0, last=True), 4)], "step 0 of rank 0: expected step 1"),
        ([(header(0), 3)], "header counts 4 rows, the batch has 3"),
        ([(header(0, last=True), 4), (header(1), 4)], "the last one"),
        ([(header(0, position=4), 4)], "expected position 0, found 4"),
        ([(header(0), 4), (header(1, position=12, last=True), 4)], "expected position 4, found 12"),
        ([(b"", 4)], "no readable header"),
        ([(b"\x08\x01", 4)], "no readable header"),
    ],
)
def test_invalid_stream_raises(misbehaving: Misbehaving, script: list[Any], words: str):
    misbehaving.script = script
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with connected(misbehaving) as client, client.stream("d", plan, batch_size=4) as stream:
        with pytest.raises(fb.errors.StreamError, match=words):
            list(stream)
        place = stream.cursor()
        # An error is not the end of the epoch: the stream retries, and this server fails again.
        if words == "the last one":
            assert list(stream) == []
        else:
            with pytest.raises(fb.errors.StreamError):
                list(stream)
        assert stream.cursor() == place
        stream.close()
        assert list(stream) == []
        assert stream.cursor() == place


def test_valid_stream_does_not_raise(misbehaving: Misbehaving):
    misbehaving.script = [(header(0), 4), (header(1, rows=1, last=True), 1)]
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with connected(misbehaving) as client, client.stream("d", plan, batch_size=4) as stream:
        assert len(stream) == 2
        assert [len(batch["x"]) for batch in stream] == [4, 1]


def test_rank_without_steps_ends_immediately(misbehaving: Misbehaving):
    misbehaving.share = {"rank": 0, "rows": 0, "steps": 0}
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with connected(misbehaving) as client, client.stream("d", plan, batch_size=4) as stream:
        assert list(stream) == []


def test_empty_last_batch_is_not_a_step(misbehaving: Misbehaving):
    misbehaving.share = {"rank": 0, "rows": 0, "steps": 0}
    misbehaving.script = [(header(0, rows=0, last=True), 0)]
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with connected(misbehaving) as client, client.stream("d", plan, batch_size=4) as stream:
        assert list(stream) == []


def test_error_in_mid_stream_keeps_its_message(misbehaving: Misbehaving):
    misbehaving.script = [(header(0), 4), (None, "draining; resume at position 4")]
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with connected(misbehaving) as client, client.stream("d", plan, batch_size=4) as stream:
        next(stream)
        with pytest.raises(fb.Unavailable, match="^draining; resume at position 4"):
            next(stream)


# The texts are pyarrow 26's for a status with the sentence `outputs[0]: no "x", (y).`
CONTEXT = (
    ". gRPC client debug context: {}: more. Client context: IOError: Server never sent a data message. Detail: Internal"
)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (pa.ArrowInvalid("Flight returned invalid argument error, with message: "), fb.InvalidRequest),
        (pa.ArrowKeyError("Flight returned not found error, with message: "), fb.NotFound),
        (pa.ArrowInvalid("gRPC returned precondition failed error, with message: "), fb.FailedPrecondition),
        (pa.ArrowInvalid("gRPC returned resource exhausted error, with message: "), fb.ResourceExhausted),
        (fl.FlightInternalError("gRPC returned data loss error, with message: "), fb.errors.DataLoss),
        (fl.FlightInternalError("gRPC returned aborted error, with message: "), fb.SnapshotChanged),
        (fl.FlightInternalError("Flight returned internal error, with message: "), fb.errors.InternalError),
        (fl.FlightUnavailableError("Flight returned unavailable error, with message: "), fb.Unavailable),
        (
            fl.FlightUnauthenticatedError("Flight returned unauthenticated error, with message: "),
            fb.errors.Unauthenticated,
        ),
        (fl.FlightUnauthorizedError("Flight returned unauthorized error, with message: "), fb.errors.PermissionDenied),
        (fl.FlightTimedOutError("Flight returned timeout error, with message: "), fb.errors.DeadlineExceeded),
        (fl.FlightCancelledError("Flight cancelled call, with message: "), fb.errors.Cancelled),
        (pa.ArrowNotImplementedError("Flight returned unimplemented error, with message: "), fb.errors.Unimplemented),
    ],
)
@pytest.mark.parametrize("context", ["", CONTEXT, ". Detail: Internal"])
def test_pyarrow_exceptions_are_translated_with_the_servers_message(raised: Exception, kind: type, context: str):
    sentence = 'outputs[0]: no "x", (y)'
    error = translate(type(raised)(str(raised) + sentence + context))
    assert type(error) is kind
    assert str(error) == sentence


def test_unreachable_servers_are_unavailable_and_every_url_is_named():
    refused = "connection refused: no server listens there"
    expected = f"^cannot connect to grpc://127.0.0.1:1: {refused}; grpc://127.0.0.1:2: {refused}$"
    with pytest.raises(fb.Unavailable, match=expected):
        fb.connect(["grpc://127.0.0.1:1", "grpc://127.0.0.1:2"])


def test_uses_the_first_server_that_responds(misbehaving: Misbehaving):
    url = f"grpc://127.0.0.1:{misbehaving.port}"
    with fb.connect(["grpc://127.0.0.1:1", url]) as client:
        assert client.url == url


@pytest.mark.parametrize("url", ["", "localhost:8815", []])
def test_rejects_an_invalid_url(url: Any):
    with pytest.raises(ValueError, match="grpc://127.0.0.1:8815"):
        fb.connect(url)
