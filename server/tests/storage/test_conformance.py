"""One suite for every kind of store: the same tables, listings, ranges and pinning on each of them.

The faults of the same stores are in `faults/storage/test_store_faults.py`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.daemon import run_to_end
from harness.metrics import scrape
from harness.serving import info, raw_table
from harness.stores.backend import Backend
from harness.stores.opened import NAMES, Stores

ROWS, GROUP_ROWS = 3000, 250
# 120 MB on the wire: twice what a server reads ahead of its client.
LONG_ROWS = 60_000
LISTING = [name for name in NAMES if name != "http"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    running = Stores(tmp_path_factory.mktemp("stores"))
    yield running
    running.close()


def parquet(table: pa.Table, group: int = GROUP_ROWS) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group, compression="none", store_schema=False)
    return sink.getvalue()


def numbers() -> pa.Table:
    random = np.random.default_rng(5)
    return pa.table({"id": np.arange(ROWS), **{name: random.random(ROWS) for name in "abcd"}})


def versioned(version: int, rows: int = LONG_ROWS) -> bytes:
    """Rows of 2 KB with the version that wrote them."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["snapshot " * 220])
    table = pa.table({"id": np.arange(rows), "version": pa.array([version] * rows, pa.int32()), "text": texts})
    return parquet(table, 5000)


def code(call: Callable[[], object]) -> tuple[str, str | None, str]:
    with pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
        call()
    error = translate(raised.value)
    return error.code, error.reason, str(error)


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_shuffled_streams_equal_those_of_the_rows(stores: Stores, name: str):
    store, table = stores.of(name), numbers()
    store.put("same/a.parquet", parquet(table))
    disk = stores.of("local")
    disk.put("same/a.parquet", parquet(table))
    server = stores.serve({"data": store.url("same/a.parquet"), "disk": disk.url("same/a.parquet")})
    outputs = {"x": ["a", "b"], "y": ["c", "d"]}
    plan = {"outputs": [{"name": name, "parts": [{"columns": columns}]} for name, columns in outputs.items()]}
    request = {"plan": plan, "batch_size": 100, "world_size": 2, "shuffle": True, "seed": 9, "window_rows": 500}
    with fl.connect(server.url) as client:
        assert raw_table(client, "data").equals(table)
        flights = {name: info(client, {**request, "dataset": name}) for name in ("data", "disk")}
        ranks = {
            name: [client.do_get(endpoint.ticket).read_all() for endpoint in flight.endpoints]
            for name, flight in flights.items()
        }
    assert ranks["data"] == ranks["disk"]
    assert sum(rank.num_rows for rank in ranks["data"]) == ROWS


FILES = ["t/a.parquet", "t/Zebra.parquet", "t/day=1/b.parquet", "t/day=2/hour=3/c.parquet", "t/x y%20z ü#+&.parquet"]
OTHERS = ["t/_SUCCESS", "t/_temporary/0/part.parquet", "t/.hidden.parquet", "t/a.parquet.crc", "t2/a.parquet"]
URLS = {
    "folder": ("t", sorted(FILES)),
    "folder with a slash": ("t/", sorted(FILES)),
    "folder below": ("t/day=2", ["t/day=2/hour=3/c.parquet"]),
    "object": ("t/a.parquet", ["t/a.parquet"]),
    "object with an odd name": ("t/x y%20z ü#+&.parquet", ["t/x y%20z ü#+&.parquet"]),
    "pattern": ("t/day=*/*.parquet", ["t/day=1/b.parquet"]),
    "pattern of any depth": ("t/**/[bc].parquet", ["t/day=1/b.parquet", "t/day=2/hour=3/c.parquet"]),
}


@pytest.mark.parametrize("name", LISTING)
def test_each_url_lists_exactly_its_objects_in_key_order(stores: Stores, name: str):
    store = stores.of(name)
    for key in FILES:
        store.put(key, parquet(pa.table({"file": [key]})))
    for key in OTHERS:
        store.put(key, b"no Parquet")
    server = stores.serve({title: store.url(tail) for title, (tail, _) in URLS.items()})
    with fl.connect(server.url) as client:
        for title, (_, want) in URLS.items():
            assert raw_table(client, title)["file"].to_pylist() == want, title


def test_a_web_server_has_no_folders(stores: Stores):
    url = stores.of("http").url("folder/")
    ended = run_to_end("--dataset", f"data={url}")
    assert ended.returncode == 2
    assert url in ended.stderr
    assert "one file" in ended.stderr


