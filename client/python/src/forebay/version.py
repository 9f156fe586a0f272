"""The version of the installed package, which is that of Cargo's workspace."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

# Sources that are imported without being installed have no version.
UNKNOWN = "0+unknown"


def package_version() -> str:
    """Return the version in the package's metadata."""
    try:
        return installed_version("forebay")
    except PackageNotFoundError:
        return UNKNOWN
