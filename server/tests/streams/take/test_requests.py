"""Requests of takes over bare pyarrow: what is refused, and where; schemas, tickets, snapshots, limits and memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon, poll
from harness.damaged_files import resident_bytes_max
from harness.metrics import scrape
from harness.serving import Serve, Server, info, plan_of, stored
from harness.takes import act, one, take

Json = dict[str, Any]

ROWS = 5_000
PLAN = plan_of(stored("id", "text"))
FILTERED = {**PLAN, "filter": "id % 5 = 2"}
LIMIT = 1 << 16


def write(path: Path, rows: int = ROWS, *, row_group_size: int = 100) -> None:
    ids = np.arange(rows)
    pq.write_table(pa.table({"id": ids, "text": [f"text {i}" for i in ids]}), path, row_group_size=row_group_size)


def request(**fields: Any) -> dict[str, Any]:
    return {"dataset": "t", "plan": PLAN, **fields}


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Daemon]:
    daemon = Daemon(*arguments)
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    folder = tmp_path_factory.mktemp("takes")
    write(folder / "a.parquet")
    return serve({"t": folder})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive, "".join(server.log)


@pytest.mark.parametrize("by_hand", [lambda message: {"take": {"request": message}}, lambda message: message])
def test_a_ticket_by_hand_needs_no_info(by_hand: Callable[[Json], Json], client: fl.FlightClient) -> None:
    ticket = by_hand(request(row_ids=[7, 3, 7], batch_size=2))
    chunks = list(client.do_get(fl.Ticket(json.dumps(ticket).encode())))
    assert [chunk.data["id"].to_pylist() for chunk in chunks] == [[7, 3], [7]]
    headers = [json.loads(chunk.app_metadata.to_pybytes()) for chunk in chunks]
    assert [(h["step"], h["position"], h["rows"], h["last"]) for h in headers] == [(0, 0, 2, False), (1, 2, 1, True)]


def test_a_request_is_a_command_by_itself(client: fl.FlightClient) -> None:
    message = request(positions=[9, 0], plan=FILTERED)
    found, nested = info(client, message), info(client, {"take": message})
    assert (found.schema, found.total_records) == (nested.schema, nested.total_records)
    assert client.do_get(found.endpoints[0].ticket).read_all()["id"].to_pylist() == [47, 2]


def test_a_ticket_that_is_another_request_is_named(client: fl.FlightClient) -> None:
    with pytest.raises(pa.ArrowInvalid, match="malformed Ticket in JSON: unrecognized field name 'dataset'") as refused:
        client.do_get(fl.Ticket(json.dumps(request()).encode())).read_all()
    assert "did you mean" not in str(refused.value)


def test_the_info_describes_the_rows(client: fl.FlightClient) -> None:
    message = request(positions=[9, 0, 9], plan=FILTERED, batch_size=2, with_row_ids=True)
    found = info(client, {"take": message})
    assert (found.total_records, len(found.endpoints), found.ordered) == (3, 1, True)
    about = json.loads(found.app_metadata)
    assert (about["rows"], about["steps"], len(about["snapshot"]) > 0) == (3, 2, True)
    command = fl.FlightDescriptor.for_command(json.dumps({"take": message}).encode())
    assert client.get_schema(command).schema == found.schema
    assert found.schema.names == ["id", "text", "__row_id"]
    assert [rows["id"].to_pylist() for _, rows in take(client, message)] == [[47, 2], [47]]


def test_no_number_is_no_row(client: fl.FlightClient) -> None:
    for numbers in ({}, {"row_ids": []}, {"positions": []}):
        rows = one(client, request(**numbers))
        assert (rows.num_rows, rows.schema.names) == (0, ["id", "text"])
        assert [batch.num_rows for batch in act(client, request(**numbers))] == [0]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"row_ids": [1], "positions": [1]}, "INVALID_REQUEST: positions: send either row_ids or positions"),
    ({"row_ids": [1, 2, ROWS]}, r"row_ids\[2\]: 5000 is not below 5000, the number of rows in the snapshot"),
    ({"row_ids": [2**64 - 1]}, r"row_ids\[0\]: 18446744073709551615 is not below 5000"),
    ({"positions": [999, 1000], "plan": FILTERED}, r"positions\[1\]: 1000 is not below 1000, the number of rows that"),
    ({"row_ids": [0] * (LIMIT + 1)}, "LIMIT: row_ids: 65537 rows, the limit is 65536"),
    ({"row_ids": [1], "batch_size": 0}, "batch_size: 0 is not between 1"),
    ({"row_ids": [-1]}, "row_ids"),
    ({"row_ids": [1], "plan": {"outputs": []}}, "plan"),
    ({"row_ids": [1], "plan": None}, "plan: missing"),
    ({"row_ids": [1], "dataset": ""}, "dataset: missing"),
    ({"row_ids": [1], "plan_id": "ab"}, "plan_id: send either plan or plan_id"),
    ({"row_id": [1]}, "row_id"),
    ({"row_ids": [1], "snapshot": "00"}, "SNAPSHOT_CHANGED"),
]


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[words for _, words in BAD])
def test_invalid_requests_name_the_field(client: fl.FlightClient, fields: dict[str, Any], words: str) -> None:
    message = {name: value for name, value in request(**fields).items() if value is not None}
    ticket = fl.Ticket(json.dumps({"take": {"request": message}}).encode())
    for call in (
        lambda: info(client, {"take": message}),
        lambda: act(client, message),
        lambda: list(client.do_get(ticket)),
    ):
        with pytest.raises((pa.ArrowException, KeyError, ValueError), match=words):
            call()


def test_rows_that_do_not_pass_are_named(client: fl.FlightClient) -> None:
    every_column = plan_of(stored("id"), filter="id % 5 = 2")
    for plan in (FILTERED, every_column):
        message = request(plan=plan, row_ids=[4_997, 2, 4_000, 7])
        for call in (lambda message=message: take(client, message), lambda message=message: act(client, message)):
            with pytest.raises(pa.ArrowInvalid, match=r"row_ids\[2\]: row 4000 does not pass the plan's filter"):
                call()


def test_take_is_the_only_field_of_its_command(client: fl.FlightClient) -> None:
    message = request(row_ids=[1])
    with pytest.raises(pa.ArrowInvalid, match="take: .* no other field; its dataset is take.dataset"):
        info(client, {"take": message, "dataset": "t"})
    for action in ("explain", "replay"):
        body = {"take": message} if action == "explain" else {"stream": {"take": message}, "rank": 0, "step": 0}
        with pytest.raises(pa.ArrowInvalid, match="take"):
            list(client.do_action(fl.Action(action, json.dumps(body).encode())))


def test_values_that_cannot_be_computed_name_the_row(client: fl.FlightClient) -> None:
    """Only values of the requested rows matter."""
    derive = [{"name": "odd", "expr": "CASE WHEN id = 4321 THEN 0.5 ELSE id END"}]
    plan = {"derive": derive, "outputs": [{"name": "odd", "dtype": "INT32", "parts": [{"columns": ["odd"]}]}]}
    assert one(client, request(plan=plan, row_ids=[4_320, 4_322]))["odd"].to_pylist() == [4_320, 4_322]
    with pytest.raises(pa.ArrowInvalid, match=r"0.5 \(row 4321\) cannot become INT32"):
        take(client, request(plan=plan, row_ids=[4_322, 17, 4_321]))


def test_a_replayed_batch_is_taken_by_its_row_ids(client: fl.FlightClient) -> None:
    stream = {"dataset": "t", "plan": FILTERED, "shuffle": True, "seed": 8, "batch_size": 100}
    body = json.dumps({"stream": stream, "rank": 0, "step": 3}).encode()
    parts = [json.loads(r.body.to_pybytes()) for r in client.do_action(fl.Action("replay", body))]
    ids = [row["row_id"] for part in parts for row in part["rows"]]
    rows = one(client, request(plan=FILTERED, row_ids=ids, snapshot=parts[0]["snapshot"]))
    assert rows["id"].to_pylist() == ids
    assert len(ids) == 100


def test_changed_files_end_in_one_state_or_an_error(tmp_path: Path, serve: Serve) -> None:
    write(tmp_path / "a.parquet")
    with fl.connect(serve({"t": tmp_path}).url) as client:
        message = request(row_ids=[0, 4_999])
        before = info(client, {"take": message})
        snapshot = json.loads(before.app_metadata)["snapshot"]
        write(tmp_path / "new", 6_000)
        (tmp_path / "new").rename(tmp_path / "a.parquet")
        with pytest.raises(pa.ArrowException, match="SNAPSHOT_CHANGED"):
            client.do_get(before.endpoints[0].ticket).read_all()
        with pytest.raises(pa.ArrowException, match="SNAPSHOT_CHANGED"):
            poll(lambda: take(client, {**message, "snapshot": snapshot}) and None, seconds=1)
        assert poll(lambda: take(client, request(row_ids=[5_999])))[0][1]["id"].to_pylist() == [5_999]


def test_replicas_give_the_same_bytes(tmp_path: Path, serve: Serve) -> None:
    write(tmp_path / "a.parquet")
    message = request(row_ids=[4_999, 0, 123, 4_999], with_row_ids=True)
    found: list[Any] = []
    with fl.connect(serve({"t": tmp_path}).url) as one_, fl.connect(serve({"t": tmp_path}).url) as other:
        ticket = info(one_, {"take": message}).endpoints[0].ticket
        for client in (one_, other):
            (chunk,) = client.do_get(ticket)
            found.append((chunk.app_metadata.to_pybytes(), chunk.data.to_pylist()))
            results = client.do_action(fl.Action("take", json.dumps(message).encode()))
            found.append([result.body.to_pybytes() for result in results])
    assert found[:2] == found[2:]


def test_rows_of_many_row_groups_need_little_memory(tmp_path: Path) -> None:
    """A row of each of 1,000 row groups, whose dictionaries are 480 MB together."""
    folder = tmp_path / "t"
    folder.mkdir()
    groups, size = 1_000, 60
    texts = [f"{i} " + "x" * 8_000 for i in range(size)]
    schema = pa.schema([("id", pa.int64()), ("text", pa.dictionary(pa.int32(), pa.string()))])
    with pq.ParquetWriter(folder / "a.parquet", schema, compression="zstd") as writer:
        for group in range(groups):
            rows = pa.table({"id": np.arange(size) + group * size, "text": pa.array(texts).dictionary_encode()}, schema)
            writer.write_table(rows, row_group_size=size)
    arguments = [*LOOPBACK, "--dataset", f"t={folder}", "--memory-limit-bytes", "64MiB"]
    with running(*arguments) as daemon, fl.connect(daemon.url) as client:
        ids = [group * size + group % size for group in range(groups)]
        one(client, request(row_ids=ids[:2]))
        before = resident_bytes_max(daemon)
        rows = one(client, request(row_ids=ids[::-1]))
        assert resident_bytes_max(daemon) - before < 150e6
        assert rows["id"].to_pylist() == ids[::-1]
        assert rows["text"].to_pylist() == [texts[group % size] for group in range(groups)][::-1]
        assert poll(lambda: scrape(daemon).value("forebay_memory_reserved_bytes") == 0)


def test_large_batches_and_small_budgets_are_refused_with_advice(tmp_path: Path, serve: Serve) -> None:
    write(tmp_path / "a.parquet")
    small = serve({"t": tmp_path}, "--batch-bytes-max", "10000")
    with fl.connect(small.url) as client:
        with pytest.raises(pa.ArrowException, match="LIMIT: batch_size: 2000 rows"):
            take(client, request(row_ids=[5] * 2_000))
        assert sum(rows.num_rows for _, rows in take(client, request(row_ids=[5] * 2_000, batch_size=100))) == 2_000


def test_cancelled_takes_leak_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    write(folder / "a.parquet", 20_000, row_group_size=10)
    arguments = [*LOOPBACK, "--dataset", f"t={folder}", "--streams-max", "2"]
    ids = list(range(20_000))[::-1]
    with running(*arguments) as daemon, fl.connect(daemon.url) as client:
        for _ in range(3):
            reader = client.do_get(info(client, {"take": request(row_ids=ids, batch_size=50)}).endpoints[0].ticket)
            assert reader.read_chunk().data["id"].to_pylist() == ids[:50]
            reader.cancel()
            with fl.connect(daemon.url) as other:
                body = json.dumps(request(row_ids=ids, batch_size=50)).encode()
                next(iter(other.do_action(fl.Action("take", body))))
            assert poll(lambda: scrape(daemon).value("forebay_memory_reserved_bytes") == 0)
        # Every permit was returned.
        assert poll(lambda: one(client, request(row_ids=[3]))["id"].to_pylist() == [3])
