"""A killed or starved server, or one whose clock jumps, keeps its guarantees and reports what it lacks."""

from __future__ import annotations

import contextlib
import datetime
import os
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, poll
from harness.faults import (
    LONG,
    NUMBERS,
    ROWS,
    Bystander,
    Rest,
    are_rows_of_long,
    descriptors,
    is_whole,
    outcome,
    ticket,
    write_data,
)
from harness.metrics import scrape
from harness.serving import fit, server_binary

MIB = 1 << 20
Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("faults") / "data")


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as running:

        def begin(*flags: str, state: Path = tmp_path / "state", **env: str) -> Daemon:
            dataset = ("--dataset", f"data={folder}", "--state", str(state))
            daemon = Daemon(*LOOPBACK, *dataset, *flags, env=env)
            running.callback(daemon.stop)
            return daemon

        yield begin


def test_sigkill_in_mid_stream_resumes_at_a_replica_byte_for_byte(start: Start):
    first, second = start(), start()
    plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "text": fb.cols("text").as_stored()})
    options: dict[str, Any] = {"batch_size": 500, "shuffle": True, "window_rows": 1000, "seed": 5}
    with fb.connect(second.url) as client:
        whole = client.stream("data", plan, **options)
        with fb.connect([first.url, second.url]) as failing:
            stream = failing.stream("data", plan, **options)
            count = 0
            for batch, want in zip(stream, whole, strict=True):
                assert batch.header == want.header
                assert batch.data.equals(want.data)
                count += 1
                if count == 10:
                    first.process.send_signal(signal.SIGKILL)
                    assert first.end() == -signal.SIGKILL
    assert count == ROWS // 500


def test_streams_survive_descriptor_exhaustion_and_new_clients_recover(start: Start):
    daemon = start()
    rest = Rest(daemon)
    host, _, port = daemon.url.removeprefix("grpc://").rpartition(":")
    with fl.connect(daemon.url) as client, contextlib.ExitStack() as crowd:
        readers = [client.do_get(ticket(client, LONG))]
        chunk = readers[0].read_chunk().data
        assert are_rows_of_long(chunk, 0)
        row = [chunk.num_rows]
        before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        most = descriptors(daemon) + 8
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (most, before[1]))
        for _ in range(50):
            crowd.enter_context(contextlib.closing(socket.create_connection((host, int(port)))))
        assert poll(lambda: descriptors(daemon) >= most)
        assert poll(lambda: any("Too many open files" in line for line in list(daemon.lines)))

        # The running stream opens files too: it continues or reports why not, and no row is wrong.
        def read_stream() -> None:
            for chunk in readers[0]:
                assert are_rows_of_long(chunk.data, row[0])
                row[0] += chunk.data.num_rows

        code, words = outcome(read_stream)
        assert (code, row[0]) == ("OK", ROWS) or (code == "UNAVAILABLE" and "Too many open files" in words), words
        # It does not spin on what it cannot accept.
        assert len(daemon.lines) < 1000
        readers.clear()
    assert poll(lambda: descriptors(daemon) < most)
    with Bystander(daemon.url):
        pass
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)
    assert rest.is_back(), rest.left()
    assert not any("panic" in line for line in daemon.lines)


def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -S -n 200\nulimit -H -n 900\nexec "{server_binary()}" "$@"\n')
    limited.chmod(0o755)
    monkeypatch.setenv("FOREBAY_SERVER_BIN", str(limited))
    daemon = start()
    assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE) == (900, 900)
    assert scrape(daemon).value("forebay_process_max_fds") == 900


def test_memory_limit_rejects_new_streams_and_keeps_running_ones(start: Start):
    daemon = start("--memory-limit-bytes", str(64 * MIB))
    rest = Rest(daemon)
    with contextlib.ExitStack() as clients:
        readers: list[fl.FlightStreamReader] = []
        code, words = "OK", ""

        def first(client: fl.FlightClient) -> None:
            reader = client.do_get(ticket(client, LONG))
            assert are_rows_of_long(reader.read_chunk().data, 0)
            readers.append(reader)

        while code == "OK" and len(readers) < 200:
            code, words = outcome(lambda: first(clients.enter_context(fl.connect(daemon.url))))
        assert code == "RESOURCE_EXHAUSTED", words
        assert readers
        assert "--memory-limit-bytes" in words
        assert str(64 * MIB) in words
        assert scrape(daemon).value("forebay_memory_reserved_bytes") <= 64 * MIB
        # An admitted stream completes while others are idle; then another is admitted.
        assert readers[0].read_all().num_rows == ROWS - LONG["batch_size"]
        client = clients.enter_context(fl.connect(daemon.url))
        assert poll(lambda: outcome(lambda: first(client))[0] == "OK")
        readers.clear()
    assert rest.is_back(), rest.left()


