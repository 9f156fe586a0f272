"""Faults of every kind of store in one suite: statuses, bodies that end early, and settings that are wrong.

A proxy in front of each store corrupts the responses to chosen requests. `test_stores.py` has more faults, of S3 alone.
"""

from __future__ import annotations

import base64
import io
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.daemon import Daemon
from harness.fault_proxy import Answer, Fault, another_range, cut, error, whole_body
from harness.metrics import scrape
from harness.object_store import KEY_ID, SECRET
from harness.serving import info
from harness.stores.azure import KEY
from harness.stores.backend import TOKEN
from harness.stores.opened import NAMES, Stores

REMOTE = [name for name in NAMES if name != "local"]
BUCKETS = [name for name in REMOTE if name != "http"]
GROUPS, GROUP_ROWS, BATCH = 4, 2000, 1000
ROWS = GROUPS * GROUP_ROWS
COLUMN_BYTES = 8
PLAN = {"outputs": [{"name": "m", "dtype": "FLOAT64", "parts": [{"columns": ["a", "b"]}]}]}
SECRETS = (SECRET, KEY_ID, KEY, TOKEN)


def table() -> pa.Table:
    random = np.random.default_rng(4)
    return pa.table({name: random.random(ROWS) for name in "ab"})


def rows() -> np.ndarray:
    return np.column_stack([column.to_numpy() for column in table().columns])


@cache
def body() -> bytes:
    """Plain numbers: a misplaced byte is a wrong number, not an error."""
    sink = io.BytesIO()
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table(), sink, row_group_size=GROUP_ROWS, **plain)
    return sink.getvalue()


def of_the_second_half(fault: Fault) -> Fault:
    """Spares the ranges that begin in the first row groups, so that there is a position to resume from."""

    def applied(answer: Answer) -> Answer:
        found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
        spared = found and int(found[1]) < ROWS * COLUMN_BYTES
        return answer if spared else fault(answer)

    return applied


PASSING: dict[str, Fault] = {
    "429": error(429, "TooManyRequests", Retry_After="1"),
    "500": error(500, "InternalError"),
    "503": error(503, "ServerBusy"),
    "closed-before-the-answer": cut(-1),
    "cut-body": cut(1000),
    "another-range": another_range,
}
LASTING: dict[str, Fault] = {
    "403": error(403, "AccessDenied"),
    "404": error(404, "NoSuchKey"),
    "429": error(429, "TooManyRequests"),
    "500": error(500, "InternalError"),
    "cut-body": cut(1000),
}
UNOPENED: dict[str, tuple[Fault, bool]] = {
    "list-403": (error(403, "AccessDenied"), False),
    "list-500": (error(500, "InternalError"), False),
    "list-cut": (cut(100), False),
    "footer-403": (error(403, "AccessDenied"), True),
    "footer-500": (error(500, "InternalError"), True),
}
SKEWED: dict[str, Fault] = {
    "s3": error(403, "RequestTimeTooSkewed"),
    "azure": error(403, "AuthenticationFailed", detail="Request date header too old: 'Mon, 23 Nov 2026 10:00:00 GMT'"),
}


@dataclass
class Outcome:
    """What a client received, and how the stream ended."""

    values: np.ndarray
    code: str = "OK"
    reason: str | None = None
    words: str = ""


def read(daemon: Daemon, dataset: str) -> Outcome:
    received = [np.empty((0, 2))]
    outcome = Outcome(received[0])
    try:
        with fl.connect(daemon.url) as client:
            flight = info(client, {"dataset": dataset, "plan": PLAN, "batch_size": BATCH})
            for chunk in client.do_get(flight.endpoints[0].ticket):
                received.append(chunk.data.column(0).to_numpy_ndarray())
    except (fl.FlightError, pa.ArrowException) as raised:
        ended = translate(raised)
        outcome.code, outcome.reason, outcome.words = ended.code, ended.reason, str(ended).partition(" [request")[0]
    outcome.values = np.concatenate(received)
    return outcome


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    running = Stores(tmp_path_factory.mktemp("stores"))
    yield running
    running.close()


def dataset(store: str, case: str) -> str:
    return f"{store}-{case}"


@pytest.fixture(scope="module")
def daemon(stores: Stores) -> Daemon:
    """One server of a dataset for each case in each store."""
    datasets: dict[str, str] = {}
    cases = [*(f"passing-{case}" for case in PASSING), *(f"lasting-{case}" for case in LASTING), *UNOPENED, "skewed"]
    for name in set(REMOTE) & stores.opened.keys():
        store = stores.of(name)
        for case in cases:
            store.put(f"{case}/a.parquet", body())
            datasets[dataset(name, case)] = store.url(case if store.lists else f"{case}/a.parquet")
        if name in BUCKETS:
            datasets[dataset(name, "missing")] = store.missing_url()
    return stores.serve(datasets)


@pytest.mark.parametrize("case", PASSING)
@pytest.mark.parametrize("name", REMOTE)
def test_transient_fault_is_retried_and_bytes_match(stores: Stores, daemon: Daemon, name: str, case: str):
    proxy = stores.of(name).proxy
    assert proxy
    before = scrape(daemon).value("forebay_storage_retries_total")
    rule = proxy.on(PASSING[case], f"/passing-{case}/", times=2)
    outcome = read(daemon, dataset(name, f"passing-{case}"))
    assert outcome.code == "OK", outcome.words
    assert np.array_equal(outcome.values, rows())
    assert rule.hits == 2
    assert scrape(daemon).value("forebay_storage_retries_total") >= before + 2


# === What lasts ===


@pytest.fixture(scope="module")
def lasting(stores: Stores, daemon: Daemon) -> dict[str, Outcome]:
    """All permanent faults of all stores at the same time: each takes half a minute to give up."""
    names = [name for name in REMOTE if name in stores.opened]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    elsewhere = {name: stores.of(name).url("d") for name in names if name in BUCKETS}
    unreachable = stores.serve({**elsewhere, "http": f"http://{dead}/a.parquet"}, endpoint=f"http://{dead}")
    reads = [(f"unreachable {name}", unreachable, name) for name in names]
    with fl.connect(daemon.url) as client:
        for name in names:
            store = stores.of(name)
            proxy = store.proxy
            assert proxy
            for case, fault in LASTING.items():
                # Opened before the fault: a stream's faults are not those of its opening.
                info(client, {"dataset": dataset(name, f"lasting-{case}"), "plan": PLAN})
                proxy.on(of_the_second_half(fault), f"/lasting-{case}/")
                reads.append((f"{name} {case}", daemon, dataset(name, f"lasting-{case}")))
            for case, (fault, ranged) in UNOPENED.items():
                if name in BUCKETS or ranged:
                    proxy.on(fault, f"/{case}/" if ranged else store.listing_mark(case), ranged=ranged)
                    reads.append((f"{name} {case}", daemon, dataset(name, case)))
            if name in SKEWED:
                proxy.on(SKEWED[name], store.listing_mark("skewed"), ranged=False)
                reads.append((f"{name} skewed", daemon, dataset(name, "skewed")))
    with ThreadPoolExecutor(len(reads)) as pool:
        outcomes = list(pool.map(lambda read_of: read(*read_of[1:]), reads))
    for outcome in outcomes:
        assert outcome.code not in ("OK", "INTERNAL"), outcome
        assert not any(secret in outcome.words for secret in SECRETS)
    return {title: outcome for (title, _, _), outcome in zip(reads, outcomes, strict=True)}


def refused(stores: Stores, name: str, outcome: Outcome) -> None:
    """The refusal says which variable the operator should look at; a web server has none."""
    assert (outcome.code, outcome.reason) == ("FAILED_PRECONDITION", "STORE_REFUSED"), outcome
    assert stores.of(name).credentials in outcome.words
    assert "on purpose" in outcome.words


