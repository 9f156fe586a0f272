"""Faults of object stores: transient ones are retried without a wrong byte, permanent ones end with their reason.

A proxy in front of a real S3 server corrupts the responses to chosen requests.
"""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.daemon import LOOPBACK, Daemon, poll
from harness.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    another_range,
    another_tag,
    cut,
    error,
    longer,
    shorter,
    stall,
    whole_body,
)
from harness.metrics import scrape
from harness.object_store import KEY_ID, SECRET, Store, s3_server
from harness.serving import fit, info

FILES, GROUPS, GROUP_ROWS = 3, 4, 2000
ROWS = FILES * GROUPS * GROUP_ROWS
BATCH = 1000
OUTPUTS: list[dict[str, Any]] = [
    {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
    {"name": "m", "parts": [{"columns": ["a", "b", "c", "d"]}]},
]
ORDERS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": {"shuffle": True, "seed": 3, "window_rows": 500, "lanes": 4},
}
# What one try may take. It is 30 s otherwise, which is long for a test.
TRY_SECONDS = 2
# The server's limits on the duration and number of retries.
GIVEN_UP_SECONDS = 30
TRIES_MAX = 61


def columns() -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    return {"id": np.arange(ROWS), **{name: random.random(ROWS) for name in "abcd"}}


def put_files(store: Store, prefix: str) -> None:
    """Plain uncompressed numbers: a misplaced byte is a wrong number, not an error."""
    table = pa.table(columns())
    for n in range(FILES):
        sink = io.BytesIO()
        part = table.slice(n * GROUPS * GROUP_ROWS, GROUPS * GROUP_ROWS)
        plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(part, sink, row_group_size=GROUP_ROWS, **plain)
        store.put(f"{prefix}/{n}.parquet", sink.getvalue())


Batches = list[tuple[dict[str, Any], pa.RecordBatch]]


@dataclass
class Outcome:
    """What a client received, and how the stream ended."""

    batches: Batches = field(default_factory=list)
    code: str = "OK"
    words: str = ""
    seconds: float = 0.0


def read(daemon: Daemon, dataset: str, order: str = "in order", start_position: int = 0) -> Outcome:
    outcome = Outcome()
    request = {"dataset": dataset, "plan": {"outputs": OUTPUTS}, "batch_size": BATCH, **ORDERS[order]}
    start = time.monotonic()
    try:
        with fl.connect(daemon.url) as client:
            where = info(client, {**request, "start_position": start_position}).endpoints[0].ticket
            for chunk in client.do_get(where):
                outcome.batches.append((json.loads(chunk.app_metadata.to_pybytes()), chunk.data))
    except (fl.FlightError, pa.ArrowException) as raised:
        ended = translate(raised)
        outcome.code, outcome.words = ended.code, str(ended)
        for secret in (SECRET, KEY_ID):
            assert secret not in outcome.words
    outcome.seconds = time.monotonic() - start
    return outcome


def are_equal(some: Batches, others: Batches) -> bool:
    return len(some) == len(others) and all(
        a[0] == b[0] and a[1].equals(b[1]) for a, b in zip(some, others, strict=True)
    )


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(scope="module")
def proxy(endpoint: str) -> Iterator[FaultProxy]:
    with FaultProxy(endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def store(endpoint: str) -> Store:
    return Store(endpoint, "faulty")


LASTING: dict[str, Fault] = {
    "500": error(500, "InternalError"),
    "503": error(503, "SlowDown"),
    "429": error(429, "TooManyRequests", Retry_After="1"),
    "closed before the answer": cut(-1),
    "closed in the body": cut(1000),
    "closed before the last byte": lambda answer: cut(len(answer.body) - 1)(answer),
    "no answer": stall(-1),
    "stopped in the body": stall(1000),
    "another range": another_range,
    "the whole body": whole_body,
    "a shorter body": shorter,
    "a longer body": longer,
    "another ETag": another_tag,
    "an expired token, 403": error(403, "ExpiredToken"),
    "an expired token, 400": error(400, "ExpiredToken"),
    "access denied": error(403, "AccessDenied"),
    "wrong clock": error(403, "RequestTimeTooSkewed"),
}
# Where the listing or the footers fail, and nothing has been opened yet.
UNOPENED: dict[str, tuple[Fault, bool]] = {
    "listing: 500": (error(500, "InternalError"), False),
    "listing: an expired token, 403": (error(403, "ExpiredToken"), False),
    "listing: an expired token, 400": (error(400, "ExpiredToken"), False),
    "listing: an error with status 200": (error(200, "InternalError"), False),
    "listing: cut": (cut(100), False),
    "footer: 500": (error(500, "InternalError"), True),
    "footer: another range": (another_range, True),
    "footer: a shorter body": (shorter, True),
    "footer: the whole body": (whole_body, True),
    "footer: an expired token, 403": (error(403, "ExpiredToken"), True),
}


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)


