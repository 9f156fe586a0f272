"""Decompressed pages in the cache: plans whose rows differ in size fetch and decompress nothing in a second epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.cached import (
    CACHED_FILES,
    FIXED,
    SHUFFLED,
    TEXT,
    counts,
    outcome,
    request_of,
    starting,
    without_cache,
    write_folders,
)
from harness.daemon import Daemon
from harness.epochs import Data, every_byte
from harness.metrics import scrape
from harness.serving import plan_of

Start = Callable[..., Daemon]
TEXTS = [TEXT, *FIXED[:2]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_folders(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def plain(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[fl.FlightClient]:
    """A server without a cache."""
    yield from without_cache(folders, tmp_path_factory.mktemp("plain"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    yield from starting(tmp_path)


def pages(daemon: Daemon) -> tuple[int, int]:
    """Column chunks that were read from the cache, and that were not."""
    found = scrape(daemon)
    hits, misses = (int(found.value(f"forebay_cache_page_{name}_total")) for name in ("hits", "misses"))
    return hits, misses


def read_bytes(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_storage_read_bytes_total")


def texts(dataset: str = "chunks", **changes: Any) -> dict[str, Any]:
    return request_of(dataset, plan=plan_of(TEXTS), **changes)


def test_epochs_ranks_seeds_and_plans_share_pages(folders: dict[str, Path], plain: fl.FlightClient, start: Start):
    daemon = start(folders, "--cache-bytes", "64MiB")
    others = [
        texts(epoch=1),
        texts(world_size=3),
        texts(seed=5, **SHUFFLED),
        texts(seed=6, epoch=2, world_size=4, **SHUFFLED),
        texts(batch_size=777, start_position=777 * 9),
        request_of("chunks", plan=plan_of(TEXTS[:2])),
    ]
    with fl.connect(daemon.url) as client:
        assert every_byte(client, texts()) == every_byte(plain, texts())
        read, (hits, misses) = read_bytes(daemon), pages(daemon)
        assert hits == 0
        assert misses > 0
        for request in others:
            assert every_byte(client, request) == every_byte(plain, request), request
        # Everything else came from memory.
        assert read_bytes(daemon) == read
        assert pages(daemon)[1] == misses
        assert pages(daemon)[0] >= misses * len(others) // 2
        # The cache keeps no rows of these plans.
        assert counts(daemon) == (0, 0, 0)
        # The rows that pass a filter are counted once.
        filtered = request_of("chunks", plan={**plan_of(TEXTS[:2]), "filter": "text IS NOT NULL"})
        assert every_byte(client, filtered) == every_byte(plain, filtered)
        read = read_bytes(daemon)
        again = {**filtered, "epoch": 1}
        assert every_byte(client, again) == every_byte(plain, again)
        assert read_bytes(daemon) == read


@pytest.mark.parametrize("size", ["64MiB", "300kB", "20kB"])
def test_random_streams_are_equal_to_the_byte(
    folders: dict[str, Path], plain: fl.FlightClient, start: Start, size: str
):
    daemon = start(folders, "--cache-bytes", size)
    random = np.random.default_rng(3)
    with fl.connect(daemon.url) as client:
        for number in range(18):
            name = list(CACHED_FILES)[number % len(CACHED_FILES)]
            chosen = [FIXED[i] for i in random.permutation(len(FIXED))[:3]]
            plan = plan_of([*chosen, TEXT] if number % 2 else chosen)
            if number % 3 == 1:
                plan["filter"] = "x > 0.2"
            request = request_of(name, plan=plan, batch_size=int(random.integers(100, 3000)))
            request |= {"world_size": 2, "seed": number, **SHUFFLED} if number % 4 > 1 else {}
            for each in (request, {**request, "epoch": 1}, request):
                assert outcome(client, each) == outcome(plain, each), (number, each)
    assert sum(pages(daemon)) > 0


def test_pages_and_rows_share_the_memory(folders: dict[str, Path], plain: fl.FlightClient, start: Start):
    data = Data.read(folders["chunks"])
    daemon = start(folders, "--cache-bytes", "500kB")
    with fl.connect(daemon.url) as client:
        for request in (texts(), request_of("chunks"), texts(epoch=1), request_of("chunks", epoch=1)) * 2:
            assert every_byte(client, request) == every_byte(plain, request)
            assert scrape(daemon).value("forebay_cache_bytes") <= 500_000
    assert sum(data.groups) > 0
    assert pages(daemon)[0] > 0


def test_a_changed_file_is_read_again(tmp_path: Path, start: Start):
    folder = tmp_path / "t"
    folder.mkdir()

    def replace(word: str) -> None:
        table = pa.table({"word": [f"{word}{row}" for row in range(5000)], "x": pa.array(range(5000), pa.float32())})
        pq.write_table(table, tmp_path / "new.parquet", row_group_size=1000)
        (tmp_path / "new.parquet").replace(folder / "a.parquet")

    replace("a")
    daemon = start({"t": folder}, "--cache-bytes", "64MiB")
    plan = fb.Plan(outputs={"word": fb.cols("word").as_stored()})
    for word in ("a", "b", "a"):
        replace(word)
        for epoch in range(2):
            with fb.connect(daemon.url) as client, client.stream("t", plan, epoch=epoch, batch_size=700) as stream:
                found = [value for batch in stream for value in batch.data.column("word").to_pylist()]
            assert found == [f"{word}{row}" for row in range(5000)]


def test_a_damaged_page_is_the_same_error_every_time(tmp_path: Path, start: Start):
    folder = tmp_path / "t"
    folder.mkdir()
    path = folder / "a.parquet"
    table = pa.table({"word": [f"word {row * 7919 % 5003}" for row in range(6000)]})
    pq.write_table(table, path, row_group_size=3000, use_dictionary=False, compression="zstd")
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    damaged = bytearray(path.read_bytes())
    begin = chunk.data_page_offset + 60
    damaged[begin : begin + 300] = bytes(300)
    path.write_bytes(bytes(damaged))
    daemon = start({"t": folder}, "--cache-bytes", "64MiB")
    plan = {"outputs": [{"name": "word", "dtype": "AS_STORED", "parts": [{"columns": ["word"]}]}]}
    with fl.connect(daemon.url) as client:
        errors = {str(outcome(client, request_of("t", plan=plan))) for _ in range(3)}
    assert len(errors) == 1
    assert "row group 1" in errors.pop()


def test_explain_says_what_the_pages_of_an_epoch_need(folders: dict[str, Path], start: Start):
    plan = fb.Plan(outputs={"text": fb.cols("text").as_stored()})
    with fb.connect(start(folders, "--cache-bytes", "8MiB").url) as client:
        before = client.explain("chunks", plan).cache
        assert before is not None
        assert before.pages
        assert (before.cached_bytes, before.reason) == (0, "")
        for _ in client.stream("chunks", plan, batch_size=5000):
            pass
        after = client.explain("chunks", plan)
        assert after.cache is not None
        # With the parsed headers and the decoded dictionaries.
        assert before.needed_bytes * 0.9 < after.cache.cached_bytes < before.needed_bytes * 2 + 100_000
        assert "of decompressed pages, of which" in str(after)
        nested = client.explain("chunks", fb.Plan(outputs={"list": fb.cols("list").as_stored()})).cache
        assert nested is not None
        assert nested.reason == 'rows of output "list" differ in size'
