"""Streams over each transport: a table of many types, requests for all of it, and the batches of a ticket."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

import forebay as fb
from forebay._client.checksum import body_of
from forebay._client.connection import Connection
from forebay._client.source import Source
from harness.metrics import parse
from harness.repository import package_environment
from harness.serving import Server

ROWS = 6000
WORDS = ["red", "green", "blue", None, "déjà vu"]
PLAN = fb.Plan(outputs={"x": fb.cols("a", "b"), "id": fb.output(fb.cols("id"), dtype="int64")})


def table() -> pa.Table:
    random = np.random.default_rng(5)
    numbers = np.arange(ROWS)
    lists = [list(range(row % 7)) for row in range(ROWS)]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "a": pa.array(random.normal(size=ROWS)),
            "b": pa.array(random.normal(size=ROWS), pa.float32()),
            "gaps": pa.array(random.normal(size=ROWS), mask=numbers % 5 == 2),
            "word": pa.array([WORDS[row % len(WORDS)] for row in range(ROWS)]),
            "kind": pa.array([WORDS[row % 3] for row in range(ROWS)]).dictionary_encode(),
            "day": pa.array(numbers % 9, pa.int32()),
            "when": pa.array(numbers * 1_000_000, pa.timestamp("us")),
            "list": pa.array(lists, pa.list_(pa.int64())),
            "words": pa.array([[f"w{item}" for item in items] for items in lists], pa.list_(pa.string())),
            "image": pa.array([bytes([row % 251]) * 12 for row in range(ROWS)], pa.binary()),
            # Bodies of a hundred bytes to a hundred kilobytes.
            "uneven": pa.array(["y" * (1000 if row > 3000 else 1) for row in range(ROWS)]),
        }
    )


def tickets(server: Server, request: dict[str, Any]) -> list[flight.Ticket]:
    with flight.connect(server.url) as plain:
        descriptor = flight.FlightDescriptor.for_command(json.dumps(request).encode())
        return [endpoint.ticket for endpoint in plain.get_flight_info(descriptor).endpoints]


def batches(server: Server, ticket: flight.Ticket, transport: str) -> list[tuple[pa.RecordBatch, bytes]]:
    """All batches of a ticket with their headers, over one transport."""
    source = Source(Connection(server.url, fb.Credentials()), ticket)
    read: list[tuple[pa.RecordBatch, bytes]] = []
    try:
        while True:
            chunk = source.read()
            # A copy, as a test keeps every batch.
            read.append((chunk.data, chunk.app_metadata.to_pybytes()))
            assert source.transport == transport
    except StopIteration:
        return read
    finally:
        source.close()


def column(name: str, *ops: dict[str, Any], dtype: str = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "parts": [{"columns": [name], "ops": list(ops)}], **more}


STORED = [column(name, dtype="AS_STORED") for name in ("word", "kind", "when", "words", "gaps", "list")]
REQUESTS: dict[str, dict[str, Any]] = {
    "numbers": {"outputs": [column("a"), column("b", dtype="FLOAT64"), column("day", dtype="INT32")]},
    "sixteen bits": {"outputs": [column("a", dtype="BFLOAT16"), column("b", dtype="FLOAT16")]},
    "ops": {
        "outputs": [
            column("a", {"clip": {"min": -1, "max": 1}}),
            column("gaps", {"fill_null": {"value": 0}}),
            column("word", {"fill_null": {"text": ""}}, {"hash_bucket": {"buckets": 32}}, dtype="INT64"),
        ]
    },
    "one hot": {"outputs": [column("day", {"one_hot": {"size": 9}}, dtype="UINT8")]},
    "bytes": {"outputs": [column("image", {"bytes": {"n": 12}}, dtype="UINT8")]},
    "stored": {"outputs": STORED},
    "uneven": {"outputs": [column("uneven", dtype="AS_STORED")]},
    "derived": {"derive": [{"name": "s", "expr": "a + b"}], "filter": "day > 3", "outputs": [column("s")]},
}


def assert_same(found: list[tuple[pa.RecordBatch, bytes]], plain: list[tuple[pa.RecordBatch, bytes]]) -> None:
    """The same batches, headers and bytes."""
    assert len(found) == len(plain) > 0
    for (batch, header), (expected, expected_header) in zip(found, plain, strict=True):
        batch.validate(full=True)
        assert header == expected_header
        assert batch.schema.equals(expected.schema, check_metadata=True)
        assert batch.equals(expected)
        bodies = body_of(batch), body_of(expected)
        if bodies[1] is not None and bodies[0] is not None:
            assert bodies[0].equals(bodies[1])


def reserved(server: Server) -> float:
    """Bytes that the server reserves for streams."""
    url = next(line for line in server.log if "metrics on" in line).split()[-1]
    with urllib.request.urlopen(url, timeout=10) as response:
        return parse(response.read().decode()).value("forebay_memory_reserved_bytes")


def run_script(script: str, url: str, **environment: str) -> str:
    """Run a script with a server's URL in a process where resources left open are errors; returns stdout."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", script, url],
        capture_output=True,
        text=True,
        timeout=300,
        env={**package_environment(), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout
