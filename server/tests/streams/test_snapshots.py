"""Files that change during an epoch: one state of them or an error, never a mix. Tickets work across restarts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.serving import Serve, Server, info, raw_table

ROWS = 3_000
# 120 MB on the wire: more than a server reads ahead of its client.
LONG_ROWS = 60_000
GROUP = 5_000
PLAN = {
    "outputs": [
        {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
        {"name": "version", "dtype": "INT32", "parts": [{"columns": ["version"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
    ]
}
REQUEST: dict[str, Any] = {"dataset": "data", "plan": PLAN, "batch_size": 500}


def write(path: Path, version: int, rows: int = ROWS) -> None:
    """Rows of 2 KB with the version that wrote them; the files of every version have the same size."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["snapshot " * 220])
    table = pa.table({"id": np.arange(rows), "version": pa.array([version] * rows, pa.int32()), "text": texts})
    pq.write_table(table, path, store_schema=False, row_group_size=GROUP)


def replaced(path: Path, version: int, rows: int = ROWS) -> None:
    write(path.with_name("_new"), version, rows)
    path.with_name("_new").rename(path)


def overwritten(path: Path, version: int, rows: int = ROWS) -> None:
    """The same inode, and where the rows are as many, the same size."""
    write(path.with_name("_new"), version, rows)
    data = path.with_name("_new").read_bytes()
    path.with_name("_new").unlink()
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def overwritten_unseen(path: Path, version: int, rows: int = ROWS) -> None:
    """The same inode, size and modification time."""
    before = path.stat()
    overwritten(path, version, rows)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncated(path: Path, version: int) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path, version: int) -> None:
    os.truncate(path, 0)


def deleted(path: Path, version: int) -> None:
    path.unlink()


def appended(path: Path, version: int) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def made_a_folder(path: Path, version: int) -> None:
    path.unlink()
    path.mkdir()


CHANGES = [replaced, overwritten, overwritten_unseen, truncated, emptied, deleted, appended, made_a_folder]
Change = Callable[[Path, int], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "a.parquet", 0)
    write(folder / "b.parquet", 0)
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    running = Server({"data": folder})
    yield running
    assert running.alive
    running.stop()


def table_info(client: fl.FlightClient) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_path("data"))


def stream_info(client: fl.FlightClient) -> fl.FlightInfo:
    return info(client, REQUEST)


INFOS = [table_info, stream_info]
Info = Callable[[fl.FlightClient], fl.FlightInfo]


def changed(raised: BaseException, file: Path | None) -> None:
    """ABORTED (which pyarrow has no class for), the contract's words, and the file."""
    text = str(raised)
    assert "aborted" in text, text
    assert "snapshot changed" in text, text
    assert file is None or file.name in text, text


@pytest.mark.parametrize("flight", INFOS)
@pytest.mark.parametrize("change", CHANGES)
def test_file_changed_before_the_stream_ends_it(server: Server, folder: Path, flight: Info, change: Change):
    with fl.connect(server.url) as client:
        found = flight(client)
        change(folder / "b.parquet", 1)
        seen: list[pa.RecordBatch] = []
        with pytest.raises(fl.FlightError) as raised:
            seen.extend(chunk.data for chunk in client.do_get(found.endpoints[0].ticket))
        changed(raised.value, folder / "b.parquet")
        assert all(set(batch["version"].to_pylist()) == {0} for batch in seen)


@pytest.mark.parametrize("flight", INFOS)
@pytest.mark.parametrize("change", CHANGES)
def test_file_changed_in_mid_stream_ends_it(server: Server, folder: Path, flight: Info, change: Change):
    write(folder / "a.parquet", 0, LONG_ROWS)
    with fl.connect(server.url) as client:
        reader = client.do_get(flight(client).endpoints[0].ticket)
        seen = [reader.read_chunk().data]
        change(folder / "b.parquet", 1)
        # Most of the first file precedes the second: the server cannot have reached that yet.
        with pytest.raises(fl.FlightError) as raised:
            seen.extend(chunk.data for chunk in reader)
        changed(raised.value, folder / "b.parquet")
        assert all(set(batch["version"].to_pylist()) == {0} for batch in seen)
        ids = np.concatenate([batch["id"].to_numpy() for batch in seen])
        assert np.array_equal(ids, np.arange(len(ids)))


@pytest.mark.parametrize("change", [replaced, overwritten, overwritten_unseen])
@pytest.mark.parametrize("rows", [ROWS, 777])
def test_new_flight_info_sees_the_current_files(server: Server, folder: Path, change: Any, rows: int):
    with fl.connect(server.url) as client:
        old = [json.loads(flight(client).app_metadata)["snapshot"] for flight in INFOS]
        change(folder / "a.parquet", 1, rows)
        for flight, before in zip(INFOS, old, strict=True):
            found = flight(client)
            assert json.loads(found.app_metadata)["snapshot"] != before
            assert found.total_records == rows + ROWS
            table = client.do_get(found.endpoints[0].ticket).read_all()
            assert table["version"].to_pylist() == [1] * rows + [0] * ROWS


def test_epoch_does_not_resume_in_a_rewritten_file_with_its_old_mtime(server: Server, folder: Path):
    with fl.connect(server.url) as client:
        tickets = [flight(client).endpoints[0].ticket for flight in INFOS]
        overwritten_unseen(folder / "a.parquet", 1)
        assert table_info(client).total_records == 2 * ROWS
        for ticket in tickets:
            with pytest.raises(fl.FlightError) as raised:
                client.do_get(ticket).read_all()
            changed(raised.value, None)


def touched(path: Path) -> None:
    path.chmod(0o600)
    os.link(path, path.with_name("_link"))


