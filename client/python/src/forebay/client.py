"""Client of a service of one or more replicas: fits, streams of batches, and what `looking` adds.

Exchanges JSON messages over Arrow Flight. Imports no torch, and starts no process or thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from .connection import Connection, Json, to_bytes, with_plan
from .credentials import Credentials
from .cursor import Cursor, resolved
from .errors import DeadlineExceeded, ForebayError, StreamError, Unavailable
from .exchange import Call, Exchange
from .explain import Explain, read_explain
from .failover import Failover
from .fitted import FittedPlan
from .flight_info import info_at, locations, share
from .groups import Group, grouping, read_groups
from .header import StreamInfo
from .hints import explained
from .looking import Looking
from .map_batches import MappedBatches, map_batches
from .mixture import Mixture, check_fitted
from .op import in_range
from .options import StreamOptions, check_rank, check_stream_keywords, integer, normalized_sample
from .plan import Plan
from .progress import Progress, read_progress, reporting
from .reopening import Reopening
from .replay import Replay, read_replay
from .retry import RETRY_SECONDS
from .ring import SLOTS
from .source import Source
from .stream import Batch, Stream
from .take import RowNumbers, numbers_of, read_take
from .targets import check_dataset, check_plan, check_source, check_urls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import StreamKeywords

Result = TypeVar("Result")


def connect(
    url: str | Sequence[str], *, retry_seconds: float = RETRY_SECONDS, credentials: Credentials | None = None
) -> Client:
    """Connect to a server, or to a list of replicas.

    A URL is ``grpc://HOST:PORT``, ``grpc+tls://HOST:PORT`` or ``grpc+unix://PATH``. `credentials` are for servers that
    require authentication or use a private authority; by default they are read from the environment.

    Connects to the first replica that responds. If it fails later, another takes over, also within a stream, and the
    loop receives the same batches. `retry_seconds` limits the retries for one batch, over all replicas and those that
    the servers report in their endpoints; 0 raises errors at once. Raises `Unavailable` if no replica responds now.
    """
    urls = check_urls(url)
    retry_seconds = in_range("retry_seconds", retry_seconds, 0.0)
    credentials = Credentials() if credentials is None else credentials
    failed: list[str] = []
    last: ForebayError | None = None
    for at, one in enumerate(urls):
        connection = Connection(one, credentials)
        try:
            connection.hello()
        except (Unavailable, DeadlineExceeded) as error:
            connection.close()
            failed.append(f"{one}: {explained(one, error, credentials)}")
            last = error
        else:
            return Client([*urls[at:], *urls[:at]], connection, retry_seconds=retry_seconds, credentials=credentials)
    raise Unavailable(f"cannot connect to {'; '.join(failed)}") from last


class Client(Looking):
    """A connection to a service, made by `connect`. Close it, or use it in a ``with`` block."""

    def __init__(
        self, urls: Sequence[str], connection: Connection, *, retry_seconds: float, credentials: Credentials
    ) -> None:
        super().__init__(urls, connection, retry_seconds=retry_seconds, credentials=credentials)
        self.ring_slots = SLOTS
        """Batches that a stream from a server on this machine has in shared memory at once. A loop that keeps more of
        them than this, less two, receives copies."""
        self._resolutions: dict[tuple[str, Plan], Plan] = {}
        self._fits: dict[tuple[str, str], FittedPlan] = {}

    def __repr__(self) -> str:
        others = len(self._urls) - 1
        more = f", {others} other replica{'s' * (others > 1)}" if others else ""
        return f"Client({self.url!r}{more}{', closed' if self._closed.is_set() else ''})"

    def fit(
        self,
        dataset: str,
        plan: Plan,
        *,
        sample: float = 1.0,
        sample_seed: int = 0,
        refit: bool = False,
        progress: Progress | bool | None = None,
    ) -> FittedPlan:
        """Fit the plan: learn its missing parameters from the rows that pass its filter.

        `sample` and `sample_seed` choose the rows to learn from, as in `StreamOptions`; they are not part of the plan.

        The server keeps the result for the dataset's current files and returns it to every later fit of the same plan:
        `FittedPlan.cached` is then True. `refit` makes it learn again.

        `progress` is called with every `FitProgress`; True and None show a line if stderr is a terminal, False shows
        nothing. Warnings of the result, such as a vocabulary without values, are raised as UserWarning.
        """
        if not isinstance(cast(object, plan), Plan):
            raise TypeError(f"fit expects a Plan, not {plan!r}")
        if plan.training is not None:
            return self.fit(
                dataset, plan.training, sample=sample, sample_seed=sample_seed, refit=refit, progress=progress
            ).with_filter(plan.filter)
        plan = self._resolved(dataset, plan)
        request: Json = {"dataset": dataset, "plan": plan.to_dict()}
        request |= {name: value for name, value in normalized_sample(sample, sample_seed).items() if sample != 1}
        if refit:
            request["refit"] = True

        with reporting("fit", progress) as show:

            def learn(connection: Connection) -> FittedPlan:
                for update in connection.act("fit", request):
                    if update.get("result"):
                        found = cast(Json, update["result"])
                        noted = tuple(str(text) for text in cast("list[object]", found.get("warnings") or []))
                        plan = Plan.from_dict(cast(Json, found["plan"]))
                        return FittedPlan(str(found["plan_id"]), plan, noted, bool(found.get("cached")))
                    if update.get("progress"):
                        show(read_progress(cast(Json, update["progress"])))
                raise StreamError("the fit ended without a result")

            fitted = self._on_any(learn)
        for noted in fitted.warnings:
            warnings.warn(noted, UserWarning, stacklevel=2)
        return fitted

    def fitted(
        self,
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        filter: str | None = None,  # noqa: A002 (the contract's name)
    ) -> Plan | FittedPlan | str:
        """Return the plan if it needs no fit, else the result of `fit`, cached per client.

        `filter` replaces the plan's after the fit: the parameters are those of the rows that pass the plan's filter.
        A mixture is not fitted: raises `NotFitted` if the plan needs it.
        """
        check_source(dataset)
        check_plan(plan)
        if isinstance(dataset, Mixture):
            return self._for_mixture(dataset, plan, filter)
        if filter is not None:
            known = self.fitted(dataset, plan)
            return (self._stored(known) if isinstance(known, str) else known).with_filter(filter)
        if not isinstance(plan, Plan):
            return plan
        if plan.training is not None:
            return self.fitted(dataset, plan.training, plan.filter)
        plan = self._resolved(dataset, plan)
        if not plan.needs_fit:
            return plan
        key = (dataset, plan.to_json())
        if key not in self._fits:
            self._fits[key] = self.fit(dataset, plan)
        return self._fits[key]

    def _for_mixture(
        self, mixture: Mixture, plan: Plan | FittedPlan | str, filters: str | None
    ) -> Plan | FittedPlan | str:
        """Return the plan of a mixture's sources that have none."""
        if filters is not None:
            if any(source.plan is not None for source in mixture.sources):
                raise ValueError("filter replaces that of one plan: pass sources with their plans filtered instead")
            plan = (self._stored(plan) if isinstance(plan, str) else plan).with_filter(filters)
        dataset = mixture.common_dataset
        if dataset is None or not isinstance(plan, Plan):
            return plan
        check_fitted(dataset, plan)
        return self._resolved(dataset, plan)

    def _sources(self, dataset: str | Mixture) -> str | list[Json]:
        """Return a mixture as its sources' JSON, with the names of the columns that their plans select."""
        if isinstance(dataset, str):
            return dataset
        for source in dataset.sources:
            check_fitted(source.dataset, source.plan)
        if not any(isinstance(source.plan, Plan) and source.plan.has_selectors for source in dataset.sources):
            return dataset.to_list()
        plans = [
            self._resolved(source.dataset, source.plan) if isinstance(source.plan, Plan) else source.plan
            for source in dataset.sources
        ]
        return dataset.with_plans(plans).to_list()

    def _stored(self, plan_id: str) -> FittedPlan:
        """Return the stored plan of an id."""

        def show(connection: Connection) -> FittedPlan:
            for found in connection.act("show", {"plan_id": plan_id}):
                return FittedPlan(plan_id, Plan.from_dict(cast(Json, found["plan"])))
            raise StreamError(f"the server returned no plan {plan_id}")

        return self._on_any(show)

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
        remainder, sample, sample_seed, with_row_ids and snapshot. `start_position` is a global position, as in a
        batch's header.

        `cursor` (a `Cursor`, or its dict or JSON) resumes from `Stream.cursor` or a dataset's ``state_dict``. It
        overrides epoch, seed, shuffle, window_rows, lanes, remainder, start_position and snapshot; its sample applies
        if `options` name none. Raises `CursorRefused` if it does not match this stream, and `SnapshotChanged` if the
        files have changed since.
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
            if "sample" in options:
                start.check_sample(chosen)
            chosen = start.options(chosen)
        known = self.fitted(dataset, plan)
        if isinstance(dataset, str):
            # The id of a mixture's plans is the server's to compute.
            start.check_plan(_plan_id(known))
        request = chosen.to_request(self._sources(dataset))
        request["start_position"] = start.position
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
            resolved(chosen.order, world_size, described),
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

    def replay(
        self,
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        step: int,
        rank: int = 0,
        **options: Unpack[StreamKeywords],
    ) -> Replay:
        """Return the source of each row of one batch: `step` of `rank`, counted from the start of the epoch.

        `options` are those of `stream`. With the snapshot and the plan of an earlier run, the result is the batch of
        that run.
        """
        check_stream_keywords("replay", options, ("step", "rank"))
        chosen = StreamOptions(**options)
        rank, _ = check_rank(rank, chosen.world_size)
        step = integer("step", step)
        request = chosen.to_request(self._sources(dataset))

        def send(full_request: Json) -> Replay:
            def act(connection: Connection) -> Replay:
                results = connection.act("replay", {"stream": full_request, "rank": rank, "step": step})
                return read_replay(results, lambda: Connection(connection.url, self._credentials))

            return self._on_any(act)

        return with_plan(send, request, self.fitted(dataset, plan))

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

    def explain(
        self,
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        rows: int = 0,
        row_bytes: int = 0,
        storage_bytes_per_second: float = 0.0,
        wire_bytes_per_second: float = 0.0,
        **options: Unpack[StreamKeywords],
    ) -> Explain:
        """Estimate the cost of an epoch from arithmetic and file footers; `options` are those of `stream`.

        `rows` and `row_bytes` replace those of the dataset. `storage_bytes_per_second` is the storage bandwidth of all
        ranks together, `wire_bytes_per_second` the network bandwidth of each rank; 0 omits an assumption.
        """
        assume: Json = {
            "rows": integer("rows", rows),
            "row_bytes": integer("row_bytes", row_bytes),
            "storage_bytes_per_second": in_range("storage_bytes_per_second", storage_bytes_per_second, 0.0),
            "wire_bytes_per_second": in_range("wire_bytes_per_second", wire_bytes_per_second, 0.0),
        }
        check_stream_keywords("explain", options, assume)
        request = StreamOptions(**options).to_request(self._sources(dataset))
        if any(assume.values()):
            request["assume"] = {name: value for name, value in assume.items() if value}

        def send(full_request: Json) -> Explain:
            return read_explain(self._on_any(lambda connection: list(connection.act("explain", full_request))))

        return with_plan(send, request, self.fitted(dataset, plan))

    def exchange(self, plan: Plan | FittedPlan | str, *, schema: pa.Schema | None = None) -> Exchange:
        """Return an `Exchange`, a callable that computes the plan's outputs for rows in memory.

        `plan` must need no fit: a `FittedPlan`, the id of one, or a `Plan` with all parameters. `schema` sets the types
        of the columns for batches without types (mappings of arrays).
        """
        check_plan(plan)
        if isinstance(plan, Plan) and schema is not None:
            plan = plan.resolve(schema)

        def open_at(url: str, columns: pa.Schema) -> Call:
            return with_plan(
                lambda request: Call(Connection(url, self._credentials), to_bytes(request), columns), {}, plan
            )

        return Exchange(open_at, self._rotated(), seconds=self._retry_seconds, schema=schema)

    def _resolved(self, dataset: str, plan: Plan) -> Plan:
        """Return the plan with the names of its selected columns."""
        if not plan.has_selectors:
            return plan
        if (dataset, plan) not in self._resolutions:
            self._resolutions[dataset, plan] = plan.resolve(self.schema(dataset))
        return self._resolutions[dataset, plan]

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
