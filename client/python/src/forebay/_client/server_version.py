"""The version of a server, which it sends with every response, and the check of its protocol. Makes no calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.flight as flight

from forebay.errors import IncompatibleVersion

from .version import PROTOCOL_HEADER, PROTOCOL_OLDEST, VERSION_HEADER, package_version


class ServerVersion(flight.ClientMiddlewareFactory):
    """What the responses of a connection say about its server; pyarrow calls it for each."""

    def __init__(self) -> None:
        super().__init__()
        self.version: str | None = None
        """The server's version; None before the first response, and for a server that does not send it."""
        self.protocol: int | None = None
        """The newest protocol that it supports."""

    def start_call(self, info: Any) -> _Response:
        """Return what receives the headers of one response."""
        return _Response(self)

    def check(self, url: str) -> None:
        """Raise `IncompatibleVersion` if the server supports only protocols that are older than this client's."""
        if self.protocol is not None and self.protocol < PROTOCOL_OLDEST:
            server = f"forebay-server {self.version or 'of unknown version'}"
            raise IncompatibleVersion(
                f"{url} is {server}, which supports protocol {self.protocol}, and this client, forebay "
                f"{package_version()}, needs protocol {PROTOCOL_OLDEST}: upgrade the server, or install the package of "
                "its version"
            )


class _Response(flight.ClientMiddleware):
    def __init__(self, found: ServerVersion) -> None:
        super().__init__()
        self._found = found

    def received_headers(self, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        """Note the version and the protocol, if the server sends them."""
        version, protocol = _first(headers, VERSION_HEADER), _first(headers, PROTOCOL_HEADER)
        if version is not None:
            self._found.version = version
        if protocol is not None and protocol.isascii() and protocol.isdigit():
            self._found.protocol = int(protocol)


def _first(headers: Mapping[str, Sequence[str | bytes]], name: str) -> str | None:
    values = headers.get(name) or ()
    return next((value for value in values if isinstance(value, str)), None)
