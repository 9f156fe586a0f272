"""Forked processes: they connect again by themselves, or say in one sentence why they cannot.

Every script runs in a fresh process, as this one has open connections.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.repository import package_environment
from harness.serving import Server

pytestmark = pytest.mark.long

HEAD = """
import os, sys, threading, time, torch
from torch.utils.data import DataLoader
import forebay as fb
from forebay.torch import FlightDataset
url = sys.argv[1]
plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64"), "x": fb.cols("x").standardize()})
data = FlightDataset(url, "tiny", plan, batch_size=16)

def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]

def workers(**options):
    return DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork", **options)

def in_child(look):
    '''The exit status of a forked child: 0 where look() is true, 9 where it takes too long.'''
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if look() else 1
        except fb.errors.ForkedInUse:
            status = 3
        finally:
            os._exit(status)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 9
"""


def run(script: str, server: Server, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, server.url],
        capture_output=True,
        text=True,
        timeout=300,
        env={**package_environment(), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_forked_workers_yield_every_row_after_any_call(server: Server):
    script = """
def an_epoch():
    assert ids(data) == list(range(100))

def an_epoch_left_early():
    next(iter(data))

def a_closed_stream():
    stream = kept.stream("tiny", plan)
    next(stream)
    stream.close()
    return stream

def an_exchange():
    with kept.exchange(kept.fit("tiny", plan, progress=False)) as exchange:
        exchange({"id": [1], "x": [0.5]})
    return exchange

def nothing():
    pass

def a_call():
    global kept
    kept = fb.connect(url)
    return len(data), kept.table("tiny").read(), kept.fit("tiny", plan, progress=False)

for call in (nothing, a_call, an_epoch, an_epoch_left_early, a_closed_stream, an_exchange):
    result = call()
    for persistent in (False, True):
        loader = workers(persistent_workers=persistent)
        for _ in range(2):
            assert ids(loader) == list(range(100)), call
    # The parent's own connections continue.
    assert ids(data) == list(range(100)), call
print("all rows", data.epoch, len(kept.datasets()))
"""
    assert run(script, server) == "all rows 31 2"


def test_parent_and_child_share_no_connection(server: Server):
    script = """
client = fb.connect(url)
def look():
    # The inherited client, a new one, and a child of the child.
    with fb.connect(url) as other:
        assert client.schema("tiny") == other.schema("tiny")
    return len(ids(client.stream("tiny", plan))) == 100 and (os.getppid() != parent or in_child(look) == 0)
parent = os.getpid()
assert ids(client.stream("tiny", plan)) == list(range(100))
print({in_child(look) for _ in range(25)}, len(client.datasets()))
"""
    assert run(script, server) == "{0} 2"


def test_fork_during_streams_of_other_threads_never_hangs(server: Server):
    script = """
def read():
    while True:
        with fb.connect(url) as client:
            ids(client.stream("tiny", plan, batch_size=50))
        time.sleep(0.01)
for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
def look():
    with fb.connect(url) as client:
        return len(ids(client.stream("tiny", plan))) == 100
found = {in_child(look) for _ in range(25)}
print(found <= {0, 3})
sys.stdout.flush()
os._exit(0)
"""
    assert run(script, server) == "True"


def test_fork_during_an_open_stream_is_one_sentence(server: Server):
    script = """
loop = iter(data)
next(loop)
for context in ("fork", "forkserver"):
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context=context)
    try:
        print(len(ids(loader)))
    except fb.errors.ForkedInUse as error:
        print(error)
# The parent's loop continues.
print(len(ids(loop)))
loop.close()
print(len(ids(workers())))
"""
    # The native module's streams may be open in a fork; those of gRPC may not.
    sentence, *counts = run(script, server, FOREBAY_NATIVE="off").splitlines()
    assert sentence.startswith("this process was forked while a stream or an exchange was open")
    assert 'multiprocessing_context="forkserver"' in sentence
    assert "Traceback" not in sentence
    assert counts == ["100", "84", "100"]


def test_what_is_open_in_a_fork_is_the_parents(server: Server):
    script = """
client = fb.connect(url)
stream = client.stream("tiny", plan, batch_size=10)
exchange = client.exchange(client.fit("tiny", plan, progress=False))
exchange({"id": [1], "x": [0.5]})
next(stream)
print(in_child(lambda: next(stream)), in_child(lambda: exchange({"id": [1], "x": [0.5]})))
# And they do not end in the child.
def close():
    stream.close()
    exchange.close()
    client.close()
    return True
