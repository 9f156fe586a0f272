"""Verification of a batch's checksum: XXH3-64 of the Flight message's Arrow body.

pyarrow does not expose the body, but a batch's buffers are slices of it with a reference to their parent. If the parent
is certainly the body, it is hashed in place; otherwise the batch is not verified. The package xxhash hashes if it is
installed, because it uses wider vectors, and the native module otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

if TYPE_CHECKING:
    from forebay import _native
else:
    try:
        from forebay import _native
    except ImportError:
        _native = None


def _hash() -> Callable[[pa.Buffer], int] | None:
    try:
        from xxhash import xxh3_64_intdigest
    except ImportError:
        return None if _native is None else lambda body: _native.xxh3_64(body.address, body.size)
    return lambda body: xxh3_64_intdigest(memoryview(cast(Any, body)))


_hash_of = _hash()

# The server pads every buffer of a body to this many bytes.
BODY_ALIGNMENT = 64


def matches(batch: pa.RecordBatch, checksum: int) -> bool | None:
    """Whether the batch's body has this checksum; None if unknown."""
    if _hash_of is None or not checksum:
        return None
    body = body_of(batch)
    return None if body is None else _hash_of(body) == checksum


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
