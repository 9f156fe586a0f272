"""One server of all datasets of shuffled epochs per test file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as fl
import pytest

from harness.epochs import FILES, Data, write
from harness.serving import Serve, Server


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("epochs")
    for name, files in FILES.items():
        write(root / name, files)
    return root


@pytest.fixture(scope="module")
def datasets(root: Path) -> dict[str, Data]:
    return {name: Data.read(root / name) for name in FILES}


@pytest.fixture(scope="module")
def server(root: Path, serve: Serve) -> Server:
    return serve({name: root / name for name in FILES})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected
    assert server.alive, "".join(server.log)
