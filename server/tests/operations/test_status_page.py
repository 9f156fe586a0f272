"""The status page at `/` of the metrics address, as JSON and in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon, poll
from harness.serving import fit, info, stored

HOSTILE = "<img src=x onerror=alert(1)>&\"'"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    folder = tmp_path / "wide"
    folder.mkdir()
    text = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["forebay " * 128])
    pq.write_table(pa.table({"text": text}), folder / "a.parquet", store_schema=False, row_group_size=10_000)
    (tmp_path / "unread").mkdir()
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "unread" / "a.parquet")
    running = Daemon(
        "--dataset", f"wide={folder}", "--dataset", f"unread={tmp_path / 'unread'}",
        "--state", str(tmp_path / "state"), *LOOPBACK,
    )  # fmt: skip
    yield running
    running.stop()


def address(daemon: Daemon) -> str:
    return daemon.metrics_url.removesuffix("metrics")


def get(url: str) -> tuple[Message, str]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.headers, answer.read().decode()


def status(daemon: Daemon) -> dict[str, Any]:
    return json.loads(get(address(daemon) + "status.json")[1])


@pytest.fixture
def streaming(daemon: Daemon) -> Iterator[Daemon]:
    """A server with an open stream of a hostile name, of which a client read one batch, and a refused call."""
    options = fl.FlightCallOptions(headers=[(b"x-request-id", HOSTILE.encode())])
    with fl.connect(daemon.urls[0]) as client:
        found = info(client, {"dataset": "wide", "plan": {"outputs": stored("text")}, "batch_size": 500, "epoch": 3})
        reader = client.do_get(found.endpoints[0].ticket, options)
        reader.read_chunk()
        with pytest.raises(pa.ArrowKeyError, match="img"):
            info(client, {"dataset": HOSTILE, "plan": {"outputs": stored("text")}, "batch_size": 500})
        yield daemon
        reader.cancel()


def test_json_of_an_idle_server(daemon: Daemon):
    found = status(daemon)
    assert (found["is_ready"], found["streams"], found["errors"]) == (True, [], [])
    assert [entry["name"] for entry in found["datasets"]] == ["unread", "wide"]
    assert found["uptime_seconds"] >= 0
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", found["version"])


def test_json_of_a_stream_and_an_error(streaming: Daemon):
    found = status(streaming)
    (stream,) = found["streams"]
    assert (stream["dataset"], stream["epoch"], stream["rank"]) == ("wide", "3", "0")
    assert poll(lambda: status(streaming)["streams"][0]["rows"] >= 500)
    assert set(stream["stages"]) == {"fetch", "queue", "decode", "transform", "udf", "assemble", "send_wait"}
    # The client reads nothing more: sooner or later the server has waited for it most of the time.
    assert poll(lambda: status(streaming)["streams"][0]["bound_by"] in ("the client", "CPU", "storage"))
    (wide,) = [entry for entry in found["datasets"] if entry["name"] == "wide"]
    assert (wide["rows"], wide["files"], wide["is_view"]) == (100_000, 1, False)
    (error,) = found["errors"]
    assert (error["call"], error["reason"], error["principal"]) == ("GetFlightInfo", "UNKNOWN_DATASET", "anonymous")
    assert HOSTILE in error["error"]


def test_at_most_twenty_errors_newest_first(daemon: Daemon):
    with fl.connect(daemon.urls[0]) as client:
        for number in range(25):
            with pytest.raises(pa.ArrowKeyError, match=f"none{number}"):
                info(client, {"dataset": f"none{number}", "plan": {"outputs": stored("text")}})
    errors = status(daemon)["errors"]
    assert [error["dataset"] for error in errors] == [f"none{number}" for number in range(24, 4, -1)]


def test_values_and_texts_of_callers_are_for_them_only(tmp_path: Path):
    """Neither the page nor the metrics nor the log at its default level have values of rows, literals, ids or paths."""
    folder = tmp_path / "cards"
    folder.mkdir()
    rows = {"name": ["CARD-4111"] * 4, "x": [77777.5, None] * 2, "n": [2**60 + 1] * 4}
    pq.write_table(pa.table(rows), folder / "a.parquet")
    daemon = Daemon("--dataset", f"cards={folder}", "--state", str(tmp_path / "state"), *LOOPBACK)

    def plan(column: str, *ops: dict[str, Any], dtype: str = "INT32", **more: Any) -> dict[str, Any]:
        return {
            "plan": {
                **more,
                "outputs": [{"name": "o", "dtype": dtype, "parts": [{"columns": [column], "ops": [*ops]}]}],
            }
        }

    with fl.connect(daemon.urls[0]) as client:
        plan_id = fit(client, "cards", plan("name", {"vocab": {}})["plan"])[-1]["result"]["plan_id"]
        requests = {
            "CARD-4111": plan("y", derive=[{"name": "y", "expr": "CAST(name AS BIGINT)"}]),
            "77777.5": plan("x", filter="x IS NOT NULL"),
            "1152921504606846977": plan("n", dtype="FLOAT32"),
            "PATIENT-7": plan("x", filter="name = 'PATIENT-7' AND zz = 1"),
            "PATIENT-8": plan("x", filter='name = "PATIENT-8"'),
            "PATIENT-9": plan(
                "y", dtype="FLOAT32", derive=[{"name": "y", "expr": "nullif(name = 'PATIENT-9', false)"}]
            ),
            plan_id: {"plan_id": f"{plan_id}0"},
        }
        for value, request in requests.items():
            with pytest.raises((pa.ArrowException, fl.FlightError, KeyError)) as raised:
                client.do_get(info(client, {"dataset": "cards", **request}).endpoints[0].ticket).read_all()
            # The caller needs them.
            assert value in str(raised.value), value
    page, metrics = get(address(daemon) + "status.json")[1], get(daemon.metrics_url)[1]
    errors = json.loads(page)["errors"]
    assert sum(error["count"] for error in errors) == len(requests)
    assert {"n", "x"} <= {error["column"] for error in errors}
    assert all(error["error"].startswith('dataset "cards": ') for error in errors)
    assert poll(lambda: sum('"error"' in line for line in daemon.lines) == len(requests))
    log = "".join(line for line in daemon.lines if "call ended" in line and '"error"' in line)
    daemon.stop()
    for value in [*requests, str(folder)]:
        assert value not in page, value
        assert value not in metrics, value
    # The log has the ids of plans.
    for value in [*requests][:-1]:
        assert value not in log, value


def test_the_page_loads_nothing_else(daemon: Daemon):
    headers, page = get(address(daemon))
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", page)
    assert "innerHTML" not in page
    for path in ("nothing", "status.html", "../etc/passwd"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(address(daemon) + path)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(urllib.request.Request(address(daemon), data=b"x"), timeout=30)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")
def test_a_browser_shows_streams_datasets_and_errors(streaming: Daemon, tmp_path: Path):
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=6000", "--enable-logging=stderr",
        "--disable-background-networking", "--dump-dom", address(streaming),
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    page = ended.stdout
    cells = [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", page, re.S)]
    assert ">ready<" in page
    assert "wide" in cells
    assert "100,000" in cells
    assert "UNKNOWN_DATASET" in cells
    # The hostile names are text, not elements.
    assert "<img" not in page
    assert any(HOSTILE in cell for cell in cells)
