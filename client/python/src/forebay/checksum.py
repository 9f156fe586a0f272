"""Verification of a batch's checksum: XXH3-64 of the Flight message's Arrow body.

pyarrow does not expose the body, but a batch's buffers are slices of it with a reference to their parent. If the parent
is certainly the body, it is hashed in place; otherwise the batch is not verified. Requires the package xxhash.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

try:
    from xxhash import xxh3_64_intdigest
except ImportError:
    xxh3_64_intdigest = None

# The server pads every buffer of a body to this many bytes.
BODY_ALIGNMENT = 64


def matches(batch: pa.RecordBatch, checksum: int) -> bool | None:
    """Whether the batch's body has this checksum; None if unknown."""
    if xxh3_64_intdigest is None or not checksum:
        return None
    body = body_of(batch)
    return None if body is None else xxh3_64_intdigest(memoryview(cast(Any, body))) == checksum


def body_of(batch: pa.RecordBatch) -> pa.Buffer | None:
    """Return the body that the batch was received in, or None if its buffers do not identify it.

    A body starts with its first buffer and ends with its last one, padded. Buffers that were copied (for alignment, for
    instance) and slices of larger memory do not match.
    """
    columns = [cast("pa.Array[Any]", batch.column(index)) for index in range(batch.num_columns)]
    found = [buffer for column in columns for buffer in column.buffers() if buffer is not None and buffer.size]
    if not found:
        return None
    body = found[0].parent
    if body is None or found[0].address != body.address:
        return None
    end = 0
    for buffer in found:
        begin = buffer.address - body.address
        if begin < end or begin - end >= BODY_ALIGNMENT:
            return None
        end = begin + buffer.size
    return body if 0 <= body.size - end < BODY_ALIGNMENT else None
