"""Datasets of shuffled epochs, and comparing their streams row by row with `epoch_order`."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import ForebayError, translate
from harness.epoch_order import ORDER_VERSION, Array, Epoch, passing_rows
from harness.serving import info

REMAINDERS = ("KEEP", "DROP", "PAD")
SEED_MAX = 2**64 - 1

Options = dict[str, Any]
PLAIN_V1: Options = {"use_dictionary": False, "data_page_version": "1.0", "compression": "none"}
DICTIONARY_V1: Options = {"use_dictionary": True, "data_page_version": "1.0", "data_page_size": 64}
PLAIN_V2: Options = {"use_dictionary": False, "data_page_version": "2.0", "data_page_size": 128}
DICTIONARY_V2: Options = {"use_dictionary": True, "data_page_version": "2.0", "compression": "zstd"}

# Per dataset, the files: the rows of each row group, and how they are written.
FILES: dict[str, list[tuple[list[int], Options]]] = {
    "uneven": [
        ([1, 0, 53, 7], PLAIN_V1),
        ([0], DICTIONARY_V2),
        ([101, 3, 0, 0, 60], DICTIONARY_V2),
        ([], PLAIN_V1),
        ([97], PLAIN_V2),
        ([11, 11, 11, 11, 31], DICTIONARY_V1),
    ],
    "single": [([1999], DICTIONARY_V1)],
    "plain": [([400, 87], PLAIN_V2), ([300], PLAIN_V1)],
    "ones": [([1] * 37, DICTIONARY_V1), ([1] * 24, PLAIN_V1)],
    "dozen": [([12], PLAIN_V1)],
    "twelve": [([1] * 12, PLAIN_V1)],
    "one": [([0, 1], DICTIONARY_V1)],
}
KINDS = ("bus", "car", "train", "zeppelin")
# What passes, in SQL and in NumPy.
FILTERS: dict[str, Callable[[Array], Array]] = {
    "": lambda ids: ids >= 0,
    "id % 2 = 1": lambda ids: ids % 2 == 1,
    "id % 29 = 5": lambda ids: ids % 29 == 5,
    "text IS NOT NULL": lambda ids: ids % 5 != 0,
    "id >= 60": lambda ids: ids >= 60,
    "id < 0": lambda ids: ids < 0,
}
STORED = ("text", "key", "flag", "number", "day", "blob", "list", "struct")
OUTPUTS: list[dict[str, Any]] = [
    {
        "name": "wide",
        "parts": [{"columns": ["x", "id"]}, {"columns": ["gappy"], "ops": [{"fill_null": {"value": -1}}]}],
    },
    {"name": "half", "dtype": "FLOAT16", "parts": [{"columns": ["x"]}]},
    {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
    {
        "name": "kinds",
        "dtype": "UINT8",
        "parts": [{"columns": ["kind"], "ops": [{"vocab": {"values": {"strings": KINDS}}}, {"one_hot": {}}]}],
    },
    *({"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]} for name in STORED),
]


def made_table(rows: int) -> pa.Table:
    ids = np.arange(rows)
    return pa.table(
        {
            "id": ids,
            "x": ids / 8 - 4,
            "gappy": pa.array(ids * 0.5, mask=ids % 4 == 1),
            "kind": [KINDS[i * 7 % 4] for i in ids],
            "text": pa.array([None if i % 5 == 0 else f"{i} " + "é" * (i % 9) for i in ids], pa.string()),
            "key": pa.array([None if i % 8 == 3 else f"key {i % 11}" for i in ids], pa.string()).dictionary_encode(),
            "flag": pa.array([None if i % 6 == 0 else i % 7 < 3 for i in ids], pa.bool_()),
            "number": pa.array([None if i % 4 == 2 else i for i in ids], pa.int16()),
            "day": pa.array(ids.astype(np.int32), pa.date32()),
            "blob": pa.array([bytes([i % 256]) * (i % 4) for i in ids], pa.binary()),
            "list": pa.array([None if i % 9 == 0 else [i % 100, None] * (i % 3) for i in ids], pa.list_(pa.int8())),
            "struct": pa.array(
                [None if i % 7 == 0 else {"a": None if i % 3 else i} for i in ids], pa.struct([("a", pa.int32())])
            ),
        }
    )


def write(folder: Path, files: list[tuple[list[int], Options]]) -> None:
    folder.mkdir()
    sizes = [sum(groups) for groups, _ in files]
    table, start = made_table(sum(sizes)), 0
    for index, (groups, options) in enumerate(files):
        with pq.ParquetWriter(folder / f"{index}.parquet", table.schema, **options) as writer:
            for rows in groups:
                writer.write_table(table.slice(start, rows), row_group_size=max(1, rows))
                start += rows


@dataclass(frozen=True)
class Data:
    """A dataset read from its files: the expected data."""

    name: str
    groups: tuple[int, ...]
    table: pa.Table

    @classmethod
    def read(cls, folder: Path) -> Data:
        files = [pq.ParquetFile(path) for path in sorted(folder.iterdir())]
        groups = [f.metadata.row_group(i).num_rows for f in files for i in range(f.metadata.num_row_groups)]
        return cls(folder.name, tuple(groups), pa.concat_tables([f.read() for f in files]))

    def epoch(self, request: Mapping[str, Any]) -> Epoch:
        """The expected order of a request."""
        ids = self.table["id"].to_numpy()
        passing = passing_rows(self.groups, FILTERS[request["plan"].get("filter", "")](ids))
        fields = ("batch_size", "world_size", "shuffle", "lanes", "window_rows", "seed", "epoch", "remainder")
        version = request.get("order_version") or ORDER_VERSION
        return Epoch(passing, version=version, **{field: request[field] for field in fields if field in request})


def make_request(dataset: str, *, where: str = "", **changes: Any) -> dict[str, Any]:
    plan = {"outputs": OUTPUTS, **({"filter": where} if where else {})}
    return {"dataset": dataset, "plan": plan, "shuffle": True, "with_row_ids": True, **changes}


def describe(request: Mapping[str, Any]) -> str:
    """The request without its plan's outputs, for a message."""
    fields = {name: value for name, value in request.items() if name != "plan"}
    return json.dumps({**fields, "filter": request["plan"].get("filter", "")})


