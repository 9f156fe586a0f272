"""Reads rows under a plan: streams of ranks and of groups, functions of batches, and rows by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan

from .connection import Connection, Json
from .credentials import Credentials
from .cursor import OF_ROWS, Cursor, resolved
from .failover import Failover
from .fitting import Fitting
from .flight_info import info_at, locations, share
from .groups import Group, grouping, read_groups
from .header import StreamInfo
from .map_batches import MappedBatches, map_batches
from .mixture import Mixture
from .options import StreamOptions, check_rank, check_stream_keywords, integer
from .reopening import Reopening
from .resume import start_at
from .ring import SLOTS
from .source import Source
from .stream import Batch, Stream
from .take import RowNumbers, numbers_of, read_take
from .targets import check_dataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import StreamKeywords

Result = TypeVar("Result")


class Streaming(Fitting):
    """The calls of `Client` that return batches of rows."""

    def __init__(
        self, urls: Sequence[str], connection: Connection, *, retry_seconds: float, credentials: Credentials
    ) -> None:
        super().__init__(urls, connection, retry_seconds=retry_seconds, credentials=credentials)
        self.ring_slots = SLOTS
        """Batches that a stream from a server on this machine has in shared memory at once. A loop that keeps
        batches in all but two of them receives further ones as copies."""

    def stream(
        self,
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        rank: int = 0,
        start_position: int = 0,
        cursor: Cursor | Mapping[str, Any] | str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> Stream:
        """Open the stream of one rank's batches of one epoch of a dataset, or of a mixture of several (`mix`).

        `plan` is a `Plan`, a `FittedPlan` or the id of one. A `Plan` that needs a fit is fitted first, once per client.
        `options` are the fields of `StreamOptions`: batch_size, world_size, epoch, seed, shuffle, window_rows, lanes,
        remainder, sample, sample_seed, balance, sample_weight, window, bucket_by_length, with_row_ids and snapshot.
        `start_position` is a global position, as in a batch's header.

        `cursor` (a `Cursor`, or its dict or JSON) resumes from `Stream.cursor` or a dataset's ``state_dict``, also with
        another batch size, and at other world sizes if shuffled; with bucket_by_length, only at its own. It overrides
        epoch, seed, shuffle, window_rows, lanes, remainder, start_position and snapshot; its sample, balance,
        sample_weight, window and bucket_by_length apply if `options` name none.
        Raises `CursorRefused` if it does not match this stream, and `SnapshotChanged` if the files have changed since.
        """
        check_stream_keywords("stream", options, ("rank", "start_position", "cursor"))
        chosen = StreamOptions(**options)
        rank, world_size = check_rank(rank, chosen.world_size)
        start_position = integer("start_position", start_position)
        if cursor is None:
            start = Cursor(chosen.epoch, start_position, world_size, chosen.order, chosen.snapshot or "")
        else:
            start = Cursor.of(cursor)
            start.check(world_size=world_size, batch_size=chosen.batch_size)
            # What is not named is the cursor's.
            named = {"sample": ("sample", "sample_seed"), **{name: (name,) for name in OF_ROWS}}
            names = [name for option, names in named.items() if option in options for name in names]
            start.check_rows(replace(start.order, **{name: getattr(chosen, name) for name in names}))
            chosen = start.options(chosen)
        known = self.fitted(dataset, plan)
        if isinstance(dataset, str):
            # The id of a mixture's plans is the server's to compute.
            start.check_plan(_plan_id(known))
        request = chosen.to_request(self._sources(dataset))
        request["start_position"] = start.position
        if cursor is not None:
            request |= start_at(start.position, world_size=world_size, batch_size=chosen.batch_size)
        request["with_stage_seconds"] = True
        if start.order_version:
            request["order_version"] = start.order_version
        info = self._on_any(lambda connection: info_at(connection, request, known, start), persist=True)
        described, ticket = share(info, rank)
        start.check_info(described)
        first_cursor = Cursor(
            start.epoch,
            start.position,
            world_size,
            resolved(chosen.order, world_size, info=described),
            *_pinned(start, described),
        )
        url, slots = self.url, self.ring_slots
        return Stream(
            lambda: Source(Connection(url, self._credentials), ticket, slots=slots),
            self._failover(request, known, described, info.schema, rank, [url, *locations(info.endpoints[rank])]),
            info.schema,
            described,
            first_cursor,
            batch_size=chosen.batch_size,
            order=chosen.order,
        )

    def map_batches(
        self,
        function: Callable[[Batch], Result],
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        rank: int = 0,
        **options: Unpack[StreamKeywords],
    ) -> MappedBatches[Batch, Result]:
        """Open a stream (`stream`) and apply a function to each of its batches, in this process and in order."""
        return map_batches(self.stream(dataset, plan, rank=rank, **options), function)

    def groups(
        self,
        dataset: str,
        plan: Plan | FittedPlan | str,
        *,
        by: str,
        buckets: int | None = None,
        **options: Unpack[StreamKeywords],
    ) -> list[Group]:
        """Return the groups of rows with the same value of column `by`, in ascending order of the values, null last.

        Each is a separate stream: ``for key, batches in client.groups(…)``, or `Group.open` in any thread or process.
        `by` is a stored, joined or derived column of integers, booleans, strings, decimals, dates or times. `buckets`
        hashes the values into that many groups, for columns of more values than the server's ``--groups-max``.
        `options` are those of `stream`, except that the world size is 1: a group is not split. A batch size of at least
        a group's `rows` gives the group in one batch.
        """
        check_stream_keywords("groups", options, ("by", "buckets"))
        chosen = StreamOptions(**options)
        request = {**chosen.to_request(dataset), **grouping(by, buckets)}
        known = self.fitted(dataset, plan)
        info = self._on_any(lambda connection: connection.info(request, known), persist=True)
        request["with_stage_seconds"] = True
        replicas = [locations(endpoint) for endpoint in info.endpoints[:1]]
        urls = tuple(dict.fromkeys([*self._rotated(), *(url for found in replicas for url in found)]))
        return read_groups(info, request, known, chosen, self._credentials, urls, self._retry_seconds)

    def take(
        self,
        dataset: str,
        plan: Plan | FittedPlan | str,
        row_ids: RowNumbers | None = None,
        *,
        positions: RowNumbers | None = None,
        with_row_ids: bool = False,
        snapshot: str | None = None,
    ) -> Batch:
        """Return rows by their numbers, in this order and as often as they are named, in one batch.

        `row_ids` are indices in the dataset in file order, as ``__row_id`` and `Replay.rows` have them; their rows must
        pass the plan's filter. `positions` are indices among the rows that pass it, from 0. Both may be lists or arrays
        of integers; at most 65,536 rows are returned. The values are those of a stream under the same plan.

        A `Plan` that needs a fit is fitted first, once per client. `with_row_ids` and `snapshot` are as in
        `StreamOptions`.
        """
        check_dataset(dataset)
        request: Json = {"dataset": dataset, **numbers_of(row_ids, positions), "with_row_ids": with_row_ids}
        if snapshot is not None:
            request["snapshot"] = snapshot
        known = self.fitted(dataset, plan)

        def read(connection: Connection) -> Batch:
            info = connection.take_info(request, known)
            return read_take(Connection(connection.url, self._credentials), info.endpoints[0].ticket)

        return self._on_any(read, persist=True)

    def _failover(
        self,
        request: Json,
        plan: Plan | FittedPlan | str,
        described: StreamInfo,
        schema: pa.Schema,
        rank: int,
        first: Sequence[str],
    ) -> Failover:
        """Return a `Failover` that reopens this stream on another replica: same snapshot, order and plan."""
        open_at = Reopening(request, plan, described, schema, rank, self._credentials, self.ring_slots)
        return Failover(open_at, [*first, *self._urls], seconds=self._retry_seconds)


def _plan_id(plan: Plan | FittedPlan | str) -> str:
    """Return the plan's id; empty if only the server knows it."""
    return plan if isinstance(plan, str) else getattr(plan, "plan_id", "")


def _pinned(start: Cursor, described: StreamInfo) -> tuple[str, str, int]:
    """Return snapshot, plan and order version of the stream's start cursor."""
    snapshot = described.snapshot if start.position else start.snapshot
    return snapshot, described.plan_id, described.order_version
