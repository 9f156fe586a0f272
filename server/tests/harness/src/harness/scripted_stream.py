"""A scripted stream of one batch, and damage to it, for readers of transports."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pyarrow as pa

import forebay as fb

BATCH = pa.record_batch({"x": pa.array(range(500), pa.int64()), "word": pa.array(["a", None] * 250)})
HEADER = json.dumps({"rows": 500, "last": True}).encode()

# Codes and messages of a failed call, with the error and the reason that clients raise.
FAILURES: tuple[tuple[int, str, type[fb.ForebayError], str], ...] = (
    (9, "NOT_FITTED: fit it", fb.NotFitted, "NOT_FITTED"),
    (8, "OVERLOADED: later", fb.errors.Overloaded, "OVERLOADED"),
    (10, "SNAPSHOT_CHANGED: new files", fb.SnapshotChanged, "SNAPSHOT_CHANGED"),
    (16, "UNAUTHENTICATED: who", fb.errors.Unauthenticated, "UNAUTHENTICATED"),
    (15, "no reason", fb.errors.DataLoss, ""),
    (77, "no code", fb.ForebayError, ""),
)


def _parts(message: pa.ipc.Message) -> tuple[bytes, bytes]:
    body = message.body
    return message.metadata.to_pybytes(), b"" if body is None else body.to_pybytes()


def _ipc() -> tuple[bytes, bytes, bytes]:
    """Metadata of the schema, and metadata and body of the batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    schema, batch = _parts(reader.read_next_message()), _parts(reader.read_next_message())
    return schema[0], *batch


SCHEMA, METADATA, BODY = _ipc()


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Bytes with one to three changed, removed or inserted places."""
    result = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(result))
        change: Callable[[], None] = chance.choice(
            [
                lambda at=at: result.__setitem__(at, chance.randrange(256)),
                lambda at=at: result.__delitem__(slice(at, at + chance.randint(1, 20))),
                lambda at=at: result.__setitem__(slice(at, at), chance.randbytes(chance.randint(1, 20))),
            ]
        )
        change()
        if not result:
            break
    return bytes(result)
