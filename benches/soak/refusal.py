"""One refusal in full: code, sentence, trailers and details, as a client of gRPC sees them."""

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
    """What the server answered."""

    code: str
    sentence: str
    hints: dict[str, str]
    """Trailers that say when to try again, such as grpc-retry-pushback-ms."""
    has_retry_info: bool
    """Whether the details hold a google.rpc.RetryInfo."""
    milliseconds: float

    @property
    def is_as_promised(self) -> bool:
        """Whether a client can tell which limit it is, and when to try again."""
        has_hint = self.has_retry_info or bool(self.hints)
        return self.code == "RESOURCE_EXHAUSTED" and "--" in self.sentence and has_hint


def look_at_refusal(url: str, ticket: bytes) -> Refusal:
    """Ask for one stream more than there may be."""
    with grpc.insecure_channel(url.removeprefix("grpc://")) as channel:
        grpc.channel_ready_future(channel).result(CALL_SECONDS)
        get = channel.unary_stream(METHOD, request_serializer=bytes, response_deserializer=bytes)
        began = time.monotonic()
        try:
            next(get(http2.delimited(1, ticket), timeout=CALL_SECONDS))
        except grpc.RpcError as error:
            milliseconds = round((time.monotonic() - began) * 1e3, 3)
            trailers = dict(error.trailing_metadata() or ())
            has_retry_info = RETRY_INFO in bytes(trailers.get(DETAILS, b""))
            hints = {name: str(value) for name, value in trailers.items() if "retry" in name}
            return Refusal(error.code().name, error.details() or "", hints, has_retry_info, milliseconds)
        except StopIteration:
            pass
    return Refusal("OK", "", {}, False, 0.0)