@pytest.mark.parametrize("name", LISTING)
def test_ten_thousand_objects_are_listed_page_by_page(stores: Stores, name: str):
    """Parquet at both ends of the pages of 1,000 and of 5,000 names, between objects that are not of the dataset."""
    store, count = stores.of(name), 10_000
    marks = sorted({0, 1, count - 1, *(n for page in range(1000, count, 1000) for n in (page - 1, page))})
    # Their names alone exclude them: a name without a suffix would have each of them read.
    store.put_many((f"many/{n:05}.txt" for n in range(count) if n not in marks), b"no Parquet")
    for n in marks:
        store.put(f"many/{n:05}.parquet", parquet(pa.table({"n": [n]})))
    server = stores.serve({"data": store.url("many")})
    with fl.connect(server.url) as client:
        found = client.get_flight_info(fl.FlightDescriptor.for_path("data"))
        assert json.loads(found.app_metadata)["files"] == len(marks)
        assert client.do_get(found.endpoints[0].ticket).read_all()["n"].to_pylist() == marks
    if store.proxy:
        pages = [seen for seen in store.proxy.requests(store.listing_mark("many")) if seen.range is None]
        assert len(pages) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_reads_only_the_ranges_of_its_columns(stores: Stores, name: str):
    store, body = stores.of(name), parquet(numbers())
    store.put("wide.parquet", body)
    server = stores.serve({"data": store.url("wide.parquet")})
    plan = {"outputs": [{"name": "b", "dtype": "FLOAT64", "parts": [{"columns": ["b"]}]}]}
    with fl.connect(server.url) as client:
        flight = info(client, {"dataset": "data", "plan": plan})
        before = scrape(server).value("forebay_storage_read_bytes_total")
        if store.proxy:
            store.proxy.clear()
        got = client.do_get(flight.endpoints[0].ticket).read_all()["b"].to_numpy()
    assert np.array_equal(got, numbers()["b"].to_numpy())
    # Pages of one column of five, and their headers.
    assert scrape(server).value("forebay_storage_read_bytes_total") - before < len(body) / 4
    if store.proxy:
        ranges = [seen.range for seen in store.proxy.requests("wide.parquet") if seen.method == "GET"]
        assert ranges
        assert None not in ranges
        assert len(set(ranges)) == len(ranges)


def replaced(store: Backend, key: str) -> None:
    store.put(key, versioned(1))


def replaced_by_a_shorter_one(store: Backend, key: str) -> None:
    store.put(key, versioned(1, 100))


def deleted(store: Backend, key: str) -> None:
    store.delete(key)


@pytest.mark.parametrize("change", [replaced, replaced_by_a_shorter_one, deleted])
@pytest.mark.parametrize("name", NAMES)
def test_object_changed_in_mid_stream_ends_it(stores: Stores, name: str, change: Callable[[Backend, str], None]):
    store, key = stores.of(name), f"pinned/{change.__name__}.parquet"
    store.put(key, versioned(0))
    server = stores.serve({"data": store.url(key)})
    request: dict[str, Any] = {
        "dataset": "data",
        "batch_size": 500,
        "plan": {
            "outputs": [
                {"name": "version", "dtype": "INT32", "parts": [{"columns": ["version"]}]},
                {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
            ]
        },
    }
    with fl.connect(server.url) as client:
        reader = client.do_get(info(client, request).endpoints[0].ticket)
        seen = [reader.read_chunk().data]
        change(store, key)
        if store.keeps_versions:
            seen += [chunk.data for chunk in reader]
            assert sum(batch.num_rows for batch in seen) == LONG_ROWS
            assert all(set(batch["version"].to_pylist()) == {0} for batch in seen)
            return
        found, reason, text = code(lambda: seen.extend(chunk.data for chunk in reader))
        assert (found, reason) == ("ABORTED", "SNAPSHOT_CHANGED"), text
        assert key in text
        assert all(set(batch["version"].to_pylist()) == {0} for batch in seen)
        if change is replaced:
            table = client.do_get(info(client, request).endpoints[0].ticket).read_all()
            assert set(table["version"].to_pylist()) == {1}


@pytest.mark.parametrize("name", NAMES)
def test_replaced_object_of_the_same_size_is_another_snapshot(stores: Stores, name: str):
    store = stores.of(name)
    store.put("size/a.parquet", parquet(pa.table({"n": [1]})))
    server = stores.serve({"data": store.url("size/a.parquet")})
    with fl.connect(server.url) as client:
        ticket = client.get_flight_info(fl.FlightDescriptor.for_path("data")).endpoints[0].ticket
        assert client.do_get(ticket).read_all()["n"].to_pylist() == [1]
        store.put("size/a.parquet", parquet(pa.table({"n": [2]})))
        if store.keeps_versions:
            assert client.do_get(ticket).read_all()["n"].to_pylist() == [1]
        else:
            found, reason, text = code(lambda: client.do_get(ticket).read_all())
            assert (found, reason) == ("ABORTED", "SNAPSHOT_CHANGED"), text
        assert raw_table(client, "data")["n"].to_pylist() == [2]
