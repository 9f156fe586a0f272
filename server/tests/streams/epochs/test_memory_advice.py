"""Refusals for memory name numbers with which the same request is accepted."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, Server, info

ROWS, GROUP_ROWS, COLUMNS = 100_000, 20_000, 250
MIB = 1 << 20
PLAN: dict[str, Any] = {"outputs": [{"name": "x", "parts": [{"columns": ["x"] * COLUMNS}]}]}
REQUEST: dict[str, Any] = {"dataset": "wide", "plan": PLAN, "shuffle": True, "batch_size": 256}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 rows; a row of the plan is 1,000 bytes, and the default request reserves half a gigabyte."""
    folder = tmp_path_factory.mktemp("wide")
    table = pa.table({"x": np.arange(ROWS, dtype=np.float32)})
    pq.write_table(table, folder / "a.parquet", row_group_size=GROUP_ROWS)
    return folder


def advised(message: str) -> list[dict[str, int]]:
    """The changes of a message, each sufficient: `window_rows 64 or lanes 4`, `lanes 4 with window_rows 64`."""
    found = re.search(r"request ((?:\w+ \d+(?: or | with )?)+)", message)
    assert found, message
    changes = [re.findall(r"(\w+) (\d+)", change) for change in found[1].split(" or ")]
    return [{name: int(number) for name, number in change} for change in changes]


def assert_all_ranks_stream(server: Server, request: dict[str, Any]) -> None:
    """Opens the streams of all ranks at once."""
    with fl.connect(server.url) as client, contextlib.ExitStack() as streams:
        for endpoint in info(client, request).endpoints:
            reader = client.do_get(endpoint.ticket)
            streams.callback(reader.cancel)
            assert reader.read_chunk().data.num_rows == min(request["batch_size"], ROWS)


def refusal(server: Server, request: dict[str, Any]) -> str:
    """The message for the first rank that does not fit beside those before it."""
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        assert_all_ranks_stream(server, request)
    error = translate(caught.value)
    assert error.code == "RESOURCE_EXHAUSTED", str(error)
    return str(error)


@pytest.mark.parametrize(
    ("changes", "limit", "names"),
    [
        ({}, 80 * MIB, [{"window_rows"}, {"lanes"}]),
        ({"world_size": 4}, 80 * MIB, [{"window_rows"}]),
        ({"lanes": 2}, 40 * MIB, [{"window_rows"}, {"lanes"}]),
        ({"lanes": 1}, 20 * MIB, [{"window_rows"}]),
        ({"lanes": 512}, 10 * MIB, [{"lanes", "window_rows"}]),
        ({"batch_size": 16_384, "window_rows": 64}, 40 * MIB, [{"batch_size"}]),
        ({"batch_size": 16_384, "shuffle": False}, 40 * MIB, [{"batch_size"}]),
    ],
)
def test_advised_numbers_are_accepted(
    folder: Path, serve: Serve, changes: dict[str, Any], limit: int, names: list[set[str]]
):
    server = serve({"wide": folder}, "--memory-limit-bytes", str(limit))
    request = {**REQUEST, **changes}
    message = refusal(server, request)
    assert str(limit) in message
    alternatives = advised(message)
    assert [set(change) for change in alternatives] == names, message
    for change in alternatives:
        assert_all_ranks_stream(server, {**request, **change})


def test_one_rank_is_advised_if_the_server_cannot_hold_all(folder: Path, serve: Serve):
    server = serve({"wide": folder}, "--memory-limit-bytes", "8MiB")
    request = {**REQUEST, "world_size": 64}
    message = refusal(server, request)
    assert ", with which one rank fits, or raise --memory-limit-bytes to " in message
    assert " for all 64 ranks" in message
    with fl.connect(server.url) as client:
        for change in advised(message):
            reader = client.do_get(info(client, {**request, **change}).endpoints[0].ticket)
            assert reader.read_chunk().data.num_rows == REQUEST["batch_size"]
            reader.cancel()


def test_what_other_streams_left_is_advised_while_they_run(folder: Path, serve: Serve):
    server = serve({"wide": folder}, "--memory-limit-bytes", "400MiB")
    with fl.connect(server.url) as client:
        running = client.do_get(info(client, {**REQUEST, "window_rows": 8192}).endpoints[0].ticket)
        assert running.read_chunk().data.num_rows == REQUEST["batch_size"]
        message = refusal(server, REQUEST)
        assert "wait for them to end" in message
        for change in advised(message):
            assert_all_ranks_stream(server, {**REQUEST, **change})
        running.cancel()


def test_limit_is_named_if_no_change_of_the_request_fits(folder: Path, serve: Serve):
    request = {**REQUEST, "start_position": 2560, "world_size": 2}
    small = serve({"wide": folder}, "--memory-limit-bytes", "8MiB")
    message = refusal(small, request)
    # Another order would repeat rows of the epoch that the request resumes.
    assert "window_rows" not in message
    found = re.search(r"raise --memory-limit-bytes to (\w+) for all 2 ranks\b", message)
    assert found, message
    assert_all_ranks_stream(serve({"wide": folder}, "--memory-limit-bytes", found[1]), request)
