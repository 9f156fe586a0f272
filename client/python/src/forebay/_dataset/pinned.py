"""Page-locked memory of rings and of received bodies, from which copies to a GPU start without another copy.

Registering takes about a millisecond for a ring. Where CUDA refuses it, batches go through pinned memory of torch.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, cast

import torch

from forebay._client.ring_memory import RingMemory

if TYPE_CHECKING:
    from forebay import _native
    from forebay._client.message_input import Pinnable

_log = logging.getLogger(__name__)


class PinnedMemory:
    """The memory that was registered with CUDA, and that which it refused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rings: weakref.WeakKeyDictionary[RingMemory, bool] = weakref.WeakKeyDictionary()
        self._bodies: dict[int, _native.BodyBuffer] = {}
        self._refuses_bodies = False

    def has(self, memory: Pinnable | None, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in page-locked memory that a batch arrived in; registers the memory if it is new."""
        if memory is None:
            return False
        start = tensor.data_ptr()
        if not memory.address <= start < memory.address + memory.size:
            return False
        return self._has_ring(memory) if isinstance(memory, RingMemory) else self._has_body(memory)

    def release(self) -> None:
        """Release the memory of bodies, from which nothing is copied any more."""
        while self._bodies:
            self._unregister_body(self._bodies.popitem()[1])

    def _has_ring(self, ring: RingMemory) -> bool:
        if ring not in self._rings:
            is_registered = self._register(ring)
            if is_registered:
                address = ring.address

                def unregister() -> None:
                    _cuda().cudaHostUnregister(address)

                ring.on_release = unregister
            self._rings[ring] = is_registered
        return self._rings[ring]

    def _has_body(self, body: _native.BodyBuffer) -> bool:
        if body.number in self._bodies:
            return True
        if self._refuses_bodies:
            return False
        self._sweep()
        # It must not be freed while it is registered.
        body.keep()
        if self._register(body):
            self._bodies[body.number] = body
            return True
        body.release()
        self._refuses_bodies = True
        return False

    def _sweep(self) -> None:
        """Release bodies' memory that the stream does not use again."""
        for number, body in list(self._bodies.items()):
            if body.is_retired:
                del self._bodies[number]
                self._unregister_body(body)

    def _unregister_body(self, body: _native.BodyBuffer) -> None:
        try:
            _cuda().cudaHostUnregister(body.address)
        except RuntimeError as error:
            _log.debug("a device that is lost has no registered memory: %s", error)
        body.release()

    def _register(self, memory: Pinnable) -> bool:
        try:
            code = int(_cuda().cudaHostRegister(memory.address, memory.size, 0))
            problem = f"error {code}" if code else ""
        except RuntimeError as error:
            problem = str(error)
        if problem:
            _log.warning("cannot register %d bytes of received memory with CUDA: %s", memory.size, problem)
            self._clear_error()
        return not problem

    def _clear_error(self) -> None:
        """Consume the error that CUDA keeps for the next call of this thread."""
        try:
            torch.zeros(1, device=self._device).add_(1)
        except RuntimeError as error:
            _log.debug("cleared: %s", error)


def _cuda() -> Any:
    return cast(Any, torch.cuda.cudart())