PLAN: dict[str, Any] = {
    "outputs": [
        {"name": "x", "parts": [{"columns": ["x"], "ops": [{"standardize": {}}]}]},
        {"name": "id", "dtype": "INT32", "parts": [{"columns": ["id"], "ops": [{"vocab": {}}]}]},
    ]
}
FILTERED: dict[str, Any] = {**NUMBERS, "plan": {**NUMBERS["plan"], "filter": "id % 2 = 0"}}


@pytest.fixture(params=["a full disk", "a limit of file sizes"])
def full(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory that takes no large file."""
    state = tmp_path / "small"
    state.mkdir()
    if request.param == "a full disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(state)]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("this user may not mount a disk; the other case limits file sizes instead")
        yield state
        subprocess.run(["umount", "--lazy", str(state)], check=True)
        return
    limited = tmp_path / "limited"
    # In units of 512 bytes. Without the signal a write that is too long is an error.
    limited.write_text(f'#!/bin/sh\ntrap "" XFSZ\nulimit -S -f 128\nexec "{server_binary()}" "$@"\n')
    limited.chmod(0o755)
    monkeypatch.setenv("FOREBAY_SERVER_BIN", str(limited))
    yield state


def state_files(state: Path) -> list[str]:
    return [path.name for path in state.rglob("*") if path.is_file()]


def test_full_state_directory_fails_the_fit_but_no_stream(start: Start, full: Path):
    daemon = start(state=full)
    with fl.connect(daemon.url) as client, Bystander(daemon.url):
        # Counts of a filter are kept there as well, where there is room.
        even = client.do_get(ticket(client, FILTERED)).read_all()
        assert np.array_equal(even["id"].to_numpy(), np.arange(0, ROWS, 2))
        code, words = outcome(lambda: fit(client, "data", PLAN))
        assert code == "UNAVAILABLE", words
        assert str(full) in words
        assert "No space left on device" in words or "File too large" in words
        # No half-written file is left.
        assert not [name for name in state_files(full) if name.endswith(".tmp")]
        # A plan that fits in is kept.
        small = {"outputs": PLAN["outputs"][:1]}
        assert fit(client, "data", small)[-1]["result"]["plan_id"]
        if not os.path.ismount(full):
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, unlimited)
        else:
            subprocess.run(["mount", "-o", "remount,size=64m", str(full)], check=True)
        plan_id = fit(client, "data", PLAN)[-1]["result"]["plan_id"]
        out = client.do_get(ticket(client, {"dataset": "data", "plan_id": plan_id})).read_all()
        assert out.num_rows == ROWS
    assert not any("panic" in line for line in daemon.lines)


def test_full_disk_ends_a_spilling_fit_with_a_message(start: Start, full: Path):
    daemon = start("--fit-memory-bytes", str(8 * MIB), state=full)
    rest = Rest(daemon)
    with fl.connect(daemon.url) as client, Bystander(daemon.url):
        plan = {"outputs": [{"name": "v", "dtype": "INT32", "parts": [{"columns": ["x"], "ops": [{"vocab": {}}]}]}]}
        plan["outputs"][0]["parts"] = [{"columns": ["id"], "ops": [{"vocab": {"max_size": 10}}]}]
        code, words = outcome(lambda: fit(client, "data", plan))
        assert code in ("OK", "RESOURCE_EXHAUSTED", "UNAVAILABLE"), words
        assert code == "OK" or "--fit-memory-bytes" in words or str(full) in words
    assert rest.is_back(), rest.left()


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* The wall clock, by as many seconds as the file named in CLOCK_FILE says; other clocks as they are. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (answer == 0 && clock == CLOCK_REALTIME) {
        FILE *file = fopen(getenv("CLOCK_FILE"), "r");
        long long seconds = 0;
        if (file) {
            if (fscanf(file, "%lld", &seconds) == 1) now->tv_sec += seconds;
            fclose(file);
        }
    }
    return answer;
}
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that is loaded before the C library and sets its wall clock."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to build the other clock with")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(CLOCK)
    library = folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "clock.c", "-ldl"], check=True)
    return library


YEAR = 365 * 24 * 3600


@pytest.mark.parametrize("seconds", [10 * YEAR, -10 * YEAR, -55 * YEAR, 3600, -3600])
def test_clock_jumps_change_no_stream_and_no_shutdown(start: Start, clock: Path, tmp_path: Path, seconds: int):
    """By hours, by years, and to where clocks without a battery begin: batches, fits and the drain do not care."""
    clock_file = tmp_path / "seconds"
    clock_file.write_text("0")
    age = ("--connection-age-seconds", "600", "--drain-seconds", "60")
    daemon = start(*age, LD_PRELOAD=str(clock), CLOCK_FILE=str(clock_file), FOREBAY_KEEPALIVE_SECONDS="2")
    with fl.connect(daemon.url) as client, Bystander(daemon.url) as other:
        reader = client.do_get(ticket(client, LONG))
        row = 0
        for step in range(ROWS // LONG["batch_size"]):
            chunk = reader.read_chunk().data
            assert are_rows_of_long(chunk, row)
            row += chunk.num_rows
            if step in (20, 100):
                clock_file.write_text(str(seconds if step == 20 else 0))
                other.wait_for_epochs(2)
        clock_file.write_text(str(seconds))
        plan_id = fit(client, "data", PLAN)[-1]["result"]["plan_id"]
        assert client.do_get(ticket(client, {"dataset": "data", "plan_id": plan_id})).read_all().num_rows == ROWS
        now = scrape(daemon)
        assert now.value("forebay_streams_total", status="failed") == 0
        # The log says the time as it is set.
        jumped = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        year = jumped.year
        assert poll(lambda: any(f'"timestamp":"{year}-' in line for line in list(daemon.lines))), daemon.lines[-3:]
    daemon.process.terminate()
    # It has no stream: the drain ends now, and not by the clock.
    assert daemon.end(seconds=10) == 0
    assert not any("panic" in line for line in daemon.lines)


def newer(state: Path) -> Callable[[], None]:
    """Give a state directory what another version of the server might have left; returns a check that it is kept."""
    (state / "VERSION").write_text("9000\n")
    (state / "cursors").mkdir()
    (state / "cursors/1.bin").write_bytes(b"\0" * 100)
    (state / "plans/0123abcd.json").write_text('{"version": 9000}')

    def check() -> None:
        assert (state / "VERSION").read_text() == "9000\n"
        assert (state / "cursors/1.bin").read_bytes() == b"\0" * 100
        assert (state / "plans/0123abcd.json").exists()

    return check


def test_state_of_a_newer_version_is_not_read(start: Start, tmp_path: Path):
    """Files of unknown kinds are left alone; a plan or a count with unknown fields is ignored."""
    state = tmp_path / "state"
    first = start()
    with fl.connect(first.url) as client:
        plan_id = fit(client, "data", PLAN)[-1]["result"]["plan_id"]
        request = {"dataset": "data", "plan_id": plan_id, "batch_size": 5000}
        want = client.do_get(ticket(client, request)).read_all()
        even = client.do_get(ticket(client, FILTERED)).read_all()
    first.stop()
    kept = newer(state)
    (plan,) = [path for path in (state / "plans").iterdir() if plan_id in path.name]
    for path in [plan, *(state / "row-counts").iterdir()]:
        # A field of the number 999, of length 1.
        path.write_bytes(path.read_bytes() + b"\xba\x3e\x01x")
    second = start()
    with fl.connect(second.url) as client:
        assert is_whole(client.do_get(ticket(client, NUMBERS)).read_all())
        assert client.do_get(ticket(client, FILTERED)).read_all().equals(even)
        tables: list[pa.Table] = []
        code, words = outcome(lambda: tables.append(client.do_get(ticket(client, request)).read_all()))
        assert code in ("OK", "NOT_FOUND", "DATA_LOSS", "FAILED_PRECONDITION"), words
        assert tables == [want] if code == "OK" else plan_id in words
        # Another fit repairs it.
        assert fit(client, "data", PLAN)[-1]["result"]["plan_id"] == plan_id
        assert client.do_get(ticket(client, request)).read_all().equals(want)
    kept()
    assert not any("panic" in line for line in second.lines)


def test_corrupt_state_directory_stops_no_stream(start: Start, tmp_path: Path):
    state = tmp_path / "state"
    for kind in ("plans", "plan-columns", "row-counts", "group-counts", "descriptions", "spill"):
        (state / kind).mkdir(parents=True)
        for name in ("x", f"{'0' * 32}.json", f"{'0' * 32}.binpb", "a b.json", ".tmp", "\udcff.binpb"):
            (state / kind / name).write_bytes(b"\xff\0{" * 50)
        (state / kind / f"{'1' * 32}.binpb").mkdir()
        (state / kind / f"{'1' * 32}.json").mkdir()
    daemon = start()
    with fl.connect(daemon.url) as client:
        for name in ("0" * 32, "1" * 32):
            code, words = outcome(lambda name=name: ticket(client, {"dataset": "data", "plan_id": name}))
            assert code in ("NOT_FOUND", "DATA_LOSS", "FAILED_PRECONDITION", "UNAVAILABLE"), (code, words)
            assert name in words
        plan_id = fit(client, "data", PLAN)[-1]["result"]["plan_id"]
        table = client.do_get(ticket(client, {"dataset": "data", "plan_id": plan_id})).read_all()
        even = client.do_get(ticket(client, FILTERED)).read_all()
    assert np.array_equal(even["id"].to_numpy(), np.arange(0, ROWS, 2))
    assert table.num_rows == ROWS
    assert not any("panic" in line for line in daemon.lines)
