"""Page-locked memory of rings, from which copies to a GPU start without another copy.

Registering takes about a millisecond for a ring. Where CUDA refuses it, batches go through pinned memory of torch.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
    from .ring_memory import RingMemory

_log = logging.getLogger(__name__)


class PinnedRings:
    """The rings that were registered with CUDA, and those that it refused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tried: weakref.WeakKeyDictionary[RingMemory, bool] = weakref.WeakKeyDictionary()

    def has(self, memory: RingMemory | None, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in page-locked memory of a ring; registers the ring's memory if it is new."""
        if memory is None:
            return False
        start = tensor.data_ptr()
        if not memory.address <= start < memory.address + memory.size:
            return False
        if memory not in self._tried:
            self._tried[memory] = self._register(memory)
        return self._tried[memory]

    def _register(self, memory: RingMemory) -> bool:
        runtime = cast(Any, torch.cuda.cudart())
        address = memory.address
        try:
            code = int(runtime.cudaHostRegister(address, memory.size, 0))
            problem = f"error {code}" if code else ""
        except RuntimeError as error:
            problem = str(error)
        if problem:
            _log.warning("cannot register %d bytes of shared memory with CUDA: %s", memory.size, problem)
            self._clear_error()
            return False

        def unregister() -> None:
            runtime.cudaHostUnregister(address)

        memory.on_release = unregister
        return True

    def _clear_error(self) -> None:
        """Consume the error that CUDA keeps for the next call of this thread."""
        try:
            torch.zeros(1, device=self._device).add_(1)
        except RuntimeError as error:
            _log.debug("cleared: %s", error)