@pytest.mark.parametrize("case", ["429", "500", "cut-body"])
@pytest.mark.parametrize("name", REMOTE)
def test_permanent_outage_names_the_position_to_resume(
    stores: Stores, lasting: dict[str, Outcome], name: str, case: str
):
    stores.of(name)
    outcome = lasting[f"{name} {case}"]
    assert (outcome.code, outcome.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE"), outcome
    received = len(outcome.values)
    assert 0 < received < ROWS
    assert np.array_equal(outcome.values, rows()[:received])
    assert f"start_position {received}" in outcome.words


@pytest.mark.parametrize("case", ["403", "list-403", "footer-403"])
@pytest.mark.parametrize("name", REMOTE)
def test_denied_request_names_the_credentials(stores: Stores, lasting: dict[str, Outcome], name: str, case: str):
    if name == "http" and case.startswith("list"):
        pytest.skip("a web server has no listing")
    stores.of(name)
    refused(stores, name, lasting[f"{name} {case}"])


@pytest.mark.parametrize("name", REMOTE)
def test_object_deleted_in_mid_stream_is_a_changed_snapshot(stores: Stores, lasting: dict[str, Outcome], name: str):
    stores.of(name)
    outcome = lasting[f"{name} 404"]
    assert (outcome.code, outcome.reason) == ("ABORTED", "SNAPSHOT_CHANGED"), outcome


@pytest.mark.parametrize("case", ["list-500", "list-cut", "footer-500"])
@pytest.mark.parametrize("name", REMOTE)
def test_unopenable_dataset_is_unavailable(stores: Stores, lasting: dict[str, Outcome], name: str, case: str):
    if name == "http" and case.startswith("list"):
        pytest.skip("a web server has no listing")
    store = stores.of(name)
    outcome = lasting[f"{name} {case}"]
    assert (outcome.code, outcome.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE"), outcome
    assert store.url(case) in outcome.words


@pytest.mark.parametrize("name", REMOTE)
def test_unreachable_endpoint_names_the_setting(stores: Stores, lasting: dict[str, Outcome], name: str):
    store = stores.of(name)
    outcome = lasting[f"unreachable {name}"]
    assert (outcome.code, outcome.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE"), outcome
    assert "Connection refused" in outcome.words
    assert f"check {store.endpoint_setting or 'the URL'}" in outcome.words


@pytest.mark.parametrize("name", SKEWED)
def test_clock_that_the_store_rejects_is_named(stores: Stores, lasting: dict[str, Outcome], name: str):
    stores.of(name)
    outcome = lasting[f"{name} skewed"]
    assert (outcome.code, outcome.reason) == ("FAILED_PRECONDITION", "STORE_REFUSED"), outcome
    assert outcome.words.endswith("set the clock of the server's machine")


# A hub says neither whether a dataset exists to those who may not see it.
@pytest.mark.parametrize("name", [name for name in BUCKETS if name != "hub"])
def test_missing_bucket_is_named(stores: Stores, daemon: Daemon, name: str):
    store = stores.of(name)
    outcome = read(daemon, dataset(name, "missing"))
    assert (outcome.code, outcome.reason) == ("FAILED_PRECONDITION", "EMPTY_DATASET"), outcome
    assert store.missing_url() in outcome.words
    assert any(code in outcome.words for code in ("NoSuchBucket", "ContainerNotFound"))


def test_azurite_rejects_another_key(stores: Stores):
    """A real refusal: the emulator verifies the signature."""
    store = stores.of("azure")
    store.put("d/a.parquet", body())
    assert store.proxy
    other = {"AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"another key").decode()}
    server = stores.serve({"data": store.url("d")}, environment=other)
    refused_read = read(server, "data")
    assert (refused_read.code, refused_read.reason) == ("FAILED_PRECONDITION", "STORE_REFUSED"), refused_read
    assert "AZURE_STORAGE_ACCOUNT_KEY" in refused_read.words
    assert not any(secret in refused_read.words for secret in (*SECRETS, *other.values()))


def test_web_server_without_ranges_is_refused(stores: Stores):
    store = stores.of("http")
    store.put("whole/a.parquet", body())
    assert store.proxy
    store.proxy.on(whole_body, "/whole/")
    outcome = read(stores.serve({"data": store.url("whole/a.parquet")}), "data")
    assert (outcome.code, outcome.reason) == ("FAILED_PRECONDITION", "STORE_REFUSED"), outcome
    assert outcome.words.endswith("serve the file from a web server that supports ranges, or from a bucket")
    assert store.url("whole/a.parquet") in outcome.words
