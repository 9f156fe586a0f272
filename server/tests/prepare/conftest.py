"""Fixtures of the tests of views."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon
from harness.serving import server_binary
from harness.views import Start, flights, program


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in ("flights", "planes")}
    for folder in folders.values():
        folder.mkdir()
    pq.write_table(flights(), folders["flights"] / "a.parquet", row_group_size=5_000)
    planes = np.arange(250)
    pq.write_table(pa.table({"plane": planes, "seats": planes % 7 * 30}), folders["planes"] / "a.parquet")
    return folders


@pytest.fixture
def start(inputs: dict[str, Path], tmp_path: Path) -> Iterator[Start]:
    """Start servers of the inputs and of views, with one state directory."""
    with contextlib.ExitStack() as running:

        def begin(
            views: Mapping[str, str], *flags: str, folder: Path | None = None, env: Mapping[str, str] = {}
        ) -> Daemon:
            arguments = ["--state", str(tmp_path / "state")]
            for name, url in inputs.items():
                arguments += ["--dataset", f"{name}={url}"]
            for name, sql in views.items():
                arguments += ["--view", f"{name}={sql}"]
            with program(folder):
                daemon = Daemon(*LOOPBACK, *arguments, *flags, env=env)
            running.callback(daemon.stop)
            return daemon

        yield begin


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder of the server without forebay-prepare."""
    folder = tmp_path / "bin"
    folder.mkdir()
    try:
        os.link(server_binary(), folder / "forebay-server")
    except OSError:
        shutil.copy(server_binary(), folder / "forebay-server")
    return folder
