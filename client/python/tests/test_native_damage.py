"""Responses that no server sends: the native reader raises, in bounded time, and never hangs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import forebay as fb
from forebay._client.connection import Connection
from forebay._client.native import NativeReader, is_built, open_native
from forebay._client.source import Source
from harness.http2_host import Http2Host, data, flight_data, headers, reset, trailers
from harness.http2_peer import Kind, frame
from harness.repository import package_environment
from harness.scripted_stream import BATCH, BODY, FAILURES, HEADER, METADATA, SCHEMA, damaged

pytestmark = pytest.mark.skipif(not is_built(), reason="the package has no native module: make build")


FIRST = data(flight_data(SCHEMA))
ONE = flight_data(METADATA, HEADER, BODY)
GOOD = [headers(), FIRST, data(ONE[:100]), data(ONE[100:]), data(ONE), trailers()]


@pytest.fixture
def host() -> Iterator[Http2Host]:
    with Http2Host() as running:
        yield running


def opened(host: Http2Host) -> NativeReader:
    reader = open_native(Connection(host.url, fb.Credentials()), b"ticket")
    assert reader is not None
    return reader


def read(host: Http2Host, script: bytes) -> list[pa.RecordBatch]:
    """The batches that a client reads from these frames; raises its error."""
    host.script = script
    reader = opened(host)
    found: list[pa.RecordBatch] = []
    try:
        while True:
            chunk = reader.read()
            assert chunk.app_metadata.to_pybytes() == HEADER
            found.append(chunk.data)
    except StopIteration:
        return found
    finally:
        reader.close()


def test_the_script_is_what_a_server_sends(host: Http2Host):
    found = read(host, b"".join(GOOD))
    assert [batch.equals(BATCH) for batch in found] == [True, True]
    assert [batch.column(0).buffers()[1].address % 64 for batch in found] == [0, 0]


def test_messages_without_a_batch_are_skipped(host: Http2Host):
    note = data(flight_data(b"", b"a note"))
    assert len(read(host, b"".join([GOOD[0], note, FIRST, note, *GOOD[2:5], note, trailers()]))) == 2


def test_every_end_but_the_status_breaks_the_stream(host: Http2Host):
    whole = b"".join(GOOD)
    for end in [0, 5, 9, len(GOOD[0]), *range(60, len(whole) - 1, 467)]:
        with pytest.raises((fb.Unavailable, fb.BrokenStream)):
            read(host, whole[:end])


START = headers() + FIRST
LONG = b"\0\xff\xff\xff\xff" + ONE[5:]
BAD: dict[str, tuple[bytes, type[fb.ForebayError], str]] = {
    "no schema": (headers() + trailers(), fb.BrokenStream, "invalid message"),
    "a batch before the schema": (headers() + data(ONE) + trailers(), fb.BrokenStream, "invalid message"),
    "metadata that is not Arrow's": (START + data(flight_data(b"what?", HEADER, BODY)), fb.BrokenStream, "invalid"),
    "a body shorter than the metadata says": (
        START + data(flight_data(METADATA, HEADER, BODY[:64])) + trailers(),
        fb.BrokenStream,
        "a part of 64 bytes",
    ),
    "a batch without a body": (
        START + data(flight_data(METADATA, HEADER)) + trailers(),
        fb.BrokenStream,
        "invalid|part",
    ),
    "an oversized length": (START + data(LONG) + trailers(), fb.BrokenStream, "the stream ends within it"),
    "a length beyond the message": (START + data(b"\0\0\0\0\4\x12\xff\xff\x7f"), fb.BrokenStream, "longer than it"),
    "a compressed message": (START + data(b"\1" + ONE[1:]), fb.BrokenStream, "compressed"),
    "bytes that are not protobuf": (START + data(b"\0\0\0\0\3\x07\x07\x07"), fb.BrokenStream, "malformed message"),
    "another type of content": (headers("text/html") + data(b"<html>"), fb.Unavailable, "text/html"),
    "a reset": (START + reset(2), fb.Unavailable, "broke"),
    "an end without a status": (START + frame(Kind.DATA, 1, b"", 1), fb.Unavailable, "without a status"),
    "a goodbye": (START + frame(Kind.GOAWAY, payload=bytes(4) + b"\0\0\0\2"), fb.Unavailable, "broke"),
    "a frame larger than allowed": (START + b"\xff\xff\xff\0\0\0\0\0\1", fb.Unavailable, "broke"),
}


@pytest.mark.parametrize("name", BAD)
def test_responses_that_contradict_themselves_are_errors(host: Http2Host, name: str):
    script, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        read(host, script)


def test_an_error_has_the_class_and_reason_of_flight(host: Http2Host):
    for code, message, kind, reason in FAILURES:
        for script in (headers() + trailers(code, message), b"".join(GOOD[:4]) + trailers(code, message)):
            with pytest.raises(kind) as failed:
                read(host, script)
            assert (failed.value.reason, str(failed.value)) == (reason, message.rpartition(": ")[2])


def test_the_servers_end_is_not_repeated_over_flight_and_other_failures_are(host: Http2Host):
    def source() -> Source:
        return Source(Connection(host.url, fb.Credentials()), pa.flight.Ticket(b"ticket"))

    for script, kind in ((headers() + trailers(8, "OVERLOADED: later"), fb.errors.Overloaded), (START, fb.Unavailable)):
        host.script = script
        ended = source()
        with pytest.raises(kind):
            ended.read()
        assert ended.transport == "native"
    # pyarrow reports the same end in its own words.
    host.script = headers("text/html") + data(b"<html>")
    broken = source()
    with pytest.raises(fb.ForebayError):
        broken.read()
    assert broken.transport == "flight"
    broken.close()


def test_random_damage_is_an_error_or_harmless(host: Http2Host):
    """The Arrow metadata is left intact: its reader is Arrow's."""
    outcomes = set[str]()
    for seed in range(300):
        chance = random.Random(seed)
        frames = list(GOOD)
        number = chance.choice([0, 2, 2, 4, 4, 5])
        start = 9 + 5 + 3 if number in (2, 4) else len(frames[number])
        frames[number] = damaged(frames[number][:start], chance) + frames[number][start:]
        try:
            outcomes.add(f"{len(read(host, b''.join(frames)))} batches")
        except (fb.ForebayError, AssertionError) as error:
            # A damaged length can move the header.
            outcomes.add(type(error).__name__)
    assert outcomes >= {"BrokenStream", "Unavailable"}


# === Waiting ===


def test_closing_ends_a_pending_read(host: Http2Host):
    host.holds, host.script = True, START
    reader = opened(host)
    closing = threading.Timer(0.3, reader.close)
    closing.start()
    began = time.monotonic()
    with pytest.raises(fb.errors.Cancelled, match="closed"):
        reader.read()
    assert time.monotonic() - began < 10
    assert host.is_left.wait(10)
    closing.join()


def test_dropping_the_reader_ends_the_call(host: Http2Host):
    host.holds, host.script = True, b"".join(GOOD[:4])
    reader = opened(host)
    kept = reader.read().data
    del reader
    assert host.is_left.wait(10)
    assert kept.equals(BATCH)


INTERRUPTED = """
import sys
import forebay as fb
from forebay._client.connection import Connection
from forebay._client.native import open_native
reader = open_native(Connection(sys.argv[1], fb.Credentials()), b"ticket")
try:
    print("reading", flush=True)
    reader.read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_a_pending_read(host: Http2Host):
    host.holds, host.script = True, START
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, host.url], stdout=subprocess.PIPE, text=True, env=package_environment()
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    assert host.has_answered.wait(20)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "interrupted\n"
    assert process.returncode == 0
