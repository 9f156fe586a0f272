"""Datasets of mixtures, and comparing their streams row by row with `mixture_order`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.epoch_order import ORDER_VERSION, passing_rows
from harness.mixture_order import MixedSource, MixtureEpoch
from harness.serving import info

# Rows of each row group of each file.
FILES: dict[str, list[list[int]]] = {
    "a": [[1, 0, 53, 7], [0], [101, 3, 0, 0, 60]],
    "b": [[90], [11, 11, 31]],
    "c": [[400]],
    "tiny": [[2], [1]],
    "one": [[0, 1]],
}
FIRST_IDS = {name: index * 1_000_000 for index, name in enumerate(FILES)}
OUTPUTS = [
    {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
    {"name": "wide", "parts": [{"columns": ["x", "id"]}]},
    *({"name": name, "dtype": "AS_STORED", "parts": [{"columns": [name]}]} for name in ("text", "key", "list")),
]
PLAN = {"outputs": OUTPUTS}

Json = dict[str, Any]
Rows = list[tuple[int, int]]


def write_datasets(root: Path) -> dict[str, Path]:
    for name, files in FILES.items():
        (root / name).mkdir()
        start = 0
        for index, groups in enumerate(files):
            write_file(root / name / f"{index}.parquet", groups, FIRST_IDS[name] + start)
            start += sum(groups)
    return {name: root / name for name in FILES}


def write_file(path: Path, groups: Sequence[int], first: int) -> None:
    table = made_table(np.arange(first, first + sum(groups)))
    with pq.ParquetWriter(path, table.schema) as writer:
        start = 0
        for rows in groups:
            writer.write_table(table.slice(start, rows), row_group_size=max(1, rows))
            start += rows


def made_table(ids: np.ndarray[Any, np.dtype[Any]]) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "x": ids % 1000 / 8,
            "text": pa.array([None if i % 5 == 0 else f"{i} " + "é" * (i % 9) for i in ids.tolist()], pa.string()),
            "key": pa.array([None if i % 8 == 3 else f"key {i % 11}" for i in ids.tolist()], pa.string()).cast(
                pa.dictionary(pa.int32(), pa.string())
            ),
            "list": pa.array([[i % 100, None] * (i % 3) for i in ids.tolist()], pa.list_(pa.int8())),
        }
    )


def make_request(sources: Sequence[Mapping[str, Any]], **changes: Any) -> Json:
    return {"sources": [dict(source) for source in sources], "plan": PLAN, "batch_size": 16, **changes}


def expected(request: Mapping[str, Any], counts: Sequence[int]) -> MixtureEpoch:
    """The order of a request, whose sources have these weights in lowest terms."""
    sources = []
    for source, count in zip(request["sources"], counts, strict=True):
        sizes = [rows for groups in FILES[source["dataset"]] for rows in groups]
        modulus = source.get("plan", request["plan"]).get("filter", "")
        first = FIRST_IDS[source["dataset"]]
        ids = first + np.arange(sum(sizes))
        passes = ids % int(modulus.split()[2]) == int(modulus.split()[4]) if modulus else None
        sources.append(MixedSource(count, passing_rows(sizes, passes), bool(source.get("repeat"))))
    fields = ("batch_size", "world_size", "shuffle", "lanes", "window_rows", "seed", "epoch", "remainder")
    version = request.get("order_version") or ORDER_VERSION
    return MixtureEpoch(
        tuple(sources), version=version, **{field: request[field] for field in fields if field in request}
    )


def read(client: fl.FlightClient, ticket: fl.Ticket) -> list[tuple[Json, pa.RecordBatch]]:
    chunks = client.do_get(ticket)
    return [(json.loads(chunk.app_metadata.to_pybytes()), chunk.data) for chunk in chunks]


def every_byte(client: fl.FlightClient, request: Mapping[str, Any]) -> list[list[tuple[bytes, bytes]]]:
    """Header and columns of every batch of every rank."""
    return [
        [(chunk.app_metadata.to_pybytes(), chunk.data.serialize().to_pybytes()) for chunk in client.do_get(end.ticket)]
        for end in info(client, request).endpoints
    ]


def rows_of(batch: pa.RecordBatch, request: Mapping[str, Any]) -> Rows:
    """Source and row id of each row, from the ids; sources have different datasets."""
    names = [source["dataset"] for source in request["sources"]]
    sources = {FIRST_IDS[name] // 1_000_000: names.index(name) for name in names}
    return [(sources[i // 1_000_000], i % 1_000_000) for i in batch["id"].to_pylist()]


def check_values(batch: pa.RecordBatch) -> None:
    """Every column has the values of the rows that the ids name."""
    ids = batch["id"].to_numpy()
    table = made_table(ids)
    wide = np.stack([ids % 1000 / 8, ids], axis=1).astype(np.float32)
    assert np.array_equal(batch["wide"].to_numpy_ndarray(), wide)
    for name in ("text", "key", "list"):
        assert batch[name].to_pylist() == table[name].to_pylist(), name


def check_ranks(
    client: fl.FlightClient, request: Mapping[str, Any], order: MixtureEpoch, start_position: int = 0
) -> None:
    """Every rank's stream is what the order says, header by header, row by row, value by value."""
    found = info(client, {**request, "start_position": start_position})
    assert len(found.endpoints) == order.world_size
    for rank, end in enumerate(found.endpoints):
        want = order.batches(rank, start_position)
        messages = read(client, end.ticket)
        place = f"rank {rank} of {order.world_size} from {start_position}"
        assert [header["last"] for header, _ in messages] == [False] * (len(messages) - 1) + [True], place
        if not want:
            assert [header["rows"] for header, _ in messages] == [0], place
            continue
        assert len(messages) == len(want), place
        for step, ((header, batch), rows) in enumerate(zip(messages, want, strict=True)):
            assert rows_of(batch, request) == rows, f"batch {step} of {place}"
            assert header["rows"] == len(rows)
            assert header["position"] == start_position + step * order.batch_size * order.world_size
            check_values(batch)
