"""A table of texts that are hard to tokenize, the tokenizers of every model, and a server with both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.tokenizers import DOCUMENTS, GROUP_ROWS, every_character, write, write_all


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write(folder / "docs" / "a.parquet", DOCUMENTS)
    write(folder / "large" / "a.parquet", DOCUMENTS, pa.large_string())
    table = pa.table({"text": pa.array(DOCUMENTS).dictionary_encode(), "n": range(len(DOCUMENTS))})
    (folder / "words").mkdir()
    pq.write_table(table, folder / "words" / "a.parquet", row_group_size=GROUP_ROWS)
    write(folder / "characters" / "a.parquet", every_character())
    write(folder / "spaces" / "a.parquet", [" " * 1_200_000 + "end"])
    write(folder / "nulls" / "a.parquet", ["one", None, "two"])
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp("tokenizers"))


@pytest.fixture(scope="module")
def daemon(data: Path, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    flags = ["--state", str(tmp_path_factory.mktemp("state")), "--cache-bytes", "64MiB"]
    for name in ("docs", "large", "words", "characters", "spaces", "nulls"):
        flags += ["--dataset", f"{name}={data / name}"]
    for name, path in files.items():
        flags += ["--tokenizer", f"{name}={path}"]
    server = Daemon(*LOOPBACK, *flags)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[fb.Client]:
    with fb.connect(daemon.url, retry_seconds=0) as connected:
        yield connected
