"""A fit is computed once for a snapshot and a plan: kept across restarts, shared by concurrent callers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.certificates import principal
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape
from harness.web_server import Files, WebServer

ROWS, GROUP_ROWS = 60_000, 5_000
DENSE = ("x0", "x1", "x2")
PLAN: dict[str, Any] = {
    "outputs": [{"name": "dense", "parts": [{"columns": list(DENSE), "ops": [{"standardize": {}}]}]}],
}
VOCAB: dict[str, Any] = {
    "outputs": [{"name": "cats", "parts": [{"columns": ["word"], "ops": [{"vocab": {}}]}]}],
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Three columns of numbers, and texts that take most of the file."""
    random = np.random.default_rng(3)
    columns: dict[str, Any] = {name: random.normal(size=ROWS) for name in DENSE}
    columns |= {"word": [f"{number:032}" for number in random.integers(0, 2**62, ROWS)]}
    return pa.table(columns)


@pytest.fixture
def folder(table: pa.Table, tmp_path: Path) -> Path:
    write(table, tmp_path)
    return tmp_path


def write(table: pa.Table, folder: Path) -> None:
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(table, folder / "data/new", row_group_size=GROUP_ROWS, compression="none", use_dictionary=False)
    (folder / "data/new").rename(folder / "data/a.parquet")


@contextlib.contextmanager
def running(folder: Path, *flags: str) -> Iterator[Daemon]:
    daemon = Daemon(*LOOPBACK, "--dataset", f"data={folder / 'data'}", "--state", str(folder / "state"), *flags)
    try:
        yield daemon
    finally:
        daemon.stop()


