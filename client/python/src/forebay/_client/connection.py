"""A connection to one server: Flight calls with JSON messages, and translated errors.

Replicas, retries and the rules of streams are handled by other modules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.flight as flight

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan
from forebay.errors import NotFound, ServerEnded, Unauthenticated, Unavailable, translated

from . import fork
from .credentials import Credentials, Tls
from .hints import credentials_hint
from .private_server import exit_report
from .server_version import ServerVersion
from .version import version_headers

if TYPE_CHECKING:
    from typing_extensions import Self

Json = dict[str, Any]
T = TypeVar("T")

# Seconds for a server to answer its first call before the next one is tried.
HELLO_SECONDS = 20.0
# One connection per stream: by default gRPC multiplexes a process's streams over one TCP connection.
OWN_CONNECTION: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
# On a Unix socket gRPC sends the percent-encoded path as :authority, which is invalid and which strict HTTP/2 servers
# reject with PROTOCOL_ERROR.
UNIX_AUTHORITY: list[tuple[str, int | str]] = [("grpc.default_authority", "localhost")]


class Connection:
    """A connection to the server at `url`; thread-safe. In a forked child it connects again, see `fork`."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self.url = url
        self._credentials = credentials
        self._headers = [*credentials.headers(url), *version_headers()]
        self._server = ServerVersion()
        self._flight: flight.FlightClient | None = None
        self._is_streaming = False
        self._is_closed = False
        with self.translated():
            self._client()
        fork.register(self)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of its calls."""
        return self._headers

    def tls(self) -> Tls:
        """Return its certificates and keys, as pyarrow's client takes them; none for a connection in plain text."""
        return self._credentials.tls(self.url)

    def drop_if_idle(self) -> None:
        """Drop the gRPC channel unless a stream reads from it; the next call makes a new one."""
        if not self._is_streaming:
            self._flight = None

    def _held(self) -> _Held:
        """Return a context that keeps the client during a call, so that a fork does not end the call."""
        return _Held(self._client())

    def _client(self) -> flight.FlightClient:
        """Return the client, for a call that keeps it until it is over, or for `_held`."""
        client = self._flight
        if client is None:
            if self._is_closed:
                raise Unavailable("the connection is closed")
            url = self.url
            options = OWN_CONNECTION + (UNIX_AUTHORITY if url.startswith("grpc+unix:") else [])
            opening = fork.Opening()
            fork.note_channel(opening)
            try:
                client = flight.FlightClient(url, generic_options=options, middleware=[self._server], **self.tls())
                fork.note_channel(client)
            finally:
                del opening
            first = self._options(seconds=HELLO_SECONDS)
            fork.watch_first_call(lambda: list(client.list_actions(first)), HELLO_SECONDS)
            self._flight = client
        return client

    def _options(self, *, seconds: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=cast(Any, self._headers))

    def hello(self, *, seconds: float = HELLO_SECONDS) -> None:
        """Raise `Unavailable` or `DeadlineExceeded` unless the server answers in time."""
        with self.translated(), self._held() as held:
            list(held.client.list_actions(self._options(seconds=seconds)))
        self._server.check(self.url)

    def datasets(self) -> list[Json]:
        """Return the server's description of each dataset."""
        with self.translated(), self._held() as held:
            return [read_json(info.app_metadata) for info in held.client.list_flights(options=self._options())]

    def schema(self, dataset: str) -> pa.Schema:
        """Return the dataset's columns as stored."""
        with self.translated():
            found = cast(Any, self._client().get_schema(flight.FlightDescriptor.for_path(dataset), self._options()))
            return cast(pa.Schema, found.schema)

    def table(self, read: Json) -> pa.Table:
        """Read the rows of a TableRead."""
        ticket = self.table_ticket(read)
        with self.translated():
            return self._client().do_get(ticket, self._options()).read_all()

    def table_ticket(self, read: Json) -> flight.Ticket:
        """Return the ticket of a TableRead."""
        with self.translated():
            # Servers before the columns and the limit know the path only.
            if read.keys() == {"dataset"}:
                descriptor = flight.FlightDescriptor.for_path(read["dataset"])
            else:
                descriptor = flight.FlightDescriptor.for_command(to_bytes({"table": read}))
            return self._client().get_flight_info(descriptor, self._options()).endpoints[0].ticket

    def info(self, request: Json, plan: Plan | FittedPlan | str) -> flight.FlightInfo:
        """Return the FlightInfo of a StreamRequest under the plan."""
        return with_plan(self._info, request, plan)

    def take_info(self, request: Json, plan: Plan | FittedPlan | str) -> flight.FlightInfo:
        """Return the FlightInfo of a TakeRequest under the plan."""

        def send(full_request: Json) -> flight.FlightInfo:
            return self._info({"take": JsonText(to_bytes(full_request).decode())})

        return with_plan(send, request, plan)

    def _info(self, message: Json) -> flight.FlightInfo:
        with self.translated():
            command = flight.FlightDescriptor.for_command(to_bytes(message))
            info = self._client().get_flight_info(command, self._options())
        self._server.check(self.url)
        return info

    def get(self, ticket: flight.Ticket) -> flight.FlightStreamReader:
        """Begin a DoGet."""
        with self.translated():
            self._is_streaming = True
            return self._client().do_get(ticket, self._options())

    def exchange(self, command: bytes) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Begin a DoExchange."""
        with self.translated():
            self._is_streaming = True
            return self._client().do_exchange(flight.FlightDescriptor.for_command(command), self._options())

    def act(self, action: str, body: Json) -> Iterator[Json]:
        """Yield an action's results as they arrive."""
        with self.translated(), self._held() as held:
            for result in held.client.do_action(flight.Action(action, to_bytes(body)), self._options()):
                yield read_json(result.body.to_pybytes())

    def close(self) -> None:
        """Close the connection and cancel its calls."""
        self._is_closed = True
        client = self._flight
        if client is not None and not fork.keeps(client):
            client.close()
        self._flight = None

    def translated(self) -> _Translated:
        """Return a context that translates pyarrow's exceptions."""
        fork.refuse_if_broken()
        return _Translated(self.url, self._credentials)


class _Held:
    """Keeps a client until the context ends.

    A local variable would keep it for as long as an exception refers to the call's frame, and so would its channel,
    which no fork must meet.
    """

    def __init__(self, client: flight.FlightClient) -> None:
        self._client: flight.FlightClient | None = client

    @property
    def client(self) -> flight.FlightClient:
        """The client."""
        if self._client is None:
            raise Unavailable("the call is over")
        return self._client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client = None


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
            # An error of the ring is translated already.
            if isinstance(error, (Unavailable, Unauthenticated)):
                raise error
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
        return send({**request, "plan": JsonText(plan.plan_text())})


def read_json(data: bytes | str) -> Json:
    """Decode a response; an empty one is an empty object."""
    return cast(Json, json.loads(data or b"{}"))


class JsonText(str):
    """JSON that is sent as it is, as a value of a request."""

    __slots__ = ()


def to_bytes(message: Json) -> bytes:
    """Encode a request."""
    encoded = {
        name: value if isinstance(value, JsonText) else json.dumps(value, ensure_ascii=False, allow_nan=False)
        for name, value in message.items()
    }
    return ("{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in encoded.items()) + "}").encode()
