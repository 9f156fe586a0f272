"""A connection to a server: what it has, what a plan learns from it, and streams of batches.

Speaks the contract's JSON over plain Arrow Flight. Holds no torch and starts no process or thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.flight as flight

from .errors import DeadlineExceeded, ForebayError, NotFound, StreamError, Unavailable, translated
from .plan import Plan
from .private_server import last_words
from .progress import FitProgress, Progress, ProgressLine, line_wanted
from .stream import Stream, StreamInfo

Json = dict[str, Any]
Remainder = Literal["keep", "drop", "pad"]

# A server that takes longer than this to say hello is passed over for the next of the list.
HELLO_SECONDS = 20.0
# One connection a stream: without this, gRPC would lay all of a process's streams on one TCP connection.
OWN_CONNECTION: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
# On a Unix socket gRPC sends the percent-encoded path as :authority, which is no valid one and which strict HTTP/2
# servers refuse with PROTOCOL_ERROR.
UNIX_AUTHORITY: list[tuple[str, int | str]] = [("grpc.default_authority", "localhost")]


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset as the server lists it."""

    name: str
    rows: int
    bytes: int
    files: int
    row_groups: int
    snapshot: str
    """Digest of the files as they are now."""
    error: str
    """Why the dataset cannot be read; empty when it can."""


@dataclass(frozen=True)
class FittedPlan:
    """A plan with what was learned written in it, and the id under which the server keeps it."""

    plan_id: str
    plan: Plan

    def to_json(self) -> str:
        """Return what `Plan.from_json` and ``forebay fit --json`` understand, to be kept in a file."""
        return json.dumps({"plan_id": self.plan_id, "plan": self.plan.to_dict()}, ensure_ascii=False)


class ForkGuard:
    """Refuses to use gRPC in a forked child of a process that used it: there it would wait for ever."""

    def __init__(self) -> None:
        self._used = False
        self._broken = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def enter(self) -> None:
        """Note that gRPC is used in this process, if it can be."""
        if self._broken:
            raise ForebayError(
                "this process was forked from one that had already talked to a server, which gRPC does not survive; "
                "start workers with 'spawn': DataLoader(…, multiprocessing_context=\"spawn\"), "
                "or use num_workers=0, which reads ahead in a thread as it is"
            )
        self._used = True

    def _forked(self) -> None:
        self._broken = self._used


_fork_guard = ForkGuard()


def connect(url: str | Sequence[str]) -> Client:
    """Connect to a server, ``grpc://HOST:PORT`` or ``grpc+unix://PATH``.

    Of a list of replicas, the first that answers is taken, for all that the client then does; moving to another in
    the middle of a stream is not done yet. Raises `Unavailable` where none answers.
    """
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise ValueError("connect needs a server's URL, such as grpc://127.0.0.1:8815")
    for one in urls:
        if not isinstance(cast(object, one), str) or "://" not in one:
            raise ValueError(f"{one!r} is no server URL; it looks like grpc://127.0.0.1:8815")
    failed: list[str] = []
    for one in urls:
        client = Client(one)
        try:
            client.hello()
        except (Unavailable, DeadlineExceeded) as error:
            client.close()
            failed.append(f"{one}: {error}")
        else:
            return client
    raise Unavailable("no server answers: " + "; ".join(failed))


