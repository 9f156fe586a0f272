"""A server that is killed and started again at the same address."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.daemon import Daemon


class Restartable:
    """A forebay-server that keeps its address and its state over its deaths."""

    def __init__(self, datasets: Mapping[str, os.PathLike[str]], state: Path) -> None:
        self._arguments = ["--metrics-listen", "127.0.0.1:0", "--state", os.fspath(state)]
        for name, root in datasets.items():
            self._arguments += ["--dataset", f"{name}={os.fspath(root)}"]
        self._daemon: Daemon | None = None
        self._listen = "127.0.0.1:0"
        self.start()
        self._listen = self.url.removeprefix("grpc://")

    @property
    def daemon(self) -> Daemon:
        assert self._daemon is not None, "the server is down"
        return self._daemon

    @property
    def url(self) -> str:
        return self.daemon.url if self._daemon is not None else f"grpc://{self._listen}"

    @property
    def is_up(self) -> bool:
        return self._daemon is not None

    def start(self) -> None:
        if self._daemon is None:
            self._daemon = Daemon("--listen", self._listen, *self._arguments)

    def kill(self) -> None:
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None
