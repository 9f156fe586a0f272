"""CUDA graphs that a loop captures while a thread of this package uses the GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

# The driver's libraries on Linux and Windows.
DRIVERS = ("libcuda.so.1", "nvcuda.dll")
# CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
THREAD_LOCAL = 1


@contextmanager
def beside_captures() -> Generator[None, None, None]:
    """Let this thread allocate memory and query events while another one captures a graph.

    By default CUDA refuses both to every thread of the process during a capture of mode "global", torch's default, and
    the refusal also ends the capture.
    """
    exchange = _exchange()
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(THREAD_LOCAL)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


@functools.cache
def _exchange() -> Any:
    """Return the driver's function that swaps a thread's capture mode; None without a driver."""
    for name in DRIVERS:
        try:
            return ctypes.CDLL(name).cuThreadExchangeStreamCaptureMode
        except (OSError, AttributeError):
            continue
    return None
