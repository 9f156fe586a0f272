"""Fail-over: the loop sees the same batches, each once, or an error with the cursor to resume from.

A TCP proxy simulates the network and cuts connections at chosen bytes. Servers are real: drained, killed, replaced.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import xxhash

import forebay as fb
from forebay import _native
from forebay._client import checksum
from forebay._client.retry import PASSES_MAX, try_everywhere
from forebay.torch import FlightDataset
from harness.daemon import LOOPBACK, Daemon
from harness.proxy import Proxy
from harness.serving import Serve, Server

ROWS = 20_000
BATCH = 500
# 20 bytes a row: 400 kB of bodies in all.
PLAN = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "m": fb.cols("x", "x", "x").standardize()})
NOWHERE = "grpc://127.0.0.1:1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failover") / "wide"
    folder.mkdir()
    x = np.random.default_rng(5).random(ROWS)
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": x}), folder / "a.parquet", row_group_size=3000)
    return folder


@pytest.fixture(scope="module")
def replicas(serve: Serve, folder: Path) -> list[Server]:
    return [serve({"wide": folder}), serve({"wide": folder})]


@pytest.fixture(scope="module")
def whole(replicas: list[Server]) -> list[fb.Batch]:
    with fb.connect(replicas[0].url) as client:
        return list(client.stream("wide", PLAN, batch_size=BATCH))


def assert_same(got: list[fb.Batch], whole: list[fb.Batch]) -> None:
    assert [batch.header for batch in got] == [batch.header for batch in whole]
    assert all(a.data.equals(b.data) for a, b in zip(got, whole, strict=True))


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("cut", [0, 9, 300, 1200, 5_000, 33_333, 123_456, 390_000])
def test_connection_cut_at_any_byte_loses_no_batch(
    replicas: list[Server], whole: list[fb.Batch], cut: int, reset: bool
):
    # The first connection carries the questions, each other one a DoGet.
    with Proxy(replicas[0].url, None, cut, cut, reset=reset) as proxy, fb.connect(proxy.url) as client:
        with client.stream("wide", PLAN, batch_size=BATCH) as stream:
            assert len(stream) == len(whole)
            assert_same(list(stream), whole)
        assert proxy.connections > 2


@pytest.mark.parametrize("cut", [2_500, 9_000, 33_333, 123_456, 400_000])
def test_corrupted_batch_is_detected_and_fetched_again(replicas: list[Server], whole: list[fb.Batch], cut: int):
    with Proxy(replicas[0].url, None, cut, corrupt=True) as proxy, fb.connect(proxy.url) as client:
        assert_same(list(client.stream("wide", PLAN, batch_size=BATCH)), whole)


def test_every_batch_of_real_streams_is_verified(replicas: list[Server], client: fb.Client, whole: list[fb.Batch]):
    assert all(checksum.matches(batch.data, batch.header.checksum) is True for batch in whole)
    assert not any(checksum.matches(batch.data, batch.header.checksum ^ 1) for batch in whole)
    stored = fb.Plan(outputs={name: fb.cols(name).as_stored() for name in ("word", "gappy", "id")})
    for batch in client.stream("tiny", stored, batch_size=7):
        assert checksum.matches(batch.data, batch.header.checksum) is True
    # Data that was not received in one piece passes.
    assert checksum.matches(pa.record_batch({"x": [1.0]}), 5) is None


VERIFIED = """
import sys
sys.modules["xxhash"] = None
import forebay as fb
from forebay import _native
from forebay._client import checksum
with fb.connect(sys.argv[1]) as client:
    for batch in client.stream("wide", fb.Plan(outputs={"id": fb.cols("id").as_stored()}), batch_size=100):
        assert checksum.matches(batch.data, batch.header.checksum) is True
        assert checksum.matches(batch.data, batch.header.checksum ^ 1) is False
        print(batch.header.step)
