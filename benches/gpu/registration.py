"""Registers a mapped memfd with CUDA, as the client does with the memory of a ring, and copies from it to the GPU.

Without a GPU, the memory is filled and compared on the CPU only.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import statistics
import time
import warnings

import numpy as np

from device import require_torch
from step import Failed, emit, run

SLOTS = 6
SLOT_BYTES = 2 << 20
REPETITIONS = 20
# Linux's F_ADD_SEALS with F_SEAL_SEAL, F_SEAL_SHRINK and F_SEAL_GROW; Python has no names for all of them.
ADD_SEALS, SEALS = 1033, 1 | 2 | 4


def shared_memory(size: int) -> mmap.mmap:
    """Return a sealed memfd, mapped shared and writable."""
    file = os.memfd_create("forebay-check", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
        fcntl.fcntl(file, ADD_SEALS, SEALS)
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def main() -> None:
    """Register, copy, compare and unregister."""
    size = SLOTS * SLOT_BYTES
    memory = shared_memory(size)
    view = np.frombuffer(memory, np.uint8)
    view[:] = np.random.default_rng(7).integers(0, 256, size, np.uint8)
    if memory[:4096] != view[:4096].tobytes():
        raise Failed("the mapping does not hold what was written to it")
    require_torch()
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.frombuffer(memory, dtype=torch.uint8)
    target = torch.empty(SLOT_BYTES, dtype=torch.uint8, device="cuda")
    runtime = torch.cuda.cudart()

    def rates(kind: str) -> None:
        durations: list[float] = []
        for repetition in range(REPETITIONS + SLOTS):
            slot = repetition % SLOTS
            here = tensor[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
            torch.cuda.synchronize()
            began = time.perf_counter()
            target.copy_(here, non_blocking=True)
            issued = time.perf_counter() - began
            torch.cuda.synchronize()
            durations.append(time.perf_counter() - began)
            if not torch.equal(target.cpu(), here):
                raise Failed(f"slot {slot} differs after a copy from {kind} memory")
            if repetition == SLOTS:
                emit(memory=kind, is_pinned=here.is_pinned(), issued_seconds=issued)
        emit(memory=kind, gb_per_second=SLOT_BYTES / statistics.median(durations[SLOTS:]) / 1e9, seconds=durations)

    rates("mapped")
    began = time.perf_counter()
    code = int(runtime.cudaHostRegister(tensor.data_ptr(), size, 0))
    emit(call="cudaHostRegister", code=code, bytes=size, seconds=time.perf_counter() - began)
    if code:
        raise Failed(f"cudaHostRegister returned {code} for a mapped memfd of {size} bytes")
    try:
        rates("registered")
        if not tensor.is_pinned():
            raise Failed("torch does not see registered memory as pinned")
    finally:
        torch.cuda.synchronize()
        code = int(runtime.cudaHostUnregister(tensor.data_ptr()))
    emit(call="cudaHostUnregister", code=code)
    if code:
        raise Failed(f"cudaHostUnregister returned {code}")
    rates("unregistered")


if __name__ == "__main__":
    run(main)
