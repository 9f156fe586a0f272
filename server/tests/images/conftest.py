"""Tables of images of every format, and a server with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.images import GROUP_ROWS, Sample, encoded, picture, samples, write


@pytest.fixture(scope="session")
def images() -> list[Sample]:
    return samples()


@pytest.fixture(scope="session")
def large() -> bytes:
    """A photograph of 12 million pixels."""
    return encoded(picture((640, 427), 0).resize((4000, 3000)), "JPEG", quality=85)


@pytest.fixture(scope="session")
def data(images: list[Sample], large: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    contents = [image.content for image in images]
    write(folder / "images" / "a.parquet", contents)
    write(folder / "views" / "a.parquet", contents, pa.large_binary())
    write(folder / "photo" / "a.parquet", [large])
    structs = pa.array([{"bytes": content, "path": None} for content in contents])
    (folder / "structs").mkdir()
    pq.write_table(pa.table({"image": structs}), folder / "structs" / "a.parquet", row_group_size=GROUP_ROWS)
    write(folder / "nulls" / "a.parquet", [contents[0], None, contents[5]])
    return folder


@pytest.fixture(scope="session")
def daemon(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    flags = ["--state", str(tmp_path_factory.mktemp("state")), "--cache-bytes", "64MiB"]
    for name in ("images", "views", "photo", "structs", "nulls"):
        flags += ["--dataset", f"{name}={data / name}"]
    flags += ["--dataset", f"photos={data / 'images'}"]
    server = Daemon(*LOOPBACK, *flags)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(daemon: Daemon) -> Iterator[fb.Client]:
    with fb.connect(daemon.url, retry_seconds=0) as connected:
        yield connected
