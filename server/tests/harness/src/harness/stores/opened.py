"""All stores at once, each started if what it needs is installed, and servers that read from all of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.stores.backend import Backend, LocalBackend, WebBackend
from harness.stores.hub import HubBackend

NAMES = ["local", "http", "hub", "s3", "gcs", "azure"]


class NotInstalledError(Exception):
    """A store's emulator is missing; the message says how to install it."""


def opened(name: str, folder: Path) -> Backend:
    """Start an empty store."""
    if name == "local":
        return LocalBackend(folder)
    if name == "http":
        return WebBackend()
    if name == "hub":
        return HubBackend()
    if name == "s3":
        from harness.stores.s3 import S3Backend

        return S3Backend()
    if name == "gcs":
        if importlib.util.find_spec("gcp_storage_emulator") is None:
            raise NotInstalledError("gcp-storage-emulator is not installed: run `make .venv/.test`")
        from harness.stores.gcs import GoogleBackend

        return GoogleBackend(folder)
    from harness.stores.azure import AzureBackend, azurite

    if azurite() is None:
        raise NotInstalledError("Azurite is not installed: `make test-stores` installs it and runs these tests")
    return AzureBackend(folder)


class Stores:
    """The stores of one test module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[Daemon] = []
        self._missing: dict[str, str] = {}
        self.opened: dict[str, Backend] = {}
        for name in NAMES:
            (folder / name).mkdir()
            try:
                self.opened[name] = opened(name, folder / name)
            except NotInstalledError as missing:
                self._missing[name] = str(missing)

    def of(self, name: str) -> Backend:
        """The store of this name; skips the test if it is not installed."""
        if name in self._missing:
            pytest.skip(self._missing[name])
        return self.opened[name]

    def serve(
        self,
        datasets: Mapping[str, str],
        *flags: str,
        endpoint: str | None = None,
        environment: Mapping[str, str] | None = None,
        state: str | None = None,
    ) -> Daemon:
        """A server of datasets in any of the stores, or that looks for all of them at another endpoint.

        Its state is in a new directory, or at a URL.
        """
        variables = self.environment(endpoint) | dict(environment or {})
        folder = str(self._folder / f"state-{len(self._servers)}")
        place = ["--state", folder] if state is None else ["--state", state, "--scratch-dir", folder]
        flags = (*flags, *(f"--dataset={name}={url}" for name, url in datasets.items()))
        self._servers.append(Daemon(*LOOPBACK, *place, *flags, env=variables))
        return self._servers[-1]

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """The variables of a server that reaches all of them, at their proxies or at another endpoint."""
        variables: dict[str, str] = {}
        for backend in self.opened.values():
            variables |= backend.environment(endpoint or (backend.proxy.url if backend.proxy else ""))
        return variables

    def close(self) -> None:
        for server in self._servers:
            server.stop()
        for backend in self.opened.values():
            backend.close()
