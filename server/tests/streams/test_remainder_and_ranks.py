"""The rows of each rank: every remainder, world size and row count, and resuming at every step."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, info

ROWS = 120
PLAN: dict[str, Any] = {
    "outputs": [
        {"name": "value", "parts": [{"columns": ["value", "id"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
    ]
}
REMAINDERS = ("KEEP", "DROP", "PAD")
WORLDS = (1, 2, 3, 4, 5)
COUNTS = (1, 4, 37, 97, 120)
BATCH_SIZES = (7, 12, 60, 1000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 rows in uneven row groups, among them empty ones."""
    folder = tmp_path_factory.mktemp("ranks")
    ids = np.arange(ROWS)
    made = {"id": ids, "value": ids / 8}
    made["text"] = pa.array([None if i % 5 == 0 else "t" * (i % 9) for i in ids])
    made["flag"] = pa.array([None if i % 6 == 0 else i % 7 < 3 for i in ids])
    made["number"] = pa.array([None if i % 4 == 0 else i for i in ids], pa.int16())
    made["key"] = pa.array([None if i % 8 == 0 else f"key {i % 11}" for i in ids]).dictionary_encode()
    made["list"] = pa.array([None if i % 9 == 0 else [i, None] * (i % 3) for i in ids], pa.list_(pa.int8()))
    made["struct"] = pa.array([None if i % 7 == 0 else {"a": None if i % 3 else i} for i in ids])
    table = pa.table(made)
    with pq.ParquetWriter(folder / "a.parquet", table.schema) as writer:
        for start, rows in ((0, 1), (1, 16), (17, 0), (17, 33)):
            writer.write_table(table.slice(start, rows))
    pq.write_table(table.slice(0, 0), folder / "b.parquet")
    pq.write_table(table.slice(50), folder / "c.parquet", row_group_size=11)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path, serve: Serve) -> Iterator[fl.FlightClient]:
    with fl.connect(serve({"rows": folder}).url) as connected:
        yield connected


