"""What can go wrong, by kind, with the server's own sentence as the text.

pyarrow wraps a gRPC status in one of its own exceptions, with a phrase of its own before the server's sentence and
gRPC's bookkeeping behind it; several codes share one exception type, and only the phrase tells them apart. This
module undoes that. Nothing here talks to a server.
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
    "FailedPrecondition",
    "ForebayError",
    "InternalError",
    "InvalidRequest",
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
    "Unimplemented",
    "translated",
]


class ForebayError(Exception):
    """Any failure of a Forebay server, of a stream from one, or on the way to one."""

    code: ClassVar[str] = "UNKNOWN"
    """The gRPC status code of the response."""
    reason: str = ""
    """The name of the server's reason, as `reason.proto` lists them; "" where the server gave none. Messages may be
    reworded between versions, reasons stay."""


class InvalidRequest(ForebayError, ValueError):
    """The request is wrong; the text names the field and what is allowed."""

    code = "INVALID_ARGUMENT"


class CursorRefused(InvalidRequest):
    """A saved place in the data does not belong to this stream; the text says what differs and the way out."""


class OrderChanged(CursorRefused):
    """A saved place in the data was counted under another version of the order than the server follows."""

    reason = "ORDER_CHANGED"


class NotFound(ForebayError, LookupError):
    """No such dataset or plan; the text lists near names."""

    code = "NOT_FOUND"


class FailedPrecondition(ForebayError):
    """The request is sound but the data is not ready for it, such as an empty dataset."""

    code = "FAILED_PRECONDITION"


class NotFitted(FailedPrecondition):
    """The plan must be fitted first: call ``fit``."""

    reason = "NOT_FITTED"


class SchemaDrift(FailedPrecondition):
    """A dataset's files differ in their schemas, or an exchange's rows from those that the plan was fitted to."""

    reason = "SCHEMA_DRIFT"


class DataLoss(ForebayError):
    """A file is corrupt; the text names the file, row group and column."""

    code = "DATA_LOSS"


class SnapshotChanged(ForebayError):
    """A file changed under a running epoch."""

    code = "ABORTED"
    reason = "SNAPSHOT_CHANGED"


class ResourceExhausted(ForebayError):
    """A limit of the server; the text names the limit and the flag that sets it."""

    code = "RESOURCE_EXHAUSTED"


class Overloaded(ResourceExhausted):
    """A limit of the server is reached for now; the text says when to try again."""

    reason = "OVERLOADED"


class Unavailable(ForebayError, ConnectionError):
    """No server answers, or it is shutting down: try again."""

    code = "UNAVAILABLE"


class ServerEnded(Unavailable):
    """A private server of `forebay.local` has ended, and none comes in its place; the text tells how it ended."""


class DeadlineExceeded(ForebayError, TimeoutError):
    """The server took longer than the time it was given."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(ForebayError):
    """The call was cancelled on this side."""

    code = "CANCELLED"


class Unauthenticated(ForebayError):
    """The server wants a credential."""

    code = "UNAUTHENTICATED"


class PermissionDenied(ForebayError):
    """The credential does not allow this."""

    code = "PERMISSION_DENIED"


class Unimplemented(ForebayError):
    """The server does not offer this call."""

    code = "UNIMPLEMENTED"


class InternalError(ForebayError):
    """A bug of the server's."""

    code = "INTERNAL"


class StreamError(ForebayError):
    """A stream broke its own rules: a step left out, a wrong row count, an end without the last batch."""

    code = "DATA_LOSS"


class BrokenStream(StreamError):
    """A stream broke on its way: it ended without its last batch, or a batch is not what the server sent."""


# pyarrow's phrase for a status code (cpp/src/arrow/flight/transport/grpc/util_internal.cc), and what it becomes.
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
# A broken connection or message surfaces as a plain OSError.
_PYARROW = (pa.ArrowException, flight.FlightError, OSError)
# Without a phrase (a server in Arrow C++ or Python sends its own text through), the exception's type must do.
_TYPES: dict[type[BaseException], type[ForebayError]] = {
    flight.FlightUnavailableError: Unavailable,
    flight.FlightTimedOutError: DeadlineExceeded,
    flight.FlightCancelledError: Cancelled,
    flight.FlightUnauthenticatedError: Unauthenticated,
    flight.FlightUnauthorizedError: PermissionDenied,
}
_STATUS = re.compile(r"(?:Unknown: )?(?P<phrase>[^,]*?),? with message: (?P<sentence>.*)", re.DOTALL)
# Reasons whose exceptions are narrower than their codes'.
_REASONS: dict[str, type[ForebayError]] = {
    kind.reason: kind for kind in (NotFitted, OrderChanged, Overloaded, SchemaDrift, SnapshotChanged)
}
# The server's messages begin with the name of their reason (proto/forebay/v1/reason.proto).
_REASON = re.compile(r"(?P<reason>[A-Z][A-Z_]*): (?P<text>.*)", re.DOTALL)
_BOOKKEEPING = re.compile(r"\. (?:gRPC client debug context|Client context): .*", re.DOTALL)


def translate(error: BaseException) -> ForebayError:
    """Return the exception of ours for one that pyarrow raised."""
    text = _BOOKKEEPING.sub("", str(error)).strip()
    match = _STATUS.match(text)
    if match is None:
        return _TYPES.get(type(error), ForebayError)(text)
    kind = _PHRASES.get(match["phrase"], ForebayError)
    reasoned = _REASON.fullmatch(match["sentence"].strip())
    if reasoned is None:
        return kind(match["sentence"].strip())
    error = _REASONS.get(reasoned["reason"], kind)(reasoned["text"])
    error.reason = reasoned["reason"]
    return error


class translated(contextlib.AbstractContextManager[None]):  # noqa: N801 (reads as a word: `with translated():`)
    """Context in which pyarrow's exceptions become ours; the original stays as the cause."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise the translation of what pyarrow raised, if it raised."""
        if isinstance(error, _PYARROW) and not isinstance(error, ForebayError):
            raise translate(error) from error