"""


@pytest.mark.parametrize("native", ["on", "off"])
def test_no_other_package_is_needed_to_verify(replicas: list[Server], native: str):
    environment = os.environ | {"FOREBAY_NATIVE": native}
    command = [sys.executable, "-c", VERIFIED, replicas[0].url]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.split()) > 1


@pytest.mark.parametrize("size", [0, 1, 15, 64, 241, 1_000, 1 << 20])
def test_the_native_hash_is_xxh3(size: int):
    body = pa.py_buffer(np.random.default_rng(size).bytes(size))
    assert _native.xxh3_64(body.address, body.size) == xxhash.xxh3_64_intdigest(memoryview(body))


def test_dataset_resumes_at_another_replica(replicas: list[Server], whole: list[fb.Batch]):
    with Proxy(replicas[0].url, None, 100_000) as first:
        data = FlightDataset([first.url, replicas[1].url], "wide", PLAN, batch_size=BATCH)
        loop = iter(data)
        taken = [next(loop)]
        first.refuse()
        taken += loop
        assert data.state_dict()["epoch"] == 1
    assert torch.equal(torch.cat([batch["id"] for batch in taken]), torch.arange(ROWS))
    assert all(np.array_equal(a["m"].numpy(), b["m"]) for a, b in zip(taken, whole, strict=True))
    # The next epoch, and its questions, go there too.
    assert len(list(data)) == len(whole)


def test_accepts_a_list_with_dead_replicas(replicas: list[Server], whole: list[fb.Batch]):
    with fb.connect([NOWHERE, replicas[0].url, NOWHERE]) as client:
        assert client.url == replicas[0].url
        assert_same(list(client.stream("wide", PLAN, batch_size=BATCH)), whole)


def test_unknown_dataset_is_not_retried_on_dead_replicas(replicas: list[Server]):
    urls = [replicas[0].url, NOWHERE]
    with fb.connect(urls, retry_seconds=1e9) as client, pytest.raises(fb.NotFound, match="wild"):
        client.stream("wild", PLAN)


def test_calls_move_to_another_replica(replicas: list[Server]):
    with Proxy(replicas[0].url) as first, fb.connect([first.url, replicas[1].url]) as client:
        first.refuse()
        assert client.datasets()["wide"].rows == ROWS
        assert client.url == replicas[1].url


def test_draining_server_hands_over_immediately(folder: Path, replicas: list[Server], whole: list[fb.Batch]):
    daemon = Daemon(*LOOPBACK, "--dataset", f"wide={folder}", "--drain-seconds", "0")
    try:
        with fb.connect([daemon.url, replicas[1].url]) as client:
            stream = client.stream("wide", PLAN, batch_size=BATCH)
            got = [next(stream)]
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.end() == 0
            assert_same([*got, *stream], whole)
            # One that refuses new streams while it still answers is passed over as well.
            assert_same(list(client.stream("wide", PLAN, batch_size=BATCH)), whole)
    finally:
        daemon.stop()


def test_draining_server_that_still_answers_is_passed_over(tmp_path: Path, serve: Serve):
    """While another client's stream runs, it refuses new ones: the clients that meet it go to the next replica."""
    folder = tmp_path / "long"
    folder.mkdir()
    # More than sockets and clients buffer, so that the stream keeps the server draining.
    texts = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["forebay " * 128])
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet", store_schema=False, row_group_size=10_000)
    plan = fb.Plan(outputs={"text": fb.output(fb.cols("text"), dtype="as_stored")})
    other = serve({"long": folder})
    daemon = Daemon(*LOOPBACK, "--dataset", f"long={folder}", "--state", f"{tmp_path}/state")
    try:
        with fb.connect([daemon.url, other.url]) as known, fb.connect(daemon.url, retry_seconds=0) as lone:
            running = lone.stream("long", plan, batch_size=BATCH)
            next(running)
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.drains()
            assert known.datasets()["long"].rows == 100_000
            assert known.url == other.url
            with fb.connect([daemon.url, other.url]) as new:
                assert new.url == other.url
                assert sum(batch.header.rows for batch in new.stream("long", plan, batch_size=BATCH)) == 100_000
            with pytest.raises(fb.Unavailable, match="draining: resume at another replica") as refused:
                lone.datasets()
            assert refused.value.reason == "SHUTTING_DOWN"
            with pytest.raises(fb.Unavailable, match="cannot connect to .*draining"):
                fb.connect(daemon.url)
            # It still drains: none of this was a closed port.
            assert daemon.process.poll() is None
            assert 1 + sum(1 for _ in running) == 100_000 // BATCH
            assert daemon.end() == 0
    finally:
        daemon.stop()