print(in_child(close))
# The parent's continue.
print(len(ids(stream)), len(exchange({"id": [1, 2], "x": [0.5, 1.5]})["id"]))
"""
    assert run(script, server, FOREBAY_NATIVE="off").splitlines() == ["3 3", "0", "90 2"]


def test_a_fork_closes_the_stream_that_no_loop_reads(server: Server):
    script = """
first, second = (FlightDataset(url, "tiny", plan, batch_size=16, shuffle=True, seed=5) for _ in range(2))
first.set_epoch(0)
order = ids(first)
# The next epoch is open.
assert any(thread.name == "forebay-next-epoch" for thread in threading.enumerate())
loader = DataLoader(second, batch_size=None, num_workers=1, multiprocessing_context="fork")
print(ids(loader) == order, sorted(ids(first)) == sorted(order))
"""
    assert run(script, server) == "True True"


def test_a_forked_child_ends_with_a_test_process_that_hangs():
    script = """
import os, time
from harness.orphans import end_with_this_process
end_with_this_process()
if os.fork() == 0:
    time.sleep(600)
os._exit(1)
"""
    # The child has the other end of the pipe.
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=package_environment(), capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_the_package_grpc_does_not_keep_forks_from_waiting(server: Server):
    script = """
import grpc
for _ in range(5):
    assert ids(data) == list(range(100))
    assert ids(workers()) == list(range(100))
# Its channels and servers have threads of the same names, which do not end.
from concurrent.futures import ThreadPoolExecutor
serving = grpc.server(ThreadPoolExecutor(1))
port = serving.add_insecure_port("127.0.0.1:0")
serving.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
grpc.channel_ready_future(channel).result(timeout=20)
for _ in range(2):
    assert ids(data) == list(range(100))
    assert ids(workers()) == list(range(100))
from forebay._client import fork
print("all rows", len(fork._threads_of_others) > 0)
sys.stdout.flush()
os._exit(0)
"""
    assert run(script, server) == "all rows True"


def test_a_channel_of_others_is_an_error_of_the_child_and_no_hang(server: Server):
    script = """
import grpc
import pyarrow.flight as fl
from forebay._client import connection
connection.HELLO_SECONDS = 1.0
other = fl.connect(url)
list(other.list_actions())
def look():
    with fb.connect(url) as client:
        return len(ids(client.stream("tiny", plan))) == 100
print({in_child(look) for _ in range(3)}, len(list(other.list_flights())))
"""
    assert run(script, server) == "{3} 2"


AFTER_A_FAILURE = """
from multiprocessing import active_children
kept = []
if "connection" in sys.argv[2]:
    try:
        fb.connect("grpc://127.0.0.1:1", retry_seconds=0)
    except fb.Unavailable as error:
        kept.append(error)
if "address" in sys.argv[2]:
    try:
        fb.connect("grpc+nothing://127.0.0.1:1", retry_seconds=0)
    except Exception as error:
        kept.append(error)
if "call" in sys.argv[2]:
    with fb.connect(url) as client:
        for call in (
            lambda: list(client.stream("gone", plan)),
            lambda: client.schema("gone"),
            lambda: client.fit("gone", plan),
            lambda: client.head("gone"),
            lambda: list(client.stream("tiny", fb.Plan(outputs={"gappy": fb.cols("gappy")}))),
            lambda: client.take("tiny", plan, row_ids=[10**9]),
            lambda: client.exchange(fb.Plan(outputs={"x": fb.cols("x")}))({"y": [1.0]}),
        ):
            try:
                call()
            except fb.ForebayError as error:
                kept.append(error)
        assert len(kept) >= 7, kept
if "forgotten" in sys.argv[2]:
    kept.clear()
print(len(ids(workers())))
"""


@pytest.mark.parametrize("failure", ["connection", "connection forgotten", "address", "call", "call forgotten"])
def test_an_earlier_failure_does_not_reach_a_fork(server: Server, failure: str):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + AFTER_A_FAILURE, server.url, failure],
        capture_output=True,
        text=True,
        timeout=300,
        env=package_environment(),
    )
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["100"]), done.stdout + done.stderr
