"""Generated columns in 64-byte aligned memory that NumPy and Arrow share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]


def aligned(values: Array) -> Array:
    """Return a 64-byte aligned copy."""
    copy = np.frombuffer(pa.allocate_buffer(values.nbytes), values.dtype).reshape(values.shape)  # pyright: ignore[reportArgumentType, reportCallIssue]
    np.copyto(copy, values)
    return copy


def arrow(values: Array, valid: Array | None = None) -> pa.Array:
    """Return an Arrow array over the same memory, null where `valid` is false."""
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))  # pyright: ignore[reportArgumentType]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, pa.py_buffer(values)])  # pyright: ignore[reportArgumentType]


def words(generator: np.random.Generator, count: int, shortest: int, longest: int) -> pa.StringArray:
    """Return random lower-case strings with lengths uniform between `shortest` and `longest`."""
    lengths = generator.integers(shortest, longest, count, endpoint=True)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    text = generator.integers(ord("a"), ord("z"), offsets[-1], np.uint8, endpoint=True)
    return pa.StringArray.from_buffers(count, pa.py_buffer(aligned(offsets)), pa.py_buffer(aligned(text)))  # pyright: ignore[reportArgumentType]