@pytest.fixture(scope="module")
def daemon(
    proxy: FaultProxy, store: Store, tmp_path_factory: pytest.TempPathFactory, tiny_folder: Any
) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("storage-faults")
    datasets = {"data": store.url("data"), "local": str(tiny_folder)}
    put_files(store, "data")
    for name in (*LASTING, *UNOPENED, "fresh-list", "fresh-footer"):
        datasets[slug(name)] = store.url(slug(name))
        if name in LASTING:
            put_files(store, slug(name))
    flags = [f"--dataset={name}={url}" for name, url in datasets.items()]
    env = {"AWS_ENDPOINT_URL": proxy.url, "AWS_TIMEOUT": f"{TRY_SECONDS}s"}
    running = Daemon(*LOOPBACK, "--state", f"{folder}/state", *flags, env=env)
    yield running
    assert running.process.poll() is None
    running.stop()
    assert not any("panic" in line or SECRET in line or KEY_ID in line for line in running.lines)


@pytest.fixture(scope="module")
def reference(daemon: Daemon) -> dict[str, Batches]:
    """The streams of a store without faults."""
    streams = {order: read(daemon, "data", order) for order in ORDERS}
    assert all(outcome.code == "OK" for outcome in streams.values()), streams
    ids = [batch["id"].to_numpy() for _, batch in streams["in order"].batches]
    assert np.array_equal(np.concatenate(ids), np.arange(ROWS))
    return {order: outcome.batches for order, outcome in streams.items()}


@pytest.fixture
def clean(proxy: FaultProxy) -> Iterator[FaultProxy]:
    proxy.clear()
    yield proxy
    proxy.clear()
    assert not proxy.errors