def test_epoch_resumes_after_a_permission_change(server: Server, folder: Path):
    write(folder / "a.parquet", 0, LONG_ROWS)
    with fl.connect(server.url) as client:
        for flight in INFOS:
            found = flight(client)
            reader = client.do_get(found.endpoints[0].ticket)
            first = reader.read_chunk()
            (folder / "b.parquet").chmod(0o640)
            with pytest.raises(fl.FlightError) as raised:
                reader.read_all()
            changed(raised.value, folder / "b.parquet")
            # The ticket still names the files: they are checked again.
            chunks = client.do_get(found.endpoints[0].ticket)
            assert chunks.read_chunk().data.equals(first.data)
            assert sum(chunk.data.num_rows for chunk in chunks) + first.data.num_rows == LONG_ROWS + ROWS
            assert flight(client).app_metadata == found.app_metadata
            (folder / "b.parquet").chmod(0o644)


def test_tickets_outlive_permissions_links_and_the_server(folder: Path):
    first = Server({"data": folder})
    with fl.connect(first.url) as client:
        found = [flight(client) for flight in INFOS]
    first.stop()
    touched(folder / "a.parquet")
    second = Server({"data": folder})
    try:
        with fl.connect(second.url) as client:
            for flight, before in zip(INFOS, found, strict=True):
                assert client.do_get(before.endpoints[0].ticket).read_all().num_rows == 2 * ROWS
                assert flight(client).app_metadata == before.app_metadata
    finally:
        second.stop()


def test_older_ticket_excludes_an_added_file(server: Server, folder: Path):
    with fl.connect(server.url) as client:
        old = [flight(client) for flight in INFOS]
        write(folder / "aa.parquet", 1, rows=10)
        write(folder / "z.parquet", 1, rows=10)
        for flight, before in zip(INFOS, old, strict=True):
            now = flight(client)
            assert now.total_records == before.total_records + 20
            table = client.do_get(now.endpoints[0].ticket).read_all()
            assert table["version"].to_pylist() == [0] * ROWS + [1] * 10 + [0] * ROWS + [1] * 10
            table = client.do_get(before.endpoints[0].ticket).read_all()
            assert table["version"].to_pylist() == [0] * (2 * ROWS)
        (folder / "aa.parquet").unlink()
        (folder / "z.parquet").unlink()
        for flight, before in zip(INFOS, old, strict=True):
            assert flight(client).app_metadata == before.app_metadata


def test_unread_file_ends_no_rank(server: Server, folder: Path):
    """Rank 0 reads only the first file: a change of the second does not affect it, a change of the first does."""
    with fl.connect(server.url) as client:
        ranks = info(client, {**REQUEST, "world_size": 2}).endpoints
        replaced(folder / "b.parquet", 1)
        try:
            got = client.do_get(ranks[0].ticket).read_all()
            assert got["version"].to_pylist() == [0] * ROWS
        except fl.FlightError as error:
            changed(error, folder / "b.parquet")
        with pytest.raises(fl.FlightError) as raised:
            client.do_get(ranks[1].ticket).read_all()
        changed(raised.value, folder / "b.parquet")


def test_ticket_of_files_unknown_after_a_restart_is_aborted(folder: Path):
    first = Server({"data": folder})
    with fl.connect(first.url) as client:
        tickets = [flight(client).endpoints[0].ticket for flight in INFOS]
    first.stop()
    write(folder / "c.parquet", 1, rows=10)
    second = Server({"data": folder})
    try:
        with fl.connect(second.url) as client:
            for ticket in tickets:
                with pytest.raises(fl.FlightError) as raised:
                    client.do_get(ticket).read_all()
                changed(raised.value, None)
    finally:
        second.stop()


def every_byte(client: fl.FlightClient, ticket: fl.Ticket) -> list[tuple[bytes, bytes]]:
    """Header and columns of every batch as received."""
    chunks = list(client.do_get(ticket))
    return [
        (b"" if c.app_metadata is None else c.app_metadata.to_pybytes(), c.data.serialize().to_pybytes())
        for c in chunks
    ]


def test_tickets_outlive_the_server_and_work_on_a_replica(flights_folder: Path, serve: Serve):
    plan = {
        "filter": "arr_delay IS NOT NULL",
        "outputs": [
            {"name": "dense", "parts": [{"columns": ["dep_delay", "distance"], "ops": [{"standardize": {}}]}]},
            {"name": "carrier", "dtype": "INT32", "parts": [{"columns": ["carrier"], "ops": [{"vocab": {}}]}]},
            {"name": "tail", "dtype": "AS_STORED", "parts": [{"columns": ["tailnum"]}]},
        ],
    }
    first = Server({"data": flights_folder})
    with fl.connect(first.url) as client:
        body = json.dumps({"dataset": "data", "plan": plan}).encode()
        fitted = [json.loads(r.body.to_pybytes()) for r in client.do_action(fl.Action("fit", body))][-1]["result"]
        # The plan travels in the request: it needs no shared state.
        request = {"dataset": "data", "plan": fitted["plan"], "batch_size": 10_000, "world_size": 3}
        found = info(client, {**request, "epoch": 5, "with_row_ids": True})
        tickets = [endpoint.ticket for endpoint in found.endpoints] + [table_info(client).endpoints[0].ticket]
        want = [every_byte(client, ticket) for ticket in tickets]
    first.stop()
    for other in (serve({"data": flights_folder}), serve({"data": flights_folder, "tiny": flights_folder}, unix=True)):
        with fl.connect(other.url) as client:
            assert [every_byte(client, ticket) for ticket in tickets] == want
            again = info(client, {**request, "epoch": 5, "with_row_ids": True})
            assert [endpoint.ticket for endpoint in again.endpoints] == tickets[:-1]
            assert raw_table(client, "data").num_rows == 336_776
