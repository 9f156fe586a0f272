"""What is under `--state` and `--cache-dir`: only its owner reads it, and clients cannot make it grow without end."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon, run_to_end
from harness.faults import outcome
from harness.serving import fit, info

ROWS = 1000
Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"a": np.arange(ROWS)}), tmp_path / "data/a.parquet", row_group_size=100)
    running: list[Daemon] = []

    def begin(*flags: str) -> Daemon:
        state = () if "--state" in flags else ("--state", f"{tmp_path}/state")
        running.append(Daemon(*LOOPBACK, *state, "--dataset", f"data={tmp_path}/data", *flags))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.stop()


def large(number: int, count: int = 4000) -> dict[str, Any]:
    """A plan of some 36 kB, which needs no fit."""
    words = [f"{number}", *(f"{word:08d}" for word in range(count))]
    ops = [{"vocab": {"values": {"strings": words}}}]
    outputs = [{"name": "y", "dtype": "INT32", "parts": [{"columns": ["t"], "ops": ops}]}]
    return {"derive": [{"name": "t", "expr": "CAST(a AS VARCHAR)"}], "outputs": outputs}


def fitted_plan(number: int) -> dict[str, Any]:
    return {"outputs": [{"name": f"y{number}", "parts": [{"columns": ["a"], "ops": [{"min_max": {}}]}]}]}


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def open_to_others(*folders: Path) -> list[str]:
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return [str(path) for path in paths if not path.is_socket() and stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_only_the_owner_can_read_state_and_cached_rows(start: Start, tmp_path: Path):
    # Left by an earlier version.
    (tmp_path / "state/plans").mkdir(parents=True)
    (tmp_path / "state/plans/00.binpb").write_text("old")
    (tmp_path / "state").chmod(0o755)
    (tmp_path / "state/plans").chmod(0o755)
    (tmp_path / "state/plans/00.binpb").chmod(0o644)
    flags = ("--cache-bytes", "1MiB", "--cache-dir", f"{tmp_path}/cache", "--listen", f"unix:{tmp_path}/socket")
    daemon = start(*flags)
    with fl.connect(daemon.url) as client:
        fit(client, "data", fitted_plan(0))
        for request in ({"plan": large(0)}, {"plan": {**fitted_plan(0), "filter": "a > 3"}}):
            if "filter" in request["plan"]:
                request = {"plan_id": fit(client, "data", request["plan"])[-1]["result"]["plan_id"]}
            client.do_get(info(client, {"dataset": "data", **request}).endpoints[0].ticket).read_all()
        list(client.do_action(fl.Action("describe", json.dumps({"dataset": "data"}).encode())))
    kinds = {path.parent.name for path in (tmp_path / "state").rglob("*") if path.is_file()}
    assert {"plans", "inline-plans", "row-counts", "descriptions", "fits"} <= kinds
    assert open_to_others(tmp_path / "state", tmp_path / "cache") == []
    # Who may connect depends on the mask that the server was started with, not on that of its files.
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o777 & ~mask


def test_plans_of_requests_do_not_fill_the_disk(start: Start, tmp_path: Path):
    daemon = start("--state-inline-bytes", "200KiB")
    with fl.connect(daemon.url) as client:
        tickets = [info(client, {"dataset": "data", "plan": large(number)}).endpoints[0].ticket for number in range(12)]
        assert used(tmp_path / "state/inline-plans") <= 200 << 10
        kept = len(list((tmp_path / "state/inline-plans").iterdir()))
        assert kept == 5
        # Those that are kept keep their tickets; others are in their tickets.
        for ticket in tickets:
            assert client.do_get(ticket).read_all().num_rows == ROWS
        # Plans that were not used for a time make room.
        then = time.time() - 7200
        for path in (tmp_path / "state/inline-plans").iterdir():
            os.utime(path, (then, then))
        short = info(client, {"dataset": "data", "plan": large(99)}).endpoints[0].ticket
        assert len(short.ticket) < 4096
        assert used(tmp_path / "state/inline-plans") <= 200 << 10


def test_fits_beyond_the_limit_are_refused_until_plans_are_removed(start: Start, tmp_path: Path):
    daemon = start("--state-plan-bytes", "300B")
    with fl.connect(daemon.url) as client:
        ids: list[str] = []
        for number in range(20):
            code, text = outcome(
                lambda number=number: ids.append(fit(client, "data", fitted_plan(number))[-1]["result"]["plan_id"])
            )
            if code != "OK":
                break
        assert 0 < len(ids) < 20
        assert (code, "--state-plan-bytes" in text) == ("RESOURCE_EXHAUSTED", True), text
        assert client.do_get(info(client, {"dataset": "data", "plan_id": ids[0]}).endpoints[0].ticket).read_all()
        # A fit that is kept needs no room.
        assert fit(client, "data", fitted_plan(0))[-1]["result"]["plan_id"] == ids[0]
        then = time.time() - 31 * 86_400
        for name in ("plans", "plan-records"):
            for path in (tmp_path / "state" / name).glob(f"{ids[1]}*"):
                os.utime(path, (then, then))
        fit(client, "data", fitted_plan(99))
        assert not list((tmp_path / "state/plans").glob(f"{ids[1]}*"))


def test_results_go_by_their_last_use(start: Start, tmp_path: Path):
    daemon = start("--state-result-bytes", "1200B")
    with fl.connect(daemon.url) as client:
        for limit in range(12):
            request = {
                "dataset": "data",
                "plan": {"outputs": [{"name": "y", "parts": [{"columns": ["a"]}]}], "filter": f"a > {limit}.5 * a"},
            }
            assert info(client, request).total_records >= 0
    assert 0 < used(tmp_path / "state/row-counts") <= 300


@pytest.mark.parametrize("place", ["/proc/forebay", "data/a.parquet", "data/a.parquet/below"])
def test_a_state_that_cannot_be_written_is_a_wrong_configuration(tmp_path: Path, place: str):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "data/a.parquet")
    flags = ("--dataset", f"a={tmp_path / 'data'}", "--state", str(tmp_path / place), *LOOPBACK)
    for verb in ((), ("check",)):
        ended: subprocess.CompletedProcess[str] = run_to_end(*verb, *flags)
        assert (ended.returncode, "--state" in ended.stderr) == (2, True), ended.stderr
