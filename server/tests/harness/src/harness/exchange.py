"""DoExchange by bare pyarrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from forebay.errors import translate


def exchange(
    client: fl.FlightClient,
    request: dict[str, Any] | bytes,
    batches: Sequence[pa.RecordBatch],
    options: pa.ipc.IpcWriteOptions | None = None,
) -> list[pa.RecordBatch]:
    """The answers to the batches, each read before the next batch is sent."""
    command = request if isinstance(request, bytes) else json.dumps(request).encode()
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(command))
    answers = []
    with writer:
        writer.begin(batches[0].schema, options=options)
        assert reader.schema is not None
        for number, batch in enumerate(batches):
            writer.write_with_metadata(batch, f"batch {number}".encode())
            chunk = reader.read_chunk()
            assert chunk.app_metadata.to_pybytes() == f"batch {number}".encode()
            assert chunk.data.schema.equals(reader.schema, check_metadata=True)
            answers.append(chunk.data)
        writer.done_writing()
        with pytest.raises(StopIteration):
            reader.read_chunk()
    return answers


def refused(client: fl.FlightClient, request: dict[str, Any] | bytes, *batches: pa.RecordBatch) -> tuple[str, str]:
    command = request if isinstance(request, bytes) else json.dumps(request).encode()
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(command))
    try:
        writer.begin(batches[0].schema)
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        while True:
            reader.read_chunk()
    except (pa.ArrowException, fl.FlightError, OSError) as error:
        try:
            # A write that finds the call ended knows less of it than a read.
            reader.read_chunk()
        except (pa.ArrowException, fl.FlightError, OSError, StopIteration) as read:
            error = error if isinstance(read, StopIteration) else read
        found = translate(error)
        return found.code, str(found)
    except StopIteration:
        pytest.fail("it was not refused")
