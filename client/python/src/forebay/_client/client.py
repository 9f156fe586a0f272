"""Client of a service of one or more replicas, made of one module per kind of call.

`replicas` connects, `looking` reads what is there, `fitting` fits plans, `streaming` reads rows under them, and this
module adds what is about a stream without reading it, and online serving. Exchanges JSON messages over Arrow Flight.
Imports no torch, and starts no process or thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay._plan.arguments import in_range
from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan
from forebay.errors import DeadlineExceeded, ForebayError, Unavailable

from .connection import Connection, Json, to_bytes, with_plan
from .credentials import Credentials
from .cursor import Cursor
from .exchange import Call, Exchange
from .explain import Explain, read_explain
from .hints import explained
from .mixture import Mixture
from .options import StreamOptions, check_rank, check_stream_keywords, integer
from .replay import Replay, read_replay
from .resume import start_at
from .retry import RETRY_SECONDS
from .streaming import Streaming
from .targets import check_plan, check_urls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import StreamKeywords


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


class Client(Streaming):
    """A connection to a service, made by `connect`. Close it, or use it in a ``with`` block.

    A pickled client, such as that of a DataLoader's worker, makes its own connection. Forked processes do, too.
    """

    def __repr__(self) -> str:
        others = len(self._urls) - 1
        more = f", {others} other replica{'s' * (others > 1)}" if others else ""
        return f"Client({self.url!r}{more}{', closed' if self._closed.is_set() else ''})"

    def replay(
        self,
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        step: int,
        rank: int = 0,
        cursor: Cursor | Mapping[str, Any] | str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> Replay:
        """Return the source of each row of one batch: `step` of `rank`, as in the batch's header.

        `options` are those of `stream`. With the snapshot and the plan of an earlier run, the result is the batch of
        that run. A run that resumed with another batch size begins its steps elsewhere: pass any `cursor` that it
        saved or loaded within the epoch, whose epoch, order and snapshot then apply, as in `stream`.
        """
        check_stream_keywords("replay", options, ("step", "rank", "cursor"))
        chosen = StreamOptions(**options)
        rank, world_size = check_rank(rank, chosen.world_size)
        step = integer("step", step)
        run: Json = {}
        if cursor is not None:
            begun = Cursor.of(cursor)
            begun.check(world_size=world_size, batch_size=chosen.batch_size)
            chosen = begun.options(chosen)
            first = start_at(begun.position, world_size=world_size, batch_size=chosen.batch_size)["resumed_from"]
            run = start_at(first, world_size=world_size, batch_size=chosen.batch_size)
            if begun.order_version:
                run["order_version"] = begun.order_version
        request = {**chosen.to_request(self._sources(dataset)), **run}

        def send(full_request: Json) -> Replay:
            def act(connection: Connection) -> Replay:
                results = connection.act("replay", {"stream": full_request, "rank": rank, "step": step})
                return read_replay(results, partial(Connection, connection.url, self._credentials))

            return self._on_any(act)

        return with_plan(send, request, self.fitted(dataset, plan))

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
