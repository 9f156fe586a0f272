"""Opening a stream at a position on any replica: same snapshot, order and plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan

from .connection import Json
from .credentials import Credentials
from .flight_info import other_stream, share
from .header import StreamInfo
from .replicas import greeted
from .resume import start_at
from .ring import SLOTS
from .source import Source


@dataclass(frozen=True)
class Reopening:
    """What a replica must serve for a stream to continue there; calling it opens the stream. Can be pickled."""

    request: Json
    """The StreamRequest without its plan."""
    plan: Plan | FittedPlan | str
    described: StreamInfo
    schema: pa.Schema
    rank: int
    credentials: Credentials
    slots: int = SLOTS
    """Slots of the ring, on this machine."""

    def __call__(self, url: str, position: int) -> Source:
        """Open the stream on one replica."""
        connection = greeted(url, self.credentials)
        try:
            info = connection.info(self._at(position), self.plan)
            there, ticket = share(info, self.rank)
            if there != self.described or info.schema != self.schema:
                raise other_stream(url, self.described, there)
        except BaseException:
            connection.close()
            raise
        return Source(connection, ticket, slots=self.slots)

    def _at(self, position: int) -> Json:
        """Return the request that continues the stream at a position."""
        pinned = {**self.request, "snapshot": self.described.snapshot}
        if self.described.order_version:
            pinned["order_version"] = self.described.order_version
        world_size, batch_size = self.request["world_size"], self.request["batch_size"]
        return {**pinned, **start_at(position, world_size=world_size, batch_size=batch_size)}

    def at(self, url: str, position: int) -> Callable[[], Source]:
        """Return a function that opens the stream on one replica, for later."""
        return lambda: self(url, position)
