"""Exceptions by kind, with the server's message.

pyarrow wraps a gRPC status in one of its exceptions and adds a phrase before the server's message and gRPC's debug
context after it. Several codes share an exception type and differ only in the phrase. This module reverses that. Makes
no calls.
"""

from __future__ import annotations

import contextlib
import re
from types import TracebackType
from typing import ClassVar

import pyarrow as pa
import pyarrow.flight as flight

__all__ = [
    "BrokenStream",
    "Cancelled",
    "CursorRefused",
    "DataLoss",
    "DeadlineExceeded",
    "EmptyEpoch",
    "FailedPrecondition",
    "ForebayError",
    "ForkedInUse",
    "IncompatibleVersion",
    "InternalError",
    "InvalidRequest",
    "KeptRows",
    "NotFitted",
    "NotFound",
    "OrderChanged",
    "Overloaded",
    "PermissionDenied",
    "ResourceExhausted",
    "SchemaDrift",
    "ServerEnded",
    "SnapshotChanged",
    "StreamError",
    "Unauthenticated",
    "Unavailable",
    "UnevenRanks",
    "Unimplemented",
    "UntranslatableStage",
    "of_status",
    "translate",
    "translated",
]


class ForebayError(Exception):
    """Base of all errors of a server, of a stream, or of the connection."""

    code: ClassVar[str] = "UNKNOWN"
    """The gRPC status code of the response."""
    reason: str = ""
    """The server's reason, one of those in `reason.proto`; empty if it gave none. Messages may change between versions,
    reasons do not."""


class InvalidRequest(ForebayError, ValueError):
    """The request is invalid; the message names the field and the allowed values."""

    code = "INVALID_ARGUMENT"


class CursorRefused(InvalidRequest):
    """A cursor does not match this stream; the message names the difference and the remedy."""


class OrderChanged(CursorRefused):
    """A cursor was saved under another version of the order than the server uses."""

    reason = "ORDER_CHANGED"


class NotFound(ForebayError, LookupError):
    """No such dataset or plan; the message lists similar names."""

    code = "NOT_FOUND"


class FailedPrecondition(ForebayError):
    """The request is valid but the data does not permit it, such as an empty dataset."""

    code = "FAILED_PRECONDITION"


class NotFitted(FailedPrecondition):
    """The plan must be fitted first: call ``fit``."""

    reason = "NOT_FITTED"


class SchemaDrift(FailedPrecondition):
    """The schemas of a dataset's files differ, or an exchange's rows differ from those that the plan was fitted to."""

    reason = "SCHEMA_DRIFT"


class IncompatibleVersion(FailedPrecondition):
    """Client and server share no version of the protocol; the message names both and what to upgrade."""

    reason = "INCOMPATIBLE_VERSION"


class DataLoss(ForebayError):
    """A file is corrupt; the message names the file, row group and column."""

    code = "DATA_LOSS"


class SnapshotChanged(ForebayError):
    """A file changed during an epoch."""

    code = "ABORTED"
    reason = "SNAPSHOT_CHANGED"


class ResourceExhausted(ForebayError):
    """A limit of the server was exceeded; the message names the limit and its flag."""

    code = "RESOURCE_EXHAUSTED"


class Overloaded(ResourceExhausted):
    """A limit of the server is temporarily reached; the message says when to retry."""

    reason = "OVERLOADED"


class Unavailable(ForebayError, ConnectionError):
    """No server responds, or it is shutting down; a retry may succeed."""

    code = "UNAVAILABLE"


class ServerEnded(Unavailable):
    """A private server of `forebay.local` has ended and is not restarted; the message says how it ended."""


class ForkedInUse(ForebayError):
    """This process was forked while a stream or an exchange was open, so its calls would hang.

    The message is always the same, also where a DataLoader adds its worker's traceback to that of an exception.
    """

    code = "FAILED_PRECONDITION"

    def __init__(self, *_: object) -> None:
        super().__init__(
            "this process was forked while a stream or an exchange was open, which gRPC does not support: close "
            'it before, start workers with DataLoader(…, multiprocessing_context="forkserver") or "spawn", or use '
            "num_workers=0, which reads ahead in a thread anyway"
        )


