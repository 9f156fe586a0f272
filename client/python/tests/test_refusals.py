"""FAILED_PRECONDITION has several reasons: each has its own exception, independent of column and file names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay.errors import translate
from harness.serving import Server

Serve = Callable[..., Server]

PREFIX = "gRPC returned precondition failed error, with message: "
REASONS = Path(__file__).parents[3] / "proto/forebay/v1/reason.proto"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("NOT_FITTED", fb.NotFitted),
        ("SCHEMA_DRIFT", fb.SchemaDrift),
        ("EMPTY_DATASET", fb.FailedPrecondition),
        ("A_REASON_OF_A_LATER_VERSION", fb.FailedPrecondition),
    ],
)
@pytest.mark.parametrize("text", ['dataset "a: b"', "SCHEMA_DRIFT: NOT_FITTED: a column's name", "two\nlines"])
def test_reason_selects_the_exception(reason: str, kind: type[fb.ForebayError], text: str):
    error = translate(pa.ArrowInvalid(f"{PREFIX}{reason}: {text}"))
    assert type(error) is kind
    assert (error.reason, str(error)) == (reason, text)
    assert isinstance(error, fb.FailedPrecondition)
    assert error.code == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    "text", ["schema drift: column", "standardize must first learn: fit", "not_fitted: x", "NOT_FITTED"]
)
def test_message_without_reason_is_classified_by_code(text: str):
    error = translate(pa.ArrowInvalid(PREFIX + text))
    assert type(error) is fb.FailedPrecondition
    assert (error.reason, str(error)) == ("", text)


def test_every_reason_of_an_exception_is_one_of_the_servers():
    known = set(re.findall(r"^  ([A-Z_]+) = \d+;", REASONS.read_text(), re.MULTILINE))
    kinds = [kind for kind in vars(fb.errors).values() if isinstance(kind, type) and issubclass(kind, fb.ForebayError)]
    assert {kind.reason for kind in kinds} - known == {""}
    assert {"NOT_FITTED", "ORDER_CHANGED", "OVERLOADED", "SCHEMA_DRIFT", "SNAPSHOT_CHANGED"} <= {
        k.reason for k in kinds
    }


def write(folder: Path, **files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    for name, columns in files.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def test_each_rejection_has_its_exception(serve: Serve, tmp_path: Path):
    good = write(tmp_path / "good", a={"fit": np.arange(9.0)})
    drifted = write(tmp_path / "drifted", a={"fit": np.arange(9.0)}, b={"fit": [str(n) for n in range(9)]})
    empty = write(tmp_path / "empty", fit={"fit": np.arange(0.0)})
    server = serve({"good": good, "drifted": drifted, "fit": empty})
    plan = fb.Plan(outputs={"fit": fb.cols("fit").standardize()})
    ready = fb.Plan(outputs={"fit": fb.cols("fit")})
    with fb.connect(server.url) as client:
        with client.exchange(plan) as unfitted, pytest.raises(fb.NotFitted):
            unfitted({"fit": [1.0]})
        with pytest.raises(fb.SchemaDrift, match='"fit"'):
            client.stream("drifted", ready)
        with pytest.raises(fb.FailedPrecondition, match="no rows") as raised:
            client.stream("fit", ready)
        assert type(raised.value) is fb.FailedPrecondition
        assert raised.value.reason == "EMPTY_DATASET"
        fitted = client.fit("good", plan, progress=False)
        with client.exchange(fitted.plan_id) as exchange, pytest.raises(fb.SchemaDrift, match="fitted on"):
            exchange({"fit": ["text"]})


PLAIN = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
UNFITTED = {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]}]}
LONG = {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"log1p": {}}] * 65}]}]}
LEARNS_NULLS = {"outputs": [{"name": "y", "parts": [{"columns": ["none"], "ops": [{"fill_null": {"stat": "MEAN"}}]}]}]}


def test_every_message_begins_with_its_reason(serve: Serve, tmp_path: Path):
    """From bare pyarrow, over the calls that answer with a message, a stream and an action's results."""
    good = write(tmp_path / "good", a={"x": [1.0, None], "none": pa.nulls(2, pa.float64())})
    corrupt = write(tmp_path / "corrupt", a={"x": np.arange(9.0)})
    (corrupt / "a.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    (tmp_path / "nothing").mkdir()
    server = serve({"good": good, "corrupt": corrupt, "nothing": tmp_path / "nothing"}, "--batch-bytes-max", "100000")
    client = fl.connect(server.url)

    def info(**request: Any) -> fl.FlightInfo:
        descriptor = fl.FlightDescriptor.for_command(json.dumps({"dataset": "good", "plan": PLAIN} | request).encode())
        return client.get_flight_info(descriptor)

    def action(name: str, body: bytes) -> Any:
        return list(client.do_action(fl.Action(name, body)))

    snapshot = {"dataset": "good", "plan": PLAIN, "snapshot": "0" * 32}
    refused: dict[str, list[Callable[[], Any]]] = {
        "INVALID_REQUEST": [
            lambda: info(batch_size=0),
            lambda: client.get_flight_info(fl.FlightDescriptor.for_command(b"{")),
            lambda: client.do_get(fl.Ticket(b"junk")).read_all(),
            lambda: action("fit", b"{}"),
        ],
        "INVALID_VALUE": [lambda: client.do_get(info().endpoints[0].ticket).read_all()],
        "UNKNOWN_DATASET": [
            lambda: info(dataset="god"),
            lambda: client.get_schema(fl.FlightDescriptor.for_path("god")),
        ],
        "UNKNOWN_PLAN": [lambda: info(plan=None, plan_id="ab"), lambda: action("show", b'{"plan_id": "ab"}')],
        "NOT_FITTED": [lambda: info(plan=UNFITTED)],
        "NOT_FITTABLE": [lambda: action("fit", json.dumps({"dataset": "good", "plan": LEARNS_NULLS}).encode())],
        "EMPTY_DATASET": [lambda: info(dataset="nothing")],
        "ORDER_CHANGED": [lambda: info(order_version=99)],
        "SNAPSHOT_CHANGED": [lambda: info(**snapshot)],
        "CORRUPT_DATA": [lambda: info(dataset="corrupt")],
        "LIMIT": [lambda: info(plan=LONG), lambda: info(batch_size=100_000, remainder="PAD")],
        "UNIMPLEMENTED": [
            lambda: action("no such action", b""),
            lambda: client.do_put(fl.FlightDescriptor.for_path("good"), pa.schema([]))[0].close(),
        ],
    }
    for reason, calls in refused.items():
        for call in calls:
            with pytest.raises((pa.ArrowException, fl.FlightError), match=f"with message: {reason}: "):
                call()
