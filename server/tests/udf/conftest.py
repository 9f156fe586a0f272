"""A table, every function of `harness.udf.functions` in real processes, and a server that calls them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.udf import Function
from harness.daemon import LOOPBACK, Daemon
from harness.udf import functions as declared
from harness.udf.pool import Functions, served
from harness.udf.table import write

NAMES = [name for name, value in vars(declared).items() if isinstance(value, Function)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Functions]:
    with Functions(served(*NAMES), tmp_path_factory.mktemp("socket") / "udf.sock") as pool:
        yield pool


@pytest.fixture(scope="module")
def daemon(data: Path, functions: Functions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    state = tmp_path_factory.mktemp("state")
    flags = ["--dataset", f"t={data}", "--state", str(state), "--udf-timeout-seconds", "3", "--cache-bytes", "64MiB"]
    server = Daemon(*LOOPBACK, *flags, *functions.flag(*NAMES))
    yield server
    server.stop()