class DeadlineExceeded(ForebayError, TimeoutError):
    """The server did not respond within the time limit."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(ForebayError):
    """The call was cancelled by this client."""

    code = "CANCELLED"


class Unauthenticated(ForebayError):
    """The server requires credentials."""

    code = "UNAUTHENTICATED"


class PermissionDenied(ForebayError):
    """The credentials do not permit this call."""

    code = "PERMISSION_DENIED"


class Unimplemented(ForebayError):
    """The server does not implement this call."""

    code = "UNIMPLEMENTED"


class InternalError(ForebayError):
    """A bug in the server."""

    code = "INTERNAL"


class StreamError(ForebayError):
    """A stream is inconsistent: a skipped step, a wrong row count, a missing last batch."""

    code = "DATA_LOSS"


class BrokenStream(StreamError):
    """A stream broke in transit: it ended before its last batch, or a batch was corrupted."""


class UnevenRanks(InvalidRequest):
    """The ranks of an epoch differ in steps, and the dataset was not made with ``remainder="keep"``."""


class KeptRows(UserWarning):
    """Each rank of a shuffled epoch reads mostly rows that it reads in the next epoch, too."""


class EmptyEpoch(UserWarning):
    """An epoch has no steps on any rank."""


class UntranslatableStage(ValueError):
    """A stage of a pipeline cannot be part of a plan; the message names it and what to do."""

    uid: str
    """The stage in its pipeline: a uid of Spark, the names of steps in scikit-learn, or a node in NVTabular."""
    class_name: str
    """Its class, with the package."""

    def __init__(self, uid: str, class_name: str, problem: str) -> None:
        super().__init__(f"stage {uid} ({class_name.rpartition('.')[2]}): {problem}")
        self.uid = uid
        self.class_name = class_name


# Exception for pyarrow's phrase of a status code (cpp/src/arrow/flight/transport/grpc/util_internal.cc).
_PHRASES: dict[str, type[ForebayError]] = {
    "Flight cancelled call": Cancelled,
    "Flight returned internal error": InternalError,
    "Flight returned invalid argument error": InvalidRequest,
    "Flight returned not found error": NotFound,
    "Flight returned timeout error": DeadlineExceeded,
    "Flight returned unauthenticated error": Unauthenticated,
    "Flight returned unauthorized error": PermissionDenied,
    "Flight returned unavailable error": Unavailable,
    "Flight returned unimplemented error": Unimplemented,
    "gRPC returned aborted error": SnapshotChanged,
    "gRPC returned data loss error": DataLoss,
    "gRPC returned out-of-range error": InvalidRequest,
    "gRPC returned precondition failed error": FailedPrecondition,
    "gRPC returned resource exhausted error": ResourceExhausted,
}
# Exception for a gRPC status code (https://grpc.io/docs/guides/status-codes).
_CODES: dict[int, type[ForebayError]] = {
    1: Cancelled,
    3: InvalidRequest,
    4: DeadlineExceeded,
    5: NotFound,
    7: PermissionDenied,
    8: ResourceExhausted,
    9: FailedPrecondition,
    10: SnapshotChanged,
    11: InvalidRequest,
    12: Unimplemented,
    13: InternalError,
    14: Unavailable,
    15: DataLoss,
    16: Unauthenticated,
}
# pyarrow raises a plain OSError for a broken connection or message.
_PYARROW = (pa.ArrowException, flight.FlightError, OSError)
# Exceptions without a phrase, from servers in Arrow C++ or Python, are translated by type.
_TYPES: dict[type[BaseException], type[ForebayError]] = {
    flight.FlightUnavailableError: Unavailable,
    flight.FlightTimedOutError: DeadlineExceeded,
    flight.FlightCancelledError: Cancelled,
    flight.FlightUnauthenticatedError: Unauthenticated,
    flight.FlightUnauthorizedError: PermissionDenied,
}
_STATUS = re.compile(r"(?:Unknown: )?(?P<phrase>[^,]*?),? with message: (?P<sentence>.*)", re.DOTALL)
# Reasons with a narrower exception than their code.
_REASONS: dict[str, type[ForebayError]] = {
    kind.reason: kind
    for kind in (IncompatibleVersion, NotFitted, OrderChanged, Overloaded, SchemaDrift, SnapshotChanged)
}
# The server's messages start with the name of their reason (proto/forebay/v1/reason.proto).
_REASON = re.compile(r"(?P<reason>[A-Z][A-Z_]*): (?P<text>.*)", re.DOTALL)
# What pyarrow adds after the message.
_DEBUG_CONTEXT = re.compile(r"\. (?:gRPC client debug context|Client context): .*|\. Detail: \w+$", re.DOTALL)
# gRPC's texts for a failed connection, around the cause.
_NOT_CONNECTED = re.compile(
    r"failed to connect to all addresses; last error: (?:[A-Z_]+: )?(?:(?:ipv4|ipv6|unix|unix-abstract):\S+: )?"
    r"(?:Failed to connect to remote host: )?(?P<cause>.*)",
    re.DOTALL,
)
_NOT_RESOLVED = re.compile(r"(?:errors resolving|DNS resolution failed for) (?P<host>\S+?)(?::\d+)?: .*", re.DOTALL)


def translate(error: BaseException) -> ForebayError:
    """Return the package's exception for one raised by pyarrow."""
    text = _DEBUG_CONTEXT.sub("", str(error)).strip()
    match = _STATUS.match(text)
    if match is None:
        return _TYPES.get(type(error), ForebayError)(text)
    return _of_message(_PHRASES.get(match["phrase"], ForebayError), match["sentence"].strip())


def of_status(code: int, message: str) -> ForebayError:
    """Return the exception for a gRPC status, as `translate` does for pyarrow's exceptions."""
    return _of_message(_CODES.get(code, ForebayError), message)


def _of_message(kind: type[ForebayError], message: str) -> ForebayError:
    reasoned = _REASON.fullmatch(message)
    if reasoned is None:
        return kind(_cause(message))
    error = _REASONS.get(reasoned["reason"], kind)(reasoned["text"])
    error.reason = reasoned["reason"]
    return error


def _cause(sentence: str) -> str:
    """Return the cause of a failed connection; other sentences unchanged."""
    if resolved := _NOT_RESOLVED.fullmatch(sentence):
        return f"cannot resolve the host name {resolved['host']}"
    if connected := _NOT_CONNECTED.fullmatch(sentence):
        cause = connected["cause"]
        return cause[:1].lower() + cause[1:] if cause[1:2].islower() else cause
    return sentence


class translated(contextlib.AbstractContextManager[None]):  # noqa: N801 (used as a function: `with translated():`)
    """Context that translates pyarrow's exceptions; the original becomes the cause."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise the translation of pyarrow's exception, if any."""
        if isinstance(error, _PYARROW) and not isinstance(error, ForebayError):
            raise translate(error) from error
