"""`--state` in an object store: replicas on different machines share plans, fits and counts without a restart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.certificates import principal
from harness.daemon import Daemon, poll, run_to_end
from harness.fault_proxy import Fault, FaultProxy, cut, error, stall
from harness.metrics import scrape
from harness.secured import bearer
from harness.serving import fit, info
from harness.stores.backend import Backend
from harness.stores.opened import Stores

NAMES = ["s3", "gcs", "azure"]
ROWS, KEPT = 600, 580
PLAN: dict[str, Any] = {
    "filter": "id >= 20",
    "outputs": [{"name": "out", "parts": [{"columns": ["id"], "ops": [{"standardize": {}}]}]}],
}
VOCAB: dict[str, Any] = {
    "outputs": [{"name": "out", "parts": [{"columns": ["word"], "ops": [{"vocab": {"min_count": 1}}]}]}]
}
FILTERED: dict[str, Any] = {
    "filter": "id >= 20",
    "outputs": [{"name": "out", "dtype": "INT64", "parts": [{"columns": ["id"]}]}],
}
TOKEN = "token-of-trainer-0123456789"

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    running = Stores(tmp_path_factory.mktemp("stores"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    words = [f"word {n % 37}" for n in range(ROWS)]
    table = pa.table({"id": np.arange(ROWS), "word": words, "group": np.arange(ROWS) % 7})
    pq.write_table(table, folder / "a.parquet", row_group_size=100)
    return folder


class Shared:
    """A prefix of a store that holds the state of servers."""

    def __init__(self, stores: Stores, name: str, prefix: str, data: Path) -> None:
        self.stores, self.prefix, self.data = stores, prefix, data
        self.store: Backend = stores.of(name)
        assert self.store.proxy
        self.proxy: FaultProxy = self.store.proxy
        self.proxy.clear()

    @property
    def url(self) -> str:
        return self.store.url(self.prefix)

    def serve(self, *flags: str, name: str = "data") -> Daemon:
        return self.stores.serve({name: str(self.data)}, *flags, state=self.url)

    def names(self, folder: str = "") -> list[str]:
        return self.store.keys(f"{self.prefix}/{folder}")

    def run(self, *flags: str, state: str | None = None, **variables: str) -> tuple[int, str]:
        """The exit code and output of a program that ends."""
        environment = self.stores.environment() | variables
        place = (
            "--state",
            state or self.url,
            "--dataset",
            f"data={self.data}",
            "--scratch-dir",
            str(self.data / "scratch"),
        )
        done = run_to_end(*flags, *place, env=environment, seconds=60)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def shared(stores: Stores, name: str, data: Path, request: pytest.FixtureRequest) -> Iterator[Shared]:
    place = Shared(stores, name, f"state/{re.sub('[^a-z0-9]+', '-', request.node.name.lower())}", data)
    yield place
    place.proxy.clear()
    place.proxy.hidden_headers.clear()
    assert not place.proxy.errors


def act(client: fl.FlightClient, kind: str, **body: Any) -> list[dict[str, Any]]:
    return [
        json.loads(result.body.to_pybytes()) for result in client.do_action(fl.Action(kind, json.dumps(body).encode()))
    ]


def fitted(server: Daemon, plan: dict[str, Any] = PLAN, dataset: str = "data") -> dict[str, Any]:
    with fl.connect(server.url) as client:
        return fit(client, dataset, plan)[-1]["result"]


def read(server: Daemon, **request: Any) -> np.ndarray:
    with fl.connect(server.url) as client:
        found = info(client, {"dataset": "data", **request})
        return client.do_get(found.endpoints[0].ticket).read_all()["out"].to_numpy()


def refusal(call: Callable[[], object]) -> tuple[str, str | None, str]:
    with pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
        call()
    found = translate(raised.value)
    return found.code, found.reason, str(found)


def test_a_replica_finds_what_another_one_stores_while_both_run(shared: Shared):
    first, second = shared.serve(), shared.serve()
    assert refusal(lambda: read(second, plan_id="00"))[:2] == ("NOT_FOUND", "UNKNOWN_PLAN")
    result = fitted(first)
    again = fitted(second)
    assert (result["cached"], again["cached"]) == (False, True)
    assert {**again, "cached": None} == {**result, "cached": None}
    want = read(first, plan_id=result["plan_id"])
    assert len(want) == KEPT
    assert np.array_equal(read(second, plan_id=result["plan_id"]), want)
    with fl.connect(second.url) as client:
        (listed,) = act(client, "plans")[0]["plans"]
    assert listed["plan_id"] == result["plan_id"]
    assert [(one["name"], one["fitted"]) for one in listed["datasets"]] == [("data", True)]
    # The layout is that of a directory, so that one can be copied into a bucket.
    assert shared.names("plans/") == [f"{shared.prefix}/plans/{result['plan_id']}.binpb"]


def test_state_outlives_its_servers(shared: Shared):
    server = shared.serve()
    result = fitted(server)
    want = read(server, plan_id=result["plan_id"])
    server.stop()
    later = shared.serve()
    assert fitted(later)["cached"]
    assert np.array_equal(read(later, plan_id=result["plan_id"]), want)


def test_counts_groups_and_descriptions_are_shared(shared: Shared):
    first = shared.serve()
    grouped = {"dataset": "data", "plan": FILTERED, "group_by": "group"}

    def ask(server: Daemon) -> tuple[list[int], int, dict[str, Any]]:
        rows = read(server, plan=FILTERED).tolist()
        with fl.connect(server.url) as client:
            groups = len(info(client, grouped).endpoints)
            return rows, groups, act(client, "describe", dataset="data")[-1]["result"]

    want = ask(first)
    kinds = ("row-counts", "group-counts", "descriptions")
    kept = {kind: shared.names(f"{kind}/") for kind in kinds}
    assert all(kept.values()), kept
    shared.proxy.clear()
    assert ask(shared.serve()) == want
    assert {kind: shared.names(f"{kind}/") for kind in kinds} == kept
    # It read what the first one stored, and had nothing to write.
    for kind in kinds:
        assert [seen.method for seen in shared.proxy.requests(f"{shared.prefix}/{kind}/")] == ["GET"], kind


def test_concurrent_fits_of_two_replicas_have_one_result(shared: Shared):
    """Both may compute; records of both datasets are kept, although both replicas write the same object."""
    servers = [shared.serve(name="a"), shared.serve(name="b")]

    def once(n: int) -> str:
        return json.dumps(fitted(servers[n % 2], VOCAB, "ab"[n % 2]) | {"cached": None}, sort_keys=True)

    with ThreadPoolExecutor(8) as pool:
        results = set(pool.map(once, range(16)))
    assert len(results) == 1
    assert len(shared.names("plans/")) == 1
    for server in servers:
        with fl.connect(server.url) as client:
            (listed,) = act(client, "plans")[0]["plans"]
        assert [(one["name"], one["fitted"]) for one in listed["datasets"]] == [("a", True), ("b", True)]


def test_many_plans_fitted_at_once_by_two_replicas_are_all_kept(shared: Shared):
    servers = [shared.serve(), shared.serve()]
    plans = [{**PLAN, "filter": f"id >= {n}"} for n in range(12)]
    with ThreadPoolExecutor(8) as pool:
        fits = [pool.submit(fitted, server, plan) for plan in plans for server in servers]
        ids = [one.result()["plan_id"] for one in fits]
    assert ids[::2] == ids[1::2]
    assert {Path(key).stem for key in shared.names("plans/")} == set(ids)
    for server in servers:
        assert [len(read(server, plan_id=plan_id)) for plan_id in ids[::8]] == [ROWS, ROWS - 4, ROWS - 8]


def test_a_plan_removed_at_one_replica_is_unknown_to_the_other(shared: Shared):
    first, second = shared.serve(), shared.serve()
    plan_id = fitted(first)["plan_id"]
    read(second, plan_id=plan_id)
    with fl.connect(first.url) as client:
        act(client, "remove_plan", plan_id=plan_id)
    assert refusal(lambda: read(first, plan_id=plan_id))[:2] == ("NOT_FOUND", "UNKNOWN_PLAN")

    def is_unknown() -> bool:
        try:
            read(second, plan_id=plan_id)
        except (fl.FlightError, pa.ArrowException, KeyError) as raised:
            return translate(raised).reason == "UNKNOWN_PLAN"
        return False

    assert poll(is_unknown, seconds=20)
    assert shared.names("plans/") == []
    assert not fitted(second)["cached"]
    read(first, plan_id=plan_id)


def test_tickets_of_one_replica_are_valid_at_another(shared: Shared, tmp_path: Path):
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    first, second = (shared.serve("--principals", f"{tmp_path}/principals.toml") for _ in range(2))
    options = bearer(TOKEN)
    request = fl.FlightDescriptor.for_command(json.dumps({"dataset": "data", "plan": FILTERED}).encode())
    with fl.connect(first.url) as client:
        ticket = client.get_flight_info(request, options).endpoints[0].ticket
    with fl.connect(second.url) as client:
        assert client.do_get(ticket, options).read_all().num_rows == KEPT
    assert len(shared.names("ticket-key")) == 1


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-3],
    "garbage": lambda data: b'\xff\x00{"' * 9,
    "a bit": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_objects_are_never_used(shared: Shared, damage: str):
    first = shared.serve()
    result = fitted(first)
    want = read(first, plan_id=result["plan_id"])
    for key in shared.names():
        if "/used/" not in key:
            shared.store.put(key, DAMAGES[damage](shared.store.get(key)))
    second = shared.serve()
    code, reason, text = refusal(lambda: read(second, plan_id=result["plan_id"]))
    assert (code, reason) == ("NOT_FOUND", "UNKNOWN_PLAN"), text
    assert "damaged" in text
    # Another fit repairs everything, also for the replica that stored it first.
    again = fitted(second)
    assert (again["plan_id"], again["cached"]) == (result["plan_id"], False)
    for server in (second, shared.serve()):
        assert np.array_equal(read(server, plan_id=result["plan_id"]), want)
    assert fitted(first)["cached"]


FAILURES: dict[str, tuple[Fault, tuple[str, str]]] = {
    "500": (error(500, "InternalError"), ("UNAVAILABLE", "STORE_UNAVAILABLE")),
    "403": (error(403, "AccessDenied"), ("FAILED_PRECONDITION", "STORE_REFUSED")),
    "reset": (cut(-1), ("UNAVAILABLE", "STORE_UNAVAILABLE")),
    "stall": (stall(-1), ("UNAVAILABLE", "STORE_UNAVAILABLE")),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_plan_that_cannot_be_read_is_not_unknown(shared: Shared, failure: str):
    plan_id = fitted(shared.serve())["plan_id"]
    server, (fault, want) = shared.serve(), FAILURES[failure]
    shared.proxy.on(fault, f"{shared.prefix}/plans/", ranged=False)
    code, reason, text = refusal(lambda: read(server, plan_id=plan_id))
    assert (code, reason) == want, text
    assert "--state" in text
    assert plan_id in text
    shared.proxy.clear()
    assert len(read(server, plan_id=plan_id)) == KEPT


@pytest.mark.parametrize("failure", ["500", "403", "reset"])
def test_streams_and_plans_in_use_work_without_the_store(shared: Shared, failure: str):
    """A count is computed again, and a compiled plan stays in use."""
    server = shared.serve()
    plan_id = fitted(server)["plan_id"]
    want = read(server, plan_id=plan_id)
    fault, refused = FAILURES[failure]
    methods = ("GET", "HEAD", "PUT")
    rule = shared.proxy.on(fault, shared.prefix, ranged=False, methods=methods)
    assert np.array_equal(read(server, plan_id=plan_id), want)
    assert len(read(server, plan={**FILTERED, "filter": "id >= 25"})) == ROWS - 25
    assert rule.hits
    code, reason, text = refusal(lambda: fitted(server, VOCAB))
    assert (code, reason) == refused, text
    shared.proxy.clear()
    assert len(fitted(server, VOCAB)["plan_id"]) > 8


@pytest.mark.parametrize("passing", ["500", "503", "reset", "cut"])
def test_passing_faults_of_the_store_are_not_seen(shared: Shared, passing: str):
    """Also for writes: the proxy passes each on to the store, whose answer is lost."""
    faults = {"500": error(500, "InternalError"), "503": error(503, "SlowDown"), "reset": cut(-1), "cut": cut(10)}
    server = shared.serve()
    shared.proxy.on(faults[passing], shared.prefix, times=2, ranged=False)
    if passing in ("500", "503"):
        shared.proxy.on(faults[passing], f"{shared.prefix}/plans", times=2, ranged=False, methods=("PUT",))
    result = fitted(server)
    shared.proxy.on(faults[passing], f"{shared.prefix}/plans", times=1, ranged=False)
    assert len(read(shared.serve(), plan_id=result["plan_id"])) == KEPT


def test_requests_are_counted(shared: Shared):
    server = shared.serve()
    fitted(server)
    metrics = scrape(server)
    for operation in ("get", "put", "delete"):
        assert metrics.value("forebay_storage_requests_total", operation=operation, status="ok") > 0, operation
    assert poll(lambda: scrape(server).value("forebay_state_bytes") >= 0)


def test_check_passes_and_leaves_nothing_behind(shared: Shared):
    code, output = shared.run("check")
    assert code == 0, output
    assert f"ok: --state {shared.url}" in output
    assert shared.names() == []


@pytest.mark.parametrize("verb", [(), ("check",)])
def test_start_fails_without_the_bucket_or_the_credentials(shared: Shared, verb: tuple[str, ...]):
    code, output = shared.run(*verb, state=shared.store.missing_url())
    assert code == 2, output
    assert "--state" in output
    assert shared.store.missing_url() in output
    shared.proxy.on(error(403, "AccessDenied"), shared.prefix, ranged=False, methods=("PUT",))
    code, output = shared.run(*verb)
    assert code == 2, output
    assert "--state" in output
    assert shared.store.credentials in output


def test_start_fails_if_the_store_is_out_of_reach(shared: Shared, name: str):
    settings = {"s3": "AWS_ENDPOINT_URL", "gcs": "GOOGLE_BASE_URL", "azure": "AZURITE_BLOB_STORAGE_URL"}
    code, output = shared.run(**{settings[name]: "http://127.0.0.1:9"})
    assert code == 1, output
    assert "--state" in output
    assert shared.store.endpoint_setting in output


@pytest.mark.parametrize("verb", [(), ("check",)])
def test_start_fails_if_the_store_ignores_conditions(shared: Shared, verb: tuple[str, ...]):
    conditions = {"if-none-match", "x-goog-if-generation-match"}
    shared.proxy.hidden_headers |= conditions
    code, output = shared.run(*verb)
    assert code == 2, output
    assert "--state" in output
    assert "If-None-Match" in output
    assert "use a store that supports" in output
    assert shared.names() == []
