"""Reading a FlightInfo: a rank's share of the epoch, its ticket and the replicas that serve it."""

from __future__ import annotations

from typing import Any, cast

import pyarrow.flight as flight

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan
from forebay.errors import ForebayError, InvalidRequest, SnapshotChanged, StreamError

from .connection import Connection, Json, read_json
from .cursor import Cursor
from .header import StreamInfo


def info_at(connection: Connection, request: Json, plan: Plan | FittedPlan | str, start: Cursor) -> flight.FlightInfo:
    """Return the FlightInfo of a request; report a mismatch of plans rather than the error that it causes.

    The plan's filter determines the number of rows in an epoch, so another plan's position can be past the end.
    """
    try:
        return connection.info(request, plan)
    except InvalidRequest:
        if start.position and start.plan_id:
            beginning = connection.info({**request, "start_position": 0, "resumed_from": 0}, plan)
            start.check_plan(str(read_json(beginning.app_metadata).get("plan_id") or ""))
        raise


def share(info: flight.FlightInfo, rank: int) -> tuple[StreamInfo, flight.Ticket]:
    """Return the description of a rank's stream, and its ticket."""
    if rank >= len(info.endpoints):
        raise StreamError(f"the server returned {len(info.endpoints)} ranks, but the request is for rank {rank}")
    endpoint = info.endpoints[rank]
    return StreamInfo.of(read_json(info.app_metadata), read_json(endpoint.app_metadata), rank), endpoint.ticket


def locations(endpoint: flight.FlightEndpoint) -> list[str]:
    """Return an endpoint's replicas; ignores other locations of Flight (HTTP, "reuse connection")."""
    uris = [bytes(location.uri).decode() for location in cast(Any, endpoint).locations]
    return [uri for uri in uris if uri.startswith(("grpc://", "grpc+tcp://", "grpc+tls://", "grpc+unix://"))]


def other_stream(url: str, expected: StreamInfo, found: StreamInfo) -> ForebayError:
    """Return the error for a replica whose stream differs from the one that broke."""
    if found.snapshot != expected.snapshot:
        return SnapshotChanged(f"{url} reads snapshot {found.snapshot}, and the stream started in {expected.snapshot}")
    return StreamError(f"{url} serves a different stream than the one that broke: {found}, not {expected}")
