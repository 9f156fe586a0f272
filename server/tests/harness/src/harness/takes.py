"""Takes over bare pyarrow, and comparing them byte for byte with the streams of the same plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from harness.epochs import Message, read, row_ids
from harness.serving import info

Json = dict[str, Any]


def take(client: fl.FlightClient, request: Mapping[str, Any]) -> list[Message]:
    """The batches of a take, by GetFlightInfo and DoGet."""
    found = info(client, {"take": dict(request)})
    messages = read(client, found.endpoints[0].ticket)
    assert found.total_records == sum(batch.num_rows for _, batch in messages)
    assert all(batch.schema == found.schema for _, batch in messages)
    return messages


def act(client: fl.FlightClient, request: Mapping[str, Any]) -> list[pa.RecordBatch]:
    """The batches of the action, as any client of Arrow reads them."""
    results = client.do_action(fl.Action("take", json.dumps(dict(request)).encode()))
    return [batch for result in results for batch in pa.ipc.open_stream(result.body)]


def one(client: fl.FlightClient, request: Mapping[str, Any]) -> pa.RecordBatch:
    """The rows of a take that has one batch."""
    ((header, batch),) = take(client, request)
    assert (header["rows"], header["last"]) == (batch.num_rows, True)
    return batch


def every_row(client: fl.FlightClient, request: Mapping[str, Any]) -> list[Message]:
    """The batches of all ranks of a stream."""
    found = info(client, {**request, "with_row_ids": True})
    return [message for endpoint in found.endpoints for message in read(client, endpoint.ticket)]


def rebuilt(batch: pa.RecordBatch) -> bytes:
    """The bytes of the rows in new buffers.

    A stream in file order may cut its rows from those of a row group, and bits beyond the last row are then of others.
    """
    rows = batch.take(pa.array(np.arange(batch.num_rows)))
    return rows.serialize().to_pybytes()


def check_takes(client: fl.FlightClient, request: Mapping[str, Any], *, positions: Sequence[int] | None = None) -> int:
    """Check that takes of the row ids, and of the positions, of every batch of a stream are that batch, to the byte.

    `positions` are the passing rows' ids in file order; by default those of the same stream in file order. Returns the
    number of rows.
    """
    if positions is None:
        in_order = {name: value for name, value in request.items() if name not in {"shuffle", "lanes", "remainder"}}
        positions = [row for _, batch in every_row(client, {**in_order, "world_size": 1}) for row in row_ids(batch)]
    message = {"dataset": request["dataset"], "with_row_ids": True}
    message |= {name: request[name] for name in ("plan", "plan_id") if name in request}
    count = 0
    for header, batch in every_row(client, request):
        ids = row_ids(batch)
        places = np.searchsorted(positions, ids).tolist()
        for numbers in ({"row_ids": ids}, {"positions": places}):
            ((found, rows),) = take(client, {**message, **numbers})
            if request.get("shuffle"):
                # The checksum is that of the body as sent: values, also under nulls, and nulls, offsets and the keys of
                # dictionaries.
                assert not ids or found["checksum"] == header["checksum"], request
            assert rebuilt(rows) == rebuilt(batch), request
            assert rows.schema.equals(batch.schema, check_metadata=True)
        count += len(ids)
    return count
