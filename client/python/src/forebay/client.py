"""A service of one or more replicas: what it has, what a plan learns from it, and streams of batches.

Speaks the contract's JSON over plain Arrow Flight. Holds no torch and starts no process or thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from .connection import Connection, Json, to_bytes, with_plan
from .credentials import Credentials
from .cursor import Cursor, resolved
from .errors import DeadlineExceeded, StreamError, Unavailable
from .exchange import Call, Exchange
from .explain import Explain, read_explain
from .failover import Failover
from .fitted import FittedPlan
from .flight_info import info_at, locations, other_stream, share
from .header import DatasetInfo, StreamInfo
from .options import StreamOptions
from .plan import Plan
from .progress import FitProgress, Progress, ProgressLine, line_wanted
from .replay import Replay, read_replay
from .retry import RETRY_SECONDS, try_everywhere
from .signal_safe import Latch
from .source import Source
from .stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import StreamKeywords

T = TypeVar("T")

# Seconds for a replica to answer its first call when a stream fails over to it.
FAILOVER_HELLO_SECONDS = 5.0


def connect(
    url: str | Sequence[str], *, retry_seconds: float = RETRY_SECONDS, credentials: Credentials | None = None
) -> Client:
    """Connect to a server, or to a list of replicas.

    A URL is ``grpc://HOST:PORT``, ``grpc+tls://HOST:PORT`` or ``grpc+unix://PATH``. `credentials` are for servers that
    ask who calls, or whose certificate is of an authority of your own; without them the environment is looked at.

    The first replica that answers is taken; where it fails later, another takes over, also in the middle of a stream:
    the loop sees the same batches. `retry_seconds` bounds the tries for one batch, over all replicas and those that
    the servers name in their endpoints; 0 means that a failure is raised at once. Raises `Unavailable` where no
    replica answers now.
    """
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise ValueError("connect needs a server's URL, such as grpc://127.0.0.1:8815")
    for one in urls:
        if not isinstance(cast(object, one), str) or "://" not in one:
            raise ValueError(f"{one!r} is no server URL; it looks like grpc://127.0.0.1:8815")
    if not (math.isfinite(retry_seconds) and retry_seconds >= 0):
        raise ValueError(f"retry_seconds must be 0 or more, not {retry_seconds}")
    credentials = Credentials() if credentials is None else credentials
    failed: list[str] = []
    for at, one in enumerate(urls):
        connection = Connection(one, credentials)
        try:
            connection.hello()
        except (Unavailable, DeadlineExceeded) as error:
            connection.close()
            failed.append(f"{one}: {error}")
        else:
            return Client([*urls[at:], *urls[:at]], connection, retry_seconds=retry_seconds, credentials=credentials)
    raise Unavailable("no server answers: " + "; ".join(failed))


class Client:
    """A connection to a service; made by `connect`. Close it, or use it in a ``with`` block."""

    def __init__(
        self, urls: Sequence[str], connection: Connection, *, retry_seconds: float, credentials: Credentials
    ) -> None:
        self._credentials = credentials
        self._urls = list(dict.fromkeys(urls))
        self._connection = connection
        self._retry_seconds = retry_seconds
        self._closed = Latch()
        self._fits: dict[tuple[str, str], FittedPlan] = {}

    @property
    def url(self) -> str:
        """The replica that is asked at present."""
        return self._connection.url

    def datasets(self) -> dict[str, DatasetInfo]:
        """Return the server's datasets by name."""
        infos = [DatasetInfo.of(fields) for fields in self._on_any(lambda connection: connection.datasets())]
        return {info.name: info for info in infos}

    def schema(self, dataset: str) -> pa.Schema:
        """Return the dataset's columns as stored."""
        return self._on_any(lambda connection: connection.schema(dataset))

    def table(self, dataset: str) -> pa.Table:
        """Read the whole dataset, every column as stored, in file order."""
        return self._on_any(lambda connection: connection.table(dataset))

    def fit(self, dataset: str, plan: Plan, *, progress: Progress | bool | None = None) -> FittedPlan:
        """Learn what the plan leaves open, over the rows that pass its filter.

        `progress` is called with every `FitProgress`; True and None show a line where stderr is a terminal, False
        shows nothing.
        """
        if not isinstance(cast(object, plan), Plan):
            raise TypeError(f"fit takes a Plan, not {plan!r}")
        line = ProgressLine() if isinstance(progress, bool) or progress is None else None
        show = cast("Callable[[FitProgress], None]", progress if line is None else line)
        silent = line is not None and not line_wanted(cast("bool | None", progress))

        def learn(connection: Connection) -> FittedPlan:
            for update in connection.act("fit", {"dataset": dataset, "plan": plan.to_dict()}):
                if update.get("result"):
                    found = cast(Json, update["result"])
                    return FittedPlan(str(found["plan_id"]), Plan.from_dict(cast(Json, found["plan"])))
                if update.get("progress") and not silent:
                    show(_progress(cast(Json, update["progress"])))
            raise StreamError("the fit ended without a result")

        try:
            return self._on_any(learn)
        finally:
            if line is not None:
                line.close()

    def fitted(self, dataset: str, plan: Plan | FittedPlan | str) -> Plan | FittedPlan | str:
        """Return the plan if nothing in it is left to learn, else what `fit` makes of it, asked once per client."""
        if not isinstance(cast(object, plan), (Plan, FittedPlan, str)):
            raise TypeError(f"plan must be a Plan, a FittedPlan or the id of one, not {plan!r}")
        if not isinstance(plan, Plan) or not plan.needs_fit:
            return plan
        key = (dataset, plan.to_json())
        if key not in self._fits:
            self._fits[key] = self.fit(dataset, plan)
        return self._fits[key]

    def stream(
        self,
        dataset: str,
        plan: Plan | FittedPlan | str,
        *,
        rank: int = 0,
        start_position: int = 0,
        cursor: Cursor | Mapping[str, Any] | str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> Stream:
        """Open the stream of one rank's batches of one epoch.

        `plan` is a `Plan`, a `FittedPlan` or the id of a fitted one. A `Plan` that must learn something is fitted
        first, once per client. `start_position` is a global position, such as a header names it; `snapshot` asks for
        one state of the files and fails if they have changed since.

        `cursor` (a `Cursor`, or its dict or JSON) goes on where `Stream.cursor` or a dataset's ``state_dict`` was
        taken: epoch, seed, shuffle, window_rows, lanes, remainder, start_position and snapshot are then the cursor's,
        and what is given for them is not looked at. Raises `CursorRefused` where it does not belong to this stream,
        and `SnapshotChanged` where the files are no more those that it was taken in.
        """
        chosen = StreamOptions(**options)
        world_size = chosen.world_size
        _check_rank(rank, world_size)
        if cursor is None:
            start = Cursor(chosen.epoch, int(start_position), world_size, chosen.order, chosen.snapshot or "")
        else:
            start = Cursor.of(cursor)
            start.check(world_size=world_size, batch_size=chosen.batch_size)
            chosen = start.options(chosen)
        known = self.fitted(dataset, plan)
        start.check_plan(_plan_id(known))
        request = chosen.to_request(dataset)
        request["start_position"] = start.position
        request["with_stage_seconds"] = True
        if start.order_version:
            request["order_version"] = start.order_version
        info = self._on_any(lambda connection: info_at(connection, request, known, start), persist=True)
        about, ticket = share(info, rank)
        start.check_info(about)
        begun = Cursor(
            start.epoch, start.position, world_size, resolved(chosen.order, world_size, about), *_pinned(start, about)
        )
        url = self.url
        return Stream(
            lambda: Source(Connection(url, self._credentials), ticket),
            self._failover(request, known, about, info.schema, rank, [url, *locations(info.endpoints[rank])]),
            info.schema,
            about,
            begun,
            batch_size=chosen.batch_size,
            order=chosen.order,
        )

    def replay(
        self,
        dataset: str,
        plan: Plan | FittedPlan | str,
        *,
        step: int,
        rank: int = 0,
        **options: Unpack[StreamKeywords],
    ) -> Replay:
        """Tell of one batch where its rows lie: `step` of `rank`, counted from the epoch's start.

        `options` are those of `stream` that the batch was, or would be, made with. Give the snapshot and the plan
        that a run had, and the answer is of that run: the batch is a function of them.
        """
        chosen = StreamOptions(**options)
        _check_rank(rank, chosen.world_size)
        request = chosen.to_request(dataset)

        def ask(whole: Json) -> Replay:
            def act(connection: Connection) -> Replay:
                answers = connection.act("replay", {"stream": whole, "rank": rank, "step": step})
                return read_replay(answers, lambda: Connection(connection.url, self._credentials))

            return self._on_any(act)

        return with_plan(ask, request, self.fitted(dataset, plan))

    def explain(
        self,
        dataset: str,
        plan: Plan | FittedPlan | str,
        *,
        rows: int = 0,
        row_bytes: int = 0,
        storage_bytes_per_second: float = 0.0,
        wire_bytes_per_second: float = 0.0,
        **options: Unpack[StreamKeywords],
    ) -> Explain:
        """Tell what an epoch costs, by arithmetic and footers alone; `options` are those of `stream`.

        `rows` and `row_bytes` stand in for those that are there. `storage_bytes_per_second` is what storage gives to
        all ranks together, `wire_bytes_per_second` what the wire gives to each rank; 0 leaves any of them out.
        """
        request = StreamOptions(**options).to_request(dataset)
        assume: Json = {
            "rows": int(rows),
            "row_bytes": int(row_bytes),
            "storage_bytes_per_second": float(storage_bytes_per_second),
            "wire_bytes_per_second": float(wire_bytes_per_second),
        }
        if any(assume.values()):
            request["assume"] = {name: value for name, value in assume.items() if value}

        def ask(whole: Json) -> Explain:
            return read_explain(self._on_any(lambda connection: list(connection.act("explain", whole))))

        return with_plan(ask, request, self.fitted(dataset, plan))

    def exchange(self, plan: Plan | FittedPlan | str, *, schema: pa.Schema | None = None) -> Exchange:
        """Return what computes the plan's outputs for rows in memory, as `features = returned(rows)`.

        `plan` has nothing left to learn: a `FittedPlan`, the id of one, or a `Plan` with every number in it. `schema`
        gives the types of the batches' columns where the batches themselves leave them open (mappings of arrays).
        """
        if not isinstance(cast(object, plan), (Plan, FittedPlan, str)):
            raise TypeError(f"plan must be a Plan, a FittedPlan or the id of one, not {plan!r}")

        def open_at(url: str, columns: pa.Schema) -> Call:
            return with_plan(
                lambda request: Call(Connection(url, self._credentials), to_bytes(request), columns), {}, plan
            )

        at = self._urls.index(self.url)
        urls = [*self._urls[at:], *self._urls[:at]]
        return Exchange(open_at, urls, seconds=self._retry_seconds, schema=schema)

    def close(self) -> None:
        """Close the connection; streams that are open have their own."""
        self._closed.set()
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _on_any(self, call: Callable[[Connection], T], *, persist: bool = False) -> T:
        """Make a call on the present replica, or on the next that can; `persist`: with pauses, until it goes well."""

        def attempt(url: str) -> tuple[T]:
            if url == self._connection.url:
                return (call(self._connection),)
            connection = Connection(url, self._credentials)
            try:
                connection.hello(seconds=FAILOVER_HELLO_SECONDS)
                result = call(connection)
            except BaseException:
                connection.close()
                raise
            before, self._connection = self._connection, connection
            before.close()
            return (result,)

        at = self._urls.index(self.url)
        urls = [*self._urls[at:], *self._urls[:at]]
        seconds = self._retry_seconds if persist else 0.0
        found = try_everywhere(attempt, lambda: urls, seconds=seconds, stopped=self._closed)
        if found is None:
            raise Unavailable("the client is closed")
        return found[0]

    def _failover(
        self,
        request: Json,
        plan: Plan | FittedPlan | str,
        about: StreamInfo,
        schema: pa.Schema,
        rank: int,
        first: Sequence[str],
    ) -> Failover:
        """Return what opens this very stream on another replica: same snapshot, same order, same plan."""
        pinned = {**request, "snapshot": about.snapshot}
        if about.order_version:
            pinned["order_version"] = about.order_version
        # A stream that was itself resumed may count its steps from there.
        pinned["resumed_from"] = request["start_position"]

        def open_at(url: str, position: int) -> Source:
            connection = Connection(url, self._credentials)
            try:
                connection.hello(seconds=FAILOVER_HELLO_SECONDS)
                info = connection.info({**pinned, "start_position": position}, plan)
                there, ticket = share(info, rank)
                if there != about or info.schema != schema:
                    raise other_stream(url, about, there)
            except BaseException:
                connection.close()
                raise
            return Source(connection, ticket)

        return Failover(open_at, [*first, *self._urls], seconds=self._retry_seconds)


def _check_rank(rank: int, world_size: int) -> None:
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of the {world_size} ranks, 0 to {world_size - 1}")


def _plan_id(plan: Plan | FittedPlan | str) -> str:
    """Return the plan's id; empty where only the server can say."""
    return plan if isinstance(plan, str) else getattr(plan, "plan_id", "")


def _pinned(start: Cursor, about: StreamInfo) -> tuple[str, str, int]:
    """Return snapshot, plan and order as a cursor at this place holds them."""
    snapshot = about.snapshot if start.position else start.snapshot
    return snapshot, about.plan_id, about.order_version


def _progress(fields: Json) -> FitProgress:
    counts = [int(fields.get(name) or 0) for name in ("pass", "passes", "rows_done", "rows_total")]
    return FitProgress(*counts)