Message = tuple[dict[str, Any], pa.RecordBatch]


def read(client: fl.FlightClient, ticket: fl.Ticket) -> list[Message]:
    return [(json.loads(chunk.app_metadata.to_pybytes()), chunk.data) for chunk in client.do_get(ticket)]


def row_ids(batch: pa.RecordBatch) -> list[int]:
    return batch["__row_id"].to_numpy().tolist()


def read_ids(client: fl.FlightClient, request: Mapping[str, Any]) -> list[list[list[int]]]:
    """Row ids of every batch of every rank."""
    return [[row_ids(b) for _, b in read(client, e.ticket) if b.num_rows] for e in info(client, request).endpoints]


def every_byte(client: fl.FlightClient, request: Mapping[str, Any]) -> list[list[tuple[bytes, bytes]]]:
    """Header (with its checksum) and columns of every batch of every rank."""
    return [
        [(chunk.app_metadata.to_pybytes(), chunk.data.serialize().to_pybytes()) for chunk in client.do_get(e.ticket)]
        for e in info(client, request).endpoints
    ]


def failure(client: fl.FlightClient, request: Mapping[str, Any]) -> ForebayError:
    """The error of a request, at GetFlightInfo or in the stream."""
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        read_ids(client, request)
    return translate(caught.value)


def check_values(batch: pa.RecordBatch, table: pa.Table) -> None:
    """Every column of a batch holds the values of the rows that `__row_id` names."""
    rows = table.take(batch["__row_id"])
    ids = rows["id"].to_numpy()
    x = ids / 8 - 4
    gappy = np.where(ids % 4 == 1, -1, ids * 0.5)
    assert np.array_equal(batch["wide"].to_numpy_ndarray(), np.stack([x, ids, gappy], axis=1).astype(np.float32))
    assert np.array_equal(batch["half"].to_numpy(), x.astype(np.float16))
    assert np.array_equal(batch["id"].to_numpy(), ids)
    # Index 0 of a vocabulary is what is not in it.
    kinds = np.eye(len(KINDS) + 1, dtype=np.uint8)[1 + ids * 7 % 4]
    assert np.array_equal(batch["kinds"].to_numpy_ndarray(), kinds)
    for name in STORED:
        assert batch[name].to_pylist() == rows[name].to_pylist(), name


