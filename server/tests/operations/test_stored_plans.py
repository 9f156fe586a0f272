"""The actions `plans` and `remove_plan`, and what they leave in the state directory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.faults import outcome
from harness.serving import fit, info

ROWS = 1000
Start = Callable[[], Daemon]


def plan_of(column: str) -> dict[str, Any]:
    return {"outputs": [{"name": "y", "parts": [{"columns": [column], "ops": [{"min_max": {}}]}]}]}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "data").mkdir()
    ids = np.arange(ROWS)
    pq.write_table(pa.table({"a": ids, "b": ids * 2}), tmp_path / "data/a.parquet", row_group_size=100)
    running: list[Daemon] = []

    def begin() -> Daemon:
        running.append(Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"data={tmp_path}/data"))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.stop()
        assert not any("panic" in line for line in daemon.lines)


def act(client: fl.FlightClient, name: str, **body: Any) -> list[dict[str, Any]]:
    results = client.do_action(fl.Action(name, json.dumps(body).encode()))
    return [json.loads(result.body.to_pybytes()) for result in results]


def plans(client: fl.FlightClient) -> list[dict[str, Any]]:
    return [plan for part in act(client, "plans") for plan in part["plans"]]


def fitted(client: fl.FlightClient, column: str) -> str:
    return str(fit(client, "data", plan_of(column))[-1]["result"]["plan_id"])


def test_plans_are_listed_across_restarts_the_last_used_first(start: Start, tmp_path: Path):
    daemon = start()
    with fl.connect(daemon.url) as client:
        assert act(client, "plans") == [{"plans": []}]
        first, second = fitted(client, "a"), fitted(client, "b")
        snapshot = act(client, "explain", dataset="data", plan_id=first)[0]["snapshot"]
    daemon.stop()
    for plan_id, age in ((first, 7200), (second, 3600)):
        then = time.time() - age
        os.utime(tmp_path / "state/plans" / f"{plan_id}.binpb", (then, then))
    with fl.connect(start().url) as client:
        listed = plans(client)
        assert [plan["plan_id"] for plan in listed] == [second, first]
        for plan in listed:
            size = (tmp_path / "state/plans" / f"{plan['plan_id']}.binpb").stat().st_size
            assert plan["bytes"] == size
            assert plan["datasets"] == [{"name": "data", "snapshot": snapshot, "rows": ROWS, "fitted": True}]
            # Not before it was created, although its file is older.
            assert plan["created"] == plan["used"] <= time.time()
        # A use by its id counts; a look does not.
        act(client, "show", plan_id=first)
        assert [plan["plan_id"] for plan in plans(client)] == [second, first]
        info(client, {"dataset": "data", "plan_id": first})
        used = plans(client)[0]
        assert used["plan_id"] == first
        assert used["used"] >= used["created"]


def test_a_removed_plan_is_unknown_and_its_open_stream_continues(start: Start, tmp_path: Path):
    with fl.connect(start().url) as client:
        plan_id = fitted(client, "a")
        request = {"dataset": "data", "plan_id": plan_id, "batch_size": 10}
        found = info(client, request)
        reader = client.do_get(found.endpoints[0].ticket)
        assert reader.read_chunk().data.num_rows == 10
        (removed,) = act(client, "remove_plan", plan_id=plan_id)
        assert removed["plan_id"] == plan_id
        assert [path for path in (tmp_path / "state").rglob(f"{plan_id}*") if path.is_file()] == []
        assert sum(chunk.data.num_rows for chunk in reader) == ROWS - 10
        for call in (
            lambda: act(client, "remove_plan", plan_id=plan_id),
            lambda: info(client, request),
            lambda: act(client, "show", plan_id=plan_id),
            lambda: client.do_get(found.endpoints[0].ticket).read_all(),
        ):
            code, words = outcome(call)
            assert code == "NOT_FOUND", words
        assert fitted(client, "a") == plan_id
        assert client.do_get(found.endpoints[0].ticket).read_all().num_rows == ROWS


def test_tickets_of_a_large_inline_plan_are_served_after_its_removal(start: Start):
    """A large plan is stored, so that its tickets are small; the request has all of it."""
    outputs = [{"name": f"output number {i}", "parts": [{"columns": ["a"]}]} for i in range(100)]
    request = {"dataset": "data", "plan": {"outputs": outputs}}
    with fl.connect(start().url) as client:
        info(client, request)
        (stored,) = plans(client)
        assert [(dataset["name"], dataset["fitted"]) for dataset in stored["datasets"]] == [("data", False)]
        act(client, "remove_plan", plan_id=stored["plan_id"])
        assert client.do_get(info(client, request).endpoints[0].ticket).read_all().num_rows == ROWS
        assert [plan["plan_id"] for plan in plans(client)] == [stored["plan_id"]]


def test_unknown_ids_are_refused_with_near_ones(start: Start):
    with fl.connect(start().url) as client:
        plan_id = fitted(client, "a")
        for unknown, words in (
            (plan_id[:-1], plan_id),
            ("../plans", "forebay plans ls"),
            ("ü" * 9000, "no stored plan"),
        ):
            code, text = outcome(lambda unknown=unknown: act(client, "remove_plan", plan_id=unknown))
            assert (code, words in text) == ("NOT_FOUND", True), text
            assert len(text) < 2000
        assert outcome(lambda: act(client, "remove_plan"))[0] == "INVALID_ARGUMENT"
        assert outcome(lambda: act(client, "plans", everything=True))[0] == "INVALID_ARGUMENT"
        assert [plan["plan_id"] for plan in plans(client)] == [plan_id]


def test_plans_of_earlier_versions_are_listed_without_datasets(start: Start, tmp_path: Path):
    daemon = start()
    with fl.connect(daemon.url) as client:
        plan_id = fitted(client, "a")
        (tmp_path / "state/plan-records" / f"{plan_id}.json").unlink()
        (tmp_path / "state/plans/notes.txt").write_text("not a plan")
        (listed,) = plans(client)
        assert (listed["plan_id"], listed["datasets"], listed["created"]) == (plan_id, [], 0)
        (tmp_path / "state/plan-records" / f"{plan_id}.json").write_text("{damaged")
        assert plans(client) == [listed]
        act(client, "remove_plan", plan_id=plan_id)
        assert plans(client) == []
