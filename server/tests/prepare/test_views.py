"""Views: the server runs their SQL at first use, once for each state of the files that it reads."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.certificates import principal
from harness.daemon import LOOPBACK, Daemon, poll, run_to_end
from harness.metrics import scrape
from harness.serving import info, raw_table, stored
from harness.views import JOINED, Start, expected, flights, lines, results, runs, script


def test_a_view_is_a_dataset_with_the_rows_of_its_sql(start: Start, inputs: dict[str, Path], tmp_path: Path):
    daemon = start({"joined": JOINED})
    want = expected(inputs, JOINED)
    with fl.connect(daemon.url) as client:
        # A list runs nothing.
        listed = {found.descriptor.path[0].decode(): found for found in client.list_flights()}
        about = json.loads(listed["joined"].app_metadata)
        assert (listed["joined"].total_records, "first use" in about["error"]) == (-1, True)
        assert (runs(daemon), results(tmp_path)) == (0, [])
        table = raw_table(client, "joined")
        assert table.select(want.schema.names).cast(want.schema).equals(want)
        # From here on it is a dataset like any other.
        listed = {found.descriptor.path[0].decode(): found for found in client.list_flights()}
        assert listed["joined"].total_records == want.num_rows
    assert (runs(daemon), len(results(tmp_path))) == (1, 1)
    plan = fb.Plan(outputs={"x": [fb.cols("delay", "seats").standardize()], "id": fb.cols("id")})
    with fb.connect(daemon.url) as client:
        fitted = client.fit("joined", plan)
        batches = list(client.stream("joined", fitted, batch_size=1000, shuffle=True, seed=3))
        ids = np.concatenate([batch["id"].ravel() for batch in batches])
        assert sorted(ids.tolist()) == want["id"].to_pylist()
        assert client.describe("joined")["delay"].mean == pytest.approx(np.mean(want["delay"].to_numpy()))
    assert runs(daemon) == 1
    page = scrape(daemon)
    assert page.value("forebay_view_runs_total", status="complete") == 1
    assert page.value("forebay_view_run_seconds_count") == 1
    assert page.value("forebay_view_runs_active") == 0


def test_concurrent_first_uses_share_one_run(start: Start, alone: Path):
    script(alone, 'case "$*" in *--progress-seconds*) sleep 1;; esac')
    daemon = start({"joined": JOINED}, folder=alone)
    counts: list[int] = []

    def use() -> None:
        with fl.connect(daemon.url) as client:
            counts.append(raw_table(client, "joined").num_rows)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 8
    assert len(set(counts)) == 1
    assert runs(daemon) == 1


def test_a_run_continues_without_the_call_that_started_it(start: Start, inputs: dict[str, Path], alone: Path):
    script(alone, 'case "$*" in *--progress-seconds*) sleep 1;; esac')
    daemon = start({"joined": JOINED}, folder=alone)
    with fl.connect(daemon.url) as client:
        path = fl.FlightDescriptor.for_path("joined")
        with pytest.raises(fl.FlightTimedOutError):
            client.get_flight_info(path, fl.FlightCallOptions(timeout=0.3))
        assert daemon.wait_for("(view run ended)")
        assert client.get_flight_info(path).total_records == expected(inputs, JOINED).num_rows
    assert runs(daemon) == 1


def test_a_restart_and_a_replica_reuse_the_result(start: Start, inputs: dict[str, Path], tmp_path: Path):
    first = start({"joined": JOINED})
    with fl.connect(first.url) as client:
        ticket = client.get_flight_info(fl.FlightDescriptor.for_path("joined")).endpoints[0].ticket
        table = client.do_get(ticket).read_all()
    second = start({"joined": JOINED})
    first.process.terminate()
    assert first.end() == 0
    with fl.connect(second.url) as client:
        assert client.do_get(ticket).read_all().equals(table)
        assert raw_table(client, "joined").equals(table)
    assert runs(second) == 0
    assert len(results(tmp_path)) == 1


def test_replicas_that_share_the_state_directory_run_the_sql_once(start: Start, alone: Path):
    script(alone, 'case "$*" in *--progress-seconds*) sleep 1;; esac')
    replicas = [start({"joined": JOINED}, folder=alone) for _ in range(2)]
    counts: list[int] = []

    def use(daemon: Daemon) -> None:
        with fl.connect(daemon.url) as client:
            counts.append(raw_table(client, "joined").num_rows)

    threads = [threading.Thread(target=use, args=(daemon,)) for daemon in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 2
    assert len(set(counts)) == 1
    assert sum(runs(daemon) for daemon in replicas) == 1


def test_changed_files_are_another_result_and_few_are_kept(start: Start, inputs: dict[str, Path], tmp_path: Path):
    daemon = start({"joined": JOINED})
    with fl.connect(daemon.url) as client:
        for seed in range(5):
            pq.write_table(flights(1000 + seed, seed), inputs["flights"] / "a.parquet")
            want = expected(inputs, JOINED)
            assert raw_table(client, "joined").num_rows == want.num_rows
            assert raw_table(client, "joined")["delay"].to_pylist() == want["delay"].to_pylist()
            assert runs(daemon) == seed + 1
    assert len(results(tmp_path)) == 3


def test_a_stream_of_an_earlier_result_continues_or_says_that_it_changed(start: Start, inputs: dict[str, Path]):
    daemon = start({"joined": JOINED})
    request = {"dataset": "joined", "plan": {"outputs": stored("id")}, "batch_size": 100}
    with fl.connect(daemon.url) as client:
        found = info(client, request)
        rows = found.total_records
        pq.write_table(flights(1000), inputs["flights"] / "a.parquet")
        assert info(client, request).total_records < rows
        # The earlier result is kept.
        assert client.do_get(found.endpoints[0].ticket).read_all().num_rows == rows


def test_views_of_views_run_in_order(start: Start, inputs: dict[str, Path]):
    views = {
        "late": "SELECT seats, count(*) AS n FROM joined WHERE delay > 1 GROUP BY seats ORDER BY seats",
        "joined": JOINED,
    }
    daemon = start(views)
    with fl.connect(daemon.url) as client:
        sql = views["late"].replace("joined", f"({JOINED})")
        assert raw_table(client, "late")["n"].to_pylist() == expected(inputs, sql)["n"].to_pylist()
        order = lambda: [line["view"] for line in lines(daemon, "view run started")]  # noqa: E731
        assert poll(lambda: order() == ["joined", "late"]), order()
        raw_table(client, "joined")
    assert runs(daemon) == 2


def test_a_grant_of_the_view_needs_no_grant_of_its_datasets(start: Start, tmp_path: Path):
    token = "token-of-trainer-0123456789"
    (tmp_path / "principals.toml").write_text(principal("trainer", token, "joined"))
    daemon = start({"joined": JOINED, "other": "SELECT 1 AS x"}, "--principals", f"{tmp_path}/principals.toml")
    options = fl.FlightCallOptions(timeout=60, headers=[(b"authorization", f"Bearer {token}".encode())])
    with fl.connect(daemon.url) as client:
        path = fl.FlightDescriptor.for_path
        found = client.get_flight_info(path("joined"), options)
        assert client.do_get(found.endpoints[0].ticket, options).read_all().num_rows == found.total_records
        assert [each.descriptor.path for each in client.list_flights(options=options)] == [[b"joined"]]
        for name in ("flights", "other"):
            with pytest.raises(fl.FlightUnauthorizedError):
                client.get_flight_info(path(name), options)
    assert runs(daemon) == 1


def test_settings_of_the_server_are_not_those_of_the_run(start: Start, inputs: dict[str, Path], tmp_path: Path):
    config = tmp_path / "forebay.toml"
    config.write_text(
        'drain_seconds = 1\n[view]\nfew = """\nSELECT id -- the first\nFROM flights\nORDER BY id LIMIT 7"""\n'
    )
    environment = {
        "FOREBAY_CONFIG": str(config),
        "FOREBAY_DATASET": "\n".join(f"{name}={url}" for name, url in inputs.items()),
        "FOREBAY_STATE": str(tmp_path / "state"),
    }
    daemon = Daemon(*LOOPBACK, env=environment)
    try:
        with fl.connect(daemon.url) as client:
            assert raw_table(client, "few")["id"].to_pylist() == list(range(7))
        # A reload adds a view and keeps the other.
        config.write_text(config.read_text() + 'more = "SELECT count(*) AS n FROM few"\n')
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.wait_for("(configuration reloaded)")
        with fl.connect(daemon.url) as client:
            assert raw_table(client, "more")["n"].to_pylist() == [7]
        config.write_text('[view]\nfew = "SELECT nothing FROM nowhere"\n')
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.wait_for("(cannot reload the configuration)")
        with fl.connect(daemon.url) as client:
            assert raw_table(client, "more")["n"].to_pylist() == [7]
        assert runs(daemon) == 2
    finally:
        daemon.stop()
    views = "a=SELECT 1 AS x;\nb=SELECT x + 1 AS y\nFROM a"
    del environment["FOREBAY_CONFIG"]
    done = run_to_end("check", env={**environment, "FOREBAY_VIEW": views})
    assert (done.returncode, 'view "b"' in done.stdout) == (0, True), done.stderr