def check_rank(messages: list[Message], order: Epoch, rank: int, data: Data, start_position: int, place: str) -> None:
    """A rank's stream is what the order says, header by header, row by row, value by value."""
    want = order.batches(rank, start_position)
    place = f"rank {rank} of {place}"
    assert [header["last"] for header, _ in messages] == [False] * (len(messages) - 1) + [True], place
    if not want:
        assert [header["rows"] for header, _ in messages] == [0], place
        return
    for (header, batch), batch_wanted in zip(messages, want, strict=False):
        at = f"step {batch_wanted.step}, {place}"
        assert row_ids(batch) == batch_wanted.rows.tolist(), at
        assert header["rows"] == batch.num_rows, at
        assert (header["step"], header["position"]) == (batch_wanted.step, batch_wanted.position), at
        assert (header["epoch"], header["last"]) == (order.epoch, batch_wanted.last), at
        assert header["padding_rows"] == batch_wanted.padding_rows, at
        check_values(batch, data.table)
    assert len(messages) == len(want), place


def check(client: fl.FlightClient, data: Data, request: Mapping[str, Any]) -> None:
    """Check one request: its metadata, and the batches of every rank."""
    order, place = data.epoch(request), describe(request)
    found = info(client, request)
    about, shares = json.loads(found.app_metadata), [json.loads(e.app_metadata) for e in found.endpoints]
    assert found.total_records == about["rows"] == order.total_rows, place
    assert about["steps"] == order.steps, place
    if order.shuffle:
        figures = (about["lanes"], about["window_rows"], about["order_version"])
        assert figures == (order.lane_count, order.window_rows, order.version), place
    wanted = [
        {"rank": rank, "rows": order.sent_rows(rank), "steps": order.step_count(rank)}
        for rank in range(order.world_size)
    ]
    assert shares == wanted, place
    start, sent = request.get("start_position", 0), collections.Counter[int]()
    for rank, endpoint in enumerate(found.endpoints):
        messages = read(client, endpoint.ticket)
        check_rank(messages, order, rank, data, start, place)
        for header, batch in messages:
            sent.update(row_ids(batch)[: header["rows"] - header["padding_rows"]])
    passing = {row for group in order.passing for row in group}
    assert set(sent) <= passing, place
    assert max(sent.values(), default=1) == 1, place
    if order.remainder != "DROP" and start == 0:
        assert set(sent) == passing, place


def random_request(data: Data, remainder: str, number: int) -> dict[str, Any]:
    """A random request with values near the limits."""
    random = np.random.default_rng([number, REMAINDERS.index(remainder), len(data.groups), data.table.num_rows])

    def one(*choices: Any) -> Any:
        return choices[random.integers(len(choices))]

    rows = data.table.num_rows
    world = one(1, 2, 3, 4, 5)
    # Small batches of many rows are many steps, which only take time.
    sizes = [size for size in (1, 2, 3, 7, 16, 31, 64, rows + 1) if rows / (size * world) <= 40]
    request = make_request(
        data.name,
        where=one("", "", *FILTERS),
        world_size=world,
        batch_size=one(*sizes),
        seed=one(0, 1, SEED_MAX, int(random.integers(2**63))),
        epoch=one(0, 1, 2, 2**32, SEED_MAX),
        remainder=remainder,
        shuffle=one(True, True, True, True, False),
    )
    if one(True, True, False):
        request["lanes"] = world * one(1, 2, 3, 4, 8, 8, 16, -(-(rows + 1) // world))
    if one(True, True, False):
        request["window_rows"] = one(1, 2, 7, 64, 1000, 2000, 10**6)
    request["order_version"] = one(0, 0, 1, 2, 3)
    if one(True, False):
        order = data.epoch(request)
        # Where a run of this shape may have stopped, or one of any other.
        unit = one(order.step_rows, order.lane_count) if order.shuffle else order.step_rows
        request["start_position"] = unit * int(random.integers(order.steps * order.step_rows // unit + 1))
    return request
