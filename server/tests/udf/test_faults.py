"""Functions that fail, hang, die, fork or return something else, and processes that are missing or are others."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape
from harness.udf.functions import length
from harness.udf.pool import Functions, served
from harness.udf.table import ROWS, table

FAILURES = [
    (
        "raises",
        r'function "raises" raised an exception: Traceback .* in raises\\n.*ValueError: \\u\{1b\}\[31mno such text',
    ),
    ("exits", "raised an exception: .*SystemExit: 3"),
    ("dies", r"the process of the function died \(exit code 9\)"),
    ("faults", r"the process of the function died \(SIGSEGV\)"),
    ("sleeps", r"did not return within 3 s \(--udf-timeout-seconds\)"),
    ("short", r'function "short": it returned \d+ values for \d+ rows'),
    ("other_type", "it returned double, but declares int64"),
    ("no_array", "it returned list: return a pyarrow.Array or a NumPy array"),
    ("forks", "RuntimeError: a function must not fork"),
]


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[fb.Client]:
    with fb.connect(daemon.url, retry_seconds=0) as connected:
        yield connected


def plan(function: str, column: str = "text") -> fb.Plan:
    return fb.Plan(outputs={"o": fb.output(fb.cols(column).udf(function), dtype="INT64")})


def total(client: fb.Client, used: fb.Plan) -> int:
    return sum(int(batch["o"].sum()) for batch in client.stream("t", used, batch_size=1000))


@pytest.mark.parametrize(("name", "words"), FAILURES, ids=[name for name, _ in FAILURES])
def test_a_failing_function_ends_its_stream_with_the_cause_and_nothing_else(
    client: fb.Client, daemon: Daemon, name: str, words: str
):
    healthy: list[int] = []
    plain = fb.Plan(outputs={"o": fb.output(fb.cols("id"), dtype="INT64")})

    def others() -> None:
        with fb.connect(daemon.url) as other:
            healthy.append(total(other, plain))
            healthy.append(total(other, plan("length")))

    concurrent = threading.Thread(target=others)
    concurrent.start()
    with pytest.raises(fb.FailedPrecondition, match=words) as failed:
        total(client, plan(name))
    concurrent.join(60)
    assert healthy == [ROWS * (ROWS - 1) // 2, expected_lengths()]
    message = str(failed.value)
    assert failed.value.reason == "UDF_FAILED"
    assert 'part.parquet", row group 0' in message
    assert not any(ord(letter) < 32 for letter in message)
    assert total(client, plan("length")) == expected_lengths()


def expected_lengths() -> int:
    return sum(length(table()["text"].combine_chunks()).to_pylist())


def test_a_fit_and_an_exchange_fail_with_the_cause(client: fb.Client):
    learned = fb.Plan(outputs={"o": fb.cols("text").udf("raises").standardize()})
    with pytest.raises(fb.FailedPrecondition, match="no such text"):
        client.fit("t", learned)
    failing = pytest.raises(fb.FailedPrecondition, match="batch 0: .*no such text")
    with failing, client.exchange(plan("raises")) as exchange:
        exchange.batch(table().to_batches()[0].slice(0, 100))


def test_a_child_that_an_extension_forks_does_not_answer(client: fb.Client):
    assert total(client, plan("forks_unseen")) == expected_lengths()


def test_nulls_are_the_error_of_the_output(client: fb.Client):
    with pytest.raises(fb.InvalidRequest, match="null") as failed:
        total(client, plan("nulls"))
    assert failed.value.reason == "INVALID_VALUE"
    filled = fb.Plan(outputs={"o": fb.output(fb.cols("text").udf("nulls").fill_null(0), dtype="INT64")})
    assert 0 < total(client, filled) < ROWS


def test_numpy_arguments_with_nulls_are_refused_by_name(client: fb.Client):
    with pytest.raises(fb.FailedPrecondition, match=r"argument row has \d+ null\(s\), which NumPy arrays do not hold"):
        total(client, plan("dense", "gap"))
    derived = fb.Plan(derive={"full": "coalesce(gap, 0)"}, outputs=plan("dense", "full").outputs)
    assert total(client, derived) == sum(row for row in range(ROWS) if row % 10 != 3)


def test_a_function_without_processes_is_unavailable_until_they_start(data: Path, tmp_path: Path):
    path = tmp_path / "udf.sock"
    server = Daemon(*LOOPBACK, "--dataset", f"t={data}", "--state", str(tmp_path / "s"), "--udf", f"length=unix:{path}")
    try:
        with fb.connect(server.url, retry_seconds=0) as client:
            start = rf"start python -m forebay.udf MODULE:length --listen unix:{path}"
            with pytest.raises(fb.Unavailable, match=start) as failed:
                total(client, plan("length"))
            assert failed.value.reason == "UDF_UNAVAILABLE"
            with Functions(served("length"), path):
                assert total(client, plan("length")) == expected_lengths()
            # The compiled plan is in memory: its calls fail.
            with pytest.raises(fb.Unavailable, match="nothing serves it"):
                total(client, plan("length"))
            assert scrape(server).value("forebay_udf_calls_total", status="ok") > 0
    finally:
        server.stop()


def test_a_result_beyond_the_memory_limit_is_refused(data: Path, tmp_path: Path, functions: Functions):
    server = Daemon(
        *LOOPBACK,
        *("--dataset", f"t={data}", "--state", str(tmp_path), "--memory-limit-bytes", "100MB"),
        *("--fit-memory-bytes", "10MB"),
        *functions.flag("long_text", "length"),
    )
    try:
        with fb.connect(server.url, retry_seconds=0) as client:
            hashed = fb.Plan(outputs={"o": fb.cols("id").udf("long_text").hash_bucket(10)})
            with pytest.raises(fb.ResourceExhausted, match="--memory-limit-bytes"):
                total(client, hashed)
            assert total(client, plan("length")) == expected_lengths()
            assert poll(lambda: scrape(server).value("forebay_memory_reserved_bytes") == 0)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack("<IQ", 2, 0) + b"{}",
        struct.pack("<IQ", 2, 1 << 60) + b"{}",
    ],
    ids=["nothing", "another protocol", "no answer", "a length beyond the limit"],
)
def test_another_program_on_the_socket_is_an_error(data: Path, tmp_path: Path, answer: bytes):
    path = tmp_path / "udf.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    server = Daemon(*LOOPBACK, "--dataset", f"t={data}", "--state", str(tmp_path / "s"), "--udf", f"f=unix:{path}")
    try:
        with fb.connect(server.url, retry_seconds=0) as client, pytest.raises(fb.FailedPrecondition) as failed:
            total(client, plan("f"))
        assert failed.value.reason == "UDF_FAILED"
    finally:
        server.stop()
        listener.close()


def test_a_client_that_disconnects_frees_the_process(daemon: Daemon, client: fb.Client):
    stream = client.stream("t", plan("sleeps"), batch_size=10)
    waiting = threading.Thread(target=_next, args=(stream,))
    waiting.start()
    assert poll(lambda: scrape(daemon).value("forebay_streams_active") == 1)
    stream.close()
    waiting.join(30)
    assert total(client, plan("length")) == expected_lengths()


def _next(stream: fb.Stream) -> None:
    with contextlib.suppress(Exception):
        next(stream)


def test_processes_that_are_killed_are_replaced(daemon: Daemon, client: fb.Client, functions: Functions):
    children = Path(f"/proc/{functions.process.pid}/task/{functions.process.pid}/children")
    before = children.read_text().split()
    assert len(before) == 2
    for child in before:
        os.kill(int(child), signal.SIGKILL)
    assert poll(lambda: len(found := children.read_text().split()) == 2 and not set(found) & set(before))
    assert poll(lambda: _succeeds(client), seconds=30)


def _succeeds(client: fb.Client) -> bool:
    try:
        return total(client, plan("length")) == expected_lengths()
    except fb.ForebayError:
        return False