def make_request(count: int, **changes: Any) -> dict[str, Any]:
    """An epoch over `count` rows scattered over all row groups."""
    wanted = (np.arange(count) * ROWS // count) if count else []
    listed = ", ".join(str(i) for i in wanted)
    filters = {} if count == ROWS else {"filter": f"id IN ({listed})" if count else "id < 0"}
    return {"dataset": "rows", "plan": {**PLAN, **filters}, "with_row_ids": True, **changes}


def passing(count: int) -> list[int]:
    return list(np.arange(count) * ROWS // count) if count else []


Message = tuple[dict[str, Any], pa.RecordBatch]


def read(client: fl.FlightClient, ticket: fl.Ticket) -> list[Message]:
    return [(json.loads(chunk.app_metadata.to_pybytes()), chunk.data) for chunk in client.do_get(ticket)]


def check_headers(messages: list[Message], request: dict[str, Any], share: dict[str, Any]) -> None:
    """What every rank's stream keeps to, however the rows are shared out."""
    step_rows = request["batch_size"] * request["world_size"]
    assert messages[-1][0]["last"]
    if share["steps"] == 0:
        ((header, batch),) = messages
        assert (header["rows"], batch.num_rows, header["padding_rows"]) == (0, 0, 0)
        return
    assert len(messages) == share["steps"]
    for step, (header, batch) in enumerate(messages):
        assert header["epoch"] == request.get("epoch", 0)
        assert (header["step"], header["position"]) == (step, step * step_rows)
        assert header["last"] == (step == share["steps"] - 1)
        assert header["rows"] == batch.num_rows > 0
        assert header["padding_rows"] <= header["rows"]
        whole = header["rows"] == request["batch_size"]
        assert whole or (header["last"] and request["remainder"] == "KEEP")
        values = np.asarray(batch["value"].to_numpy_ndarray())
        ids = batch["__row_id"].to_numpy()
        assert np.array_equal(values, np.stack([ids / 8, ids], axis=1).astype(np.float32))
    assert sum(header["rows"] for header, _ in messages) == share["rows"]


@pytest.mark.parametrize(("remainder", "world"), list(itertools.product(REMAINDERS, WORLDS)))
def test_rows_are_distributed_by_the_remainder(client: fl.FlightClient, remainder: str, world: int):
    for count, size in itertools.product(COUNTS, BATCH_SIZES):
        request = make_request(count, batch_size=size, world_size=world, remainder=remainder, epoch=3)
        found = info(client, request)
        shares = [json.loads(endpoint.app_metadata) for endpoint in found.endpoints]
        about = json.loads(found.app_metadata)
        place = f"{remainder}, {world} ranks, {count} rows, batches of {size}"
        assert [share["rank"] for share in shares] == list(range(world)), place
        assert found.total_records == about["rows"] == sum(share["rows"] for share in shares), place
        assert about["steps"] == max(share["steps"] for share in shares), place
        own: list[int] = []
        for rank, (endpoint, share) in enumerate(zip(found.endpoints, shares, strict=True)):
            messages = read(client, endpoint.ticket)
            check_headers(messages, request, share)
            ids = np.concatenate([batch["__row_id"].to_numpy() for _, batch in messages])
            padding = sum(header["padding_rows"] for header, _ in messages)
            # Padding is at the end, and only repeats rows of this epoch.
            first, repeated = ids[: len(ids) - padding], ids[len(ids) - padding :]
            assert set(repeated) <= set(passing(count)), place
            own += list(first)
            span = passing(count)[rank * count // world : (rank + 1) * count // world]
            assert list(first) == (span if remainder != "DROP" else span[: len(first)]), place
            assert padding == 0 or remainder == "PAD", place
        steps = {share["steps"] for share in shares}
        if remainder == "DROP":
            assert steps == {count // world // size}, place
            assert len(own) == len(set(own)) == found.total_records, place
        else:
            # Every row exactly once.
            assert own == passing(count), place
            assert max(steps) == math.ceil(math.ceil(count / world) / size), place
            assert len(steps) == 1 or (remainder == "KEEP" and max(steps) - min(steps) == 1), place


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_filter_that_passes_no_row(client: fl.FlightClient, remainder: str):
    """An epoch without rows is empty or an error; never a hang, never a row."""
    request = make_request(0, batch_size=4, world_size=2, remainder=remainder)
    found = info(client, request)
    assert found.total_records == 0
    assert json.loads(found.app_metadata)["steps"] == 0
    for endpoint in found.endpoints:
        assert json.loads(endpoint.app_metadata)["rows"] == 0
        check_headers(read(client, endpoint.ticket), request, {"steps": 0, "rows": 0})


STORED = ("text", "flag", "number", "key", "list", "struct")
STORED_OUTPUTS = [{"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]} for name in STORED]


def raw_messages(client: fl.FlightClient, ticket: fl.Ticket) -> list[tuple[bytes, bytes]]:
    """Header (with its checksum) and columns of every batch, byte for byte."""
    chunks = client.do_get(ticket)
    return [(chunk.app_metadata.to_pybytes(), chunk.data.serialize().to_pybytes()) for chunk in chunks]


@pytest.mark.parametrize("name", STORED)
def test_each_type_resumes_byte_for_byte(client: fl.FlightClient, name: str):
    plan = {"outputs": [output for output in STORED_OUTPUTS if output["name"] == name]}
    request = {"dataset": "rows", "plan": plan, "batch_size": 5}
    whole = raw_messages(client, info(client, request).endpoints[0].ticket)
    for step, want in enumerate(whole):
        got = raw_messages(client, info(client, {**request, "start_position": step * 5}).endpoints[0].ticket)
        assert got[0] == want, f"step {step}"


@pytest.mark.parametrize(
    ("remainder", "world", "count", "size"),
    [
        ("KEEP", 1, 120, 7),
        ("KEEP", 2, 97, 7),
        ("KEEP", 5, 37, 4),
        ("DROP", 3, 97, 5),
        ("PAD", 1, 97, 10),
        ("PAD", 3, 97, 10),
        ("PAD", 4, 37, 3),
        ("PAD", 5, 4, 2),
    ],
)
def test_resuming_at_every_step_gives_the_same_remaining_bytes(
    client: fl.FlightClient, remainder: str, world: int, count: int, size: int
):
    request = make_request(count, batch_size=size, world_size=world, remainder=remainder)
    found = info(client, request)
    whole = [raw_messages(client, endpoint.ticket) for endpoint in found.endpoints]
    steps = json.loads(found.app_metadata)["steps"]
    for step in range(steps):
        resumed = info(client, {**request, "start_position": step * world * size})
        assert json.loads(resumed.app_metadata)["steps"] in (steps, steps - step)
        for rank, endpoint in enumerate(resumed.endpoints):
            rest = whole[rank][step:]
            got = raw_messages(client, endpoint.ticket)
            if rest:
                assert got == rest, f"rank {rank}, step {step}"
            else:
                # A rank of KEEP that is a step shorter: an end without rows.
                assert [json.loads(header)["rows"] for header, _ in got] == [0]
                assert json.loads(got[-1][0])["last"]


def test_resuming_at_the_end_is_empty_and_past_it_is_rejected(client: fl.FlightClient):
    request = make_request(ROWS, batch_size=30, world_size=2)
    ended = info(client, {**request, "start_position": 120})
    for endpoint in ended.endpoints:
        messages = read(client, endpoint.ticket)
        assert [(header["rows"], header["last"]) for header, _ in messages] == [(0, True)]
    for position, words in ((180, ["start_position", "120"]), (90, ["start_position", "60"]), (1, ["start_position"])):
        with pytest.raises(pa.ArrowInvalid) as raised:
            info(client, {**request, "start_position": position})
        error = translate(raised.value)
        assert error.code == "INVALID_ARGUMENT"
        for word in words:
            assert word in str(error)


def test_rows_do_not_depend_on_world_size_or_batch_size(client: fl.FlightClient):
    """The union of ranks is the same table, for every world size and batch size."""
    tables = []
    for world, size in itertools.product(WORLDS, (5, 64)):
        found = info(client, make_request(97, batch_size=size, world_size=world))
        batches = [batch for endpoint in found.endpoints for _, batch in read(client, endpoint.ticket)]
        tables.append(pa.Table.from_batches(batches).combine_chunks())
    assert all(table.equals(tables[0]) for table in tables)
