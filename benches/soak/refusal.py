"""Code, message, trailers and details of one refusal, read with gRPC's own client."""

from __future__ import annotations

import time
from dataclasses import dataclass

import grpc

from harness import http2_peer as http2

METHOD = f"{http2.SERVICE}DoGet"
DETAILS = "grpc-status-details-bin"
RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"
CALL_SECONDS = 10.0


@dataclass(frozen=True)
class Refusal:
    """Response to a refused request."""

    code: str
    message: str
    hints: dict[str, str]
    """Trailers that say when to retry, such as grpc-retry-pushback-ms."""
    has_retry_info: bool
    """Whether the details hold a google.rpc.RetryInfo."""
    milliseconds: float

    @property
    def is_as_promised(self) -> bool:
        """Whether the response names the limit and says when to retry."""
        has_hint = self.has_retry_info or bool(self.hints)
        return self.code == "RESOURCE_EXHAUSTED" and "--" in self.message and has_hint


def read_refusal(url: str, ticket: bytes) -> Refusal:
    """Request one stream more than the limit allows."""
    with grpc.insecure_channel(url.removeprefix("grpc://")) as channel:
        grpc.channel_ready_future(channel).result(CALL_SECONDS)
        get = channel.unary_stream(METHOD, request_serializer=bytes, response_deserializer=bytes)
        began = time.monotonic()
        try:
            next(get(http2.delimited(1, ticket), timeout=CALL_SECONDS))
        except grpc.RpcError as error:
            milliseconds = round((time.monotonic() - began) * 1e3, 3)
            trailers = dict(error.trailing_metadata() or ())  # pyright: ignore[reportArgumentType, reportCallIssue]
            has_retry_info = RETRY_INFO in bytes(trailers.get(DETAILS, b""))  # pyright: ignore[reportArgumentType, reportCallIssue]
            hints = {name: str(value) for name, value in trailers.items() if "retry" in name}  # pyright: ignore[reportOperatorIssue]
            return Refusal(error.code().name, error.details() or "", hints, has_retry_info, milliseconds)  # pyright: ignore[reportArgumentType]
        except StopIteration:
            pass
    return Refusal("OK", "", {}, False, 0.0)
