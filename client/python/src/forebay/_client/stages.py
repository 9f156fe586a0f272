"""Stage times of a stream, as reported in every header, and the bottleneck of a loop.

Stage times cover one stream, and are summed over the concurrent lanes of a shuffled one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

# A loop that waits for less than this share of its time is not limited by its data.
WAITING_SHARE = 0.1
# The wire is the bottleneck if the server waits for its client for more than this share of the time, or if the loop
# waits while the server is idle for more than this share.
SENDING_SHARE = 0.5


@dataclass(frozen=True)
class StageSeconds:
    """Seconds that a stream spent in each stage on the server."""

    fetch: float = 0.0
    """Waiting for storage."""
    queue: float = 0.0
    """Waiting for a CPU thread."""
    decode: float = 0.0
    """Parquet pages to Arrow arrays."""
    transform: float = 0.0
    """Filter and derived columns."""
    assemble: float = 0.0
    """Ops and row-major matrices."""
    send_wait: float = 0.0
    """Waiting for the client to take a batch."""
    udf: float = 0.0
    """Waiting for Python functions."""

    @classmethod
    def of(cls, fields: Json | None) -> StageSeconds:
        """Read the message's JSON; missing times are 0."""
        given = fields or {}
        return cls(*(float(given.get(name) or 0.0) for name in cls.__dataclass_fields__))

    def __add__(self, other: StageSeconds) -> StageSeconds:
        return StageSeconds(
            self.fetch + other.fetch,
            self.queue + other.queue,
            self.decode + other.decode,
            self.transform + other.transform,
            self.assemble + other.assemble,
            self.send_wait + other.send_wait,
            self.udf + other.udf,
        )

    @property
    def compute(self) -> float:
        """Seconds of CPU work."""
        return self.decode + self.transform + self.assemble


def bound_by(stages: StageSeconds, *, loop_seconds: float, wait_seconds: float, lanes: int = 1) -> tuple[str, str]:
    """Return the bottleneck of a loop (trainer, wire, storage, functions or CPU) and the figures that determine it.

    `loop_seconds` and `wait_seconds` start after the first batch, whose wait is that of the start; `lanes` is the
    number of lanes that wait concurrently for this rank. Returns two empty texts if nothing was measured.
    """
    if loop_seconds <= 0.0:
        return "", ""
    waited = wait_seconds / loop_seconds
    if waited < WAITING_SHARE:
        return "trainer", f"the loop waited for data for {waited:.1%} of its {loop_seconds:.2f} s"
    prefix = f"the loop waited for data for {waited:.0%} of its {loop_seconds:.2f} s; meanwhile the server"
    # Lanes, or decoding in file order, wait for CPU threads while the batches before are computed and encoded.
    fetch, queue = stages.fetch / max(1, lanes), stages.queue / (max(1, lanes) + 1)
    cpu, udf = queue + stages.compute, stages.udf / max(1, lanes)
    if stages.send_wait > SENDING_SHARE * loop_seconds:
        return "wire", f"{prefix} waited {stages.send_wait:.2f} s for the client to take batches"
    if fetch + udf + cpu < (1 - SENDING_SHARE) * wait_seconds:
        return "wire", f"{prefix} prepared batches for {fetch + udf + cpu:.2f} s only"
    per_lane = f" per lane, of {lanes}" if lanes > 1 else ""
    waits = f"waited {fetch:.2f} s for storage{per_lane}, and {queue:.2f} s for a CPU thread"
    if udf > max(fetch, cpu):
        return "functions", f"{prefix} waited {udf:.2f} s for Python functions{per_lane}, and computed for {cpu:.2f} s"
    return ("storage" if fetch > cpu else "CPU"), f"{prefix} {waits}, and computed for {stages.compute:.2f} s"