def updates(daemon: Daemon, plan: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    body = json.dumps({"dataset": "data", "plan": plan, **more}).encode()
    with fl.connect(daemon.url) as client:
        return [json.loads(update.body.to_pybytes()) for update in client.do_action(fl.Action("fit", body))]


def fit(daemon: Daemon, plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    return updates(daemon, plan, **more)[-1]["result"]


def read_bytes(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_storage_read_bytes_total")


def lookups(daemon: Daemon) -> tuple[float, float]:
    found = scrape(daemon)
    hits, misses = (
        found.value("forebay_cache_requests_total", cache="fits", result=result) for result in ("hit", "miss")
    )
    return hits, misses


def test_the_second_fit_is_kept_and_reads_nothing(folder: Path):
    with running(folder) as daemon:
        first = fit(daemon, PLAN)
        assert first["cached"] is False
        before = read_bytes(daemon)
        (only,) = updates(daemon, PLAN)
        assert only["result"] == {**first, "cached": True}
        assert read_bytes(daemon) == before
        assert lookups(daemon) == (1, 1)
        # The same plan spelled in another way.
        parts = [{"columns": [name], "ops": [{"standardize": {}}]} for name in DENSE]
        same = {"filter": " ", "outputs": [{"name": "dense", "dtype": "FLOAT32", "parts": parts}]}
        assert fit(daemon, same) == {**first, "cached": True}
    with running(folder) as daemon:
        with fb.connect(daemon.url) as client:
            client.datasets()
        before = read_bytes(daemon)
        assert fit(daemon, PLAN) == {**first, "cached": True}
        assert read_bytes(daemon) == before


def test_a_fit_of_dense_columns_reads_only_them(folder: Path, table: pa.Table):
    with running(folder) as daemon:
        with fb.connect(daemon.url) as client:
            client.datasets()
        before = read_bytes(daemon)
        fit(daemon, PLAN)
        read = read_bytes(daemon) - before
    dense = table.select(list(DENSE)).nbytes
    assert dense < read < 1.1 * dense
    assert (folder / "data/a.parquet").stat().st_size > 2 * dense


def test_refit_learns_again(folder: Path):
    with running(folder) as daemon:
        first = fit(daemon, PLAN)
        before = read_bytes(daemon)
        assert fit(daemon, PLAN, refit=True) == first
        assert read_bytes(daemon) > before + 8 * ROWS
        with fb.connect(daemon.url) as client:
            plan = fb.Plan.from_dict(PLAN)
            assert client.fit("data", plan).cached
            assert not client.fit("data", plan, refit=True).cached


def test_other_rows_plans_and_files_are_other_fits(folder: Path, table: pa.Table):
    with running(folder) as daemon:
        first = fit(daemon, PLAN)
        others: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({**PLAN, "filter": "x0 > 0"}, {}),
            ({**PLAN, "filter": "hash64(__row_id, 1) < 1e18"}, {}),
            (PLAN, {"sample": 0.5}),
            (PLAN, {"sample": 0.5, "sample_seed": 1}),
            ({**PLAN, "derive": [{"name": "y", "expr": "x0 + 1"}]}, {}),
            ({"outputs": [{**PLAN["outputs"][0], "dtype": "FLOAT64"}]}, {}),
        ]
        ids = {first["plan_id"]}
        for plan, more in others:
            found = fit(daemon, plan, **more)
            assert found["cached"] is False
            ids.add(found["plan_id"])
            assert fit(daemon, plan, **more) == {**found, "cached": True}
        assert len(ids) == len(others) + 1
        write(table.slice(5), folder)
        changed = fit(daemon, PLAN)
        assert changed["cached"] is False
        assert changed["plan_id"] not in ids


def test_a_changed_table_of_a_join_is_another_fit(folder: Path):
    (folder / "names").mkdir()

    def put(values: list[float]) -> None:
        keys = [f"{number:032}" for number in range(3)]
        pq.write_table(pa.table({"word": keys, "weight": values}), folder / "names/a.parquet")

    plan: dict[str, Any] = {
        "join": [{"table": "names", "on": "word", "key": "word", "columns": ["weight"]}],
        "derive": [{"name": "y", "expr": "coalesce(weight, 0.0) + x0"}],
        "outputs": [{"name": "y", "parts": [{"columns": ["y"], "ops": [{"standardize": {}}]}]}],
    }
    put([1.0, 2.0, 3.0])
    with running(folder, "--dataset", f"names={folder / 'names'}") as daemon:
        first = fit(daemon, plan)
        assert fit(daemon, plan) == {**first, "cached": True}
        put([1.0, 2.0, 4.0])
        assert fit(daemon, plan)["cached"] is False


class Gate(Files):
    """A store that answers reads of row groups, which are large, only while its gate is open."""

    files: ClassVar[dict[str, bytes]] = {}
    gate: ClassVar[threading.Event] = threading.Event()
    reads: ClassVar[list[str]] = []

    def answer(self, with_body: bool) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        # Footers are at the end of the file.
        if with_body and wanted and int(wanted[2]) < len(self.files[self.path]) * 0.9:
            self.reads.append(wanted[0])
            assert self.gate.wait(60)
        super().answer(with_body)


@pytest.fixture
def gated(folder: Path) -> Iterator[Daemon]:
    Gate.files = {"/a.parquet": (folder / "data/a.parquet").read_bytes()}
    Gate.gate.clear()
    Gate.reads.clear()
    with WebServer(Gate) as url:
        flags = ("--dataset", f"data={url}/a.parquet", "--state", str(folder / "state"))
        daemon = Daemon(*LOOPBACK, *flags)
        try:
            yield daemon
        finally:
            Gate.gate.set()
            daemon.stop()


class Caller:
    """A fit that was started, and has reported that it began."""

    def __init__(self, daemon: Daemon, plan: dict[str, Any]) -> None:
        self.client = fl.connect(daemon.url)
        body = json.dumps({"dataset": "data", "plan": plan}).encode()
        self.updates = self.client.do_action(fl.Action("fit", body), fl.FlightCallOptions(timeout=120))
        self.reports = [self.next()["progress"]]

    def next(self) -> dict[str, Any]:
        return json.loads(next(self.updates).body.to_pybytes())

    def result(self) -> dict[str, Any]:
        while "progress" in (update := self.next()):
            self.reports.append(update["progress"])
        self.client.close()
        return update["result"]

    def leave(self) -> None:
        del self.updates
        self.client.close()


def fits_active(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_fits_active")


def test_concurrent_callers_share_one_fit_and_its_progress(gated: Daemon):
    callers = [Caller(gated, PLAN) for _ in range(4)]
    assert fits_active(gated) == 1
    Gate.gate.set()
    results = [caller.result() for caller in callers]
    assert [result.pop("cached") for result in results] == [False, True, True, True]
    assert all(result == results[0] for result in results)
    assert len(Gate.reads) == len(set(Gate.reads))
    for caller in callers:
        done = [report["rows_done"] for report in caller.reports]
        assert (done[0], done[-1]) == (0, ROWS)
        assert {(report["passes"], report["rows_total"]) for report in caller.reports} == {(1, ROWS)}
    assert lookups(gated) == (3, 1)


def test_a_caller_that_leaves_does_not_end_the_fit_of_others(gated: Daemon):
    leaving, staying = Caller(gated, PLAN), Caller(gated, PLAN)
    leaving.leave()
    assert poll(lambda: cancelled(gated) == 1)
    assert fits_active(gated) == 1
    Gate.gate.set()
    assert staying.result()["cached"] is True
    # The fit was not started again.
    assert len(Gate.reads) == len(set(Gate.reads))


def cancelled(daemon: Daemon) -> int:
    return sum("DoAction/fit" in line and "CANCELLED" in line for line in list(daemon.lines))


def test_the_last_caller_that_leaves_ends_the_fit(gated: Daemon, folder: Path):
    callers = [Caller(gated, PLAN) for _ in range(2)]
    for caller in callers:
        caller.leave()
    assert poll(lambda: fits_active(gated) == 0)
    Gate.gate.set()
    assert not list((folder / "state/fits").iterdir())
    assert fit(gated, PLAN)["cached"] is False


def test_a_refit_does_not_share_a_fit_that_began_before_it(gated: Daemon):
    first = Caller(gated, PLAN)
    found: list[dict[str, Any]] = []
    second = threading.Thread(target=lambda: found.append(fit(gated, PLAN, refit=True)))
    second.start()
    assert poll(lambda: fits_active(gated) == 2)
    Gate.gate.set()
    assert first.result()["cached"] is False
    second.join()
    assert found[0]["cached"] is False


def kept(folder: Path) -> Path:
    (found,) = (folder / "state/fits").iterdir()
    return found


def truncated(folder: Path) -> None:
    kept(folder).write_bytes(kept(folder).read_bytes()[:-3])


def flipped(folder: Path) -> None:
    data = bytearray(kept(folder).read_bytes())
    data[-1] ^= 1
    kept(folder).write_bytes(data)


def of_another_fit(folder: Path) -> None:
    """The valid file of another fit under this fit's name."""
    name = kept(folder)
    with running(folder) as daemon:
        fit(daemon, {**PLAN, "filter": "x0 > 0"})
    (other,) = (path for path in name.parent.iterdir() if path != name)
    other.rename(name)


def without_plan(folder: Path) -> None:
    (plan,) = (folder / "state/plans").iterdir()
    plan.unlink()


def damaged_plan(folder: Path) -> None:
    (plan,) = (folder / "state/plans").iterdir()
    plan.write_bytes(plan.read_bytes() + b"\x00")


def damaged_types(folder: Path) -> None:
    (types,) = (folder / "state/plan-columns").iterdir()
    types.write_text("{")


DAMAGE = [truncated, flipped, of_another_fit, without_plan, damaged_plan, damaged_types]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damaged_state_is_fitted_again(folder: Path, damage: Any):
    with running(folder) as daemon:
        first = fit(daemon, PLAN)
    damage(folder)
    with running(folder) as daemon:
        assert fit(daemon, PLAN) == first
        assert fit(daemon, PLAN) == {**first, "cached": True}


def test_a_kept_fit_needs_the_same_grants(folder: Path):
    tokens = {"reader": "token-of-reader-0123456789", "outsider": "token-of-outsider-0123456789"}
    text = principal("reader", tokens["reader"], "data") + principal("outsider", tokens["outsider"], "other")
    (folder / "principals.toml").write_text(text)
    os.chmod(folder / "principals.toml", 0o600)
    with running(folder, "--principals", str(folder / "principals.toml")) as daemon:
        plan = fb.Plan.from_dict(PLAN)
        with fb.connect(daemon.url, credentials=fb.Credentials(token=tokens["reader"])) as client:
            assert not client.fit("data", plan).cached
            assert client.fit("data", plan).cached
        with (
            fb.connect(daemon.url, credentials=fb.Credentials(token=tokens["outsider"])) as client,
            pytest.raises(fb.errors.PermissionDenied),
        ):
            client.fit("data", plan)


def test_a_failed_fit_is_not_kept(folder: Path):
    failing = {**PLAN, "filter": "x0 > 1e9"}
    with running(folder) as daemon:
        for _ in range(2):
            with pytest.raises(pa.ArrowException, match="NOT_FITTABLE"):
                fit(daemon, failing)
        assert not list((folder / "state/fits").iterdir())
        assert poll(lambda: fits_active(daemon) == 0)


def test_a_fit_reserves_its_memory_from_the_one_budget(folder: Path):
    with running(folder) as daemon, fl.connect(daemon.url) as client:
        body = json.dumps({"dataset": "data", "plan": VOCAB}).encode()
        reserved = []
        for update in client.do_action(fl.Action("fit", body)):
            if b"progress" in update.body.to_pybytes():
                reserved.append(scrape(daemon).value("forebay_memory_reserved_bytes"))
        # The row groups in flight, and towards the end the distinct texts.
        texts = 32 * ROWS
        assert min(reserved) > 32 * GROUP_ROWS
        assert max(reserved) > texts
        assert poll(lambda: scrape(daemon).value("forebay_memory_reserved_bytes") == 0)


def test_a_fit_that_does_not_fit_the_budget_is_refused_with_the_numbers(folder: Path):
    with running(folder, "--memory-limit-bytes", "1MB") as daemon:
        with pytest.raises(pa.ArrowException, match="resource exhausted error.*LIMIT: the fit needs ") as caught:
            fit(daemon, PLAN)
        assert scrape(daemon).value("forebay_memory_reserved_bytes") == 0
    enough = re.search(r"raise --memory-limit-bytes to (\w+)", str(caught.value))
    assert enough
    with running(folder, "--memory-limit-bytes", enough[1]) as daemon:
        assert fit(daemon, PLAN)["cached"] is False
