"""The first rows and some columns of a raw table, which the server reads alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server

ROWS = 40_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "noise": random.random(ROWS),
            "text": pa.array([f"row {i}" if i % 3 else None for i in range(ROWS)]),
            "word": pa.array([f"k{i % 5}" for i in range(ROWS)]).dictionary_encode(),
            "list": pa.array([[i] * (i % 4) for i in range(ROWS)], pa.list_(pa.int64())),
            "flag": pa.array([None if i % 5 == 0 else i % 2 == 0 for i in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("head")
    (root / "data").mkdir()
    (root / "empty").mkdir()
    pq.write_table(table.slice(0, 15), root / "data/a.parquet", row_group_size=4)
    pq.write_table(table.slice(15, 20_000), root / "data/b.parquet", row_group_size=10_000)
    pq.write_table(table.slice(20_015), root / "data/c.parquet")
    pq.write_table(table.slice(0, 0), root / "empty/a.parquet")
    return root


@pytest.fixture(scope="module")
def head_server(folder: Path, serve: Serve) -> Server:
    return serve({"data": folder / "data", "empty": folder / "empty"})


@pytest.fixture(scope="module")
def looker(head_server: Server):
    with fb.connect(head_server.url) as client:
        yield client


@pytest.mark.parametrize("n", [0, 1, 4, 5, 14, 15, 16, 8207, 20_015, ROWS - 1, ROWS, ROWS + 1, 2**64 - 1])
def test_first_rows_are_those_of_the_table(looker: fb.Client, table: pa.Table, n: int):
    assert looker.head("data", n).equals(table.slice(0, min(n, ROWS)))


def test_columns_come_in_the_requested_order(looker: fb.Client, table: pa.Table):
    assert looker.head("data").equals(table.slice(0, 10))
    for columns in (["text"], ["list", "id"], ["word", "text", "id", "noise"], list(reversed(table.column_names))):
        assert looker.head("data", 20, columns=columns).equals(table.select(columns).slice(0, 20))
    empty = looker.head("empty", columns=["text", "id"])
    assert (empty.num_rows, empty.column_names) == (0, ["text", "id"])


def test_wrong_arguments_are_named(looker: fb.Client):
    wrong: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (ValueError, "n must be at least 0, not -1", -1, {}),
        (TypeError, "n must be a whole number, not '5'", "5", {}),
        (TypeError, "columns must be a list of names.*not 'id'", 5, {"columns": "id"}),
        (TypeError, "columns must be names, not 3", 5, {"columns": [3]}),
        (ValueError, "columns must name at least one column", 5, {"columns": []}),
        (fb.InvalidRequest, 'no column "txt": did you mean "text"', 5, {"columns": ["txt"]}),
        (fb.InvalidRequest, '"id" is listed twice', 5, {"columns": ["id", "id"]}),
        (fb.NotFound, '"dat"', 5, {}),
    ]
    for error, message, n, options in wrong:
        with pytest.raises(error, match=message):
            looker.head("dat" if error is fb.NotFound else "data", n, **options)
    with pytest.raises(TypeError, match="dataset must be the name"):
        looker.head(None)  # type: ignore[arg-type]


def command(**fields: object) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_command(json.dumps(fields).encode())


def test_plain_pyarrow_reads_rows_by_command_and_by_ticket(head_server: Server, table: pa.Table):
    read = {"dataset": "data", "columns": ["noise", "id"], "limit": 7}
    want = table.select(["noise", "id"]).slice(0, 7)
    with fl.connect(head_server.url) as client:
        info = client.get_flight_info(command(table=read))
        assert (info.total_records, info.total_bytes, info.schema) == (7, -1, want.schema)
        assert client.get_schema(command(table=read)).schema == want.schema
        chunks = list(client.do_get(info.endpoints[0].ticket))
        headers = [json.loads(chunk.app_metadata.to_pybytes()) for chunk in chunks]
        assert [header["last"] for header in headers] == [False] * (len(headers) - 1) + [True]
        assert sum(header["rows"] for header in headers) == 7
        assert pa.Table.from_batches([chunk.data for chunk in chunks]).equals(want)
        by_hand = fl.Ticket(json.dumps({"table": read}).encode())
        assert client.do_get(by_hand).read_all().equals(want)
        whole = client.get_flight_info(command(table={"dataset": "data"}))
        assert whole.total_records == ROWS
        assert whole.total_bytes > 0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"table": {"dataset": "data", "limit": -1}}, "INVALID_REQUEST"),
    ({"table": {"dataset": "data", "rows": 5}}, "INVALID_REQUEST: .*unrecognized field name .rows"),
    ({"table": {}}, "INVALID_REQUEST: table.dataset: missing"),
    ({"table": {"dataset": "data", "columns": ["idd"]}}, 'INVALID_REQUEST: table.columns: no column "idd"'),
    ({"table": {"dataset": "data"}, "dataset": "data"}, "INVALID_REQUEST: table: .*no other field"),
    ({"table": {"dataset": "data"}, "batch_size": 5}, "INVALID_REQUEST: table: .*no other field"),
    ({"table": {"dataset": "data", "snapshot": "12"}}, "SNAPSHOT_CHANGED|INVALID_REQUEST"),
    ({"table": {"dataset": "other"}}, "UNKNOWN_DATASET"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_bad_requests_are_refused(head_server: Server, fields: dict[str, Any], message: str):
    with fl.connect(head_server.url) as client:
        with pytest.raises((pa.ArrowInvalid, KeyError, fl.FlightError), match=message):
            client.get_flight_info(command(**fields))
        if fields.keys() == {"table"}:
            with pytest.raises((pa.ArrowInvalid, KeyError, fl.FlightError), match=message):
                client.do_get(fl.Ticket(json.dumps(fields).encode())).read_all()


def test_actions_refuse_a_table(head_server: Server):
    body = json.dumps({"table": {"dataset": "data"}}).encode()
    with fl.connect(head_server.url) as client, pytest.raises(pa.ArrowInvalid, match="INVALID_REQUEST: table: "):
        list(client.do_action(fl.Action("explain", body)))


@contextlib.contextmanager
def counting(folder: Path) -> Iterator[tuple[Daemon, fb.Client]]:
    """A server whose footers are read."""
    daemon = Daemon(*LOOPBACK, "--dataset", f"data={folder / 'data'}", "--state", str(folder / "state"))
    try:
        with fb.connect(daemon.url) as client:
            client.datasets()
            yield daemon, client
    finally:
        daemon.stop()


def test_other_columns_and_later_row_groups_are_not_read(folder: Path):
    metadata = pq.ParquetFile(folder / "data/b.parquet").metadata
    chunk = metadata.row_group(0).column(0).total_compressed_size
    small = sum(path.stat().st_size for path in [folder / "data/a.parquet"])
    with counting(folder) as (daemon, client):

        def read_bytes() -> float:
            return scrape(daemon).value("forebay_storage_read_bytes_total")

        before = read_bytes()
        assert client.head("data", 12).num_rows == 12
        assert 0 < read_bytes() - before <= small
        before = read_bytes()
        assert client.head("data", 100, columns=["id"]).num_rows == 100
        assert chunk <= read_bytes() - before <= chunk + small
        before = read_bytes()
        assert client.head("data", 0).num_rows == 0
        assert read_bytes() == before
