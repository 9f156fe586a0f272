"""Servers of one dataset, with keepalive off by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.faults import (
    Rest,
    Start,
    write_data,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("faults") / "data")


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as running:

        def begin(*flags: str, **env: str) -> Daemon:
            # Most peers here answer no pings; only tests of keepalive override this.
            env = {"FOREBAY_KEEPALIVE_SECONDS": "600", **env}
            daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--dataset", f"data={folder}", *flags, env=env)
            running.callback(daemon.stop)
            return daemon

        yield begin


@pytest.fixture
def daemon(start: Start) -> Iterator[Daemon]:
    running = start()
    yield running
    assert running.process.poll() is None
    assert not any("panic" in line for line in running.lines)


@pytest.fixture
def rest(daemon: Daemon) -> Rest:
    return Rest(daemon)