def retries(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_storage_retries_total")


class Resumed:
    """Cuts one body, and applies another fault to the request for its rest."""

    def __init__(self, then: Fault) -> None:
        self._then = then
        self._end = ""
        self.hits = 0

    def __call__(self, answer: Answer) -> Answer:
        # The rest of a range ends where the range does.
        end = answer.headers["Content-Range"].partition("-")[2]
        if not self._end:
            self._end = end
            # Within the last column: nothing but numbers follows.
            return cut(len(answer.body) - 4000)(answer)
        if end != self._end:
            return answer
        self.hits += 1
        return self._then(answer)


PASSING: dict[str, Fault] = {
    **{name: LASTING[name] for name in list(LASTING)[: list(LASTING).index("the whole body") + 1]},
    "a pause in the body": stall(1000, 1.0),
    "a shorter body": shorter,
    "a longer body": longer,
}


LYING = ["another range", "the whole body", "a shorter body", "a longer body"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PASSING)
def test_transient_fault_is_retried_and_bytes_match(
    daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy, name: str, order: str
):
    # Each of the first reads, and one in the middle; stalls are for once, as they take their time.
    times = 1 if "answer" in name or "stopped" in name or "pause" in name else 3
    rules = [clean.on(PASSING[name], "/data/", times=times), clean.on(PASSING[name], "/data/1.parquet", times=1)]
    outcome = read(daemon, "data", order)
    assert outcome.code == "OK", outcome.words
    assert are_equal(outcome.batches, reference[order])
    hits = sum(rule.hits for rule in rules)
    assert hits == times + 1
    # Each fault costs one request more.
    assert len([seen for seen in clean.requests("/data/") if seen.range]) <= FILES * GROUPS * 2 + hits


BREAKING = ["closed in the body", "closed before the last byte", "stopped in the body"]
COUNTED = ["500", "503", "429", "closed before the answer", "no answer", *BREAKING]


@pytest.mark.parametrize("name", COUNTED)
def test_every_retried_attempt_is_counted(daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy, name: str):
    before = retries(daemon)
    clean.on(PASSING[name], "/data/1.parquet", times=2)
    assert read(daemon, "data").code == "OK"
    assert retries(daemon) - before == 2


@pytest.mark.parametrize(
    "second",
    ["another range", "the whole body", "a shorter body", "another ETag"],
)
def test_rejects_a_wrongly_resumed_body(daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy, second: str):
    """The rest of a cut body is requested separately, and its response is checked like any other."""
    fault = Resumed(LASTING[second])
    clean.on(fault, "/data/1.parquet")
    outcome = read(daemon, "data")
    assert fault.hits
    known = reference["in order"][: len(outcome.batches)]
    assert are_equal(outcome.batches, known), "the stream holds bytes from another place"
    assert outcome.code in ("OK", "ABORTED", "UNAVAILABLE", "DATA_LOSS"), outcome.words
    if outcome.code == "OK":
        assert len(outcome.batches) == len(reference["in order"])


def test_short_outage_ends_no_stream(daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy):
    """A restart, or a minute's throttling that is over sooner: much less than the server means to wait for a store."""
    away = time.monotonic() + GIVEN_UP_SECONDS / 4
    gone, back = LASTING["503"], lambda answer: answer
    clean.on(lambda answer: (gone if time.monotonic() < away else back)(answer), "/data/1.parquet")
    outcome = read(daemon, "data")
    assert outcome.code == "OK", outcome.words
    assert are_equal(outcome.batches, reference["in order"])


@pytest.mark.parametrize(
    ("fault", "key"),
    [
        *[(fault, "list") for fault in ("500", "429", "closed before the answer", "closed in the body")],
        *[(fault, "footer") for fault in ("500", "429", "closed in the body", "another range")],
    ],
)
def test_dataset_opens_despite_transient_faults(
    daemon: Daemon, reference: dict[str, Batches], store: Store, clean: FaultProxy, fault: str, key: str
):
    name = f"fresh-{key}"
    for n in range(FILES):
        store.delete(f"{name}/{n}.parquet")
    put_files(store, name)
    # The old footers must not be remembered.
    extra = io.BytesIO()
    pq.write_table(pa.table({column: values[:0] for column, values in columns().items()}), extra)
    store.put(f"{name}/{time.monotonic_ns():020}.parquet", extra.getvalue())
    cutting = cut(50) if fault == "closed in the body" else LASTING[fault]
    rule = clean.on(cutting, f"prefix={name}" if key == "list" else f"/{name}/", times=2, ranged=key == "footer")
    outcome = read(daemon, name)
    assert outcome.code == "OK", outcome.words
    assert are_equal(outcome.batches, reference["in order"])
    assert rule.hits == 2


@pytest.mark.parametrize("name", ["cut", "an error with status 200", "another document"])
def test_later_listing_page_loses_no_file(
    daemon: Daemon,
    reference: dict[str, Batches],
    clean: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
):
    """Pages of two files: where the second one fails, the first is not the whole."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    page = b"<!doctype html><html>Log in, please.</html>"
    faults: dict[str, Fault] = {
        "cut": cut(100),
        "an error with status 200": error(200, "SlowDown"),
        "another document": lambda answer: replace(answer, body=page),
    }
    rule = clean.on(faults[name], "continuation-token", times=2, ranged=False)
    outcome = read(daemon, "data")
    assert outcome.code == "OK", outcome.words
    assert are_equal(outcome.batches, reference["in order"])
    assert rule.hits == 2


# === What lasts ===


@dataclass
class Lasting:
    """All permanent faults at the same time, each under its own dataset."""

    outcomes: dict[str, Outcome]
    request_times: dict[str, list[float]]
    others: int


@pytest.fixture(scope="module")
def lasting(daemon: Daemon, proxy: FaultProxy, store: Store, reference: dict[str, Batches]) -> Lasting:
    assert reference
    proxy.clear()
    outcomes: dict[str, Outcome] = {}

    def run(name: str) -> None:
        outcomes[name] = read(daemon, slug(name))

    # Flight infos first: a stream's faults are not those of its opening.
    with fl.connect(daemon.url) as client:
        for name in LASTING:
            info(client, {"dataset": slug(name), "plan": {"outputs": OUTPUTS}})
    for name, fault in LASTING.items():
        # The first file is intact, so that there is a position to resume from.
        proxy.on(fault, f"/{slug(name)}/1.parquet")
        proxy.on(fault, f"/{slug(name)}/2.parquet")
    for name, (fault, ranged) in UNOPENED.items():
        put_files(store, slug(name))
        proxy.on(fault, f"/{slug(name)}/" if ranged else f"prefix={slug(name)}", ranged=ranged)
    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in (*LASTING, *UNOPENED)]
    for thread in threads:
        thread.start()
    others = 0
    while any(thread.is_alive() for thread in threads):
        # Meanwhile no other stream waits for that store.
        with fl.connect(daemon.url) as client:
            plan = {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}
            where = info(client, {"dataset": "local", "plan": plan}).endpoints[0].ticket
            assert client.do_get(where).read_all().num_rows == 100
        others += 1
        threading.Event().wait(0.2)
    request_times = {name: [s.at for s in proxy.requests(f"/{slug(name)}/1.parquet") if s.range] for name in LASTING}
    proxy.clear()
    return Lasting(outcomes, request_times, others)


UNAVAILABLE = list(LASTING)[: list(LASTING).index("stopped in the body") + 1]
REFUSING = ["an expired token, 403", "an expired token, 400", "access denied", "wrong clock"]


@pytest.mark.parametrize("name", LASTING)
def test_permanent_fault_ends_the_stream_in_time_naming_the_object(
    lasting: Lasting, reference: dict[str, Batches], name: str
):
    outcome = lasting.outcomes[name]
    assert outcome.code != "OK"
    assert outcome.code != "INTERNAL", outcome.words
    assert 0 < len(outcome.batches) < len(reference["in order"])
    assert are_equal(outcome.batches, reference["in order"][: len(outcome.batches)])
    assert f"{slug(name)}/1.parquet" in outcome.words
    # Twice what the server gives a store, for a machine that has much else to do.
    assert outcome.seconds < 2 * (GIVEN_UP_SECONDS + TRY_SECONDS)


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_permanent_outage_is_unavailable(lasting: Lasting, name: str):
    outcome = lasting.outcomes[name]
    assert outcome.code == "UNAVAILABLE", outcome.words


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_storage_failure_names_the_position_to_resume(lasting: Lasting, name: str):
    outcome = lasting.outcomes[name]
    found = re.search(r"start_position (\d+)", outcome.words)
    assert found, outcome.words
    assert int(found[1]) == len(outcome.batches) * BATCH


def test_stream_ended_by_storage_resumes_after_recovery(
    lasting: Lasting, daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy
):
    for name in UNAVAILABLE:
        outcome = lasting.outcomes[name]
        rest = read(daemon, slug(name), start_position=len(outcome.batches) * BATCH)
        assert rest.code == "OK", rest.words
        assert are_equal(outcome.batches + rest.batches, reference["in order"])


@pytest.mark.parametrize("name", LYING)
def test_mismatched_store_response_is_reported(lasting: Lasting, name: str):
    """Nothing changed and nothing is damaged: a later reader finds the same snapshot."""
    outcome = lasting.outcomes[name]
    assert outcome.code in ("UNAVAILABLE", "DATA_LOSS", "FAILED_PRECONDITION"), outcome.words


def test_changed_etag_is_a_changed_snapshot(lasting: Lasting):
    outcome = lasting.outcomes["another ETag"]
    assert outcome.code == "ABORTED"
    assert "snapshot changed" in outcome.words
    # No retry: it would not restore the old object.
    assert len(lasting.request_times["another ETag"]) <= GROUPS


@pytest.mark.parametrize("name", REFUSING)
def test_expired_credentials_are_reported_to_the_operator(lasting: Lasting, name: str):
    """An immediate retry fails again, so it is not UNAVAILABLE; the message says who must act."""
    outcome = lasting.outcomes[name]
    assert outcome.code in ("FAILED_PRECONDITION", "PERMISSION_DENIED"), f"{outcome.code}: {outcome.words}"
    assert ("set the clock" if name == "wrong clock" else "AWS_ACCESS_KEY_ID") in outcome.words
    # No repeated retries either.
    assert len(lasting.request_times[name]) <= GROUPS


@pytest.mark.parametrize("name", UNOPENED)
def test_unopenable_dataset_reports_the_reason(lasting: Lasting, name: str):
    outcome = lasting.outcomes[name]
    expected = "FAILED_PRECONDITION" if "token" in name else "UNAVAILABLE"
    assert outcome.code == expected, f"{outcome.code}: {outcome.words}"
    assert slug(name) in outcome.words
    if "token" in name:
        assert "AWS_ACCESS_KEY_ID" in outcome.words
    assert outcome.seconds < 2 * (GIVEN_UP_SECONDS + TRY_SECONDS)


def test_retries_are_limited_and_jittered(lasting: Lasting):
    rhythms: set[tuple[float, ...]] = set()
    names = ("500", "503", "429", "closed before the answer")
    for name in names:
        times = sorted(lasting.request_times[name])
        # Several row groups of the file are requested concurrently, each this often.
        assert 2 <= len(times) <= TRIES_MAX * GROUPS, name
        rhythms.add(tuple(round(pause, 1) for pause in np.diff(times).tolist()))
    # Requests that failed together are not retried together.
    assert len(rhythms) == len(names)


def test_stalled_store_blocks_no_other_dataset(lasting: Lasting):
    assert lasting.others >= 5


def test_after_all_faults_memory_is_free_and_every_dataset_is_readable(
    lasting: Lasting, daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy
):
    assert poll(lambda: scrape(daemon).value("forebay_streams_active") == 0)
    assert poll(lambda: scrape(daemon).value("forebay_memory_reserved_bytes") == 0)
    for name in (*LASTING, *UNOPENED):
        outcome = read(daemon, slug(name))
        assert outcome.code == "OK", outcome.words
        assert are_equal(outcome.batches, reference["in order"]), name


def test_fit_survives_transient_faults(daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy):
    plan = {"outputs": [{"name": "a", "parts": [{"columns": ["a", "id"], "ops": [{"standardize": {}}]}]}]}
    with fl.connect(daemon.url) as client:
        want = fit(client, "data", plan)[-1]["result"]["plan_id"]
        rules = [clean.on(PASSING[name], "/data/", times=2) for name in ("500", "closed in the body", "429")]
        assert fit(client, "data", plan, refit=True)[-1]["result"]["plan_id"] == want
        assert all(rule.hits == 2 for rule in rules)


def test_only_the_proxy_injects_faults(daemon: Daemon, reference: dict[str, Batches], clean: FaultProxy):
    """Without rules the proxy changes nothing, and rules apply where intended."""
    rule = clean.on(lambda answer: Answer(answer.status, answer.headers, answer.body, answer.whole), "/data/", skip=2)
    outcome = read(daemon, "data")
    assert are_equal(outcome.batches, reference["in order"])
    ranged = [seen for seen in clean.requests("/data/") if seen.range]
    assert rule.hits == len(ranged) - 2
