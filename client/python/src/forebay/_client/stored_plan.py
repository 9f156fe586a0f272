"""Plans stored on a server, as its actions `plans` and `remove_plan` describe them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, cast

Json = dict[str, Any]


@dataclass(frozen=True)
class PlanDataset:
    """A dataset at the time when a plan was stored for it."""

    name: str
    snapshot: str
    rows: int
    fitted: bool
    """Whether the plan was fitted on it."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan stored on the server."""

    plan_id: str
    datasets: tuple[PlanDataset, ...]
    """Those that it was stored for, as far as the caller may read them."""
    bytes: int
    created: datetime | None
    """When it was first stored; None if an earlier version of the server stored it."""
    used: datetime | None
    """When it was last stored, or used by its id, to a minute."""


def read_stored_plan(fields: Json) -> StoredPlan:
    """Read the server's description of a plan."""
    datasets = tuple(
        PlanDataset(str(one["name"]), str(one["snapshot"]), int(one["rows"]), bool(one["fitted"]))
        for one in cast("list[Json]", fields["datasets"])
    )
    times = [_time(int(fields[name])) for name in ("created", "used")]
    return StoredPlan(str(fields["plan_id"]), datasets, int(fields["bytes"]), *times)


def read_stored_plans(results: Iterable[Json]) -> list[StoredPlan]:
    """Read the results of the action `plans`."""
    return [read_stored_plan(one) for part in results for one in cast("list[Json]", part["plans"])]


def _time(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None
