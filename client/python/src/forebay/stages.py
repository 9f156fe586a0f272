"""Where a stream's time went, as the server says it in every header, and what holds a loop up.

The server's seconds are those of one stream. Lanes of a shuffled stream work side by side, and theirs are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

# A loop that waits for less than this share of its time is not held up by its data.
WAITING_SHARE = 0.1
# A server that waits for its client for more than this share of the time is held up by what lies between them; so is a
# loop that waits while the server has nothing to do for more than this share of it.
SENDING_SHARE = 0.5


@dataclass(frozen=True)
class StageSeconds:
    """Seconds that a stream spent on the server."""

    fetch: float = 0.0
    """Waiting for storage."""
    decode: float = 0.0
    """Parquet pages to Arrow arrays."""
    transform: float = 0.0
    """Filter and derived columns."""
    assemble: float = 0.0
    """Ops and row-major matrices."""
    send_wait: float = 0.0
    """Waiting for the client to take a batch."""

    @classmethod
    def of(cls, fields: Json | None) -> StageSeconds:
        """Read the message's JSON; zeros where a server says nothing."""
        given = fields or {}
        return cls(*(float(given.get(name) or 0.0) for name in cls.__dataclass_fields__))

    def __add__(self, other: StageSeconds) -> StageSeconds:
        return StageSeconds(
            self.fetch + other.fetch,
            self.decode + other.decode,
            self.transform + other.transform,
            self.assemble + other.assemble,
            self.send_wait + other.send_wait,
        )

    @property
    def compute(self) -> float:
        """Seconds of CPU work."""
        return self.decode + self.transform + self.assemble


def bound_by(stages: StageSeconds, *, loop_seconds: float, wait_seconds: float, lanes: int = 1) -> tuple[str, str]:
    """Return what a loop is bound by (trainer, wire, storage or CPU) and the figures that say so.

    `loop_seconds` and `wait_seconds` are counted from the first batch on, for its wait is the start's and not the
    stream's; `lanes` are those that fetch side by side for this rank. Two empty texts where nothing was measured.
    """
    if loop_seconds <= 0.0:
        return "", ""
    waited = wait_seconds / loop_seconds
    if waited < WAITING_SHARE:
        return "trainer", f"the loop waited for data for {waited:.1%} of its {loop_seconds:.2f} s"
    told = f"the loop waited for data for {waited:.0%} of its {loop_seconds:.2f} s; meanwhile the server"
    fetch = stages.fetch / max(1, lanes)
    if stages.send_wait > SENDING_SHARE * loop_seconds:
        return "wire", f"{told} waited {stages.send_wait:.2f} s for batches to be taken off it"
    if fetch + stages.compute < (1 - SENDING_SHARE) * wait_seconds:
        return "wire", f"{told} made batches for {fetch + stages.compute:.2f} s only"
    side_by_side = f" a lane, of {lanes}" if lanes > 1 else ""
    figures = f"waited {fetch:.2f} s for storage{side_by_side}, and computed for {stages.compute:.2f} s"
    return ("storage" if fetch > stages.compute else "CPU"), f"{told} {figures}"
