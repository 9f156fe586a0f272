"""The interface of the stores under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from harness.fault_proxy import FaultProxy
from harness.web_server import Files, WebServer

PUTS_AT_ONCE = 8
TOKEN = "token-not-to-be-seen-anywhere"


class Backend(ABC):
    """An empty store. Except for a disk, servers reach it through a proxy that can inject faults."""

    name: ClassVar[str]
    lists: ClassVar[bool] = True
    """Whether a dataset may be a folder or a pattern."""
    credentials: ClassVar[str] = ""
    """A variable that errors about credentials name."""
    endpoint_setting: ClassVar[str] = ""
    """The variable that errors of an endpoint out of reach name first."""
    keeps_versions: ClassVar[bool] = False
    """Whether a stream reads to its end the objects that it began with, also once they are replaced or deleted."""

    def __init__(self, endpoint: str | None) -> None:
        self.proxy = FaultProxy(endpoint) if endpoint else None
        if self.proxy:
            self.proxy.__enter__()

    @abstractmethod
    def url(self, key: str = "") -> str:
        """The dataset URL of an object or a folder."""

    @abstractmethod
    def put(self, key: str, body: bytes) -> None: ...

    @abstractmethod
    def delete(self, key: str) -> None: ...

    def get(self, key: str) -> bytes:
        """The body of an object."""
        raise NotImplementedError

    def keys(self, prefix: str) -> list[str]:
        """The first keys with a prefix, in order."""
        raise NotImplementedError

    def put_many(self, keys: Iterable[str], body: bytes) -> None:
        """The same body under many keys, as fast as the store can."""
        with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
            list(pool.map(lambda key: self.put(key, body), keys))

    def environment(self, endpoint: str) -> dict[str, str]:
        """The variables of a server that reaches the store at an endpoint."""
        raise NotImplementedError

    def missing_url(self) -> str:
        """The URL of a bucket that does not exist."""
        raise NotImplementedError

    def listing_mark(self, prefix: str) -> str:
        """What the URLs of listings of a prefix have."""
        return f"prefix={prefix}"

    def close(self) -> None:
        """Stop the store."""
        if self.proxy:
            self.proxy.__exit__()


class LocalBackend(Backend):
    """A directory."""

    name = "local"

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self._folder = folder

    def url(self, key: str = "") -> str:
        return str(self._folder / key)

    def put(self, key: str, body: bytes) -> None:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        # A new file takes the place of the old one at once, as in a store.
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(body)
        partial.replace(path)

    def put_many(self, keys: Iterable[str], body: bytes) -> None:
        for key in keys:
            self.put(key, body)

    def delete(self, key: str) -> None:
        (self._folder / key).unlink()

    def environment(self, endpoint: str) -> dict[str, str]:
        return {}

    def missing_url(self) -> str:
        return str(self._folder / "no-such-folder")


class WebBackend(Backend):
    """A web server with ranges and ETags. It has no listings and ignores If-Match."""

    name = "http"
    lists = False

    def __init__(self) -> None:
        class Served(Files):
            files: ClassVar[dict[str, bytes]] = {}

        self._files = Served.files
        self._server = WebServer(Served)
        super().__init__(self._server.__enter__())

    def url(self, key: str = "") -> str:
        assert self.proxy
        return f"{self.proxy.url}/{quote(key)}"

    def put(self, key: str, body: bytes) -> None:
        self._files[f"/{quote(key)}"] = body

    def delete(self, key: str) -> None:
        del self._files[f"/{quote(key)}"]

    def environment(self, endpoint: str) -> dict[str, str]:
        return {}

    def missing_url(self) -> str:
        return self.url("no-such-folder/a.parquet")

    def close(self) -> None:
        super().close()
        self._server.__exit__()
