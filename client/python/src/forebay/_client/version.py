"""The version of the installed package, which is that of Cargo's workspace, and of the protocol that it supports."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

# The protocol, as in proto/src/protocol.rs. Sent with every call; a server refuses one that it does not support.
PROTOCOL = 1
PROTOCOL_OLDEST = 1
PROTOCOL_HEADER = "forebay-protocol"
VERSION_HEADER = "forebay-version"

# Sources that are imported without being installed have no version.
UNKNOWN = "0+unknown"


@cache
def package_version() -> str:
    """Return the version in the package's metadata."""
    try:
        return installed_version("forebay")
    except PackageNotFoundError:
        return UNKNOWN


def version_headers() -> list[tuple[bytes, bytes]]:
    """Return the headers that tell a server the version and the protocol of this client."""
    return [(VERSION_HEADER.encode(), package_version().encode()), (PROTOCOL_HEADER.encode(), b"%d" % PROTOCOL)]
