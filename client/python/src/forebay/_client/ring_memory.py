"""The memory of a ring, mapped into this process, and leases of its slots.

A body is lent as a pyarrow buffer over its slot. The buffer owns a `Lease`; torch, NumPy and Arrow views own the
buffer, so the slot returns to the server when the last of them dies. The mapping and the connection stay as long as any
lease.

The mapping is shared and writable, so that arithmetic in place on a received tensor works; the server never reads it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa

from forebay.errors import BrokenStream

from .ring_socket import RingSocket

# Linux's F_GET_SEALS and F_SEAL_SHRINK; the module fcntl has no names for them before Python 3.14.
GET_SEALS, SEAL_SHRINK = 1034, 2
# Slots that stay with the server: one that it writes, one that waits in the socket.
SLOTS_NOT_LENT = 2


class RingMemory:
    """The slots of one stream."""

    on_release: Callable[[], None] | None = None
    """Called before the memory is unmapped."""

    def __init__(self, connection: RingSocket, file: int, slots: int, slot_bytes: int) -> None:
        size = slots * slot_bytes
        # The file must keep its size: a page beyond its end ends the process with SIGBUS.
        if not fcntl.fcntl(file, GET_SEALS) & SEAL_SHRINK or os.fstat(file).st_size < size or size <= 0:
            raise BrokenStream("the ring's memory is not sealed, or smaller than its slots")
        self._connection = connection
        self._slots = slots
        self._slot_bytes = slot_bytes
        self._map = mmap.mmap(file, size)
        self._buffer = pa.py_buffer(self._map)
        self.address = self._buffer.address
        self.size = size
        # Slots that are lent. One step of the interpreter each adds, removes and counts, so there is no lock.
        self._lent: dict[int, None] = {}
        self._is_over = False

    def body(self, slot: int, size: int) -> pa.Buffer:
        """Return the body in a slot: lent, or copied if too few slots are left."""
        if slot >= self._slots or size > self._slot_bytes or slot in self._lent:
            raise BrokenStream(f"the ring sent {size} bytes in slot {slot}")
        start = slot * self._slot_bytes
        if len(self._lent) < self._slots - SLOTS_NOT_LENT:
            self._lent[slot] = None
            return pa.foreign_buffer(self.address + start, size, base=Lease(self, slot))
        copied = pa.allocate_buffer(size)
        memoryview(cast(Any, copied)).cast("B")[:] = memoryview(self._map)[start : start + size]
        self.give_back(slot)
        return copied

    def give_back(self, slot: int) -> None:
        """Return a slot to the server; takes no lock."""
        self._lent.pop(slot, None)
        self._connection.give_back(slot)
        self._end_if_unused()

    def end(self) -> None:
        """End the connection once no slot is lent, so that the server frees the memory."""
        self._is_over = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._is_over and not self._lent:
            self._connection.end()

    def __del__(self) -> None:
        if self.on_release is not None:
            self.on_release()


class Lease:
    """A slot that this process may read and write, until this object is deleted."""

    __slots__ = ("_memory", "_slot")

    def __init__(self, memory: RingMemory, slot: int) -> None:
        self._memory = memory
        self._slot = slot

    def __del__(self) -> None:
        self._memory.give_back(self._slot)
