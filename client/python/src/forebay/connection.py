"""One connection to one server: Flight calls in the contract's JSON, with errors of ours.

Knows nothing of other replicas, of retries or of streams' rules.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.flight as flight

from .credentials import Credentials
from .errors import ForebayError, NotFound, ServerEnded, Unavailable, translated
from .fitted import FittedPlan
from .plan import Plan
from .private_server import last_words

Json = dict[str, Any]
T = TypeVar("T")

# A server that takes longer than this to say hello is passed over for the next of the list.
HELLO_SECONDS = 20.0
# One connection a stream: without this, gRPC would lay all of a process's streams on one TCP connection.
OWN_CONNECTION: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
# On a Unix socket gRPC sends the percent-encoded path as :authority, which is no valid one and which strict HTTP/2
# servers refuse with PROTOCOL_ERROR.
UNIX_AUTHORITY: list[tuple[str, int | str]] = [("grpc.default_authority", "localhost")]


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


class Connection:
    """A connection to the server at `url`; may be used by several threads at a time."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self.url = url
        options = OWN_CONNECTION + (UNIX_AUTHORITY if url.startswith("grpc+unix:") else [])
        self._headers = credentials.headers(url)
        with self.translated():
            self._flight = flight.FlightClient(url, generic_options=options, **credentials.tls(url))

    def _options(self, *, seconds: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=cast(Any, self._headers))

    def hello(self, *, seconds: float = HELLO_SECONDS) -> None:
        """Raise `Unavailable` or `DeadlineExceeded` unless the server answers in time."""
        with self.translated():
            list(self._flight.list_actions(self._options(seconds=seconds)))

    def datasets(self) -> list[Json]:
        """Return what the server says of each dataset."""
        with self.translated():
            return [read_json(info.app_metadata) for info in self._flight.list_flights(options=self._options())]

    def schema(self, dataset: str) -> pa.Schema:
        """Return the dataset's columns as stored."""
        with self.translated():
            found = cast(Any, self._flight.get_schema(flight.FlightDescriptor.for_path(dataset), self._options()))
            return cast(pa.Schema, found.schema)

    def table(self, dataset: str) -> pa.Table:
        """Read the whole dataset."""
        with self.translated():
            info = self._flight.get_flight_info(flight.FlightDescriptor.for_path(dataset), self._options())
            return self._flight.do_get(info.endpoints[0].ticket, self._options()).read_all()

    def info(self, request: Json, plan: Plan | FittedPlan | str) -> flight.FlightInfo:
        """Return what the server says of a StreamRequest under the plan."""

        def ask(whole: Json) -> flight.FlightInfo:
            with self.translated():
                command = flight.FlightDescriptor.for_command(to_bytes(whole))
                return self._flight.get_flight_info(command, self._options())

        return with_plan(ask, request, plan)

    def get(self, ticket: flight.Ticket) -> flight.FlightStreamReader:
        """Begin a DoGet."""
        with self.translated():
            return self._flight.do_get(ticket, self._options())

    def exchange(self, command: bytes) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Begin a DoExchange."""
        with self.translated():
            return self._flight.do_exchange(flight.FlightDescriptor.for_command(command), self._options())

    def act(self, action: str, body: Json) -> Iterator[Json]:
        """Yield an action's results as they come."""
        with self.translated():
            for result in self._flight.do_action(flight.Action(action, to_bytes(body)), self._options()):
                yield read_json(result.body.to_pybytes())

    def close(self) -> None:
        """Close the connection, and end what runs on it."""
        self._flight.close()

    def translated(self) -> _Translated:
        """Return a context in which pyarrow's exceptions become ours."""
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
            raise ServerEnded(f"{unavailable}\n{words}") from error


def with_plan(ask: Callable[[Json], T], request: Json, plan: Plan | FittedPlan | str) -> T:
    """Ask with the plan named in the request: by its id where it has one, and as a whole where no such id is known."""
    if isinstance(plan, Plan):
        return ask({**request, "plan": plan.to_dict()})
    if isinstance(plan, str):
        return ask({**request, "plan_id": plan})
    try:
        return ask({**request, "plan_id": plan.plan_id})
    except NotFound:
        # Another server, or one that lost its state: the plan itself says everything.
        return ask({**request, "plan": plan.plan.to_dict()})


def read_json(data: bytes | str) -> Json:
    """Read an answer; an empty one is an empty object."""
    return cast(Json, json.loads(data or b"{}"))


def to_bytes(message: Json) -> bytes:
    """Write a request."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