class Client:
    """A connection to one server; made by `connect`. Close it, or use it in a ``with`` block."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._flight = self._open()
        self._fits: dict[tuple[str, str], FittedPlan] = {}

    def hello(self) -> None:
        """Raise `Unavailable` unless the server answers."""
        with self._translated():
            list(self._flight.list_actions(flight.FlightCallOptions(timeout=HELLO_SECONDS)))

    def datasets(self) -> dict[str, DatasetInfo]:
        """Return the server's datasets by name."""
        with self._translated():
            infos = [_json(info.app_metadata) for info in self._flight.list_flights()]
        return {
            str(info["name"]): DatasetInfo(
                name=str(info["name"]),
                rows=int(info.get("rows") or 0),
                bytes=int(info.get("bytes") or 0),
                files=int(info.get("files") or 0),
                row_groups=int(info.get("row_groups") or 0),
                snapshot=str(info.get("snapshot") or ""),
                error=str(info.get("error") or ""),
            )
            for info in infos
        }

    def schema(self, dataset: str) -> pa.Schema:
        """Return the dataset's columns as stored."""
        with self._translated():
            found = cast(Any, self._flight.get_schema(flight.FlightDescriptor.for_path(dataset)))
            return cast(pa.Schema, found.schema)

    def table(self, dataset: str) -> pa.Table:
        """Read the whole dataset, every column as stored, in file order."""
        with self._translated():
            info = self._flight.get_flight_info(flight.FlightDescriptor.for_path(dataset))
            return self._flight.do_get(info.endpoints[0].ticket).read_all()

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
        body = f'{{"dataset":{json.dumps(dataset)},"plan":{plan.to_json()}}}'.encode()
        try:
            with self._translated():
                for result in self._flight.do_action(flight.Action("fit", body)):
                    update = _json(result.body.to_pybytes())
                    if update.get("result"):
                        found = cast(Json, update["result"])
                        return FittedPlan(str(found["plan_id"]), Plan.from_dict(cast(Json, found["plan"])))
                    if update.get("progress") and not silent:
                        show(_progress(cast(Json, update["progress"])))
        finally:
            if line is not None:
                line.close()
        raise StreamError("the fit ended without a result")

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
        batch_size: int = 1024,
        world_size: int = 1,
        rank: int = 0,
        epoch: int = 0,
        seed: int = 0,
        shuffle: bool = False,
        window_rows: int | None = None,
        lanes: int | None = None,
        remainder: Remainder = "keep",
        start_position: int = 0,
        with_row_ids: bool = False,
        snapshot: str | None = None,
    ) -> Stream:
        """Open the stream of one rank's batches of one epoch.

        `plan` is a `Plan`, a `FittedPlan` or the id of a fitted one. A `Plan` that must learn something is fitted
        first, once per client. `start_position` is a global position, such as a header or a saved state names it;
        `snapshot` asks for one state of the files and fails if they have changed since.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not one of the {world_size} ranks, 0 to {world_size - 1}")
        request: Json = {
            "dataset": dataset,
            "batch_size": int(batch_size),
            "world_size": int(world_size),
            "epoch": int(epoch),
            "seed": int(seed),
            "shuffle": bool(shuffle),
            "remainder": str(remainder).upper(),
            "start_position": int(start_position),
            "with_row_ids": bool(with_row_ids),
        }
        optional = {"window_rows": window_rows, "lanes": lanes, "snapshot": snapshot}
        request.update({name: value for name, value in optional.items() if value is not None})
        info = self._stream_info(request, self.fitted(dataset, plan))
        if rank >= len(info.endpoints):
            raise StreamError(f"the server names {len(info.endpoints)} ranks; rank {rank} was asked for")
        endpoint = info.endpoints[rank]
        return Stream(
            self._open,
            endpoint.ticket,
            info.schema,
            _about(_json(info.app_metadata), _json(endpoint.app_metadata), rank),
            step_rows=int(batch_size) * int(world_size),
            start_position=int(start_position),
        )

    def close(self) -> None:
        """Close the connection; streams that are open have their own."""
        self._flight.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream_info(self, request: Json, plan: Plan | FittedPlan | str) -> flight.FlightInfo:
        if isinstance(plan, Plan):
            return self._info({**request, "plan": plan.to_dict()})
        if isinstance(plan, str):
            return self._info({**request, "plan_id": plan})
        try:
            return self._info({**request, "plan_id": plan.plan_id})
        except NotFound:
            # Another server, or one that lost its state: the plan itself says everything.
            return self._info({**request, "plan": plan.plan.to_dict()})

    def _info(self, request: Json) -> flight.FlightInfo:
        command = json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
        with self._translated():
            return self._flight.get_flight_info(flight.FlightDescriptor.for_command(command))

    def _open(self) -> flight.FlightClient:
        with self._translated():
            options = OWN_CONNECTION + (UNIX_AUTHORITY if self.url.startswith("grpc+unix:") else [])
            return flight.FlightClient(self.url, generic_options=options)

    def _translated(self) -> _Translated:
        _fork_guard.enter()
        return _Translated(self.url)


class _Translated(translated):
    """As `translated`, and tells how a private server of `local` ended if that is why none answers."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except Unavailable as unavailable:
            words = last_words(self._url)
            if words is None:
                raise
            raise Unavailable(f"{unavailable}\n{words}") from error


def _json(data: bytes | str) -> Json:
    return cast(Json, json.loads(data or b"{}"))


def _progress(fields: Json) -> FitProgress:
    counts = [int(fields.get(name) or 0) for name in ("pass", "passes", "rows_done", "rows_total")]
    return FitProgress(*counts)


def _about(stream: Json, share: Json, rank: int) -> StreamInfo:
    if int(share.get("rank") or 0) != rank:
        raise StreamError(f"endpoint {rank} is that of rank {share.get('rank')}")
    return StreamInfo(
        snapshot=str(stream.get("snapshot") or ""),
        plan_id=str(stream.get("plan_id") or ""),
        rows=int(stream.get("rows") or 0),
        steps=int(stream.get("steps") or 0),
        rank=rank,
        rank_rows=int(share.get("rows") or 0),
        rank_steps=int(share.get("steps") or 0),
    )
