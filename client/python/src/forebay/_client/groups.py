"""Groups of rows with the same value of a column, each a stream that any process can open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from forebay._plan.fitted import FittedPlan
from forebay.errors import SnapshotChanged, StreamError

from .connection import Json, read_json
from .credentials import Credentials
from .cursor import Cursor, resolved
from .failover import Failover
from .header import StreamInfo
from .options import StreamOptions, integer
from .reopening import Reopening
from .resume import start_at
from .stream import Stream

if TYPE_CHECKING:
    import pyarrow.flight as flight

    from forebay._plan.plan import Plan


@dataclass(frozen=True)
class Group:
    """One group of `Client.groups`: its key, and a stream of its rows. Unpacks to the key and an open `Stream`.

    Pickle it to open it in another process or on another machine that reaches the server: it holds no connection, and
    none is made before the first batch is read.
    """

    key: Any
    """The value that the rows share: None, bool, int, str, Decimal, or a date or time as `pyarrow` converts it
    (nanoseconds that ``datetime`` cannot hold as ``numpy.datetime64``). With buckets, the bucket's number."""
    rows: int
    """Rows of the group, including padding."""
    steps: int
    """Batches of the group."""
    _reopening: Reopening = field(repr=False)
    _options: StreamOptions = field(repr=False)
    _urls: tuple[str, ...] = field(repr=False)
    _retry_seconds: float = field(repr=False)

    def open(self, *, cursor: Cursor | Mapping[str, Any] | str | None = None) -> Stream:
        """Open the stream of the group's batches; `cursor` resumes from a `Stream.cursor` of the same group.

        Raises `CursorRefused` if the cursor does not match this stream, and `SnapshotChanged` if the files have
        changed.
        """
        described, options = self._reopening.described, self._options
        order = resolved(options.order, 1, info=described)
        start = Cursor(options.epoch, 0, 1, order, described.snapshot, described.plan_id, described.order_version)
        if cursor is not None:
            given = Cursor.of(cursor)
            given.check(world_size=1, batch_size=options.batch_size)
            given.check_rows(options)
            given.check_info(described)
            if given.snapshot and given.snapshot != described.snapshot:
                raise SnapshotChanged(
                    f"the state was saved in snapshot {given.snapshot}, and the groups are of {described.snapshot}"
                )
            start = given
            options = start.options(options)
        request = {**self._reopening.request, **options.to_request(self._reopening.request["dataset"])}
        request |= start_at(start.position, world_size=1, batch_size=options.batch_size)
        open_at = Reopening(
            request,
            self._reopening.plan,
            described,
            self._reopening.schema,
            0,
            self._reopening.credentials,
        )
        return Stream(
            open_at.at(self._urls[0], start.position),
            Failover(open_at, self._urls, seconds=self._retry_seconds),
            self._reopening.schema,
            described,
            start,
            batch_size=options.batch_size,
            order=options.order,
        )

    def __iter__(self) -> Iterator[Any]:
        """Return the key, then an open stream: ``for key, batches in client.groups(…)``."""
        return iter((self.key, self.open()))


def grouping(by: object, buckets: object) -> Json:
    """Return the fields of a request that group its rows."""
    if not isinstance(by, str) or not by:
        raise TypeError(f"by must be the name of a column, not {by!r}")
    return (
        {"group_by": by} if buckets is None else {"group_by": by, "group_buckets": integer("buckets", buckets, least=1)}
    )


def read_groups(
    info: flight.FlightInfo,
    request: Json,
    plan: Plan | FittedPlan | str,
    options: StreamOptions,
    credentials: Credentials,
    urls: tuple[str, ...],
    retry_seconds: float,
) -> list[Group]:
    """Return the groups of the FlightInfo of a grouped request."""
    epoch, schema = read_json(info.app_metadata), info.schema
    groups: list[Group] = []
    for endpoint in info.endpoints:
        about = read_json(endpoint.app_metadata)
        if not isinstance(about.get("group"), dict):
            raise StreamError("the server returned no groups: it is older than this client")
        # The stream of a group is an epoch of one rank.
        own = {**epoch, "rows": about["rows"], "steps": about["steps"]}
        described = StreamInfo.of(own, about, 0)
        of_group = {**request, "group": about["group"], "snapshot": described.snapshot}
        reopening = Reopening(of_group, plan, described, schema, 0, credentials)
        key = key_of(cast(Json, about["group"]), str(about["type"]))
        groups.append(Group(key, described.rank_rows, described.rank_steps, reopening, options, urls, retry_seconds))
    return groups


def key_of(group: Json, type_name: str) -> Any:
    """Return a key as a Python value."""
    ((kind, value),) = group.items()
    if kind == "null":
        return None
    if kind == "decimal":
        return Decimal(value)
    if kind in ("integer", "unsigned", "bucket"):
        # Text if a double does not hold it.
        value = int(value)
    kind_of_time = re.fullmatch(r"(date|time|timestamp|duration)\w*\[(\w+)(?:, tz=(.+))?\]", type_name)
    if kind != "integer" or kind_of_time is None:
        return value
    unit, zone = kind_of_time[2], kind_of_time[3]
    data_type = pa.timestamp(cast(Any, unit), zone) if zone else cast(Any, pa).type_for_alias(type_name)
    whole = pa.int32() if data_type.bit_width == 32 else pa.int64()
    scalar = cast(Any, pa.array([value], whole)).view(data_type)[0]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        # Nanoseconds, or years beyond 9999.
        return np.timedelta64(value, unit) if kind_of_time[1] == "duration" else np.datetime64(value, unit)