def test_waits_for_a_restarting_server(folder: Path, whole: list[fb.Batch]):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    flags = ("--listen", f"127.0.0.1:{port}", "--metrics-listen", "127.0.0.1:0", "--dataset", f"wide={folder}")
    first = Daemon(*flags)
    with fb.connect(first.url) as client:
        # It forgets the fitted plan when it ends: the client brings it along.
        stream = client.stream("wide", PLAN, batch_size=BATCH)
        got = [next(stream)]
        first.stop()
        second = Daemon(*flags)
        try:
            assert_same([*got, *stream], whole)
        finally:
            second.stop()


def test_skips_a_silent_replica(replicas: list[Server], whole: list[fb.Batch], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("forebay._client.replicas.FAILOVER_HELLO_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, Proxy(replicas[0].url, None, 100_000) as first:
        urls = [first.url, f"grpc://127.0.0.1:{silent.getsockname()[1]}", replicas[1].url]
        with fb.connect(urls) as client, client.stream("wide", PLAN, batch_size=BATCH) as stream:
            got = [next(stream)]
            first.refuse()
            assert_same([*got, *stream], whole)


@pytest.mark.parametrize("cut", [1_000, 60_000, 250_000])
def test_shuffled_stream_of_one_rank_resumes_at_another_replica(replicas: list[Server], cut: int):
    order: dict[str, Any] = {"shuffle": True, "seed": 9, "window_rows": 256, "world_size": 2, "rank": 1}
    with fb.connect(replicas[1].url) as client:
        whole = list(client.stream("wide", PLAN, batch_size=BATCH, epoch=4, **order))
    with Proxy(replicas[0].url, None, cut, cut) as proxy, fb.connect([proxy.url, replicas[1].url]) as client:
        stream = client.stream("wide", PLAN, batch_size=BATCH, epoch=4, **order)
        assert_same(list(stream), whole)
        assert stream.cursor().epoch == 5


def test_uses_replicas_that_a_server_advertises(
    serve: Serve, folder: Path, replicas: list[Server], whole: list[fb.Batch]
):
    fronted = serve({"wide": folder}, "--advertise", NOWHERE, "--advertise", replicas[1].url)
    with Proxy(fronted.url, None, 100_000) as proxy, fb.connect(proxy.url) as client:
        stream = client.stream("wide", PLAN, batch_size=BATCH)
        got = [next(stream)]
        proxy.refuse()
        assert_same([*got, *stream], whole)


def test_retry_limit_reports_the_attempts_and_the_cursor(replicas: list[Server], whole: list[fb.Batch]):
    # No second stream gets anywhere.
    cuts = [100_000, *[0] * 999]
    with Proxy(replicas[0].url, None, *cuts) as proxy, fb.connect([proxy.url, NOWHERE], retry_seconds=0.3) as client:
        with client.stream("wide", PLAN, batch_size=BATCH) as stream:
            with pytest.raises(fb.Unavailable) as caught:
                list(stream)
            assert stream.cursor().position > 0
        words = str(caught.value)
        assert "gave up after" in words
        assert "tries" in words
        assert proxy.url in words
        assert NOWHERE in words
        position = int(words.rpartition("start_position ")[2])
        assert position == stream.cursor().position
    with fb.connect(replicas[1].url) as client:
        rest = client.stream("wide", PLAN, batch_size=BATCH, start_position=position)
        assert_same(list(rest), whole[position // BATCH :])


def test_retries_of_the_whole_list_are_limited(replicas: list[Server]):
    # Eight cuts and more, each before a batch comes, on a server that says hello each time.
    with Proxy(replicas[0].url, None, *[0] * 99) as proxy, fb.connect(proxy.url, retry_seconds=1) as client:
        with pytest.raises(fb.Unavailable, match="gave up after"):
            next(client.stream("wide", PLAN, batch_size=BATCH))
        assert proxy.connections <= 3 + 2 * PASSES_MAX


@pytest.mark.parametrize("answer", [fb.SnapshotChanged, fb.InvalidRequest, fb.errors.DataLoss, fb.ResourceExhausted])
def test_permanent_errors_are_raised_immediately(answer: type[fb.ForebayError]):
    attempted: list[str] = []

    def attempt(url: str) -> None:
        attempted.append(url)
        raise answer("so it is")

    with pytest.raises(answer, match="^so it is$"):
        try_everywhere(attempt, lambda: ["a", "b"], seconds=1e9, stopped=threading.Event())
    assert attempted == ["a"]


def test_plan_unknown_to_one_replica_is_requested_from_the_next():
    attempted: list[str] = []

    def attempt(url: str) -> str:
        attempted.append(url)
        if url == "a":
            raise fb.NotFound("no such plan")
        return url

    options: dict[str, Any] = {"seconds": 1e9, "stopped": threading.Event(), "skipped": (fb.NotFound,)}
    assert try_everywhere(attempt, lambda: ["a", "b"], **options) == "b"
    with pytest.raises(fb.NotFound):
        try_everywhere(attempt, lambda: ["a"], **options)
    assert attempted == ["a", "b", "a"]


def test_different_snapshot_on_the_next_replica_ends_the_stream(serve: Serve, replicas: list[Server], tmp_path: Path):
    other = tmp_path / "wide"
    other.mkdir()
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": np.zeros(ROWS)}), other / "a.parquet")
    stale = serve({"wide": other})
    with Proxy(replicas[0].url, None, 50_000) as proxy, fb.connect([proxy.url, stale.url]) as client:
        stream = client.stream("wide", PLAN, batch_size=BATCH)
        next(stream)
        proxy.refuse()
        with pytest.raises(fb.SnapshotChanged):
            list(stream)


def test_close_ends_a_retry_pause_immediately(replicas: list[Server]):
    with Proxy(replicas[0].url) as proxy, fb.connect(proxy.url, retry_seconds=1e9) as client:
        stream = client.stream("wide", PLAN, batch_size=BATCH)
        next(stream)
        proxy.refuse()
        rest: list[list[fb.Batch]] = []
        reader = threading.Thread(target=lambda: rest.append(list(stream)))
        reader.start()
        stream.close()
        reader.join(30)
        assert not reader.is_alive()
        assert len(rest) == 1


def test_dropping_a_waiting_loop_leaks_no_thread(replicas: list[Server]):
    def reading() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "forebay-prefetch"}

    # Those of tests before may be about to end.
    before = reading()
    with Proxy(replicas[0].url) as proxy:
        data = FlightDataset(proxy.url, "wide", PLAN, batch_size=BATCH, prefetch=1, retry_seconds=1e9)
        loop = iter(data)
        next(loop)
        assert reading() - before
        proxy.refuse()
        del loop
        gc.collect()
        assert not reading() - before


def test_without_retries_the_original_error_is_raised(replicas: list[Server]):
    with Proxy(replicas[0].url, None, 0) as proxy, fb.connect(proxy.url, retry_seconds=0) as client:
        with pytest.raises(fb.Unavailable) as caught:
            next(client.stream("wide", PLAN, batch_size=BATCH))
        assert "gave up" not in str(caught.value)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="retry_seconds"):
            fb.connect(NOWHERE, retry_seconds=wrong)


def test_does_not_wait_for_an_ended_private_server(folder: Path, tmp_path: Path):
    (tmp_path / "alone").symlink_to(folder)
    url = fb.local(alone=tmp_path / "alone")
    from forebay._client import private_server

    (ended,) = (server for server in private_server._servers.values() if server.url == url)
    with fb.connect(url, retry_seconds=1e9) as client:
        assert client.datasets()["alone"].rows == ROWS
        os.kill(ended.pid, signal.SIGKILL)
        ended._process.wait()
        with pytest.raises(fb.errors.ServerEnded, match="ended with -9"):
            client.stream("alone", PLAN, batch_size=BATCH)
