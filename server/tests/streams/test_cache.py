"""The cache of finished rows: streams have the same bytes with and without it, and share what one of them computes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    Everything,
    cached_request,
    chunk_count,
    counts,
    message,
    outcome,
    request_of,
    starting,
    without_cache,
    write_folders,
)
from harness.daemon import Daemon
from harness.epochs import Data, every_byte
from harness.metrics import scrape
from harness.serving import info, plan_of

# Room for all rows, for some row groups, and for no more than a few chunks.
SIZES = ("64MiB", "600kB", "90kB")
REQUESTS = 24
ROWS = 31_693


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_folders(tmp_path_factory.mktemp("cached"))


@pytest.fixture(scope="module")
def datas(folders: dict[str, Path]) -> dict[str, Data]:
    return {name: Data.read(folder) for name, folder in folders.items()}


Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    yield from starting(tmp_path)


@pytest.fixture(scope="module")
def plain(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[fl.FlightClient]:
    """A server without a cache."""
    yield from without_cache(folders, tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("size", SIZES)
def test_random_streams_are_equal_to_the_byte(
    datas: dict[str, Data], folders: dict[str, Path], plain: fl.FlightClient, start: Start, size: str
):
    daemon = start(folders, "--cache-bytes", size)
    with fl.connect(daemon.url) as client:
        for number in range(REQUESTS):
            data = datas[list(CACHED_FILES)[number % len(CACHED_FILES)]]
            request = cached_request(data, number)
            # A second seed, epoch and world size of the same plan, and the first again.
            other = {**request, "seed": number, "epoch": request.get("epoch", 0) // 2, "shuffle": True}
            other |= {"world_size": 2, "lanes": 4, "window_rows": 300, "start_position": 0}
            for each in (request, other, request):
                want = outcome(plain, each)
                assert outcome(client, each) == want, (number, each)
    hits, misses, _ = counts(daemon)
    assert hits > 0
    assert misses > 0


def test_epochs_ranks_seeds_and_jobs_share_what_one_computed(
    datas: dict[str, Data], folders: dict[str, Path], plain: fl.FlightClient, start: Start
):
    daemon = start(folders, "--cache-bytes", "64MiB")
    chunks = chunk_count(datas["chunks"])
    requests = [
        request_of("chunks"),
        request_of("chunks", epoch=1),
        request_of("chunks", world_size=3),
        request_of("chunks", seed=5, **SHUFFLED),
        request_of("chunks", seed=6, epoch=2, world_size=4, **SHUFFLED),
        request_of("chunks", batch_size=777, start_position=777 * 9),
    ]
    with fl.connect(daemon.url) as client:
        assert every_byte(client, requests[0]) == every_byte(plain, requests[0])
        assert counts(daemon) == (0, chunks, 0)
        for request in requests[1:]:
            assert every_byte(client, request) == every_byte(plain, request)
        assert counts(daemon)[1:] == (chunks, 0)
        read = scrape(daemon).value("forebay_storage_read_bytes_total")
        every_byte(client, requests[3])
        # Rows in the cache need no storage.
        assert scrape(daemon).value("forebay_storage_read_bytes_total") == read
        # Another plan shares nothing.
        every_byte(client, {**requests[0], "plan": plan_of(FIXED[:1])})
        assert counts(daemon)[1] == 2 * chunks


def test_streams_at_once_compute_every_chunk_once(
    datas: dict[str, Data], folders: dict[str, Path], plain: fl.FlightClient, start: Start
):
    daemon = start(folders, "--cache-bytes", "64MiB", "--cpu-threads", "2")
    requests = [request_of("chunks", seed=seed, **SHUFFLED) for seed in range(3)]
    requests += [request_of("chunks"), request_of("chunks", epoch=3), request_of("chunks", world_size=2)]
    want = [every_byte(plain, request) for request in requests]
    begin = threading.Barrier(len(requests))

    def job(request: dict[str, Any]) -> Everything:
        with fl.connect(daemon.url) as client:
            info(client, request)
            begin.wait(30)
            return every_byte(client, request)

    with ThreadPoolExecutor(len(requests)) as pool:
        assert list(pool.map(job, requests)) == want
    assert counts(daemon)[1:] == (chunk_count(datas["chunks"]), 0)


def test_streams_that_stall_or_end_early_hold_up_no_other(
    datas: dict[str, Data], folders: dict[str, Path], plain: fl.FlightClient, start: Start
):
    daemon = start(folders, "--cache-bytes", "64MiB", "--cpu-threads", "1")
    requests = [request_of("chunks", batch_size=64, **order) for order in ({}, SHUFFLED)]
    want = [every_byte(plain, request) for request in requests]
    with fl.connect(daemon.url) as stalled, fl.connect(daemon.url) as client:
        streams = [stalled.do_get(info(stalled, request).endpoints[0].ticket) for request in requests for _ in range(3)]
        for stream in streams:
            stream.read_chunk()
        # Half of them end, the others wait for their client.
        for stream in streams[::2]:
            stream.cancel()
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda request: every_byte(client, request), requests)) == want
        for stream in streams[1::2]:
            stream.cancel()


def test_a_scan_larger_than_the_cache_keeps_a_part_and_evicts_nothing(
    datas: dict[str, Data], folders: dict[str, Path], start: Start
):
    daemon = start(folders, "--cache-bytes", "700kB")
    with fl.connect(daemon.url) as client:
        hits = []
        for epoch in range(4):
            before = counts(daemon)[0]
            every_byte(client, request_of("chunks", epoch=epoch))
            hits.append(counts(daemon)[0] - before)
        assert hits[0] == 0
        # The same chunks in every later epoch.
        assert 0 < hits[1] < chunk_count(datas["chunks"])
        assert hits[1:] == [hits[1]] * 3
        found = scrape(daemon)
        assert 0 < found.value("forebay_cache_bytes") <= 700_000
        # The rows of a plan without streams give way to those of one that is read twice.
        other = request_of("chunks", plan=plan_of(FIXED[:2]))
        every_byte(client, other)
        assert counts(daemon)[2] == 0
        every_byte(client, other)
        before, _, evictions = counts(daemon)
        assert evictions > 0
        every_byte(client, other)
        assert counts(daemon)[0] > before


def test_replayed_batches_come_from_the_cache_and_fill_it_with_nothing(folders: dict[str, Path], start: Start):
    daemon = start(folders, "--cache-bytes", "64MiB")
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with fb.connect(daemon.url) as client:
        options = {"batch_size": 100, "shuffle": True, "lanes": 4, "window_rows": 50}
        first = client.replay("chunks", plan, step=3, **options)
        assert scrape(daemon).value("forebay_cache_bytes") == 0
        assert str(client.replay("chunks", plan, step=3, **options)) == str(first)


def values_table(start: int, rows: int) -> pa.Table:
    return pa.table({"x": np.arange(start, start + rows, dtype=np.float64)})


X = plan_of([{"name": "x", "dtype": "FLOAT64", "parts": [{"columns": ["x"]}]}])


def xs(client: fl.FlightClient, **request: Any) -> list[float]:
    found = info(client, {"dataset": "t", "plan": X, "batch_size": 500, **request})
    return [x for end in found.endpoints for x in client.do_get(end.ticket).read_all()["x"].to_pylist()]


@pytest.mark.parametrize("unseen", [False, True], ids=["replaced", "overwritten with size and time restored"])
def test_a_changed_file_never_yields_earlier_rows(tmp_path: Path, start: Start, unseen: bool):
    folder = tmp_path / "t"
    folder.mkdir()
    paths = [folder / f"{name}.parquet" for name in "ab"]
    options = {"row_group_size": 1000, "compression": "none", "use_dictionary": False}
    for number, path in enumerate(paths):
        pq.write_table(values_table(number * 3000, 3000), path, **options)
    daemon = start({"t": folder}, "--cache-bytes", "64MiB")
    with fl.connect(daemon.url) as client:
        assert xs(client) == xs(client) == list(range(6000))
        for change in range(1, 4):
            first = change * 10_000
            before = paths[1].stat()
            pq.write_table(values_table(first, 3000), folder / "_new", **options)
            if unseen:
                with paths[1].open("r+b") as file:
                    file.write((folder / "_new").read_bytes())
                os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))
            else:
                (folder / "_new").rename(paths[1])
            want = [*range(3000), *range(first, first + 3000)]
            assert xs(client) == want
            assert sorted(xs(client, shuffle=True, seed=change)) == want


def test_a_row_that_cannot_be_computed_fails_only_the_ranks_that_read_it(tmp_path: Path, start: Start):
    folder = tmp_path / "t"
    folder.mkdir()
    values = pa.array([None if row == 900 else float(row) for row in range(1000)], pa.float64())
    pq.write_table(pa.table({"x": values}), folder / "a.parquet")
    plans = {"with": start({"t": folder}, "--cache-bytes", "64MiB"), "without": start({"t": folder})}
    seen: dict[str, list[Any]] = {name: [] for name in plans}
    for name, daemon in plans.items():
        with fl.connect(daemon.url) as client:
            for _ in range(2):
                found = info(client, {"dataset": "t", "plan": X, "batch_size": 100, "world_size": 2})
                seen[name].append(client.do_get(found.endpoints[0].ticket).read_all()["x"].to_pylist())
                with pytest.raises((pa.ArrowException, fl.FlightError), match="row 900 is null") as caught:
                    client.do_get(found.endpoints[1].ticket).read_all()
                seen[name].append(message(caught.value))
    assert seen["with"] == seen["without"]
    assert seen["with"][0] == list(range(500))


def test_a_damaged_row_group_is_not_cached(tmp_path: Path, start: Start):
    folder = tmp_path / "t"
    folder.mkdir()
    path = folder / "a.parquet"
    pq.write_table(values_table(0, 2000), path, row_group_size=1000, compression="zstd", use_dictionary=False)
    metadata = pq.ParquetFile(path).metadata
    damaged = bytearray(path.read_bytes())
    begin = metadata.row_group(1).column(0).data_page_offset
    damaged[begin + 60 : begin + 400] = bytes(340)
    path.write_bytes(bytes(damaged))
    daemon = start({"t": folder}, "--cache-bytes", "64MiB")
    with fl.connect(daemon.url) as client:
        errors = set[str]()
        for _ in range(3):
            with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
                xs(client)
            errors.add(message(caught.value))
        assert len(errors) == 1
        assert "row group 1" in errors.pop()
        # The chunk before the damage is kept.
        hits, misses, _ = counts(daemon)
        assert (hits, misses) == (2, 1)


def test_explain_says_what_an_epoch_needs_and_why_rows_are_not_cached(folders: dict[str, Path], start: Start):
    plan = fb.Plan(outputs={"x": fb.cols("x"), "id": fb.cols("id").as_stored()})
    lists = fb.Plan(outputs={"list": fb.cols("list").as_stored()})
    with fb.connect(start(folders, "--cache-bytes", "8MiB").url) as client:
        cache = client.explain("chunks", plan).cache
        assert cache is not None
        assert (cache.limit_bytes, cache.cached_bytes, cache.reason) == (8 << 20, 0, "")
        # A float32, an int64 with its validity, and 1 KiB for each of 3 + 1 + 1 + 1 + 1 chunks.
        assert cache.needed_bytes == ROWS * (4 + 9) + 7 * 1024
        with client.stream("chunks", plan, batch_size=5000) as stream:
            assert sum(batch.header.rows for batch in stream) == ROWS
        found = client.explain("chunks", plan)
        assert found.cache is not None
        assert found.cache.cached_bytes == found.cache.needed_bytes
        assert "an epoch takes 419.2 kB, of which 419.2 kB are cached; the limit is 8.4 MB" in str(found)
        declined = client.explain("chunks", lists)
        assert declined.cache is not None
        assert declined.cache.reason == 'rows of output "list" differ in size'
        assert 'rows are not cached: rows of output "list" differ in size' in str(declined)
    with fb.connect(start(folders).url) as client:
        assert "off; an epoch would take 419.2 kB (--cache-bytes)" in str(client.explain("chunks", plan))
