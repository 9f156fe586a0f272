"""A connection to one server: Flight calls with JSON messages, and translated errors.

Replicas, retries and the rules of streams are handled by other modules.
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
from .errors import ForebayError, NotFound, ServerEnded, Unauthenticated, Unavailable, translated
from .fitted import FittedPlan
from .hints import credentials_hint
from .plan import Plan
from .private_server import exit_report

Json = dict[str, Any]
T = TypeVar("T")

# Seconds for a server to answer its first call before the next one is tried.
HELLO_SECONDS = 20.0
# One connection per stream: by default gRPC multiplexes a process's streams over one TCP connection.
OWN_CONNECTION: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
# On a Unix socket gRPC sends the percent-encoded path as :authority, which is invalid and which strict HTTP/2 servers
# reject with PROTOCOL_ERROR.
UNIX_AUTHORITY: list[tuple[str, int | str]] = [("grpc.default_authority", "localhost")]


class ForkGuard:
    """Rejects gRPC calls in a forked child of a process that used gRPC, where they would hang."""

    def __init__(self) -> None:
        self._used = False
        self._broken = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def enter(self) -> None:
        """Record the use of gRPC in this process; raise if it would hang."""
        if self._broken:
            raise ForebayError(
                "this process was forked from one that had already called a server, which gRPC does not support; "
                "start workers with 'spawn': DataLoader(…, multiprocessing_context=\"spawn\"), "
                "or use num_workers=0, which reads ahead in a thread anyway"
            )
        self._used = True

    def _forked(self) -> None:
        self._broken = self._used


_fork_guard = ForkGuard()


class Connection:
    """A connection to the server at `url`; thread-safe."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self.url = url
        options = OWN_CONNECTION + (UNIX_AUTHORITY if url.startswith("grpc+unix:") else [])
        self._credentials = credentials
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
        """Return the server's description of each dataset."""
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
        """Return the FlightInfo of a StreamRequest under the plan."""

        def send(full_request: Json) -> flight.FlightInfo:
            with self.translated():
                command = flight.FlightDescriptor.for_command(to_bytes(full_request))
                return self._flight.get_flight_info(command, self._options())

        return with_plan(send, request, plan)

    def get(self, ticket: flight.Ticket) -> flight.FlightStreamReader:
        """Begin a DoGet."""
        with self.translated():
            return self._flight.do_get(ticket, self._options())

    def exchange(self, command: bytes) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Begin a DoExchange."""
        with self.translated():
            return self._flight.do_exchange(flight.FlightDescriptor.for_command(command), self._options())

    def act(self, action: str, body: Json) -> Iterator[Json]:
        """Yield an action's results as they arrive."""
        with self.translated():
            for result in self._flight.do_action(flight.Action(action, to_bytes(body)), self._options()):
                yield read_json(result.body.to_pybytes())

    def close(self) -> None:
        """Close the connection and cancel its calls."""
        self._flight.close()

    def translated(self) -> _Translated:
        """Return a context that translates pyarrow's exceptions."""
        _fork_guard.enter()
        return _Translated(self.url, self._credentials)


class _Translated(translated):
    """Like `translated`; adds how a private server of `local` ended, if that is the cause, and how to give a token."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self._url = url
        self._credentials = credentials

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except Unavailable as unavailable:
            report = exit_report(self._url)
            if report is None:
                raise
            raise ServerEnded(f"{unavailable}\n{report}") from error
        except Unauthenticated as refused:
            raise credentials_hint(refused, self._credentials) from error


def with_plan(send: Callable[[Json], T], request: Json, plan: Plan | FittedPlan | str) -> T:
    """Send a request with a plan: by its id if it has one, and as a whole if the server does not know the id."""
    if isinstance(plan, Plan):
        return send({**request, "plan": plan.to_dict()})
    if isinstance(plan, str):
        return send({**request, "plan_id": plan})
    try:
        return send({**request, "plan_id": plan.plan_id})
    except NotFound:
        # Another server, or one that lost its state: send the whole plan.
        return send({**request, "plan": plan.plan.to_dict()})


def read_json(data: bytes | str) -> Json:
    """Decode a response; an empty one is an empty object."""
    return cast(Json, json.loads(data or b"{}"))


def to_bytes(message: Json) -> bytes:
    """Encode a request."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
