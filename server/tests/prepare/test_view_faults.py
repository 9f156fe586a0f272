"""Faults of views: runs that fail, are killed or do not fit, and SQL that is wrong."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, poll, run_to_end
from harness.metrics import scrape
from harness.prepare import prepare_binary
from harness.serving import raw_table
from harness.views import (
    JOINED,
    ROWS,
    Start,
    attempt,
    children,
    expected,
    flights,
    lines,
    program,
    results,
    runs,
    runs_no_more,
    script,
)

# Writes rows for minutes.
ENDLESS = "SELECT a.id, b.id AS other, a.delay + b.delay AS delay FROM flights a CROSS JOIN flights b"


def test_a_killed_server_takes_its_run_with_it_and_the_next_one_runs_again(start: Start, tmp_path: Path):
    daemon = start({"pairs": ENDLESS})
    caller = threading.Thread(target=lambda: attempt(daemon, "pairs"))
    caller.start()
    hidden = lambda: list((tmp_path / "state/views").glob("*/.*.preparing-*"))  # noqa: E731
    assert poll(hidden, seconds=60)
    (child,) = children(daemon)
    daemon.process.kill()
    caller.join()
    assert poll(lambda: runs_no_more(child))
    assert results(tmp_path) == []
    # Files that a child left, if it was killed too.
    leftover = hidden()[0] if hidden() else next((tmp_path / "state/views").iterdir()) / ".dead.preparing-1"
    leftover.mkdir(exist_ok=True)
    daemon = start({"pairs": "SELECT id FROM flights ORDER BY id"})
    with fl.connect(daemon.url) as client:
        assert raw_table(client, "pairs").num_rows == ROWS
    assert (len(results(tmp_path)), hidden()) == (1, [])


def test_a_shutdown_stops_the_run(start: Start, tmp_path: Path):
    daemon = start({"pairs": ENDLESS}, "--drain-seconds", "1")
    caller = threading.Thread(target=lambda: attempt(daemon, "pairs"))
    caller.start()
    assert poll(lambda: list((tmp_path / "state/views").glob("*/.*.preparing-*")), seconds=60)
    (child,) = children(daemon)
    daemon.process.terminate()
    assert daemon.end(seconds=20) == 0
    caller.join()
    assert poll(lambda: runs_no_more(child))
    assert results(tmp_path) == []


def test_a_failed_run_is_reported_and_retried(start: Start, inputs: dict[str, Path], alone: Path, tmp_path: Path):
    daemon = start({"odd": "SELECT 1 / (id - 19999) AS x FROM flights"})
    for count in (1, 2):
        error = attempt(daemon, "odd")
        assert "VIEW_FAILED" in error
        assert 'view "odd"' in error
        assert "ivide by zero" in error
        assert runs(daemon) == count
    pq.write_table(flights(100), inputs["flights"] / "a.parquet")
    assert attempt(daemon, "odd") == ""
    assert scrape(daemon).value("forebay_view_runs_total", status="failed") == 2

    # A program that is killed, as by the system when memory is short, and one that is removed.
    script(alone, 'case "$*" in *--progress-seconds*) kill -9 $$;; esac')
    daemon = start({"ids": "SELECT id FROM flights"}, folder=alone)
    assert "signal: 9" in attempt(daemon, "ids")
    (alone / "forebay-prepare").unlink()
    error = attempt(daemon, "ids")
    assert "VIEW_FAILED" in error
    assert "No such file" in error or "not installed" in error
    script(alone, "")
    assert attempt(daemon, "ids") == ""


def test_a_full_disk_is_an_error_and_leaves_nothing(start: Start, alone: Path, tmp_path: Path):
    script(alone, 'trap "" XFSZ\nulimit -S -f 16')
    daemon = start({"all": "SELECT * FROM flights ORDER BY id"}, folder=alone)
    error = attempt(daemon, "all")
    assert "VIEW_FAILED" in error
    assert "File too large" in error
    assert results(tmp_path) == []
    assert list((tmp_path / "state/views").glob("*/.*")) == []
    script(alone, "")
    assert attempt(daemon, "all") == ""


def test_a_damaged_result_is_replaced(start: Start, inputs: dict[str, Path], tmp_path: Path):
    daemon = start({"joined": JOINED})
    want = expected(inputs, JOINED)["id"].to_pylist()
    with fl.connect(daemon.url) as client:
        assert raw_table(client, "joined")["id"].to_pylist() == want
        (result,) = results(tmp_path)
        (result / "part-00000.parquet").unlink()
        assert raw_table(client, "joined")["id"].to_pylist() == want
    assert runs(daemon) == 2


def test_memory_is_reserved_from_the_budget(start: Start, alone: Path):
    script(alone, 'case "$*" in *--progress-seconds*) sleep 2;; esac')
    daemon = start({"joined": JOINED}, "--memory-limit-bytes", "64MiB", "--view-memory-bytes", "48MiB", folder=alone)
    caller = threading.Thread(target=lambda: attempt(daemon, "joined"))
    caller.start()
    reserved = lambda: scrape(daemon).value("forebay_memory_reserved_bytes")  # noqa: E731
    assert poll(lambda: reserved() >= 48 << 20)
    caller.join()
    assert runs(daemon) == 1
    assert poll(lambda: reserved() == 0)

    daemon = start(
        {"big": "SELECT array_agg(repeat('x', 5000) || id) AS x FROM flights"}, "--view-memory-bytes", "16MiB"
    )
    error = attempt(daemon, "big")
    assert "--view-memory-bytes 16MiB" in error
    # Two runs at once do not fit: the second is refused for now.
    script(alone, 'case "$*" in *--progress-seconds*) sleep 2;; esac')
    views = {"one": "SELECT id FROM flights", "two": "SELECT plane FROM flights"}
    daemon = start(views, "--memory-limit-bytes", "64MiB", "--view-memory-bytes", "40MiB", folder=alone)
    caller = threading.Thread(target=lambda: attempt(daemon, "one"))
    caller.start()
    assert poll(lambda: runs(daemon) == 1)
    assert "OVERLOADED" in attempt(daemon, "two")
    caller.join()
    assert attempt(daemon, "two") == ""


STATE = ("--state", "{state}")
INVALID = {
    "no state": (("--view", "v=SELECT id FROM flights"), "--state"),
    "no SQL": ((*STATE, "--view", "v"), "NAME=SQL"),
    "a name of a dataset": ((*STATE, "--view", "flights=SELECT 1 AS x"), '"flights" is set twice'),
    "a name twice": ((*STATE, "--view", "v=SELECT 1 AS x", "--view", "v=SELECT 1 AS x"), '"v" is set twice'),
    "a syntax error": ((*STATE, "--view", "v=SELECT id\nFRO flights"), "SQL, line 2, column 5"),
    "an unknown dataset": ((*STATE, "--view", "v=SELECT id\nFROM fligths"), 'did you mean "flights"?'),
    "a path": ((*STATE, "--view", "v=SELECT * FROM '/etc/passwd.parquet'"), "SQL, line 1, column"),
    "the settings": ((*STATE, "--view", "v=SELECT * FROM information_schema.tables"), "information_schema"),
    "a write": ((*STATE, "--view", "v=DROP TABLE flights"), "DROP is not allowed"),
    "a circle": ((*STATE, "--view", "v=SELECT * FROM w", "--view", "w=SELECT * FROM v"), 'circle ("v", "w")'),
    "little memory": ((*STATE, "--view-memory-bytes", "1MiB"), "--view-memory-bytes"),
}


@pytest.mark.parametrize(("flags", "words"), INVALID.values(), ids=INVALID)
@pytest.mark.parametrize("verb", ["serve", "check"])
def test_errors_that_are_known_at_the_start_end_it(
    verb: str, flags: tuple[str, ...], words: str, inputs: dict[str, Path], tmp_path: Path
):
    arguments = [flag.format(state=tmp_path / "state") for flag in flags]
    arguments += ["check"] if verb == "check" else [*LOOPBACK, "--exit-with-stdin"]
    done = run_to_end(*arguments, "--dataset", f"flights={inputs['flights']}")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "--view" in done.stderr
    assert "panic" not in done.stderr


def test_without_forebay_prepare_the_server_says_so_and_does_not_start(
    alone: Path, inputs: dict[str, Path], tmp_path: Path
):
    flags = [
        "--state",
        f"{tmp_path}/state",
        "--dataset",
        f"flights={inputs['flights']}",
        "--view",
        "v=SELECT id FROM flights",
    ]
    for arguments in ([*LOOPBACK, "--exit-with-stdin"], ["check"]):
        with program(alone):
            done = run_to_end(*arguments, *flags, env={"PATH": "/nowhere"})
        assert done.returncode == 2, done.stderr
        assert "--view" in done.stderr
        assert "make build-all" in done.stderr
    with program(alone):
        path = str(Path(prepare_binary()).parent)
        assert run_to_end("check", *flags, env={"PATH": path}).returncode == 0
        script(alone, "exit 3")
        done = run_to_end("check", *flags)
    assert done.returncode == 2
    assert "exit status: 3" in done.stderr


def test_sql_that_does_not_fit_its_datasets_is_reported_before_its_first_use(
    start: Start, inputs: dict[str, Path], tmp_path: Path
):
    sql = "SELECT id,\n  delya FROM flights"
    words = 'SQL, line 2, column 3: there is no column "delya": did you mean "delay"?'
    flags = ["--state", f"{tmp_path}/state", "--dataset", f"flights={inputs['flights']}"]
    done = run_to_end("check", *flags, "--view", f"v={sql}")
    assert done.returncode == 2
    assert words in done.stderr
    assert (
        'view "good": the SQL is valid' in run_to_end("check", *flags, "--view", "good=SELECT id FROM flights").stdout
    )
    assert not (tmp_path / "state").exists()
    daemon = start({"v": sql})
    assert words in poll(lambda: lines(daemon, "cannot read dataset"))[0]["error"]
    error = attempt(daemon, "v")
    assert "VIEW_FAILED" in error
    assert words in error
    assert results(tmp_path) == []
