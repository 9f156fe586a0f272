"""Datasets in a bucket and on a web server: the same tables, streams and rules as on a disk, with their own errors."""

from __future__ import annotations

import io
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.object_store import KEY_ID, SECRET, Store, s3_server
from harness.serving import Serve, Server, fit, info, raw_table
from harness.web_server import Files, WebServer

ROWS = 600
# 120 MB on the wire: twice what a server reads ahead of its client.
LONG_ROWS = 60_000
PLAN = {
    "outputs": [
        {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
        {"name": "version", "dtype": "INT32", "parts": [{"columns": ["version"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
    ]
}
REQUEST: dict[str, Any] = {"dataset": "data", "plan": PLAN, "batch_size": 500}


def parquet(version: int, rows: int = ROWS, group: int = 5_000) -> bytes:
    """Rows of 2 KB with the version that wrote them."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["snapshot " * 220])
    table = pa.table({"id": np.arange(rows), "version": pa.array([version] * rows, pa.int32()), "text": texts})
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False, row_group_size=group)
    return sink.getvalue()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


BUCKETS = iter(f"bucket-{n}" for n in range(1_000_000))


@pytest.fixture
def store(endpoint: str) -> Store:
    return Store(endpoint, next(BUCKETS))


@pytest.fixture(scope="module")
def shared(endpoint: str) -> Store:
    return Store(endpoint, "shared")


def upload(store: Store, folder: Path, prefix: str) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            store.put(f"{prefix}{file.relative_to(folder).as_posix()}", file.read_bytes())


def stream(client: fl.FlightClient, request: dict[str, Any]) -> list[pa.Table]:
    return [client.do_get(endpoint.ticket).read_all() for endpoint in info(client, request).endpoints]


def code(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
        call()
    error = translate(raised.value)
    assert SECRET not in str(error)
    return error.code, str(error)


def test_bucket_and_disk_give_the_same_results(shared: Store, tiny_folder: Path, flights_folder: Path, serve: Serve):
    upload(shared, tiny_folder, "same/tiny/")
    upload(shared, flights_folder, "same/flights/")
    server = serve(
        {
            "tiny-disk": tiny_folder,
            "tiny-bucket": shared.url("same/tiny"),
            "flights-disk": flights_folder,
            "flights-bucket": shared.url("same/flights/"),
        }
    )
    plan = {
        "filter": "arr_delay IS NOT NULL",
        "outputs": [
            {"name": "dense", "parts": [{"columns": ["dep_delay", "distance"], "ops": [{"standardize": {}}]}]},
            {"name": "carrier", "dtype": "INT32", "parts": [{"columns": ["carrier"], "ops": [{"vocab": {}}]}]},
        ],
    }
    with fl.connect(server.url) as client:
        for name in ("tiny", "flights"):
            disk, bucket = (raw_table(client, f"{name}-{place}") for place in ("disk", "bucket"))
            assert disk.schema.equals(bucket.schema, check_metadata=True)
            assert disk.equals(bucket)
        disk, bucket = (fit(client, f"flights-{place}", plan)[-1]["result"] for place in ("disk", "bucket"))
        assert disk["plan_id"] == bucket["plan_id"]
        request = {"plan": disk["plan"], "batch_size": 10_000, "world_size": 2}
        ranks = [stream(client, {**request, "dataset": f"flights-{place}"}) for place in ("disk", "bucket")]
        assert ranks[0] == ranks[1]
        shuffled = {**request, "shuffle": True, "seed": 3, "window_rows": 1000}
        ranks = [stream(client, {**shuffled, "dataset": f"flights-{place}"}) for place in ("disk", "bucket")]
        assert ranks[0] == ranks[1]
        listed = {json.loads(i.app_metadata)["name"]: i.total_records for i in client.list_flights()}
        assert listed["flights-bucket"] == listed["flights-disk"] == 336_776
    assert not [line for line in server.log if SECRET in line or KEY_ID in line]


FILES = [
    "t/a.parquet",
    "t/b.PARQUET",
    "t/day=1/a.parquet",
    "t/day=1/b.parquet",
    "t/day=2/hour=3/c.parquet",
    "t/x y%20z ü#+&.parquet",
    "t/Zebra.parquet",
    "t/dir.parquet/part-0.parquet",
    "t/[1]/a.parquet",
]
NOT_FILES = [
    "t/_SUCCESS",
    "t/_temporary/0/part.parquet",
    "t/.hidden.parquet",
    "t/a.parquet.crc",
    "t/notes.txt",
    "t2/a.parquet",
]
# For files without an ending, the bytes decide.
ALL = sorted([*FILES, "t/plain"])
URLS: dict[str, tuple[str, list[str]]] = {
    "prefix": ("t", ALL),
    "prefix with a slash": ("t/", ALL),
    "prefix below": ("t/day=2", ["t/day=2/hour=3/c.parquet"]),
    "prefix called as a file": ("t/dir.parquet", ["t/dir.parquet/part-0.parquet"]),
    "prefix with brackets": ("t/[1]", ["t/[1]/a.parquet"]),
    "object": ("t/a.parquet", ["t/a.parquet"]),
    "object of another ending": ("t/b.PARQUET", ["t/b.PARQUET"]),
    "object of no ending": ("t/plain", ["t/plain"]),
    "object with an odd name": ("t/x y%20z ü#+&.parquet", ["t/x y%20z ü#+&.parquet"]),
    "star": ("t/[a-z].parquet", ["t/a.parquet"]),
    "star stops at a slash": ("t/day=1/*.parquet", ["t/day=1/a.parquet", "t/day=1/b.parquet"]),
    "star in a folder": ("t/day=*/*.parquet", ["t/day=1/a.parquet", "t/day=1/b.parquet"]),
    "two stars": ("t/**/a.parquet", ["t/[1]/a.parquet", "t/a.parquet", "t/day=1/a.parquet"]),
    "question mark": ("t/day=?/a.parquet", ["t/day=1/a.parquet"]),
    "star at the top": ("t*/day=1/a.parquet", ["t/day=1/a.parquet"]),
}


def one_row(name: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"file": [name]}), sink)
    return sink.getvalue()


def names(client: fl.FlightClient, dataset: str) -> list[str]:
    return raw_table(client, dataset)["file"].to_pylist()


def test_each_url_lists_exactly_its_objects_in_key_order(store: Store, serve: Serve):
    for name in [*FILES, "t/plain"]:
        store.put(name, one_row(name))
    for name in NOT_FILES:
        store.put(name, b"no Parquet")
    # Tools put empty objects in the place of folders.
    store.put("t/", b"")
    store.put("t/dir.parquet/", b"")
    server = serve({name: store.url(tail) for name, (tail, _) in URLS.items()})
    with fl.connect(server.url) as client:
        for name, (_, want) in URLS.items():
            assert names(client, name) == want, name


def test_listing_of_several_pages_keeps_the_order(store: Store, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    """Pages of 50 objects instead of S3's 1,000: the store decides, and says where the next one begins."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "50")
    count = 203
    marks = (0, 49, 50, 51, 100, count - 1)
    for n in reversed(range(count)):
        store.put(f"many/{n:05}.parquet", one_row(f"row {n}" if n in marks else "x"))
    pages = store.client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket)
    assert [len(page["Contents"]) for page in pages] == [50, 50, 50, 50, 3]
    server = serve({"data": store.url("many")})
    with fl.connect(server.url) as client:
        found = client.get_flight_info(fl.FlightDescriptor.for_path("data"))
        assert json.loads(found.app_metadata)["files"] == found.total_records == count
        table = client.do_get(found.endpoints[0].ticket).read_all()
    marked = {place: name for place, name in enumerate(table["file"].to_pylist()) if name != "x"}
    assert marked == {n: f"row {n}" for n in marks}


def replaced(store: Store, key: str) -> None:
    store.put(key, parquet(1))


def replaced_by_the_same_size(store: Store, key: str) -> None:
    old, new = parquet(0), parquet(1)
    store.put(key, new if len(new) == len(old) else new + b" " * (len(old) - len(new)))


def truncated(store: Store, key: str) -> None:
    store.put(key, parquet(0)[:-100])


def emptied(store: Store, key: str) -> None:
    store.put(key, b"")


def deleted(store: Store, key: str) -> None:
    store.delete(key)


CHANGES = [replaced, replaced_by_the_same_size, truncated, emptied, deleted]
Change = Callable[[Store, str], None]


def table_info(client: fl.FlightClient) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_path("data"))


def stream_info(client: fl.FlightClient) -> fl.FlightInfo:
    return info(client, REQUEST)


INFOS = [table_info, stream_info]


@pytest.mark.parametrize("flight", INFOS)
@pytest.mark.parametrize("change", CHANGES)
def test_object_changed_in_mid_stream_ends_it(store: Store, serve: Serve, flight: Any, change: Change):
    store.put("d/a.parquet", parquet(0, LONG_ROWS))
    store.put("d/b.parquet", parquet(0))
    server = serve({"data": store.url("d")})
    with fl.connect(server.url) as client:
        before = flight(client)
        reader = client.do_get(before.endpoints[0].ticket)
        seen = [reader.read_chunk().data]
        change(store, "d/b.parquet")
        # Most of the first object precedes the second: the server cannot have reached that yet.
        with pytest.raises(fl.FlightError) as raised:
            seen.extend(chunk.data for chunk in reader)
        text = str(raised.value)
        assert "aborted" in text, text
        assert "snapshot changed" in text, text
        assert store.url("d/b.parquet") in text, text
        assert all(set(batch["version"].to_pylist()) == {0} for batch in seen)
        if change is replaced:
            after = flight(client)
            assert json.loads(after.app_metadata)["snapshot"] != json.loads(before.app_metadata)["snapshot"]
            versions = client.do_get(after.endpoints[0].ticket).read_all()["version"].to_numpy()
            assert np.array_equal(versions, np.repeat([0, 1], [LONG_ROWS, ROWS]))


def test_older_ticket_excludes_an_added_object(store: Store, serve: Serve):
    store.put("d/a.parquet", parquet(0, group=100))
    store.put("d/c.parquet", parquet(0))
    server = serve({"data": store.url("d")})
    with fl.connect(server.url) as client:
        old = [flight(client) for flight in INFOS]
        store.put("d/b.parquet", parquet(1, rows=10))
        for flight, before in zip(INFOS, old, strict=True):
            now = flight(client)
            assert now.total_records == before.total_records + 10
            table = client.do_get(now.endpoints[0].ticket).read_all()
            assert table["version"].to_pylist() == [0] * ROWS + [1] * 10 + [0] * ROWS
            table = client.do_get(before.endpoints[0].ticket).read_all()
            assert table["version"].to_pylist() == [0] * (2 * ROWS)
        store.delete("d/b.parquet")
        for flight, before in zip(INFOS, old, strict=True):
            assert flight(client).app_metadata == before.app_metadata
    # A server that never saw those files knows the snapshot again by its digest, and no other.
    other = serve({"data": store.url("d/*.parquet")})
    with fl.connect(other.url) as client:
        tickets = [before.endpoints[0].ticket for before in old]
        for ticket in tickets:
            assert client.do_get(ticket).read_all().num_rows == 2 * ROWS
    store.put("d/d.parquet", parquet(1, rows=10))
    third = serve({"data": store.url("d")})
    with fl.connect(third.url) as client:
        for ticket in tickets:
            found, text = code(lambda ticket=ticket: client.do_get(ticket).read_all())
            assert found == "ABORTED", text
            assert "snapshot changed" in text


def test_stream_reads_each_range_once(store: Store, serve: Serve):
    """Footers are read once, a repeated flight info lists and reads nothing, and no read is followed by a HEAD."""
    store.put("d/a.parquet", parquet(0, group=100))
    server = serve({"data": store.url("d")})
    with fl.connect(server.url) as client:
        table = client.do_get(stream_info(client).endpoints[0].ticket).read_all()
        assert table["id"].to_pylist() == list(range(ROWS))
        before = requests(server)
        for _ in range(3):
            stream_info(client)
        after = requests(server)
    assert after["head"] == 0
    assert after["get"] == before["get"]
    assert after["list"] == before["list"] + 3


def requests(server: Server) -> dict[str, int]:
    import urllib.request

    url = next(m[1] for line in server.log if (m := re.search(r"metrics on (http://\S+)", line)))
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    pattern = r'forebay_storage_requests_total\{operation="(\w+)",status="ok"\} (\d+)'
    return {operation: int(count) for operation, count in re.findall(pattern, text)}


def test_missing_objects_are_reported_and_may_appear_later(store: Store, serve: Serve):
    server = serve(
        {
            "bucket": "s3://no-such-bucket/x",
            "data": store.url("d"),
            "object": store.url("d/a.parquet"),
            "glob": store.url("d/*/*.parquet"),
        }
    )
    with fl.connect(server.url) as client:
        for name, word in [
            ("bucket", "NoSuchBucket"),
            ("data", store.url("d")),
            ("object", store.url("d/a.parquet")),
            ("glob", store.url("d")),
        ]:
            found, text = code(lambda name=name: raw_table(client, name))
            assert found == "FAILED_PRECONDITION", text
            assert word in text
        store.put("d/a.parquet", one_row("a"))
        assert names(client, "data") == names(client, "object") == ["a"]
        store.put("d/b.parquet", b"PAR1 is no more than a beginning")
        found, text = code(lambda: raw_table(client, "data"))
        assert found == "DATA_LOSS"
        assert store.url("d/b.parquet") in text


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_unreachable_store_times_out_and_the_server_survives(
    tiny_folder: Path, endpoint: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    dead = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{dead}")
    server = serve({"data": "s3://bucket/x", "tiny": tiny_folder})
    start = time.monotonic()
    with fl.connect(server.url) as client:
        found, text = code(lambda: raw_table(client, "data"))
        assert found == "UNAVAILABLE", text
        assert "s3://bucket/x" in text
        assert dead in text
        assert time.monotonic() - start < 60
        assert raw_table(client, "tiny").num_rows == 100
    assert server.alive


class Refusing(BaseHTTPRequestHandler):
    """A store that refuses every key and repeats in its answer what it was sent."""

    def do_GET(self) -> None:
        body = (
            "<?xml version='1.0'?><Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>"
            f"<AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId><StringToSign>{self.headers['Authorization']}</StringToSign></Error>"
        ).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_rejected_credentials_are_reported_and_not_shown(endpoint: str, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    with WebServer(Refusing) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        server = serve({"data": "s3://bucket/x"})
        with fl.connect(server.url) as client:
            found, text = code(lambda: raw_table(client, "data"))
    assert found == "FAILED_PRECONDITION", text
    assert "s3://bucket/x" in text
    assert "SignatureDoesNotMatch: Check your key; " in text
    assert "AWS_ACCESS_KEY_ID" in text
    assert KEY_ID not in text
    assert not [line for line in server.log if SECRET in line or KEY_ID in line]
    assert server.alive


@pytest.mark.parametrize("tags", ["strong", "date"])
def test_file_on_a_web_server(tags: str, tiny: pa.Table, serve: Serve):
    class Tagged(Files):
        files: ClassVar[dict[str, bytes]] = {}
        dates: ClassVar[dict[str, float]] = {"/a%20b/tiny.parquet": 1_000_000}

    Tagged.tags = tags
    sink = io.BytesIO()
    pq.write_table(tiny, sink, row_group_size=9)
    Tagged.files["/a%20b/tiny.parquet"] = sink.getvalue()
    with WebServer(Tagged) as url:
        server = serve({"data": f"{url}/a%20b/tiny.parquet", "gone": f"{url}/none.parquet"})
        with fl.connect(server.url) as client:
            assert raw_table(client, "data").equals(tiny)
            found, text = code(lambda: raw_table(client, "gone"))
            assert (found, f"{url}/none.parquet" in text) == ("FAILED_PRECONDITION", True), text
            ticket = table_info(client).endpoints[0].ticket
            sink = io.BytesIO()
            pq.write_table(tiny.slice(50), sink, row_group_size=9)
            Tagged.files["/a%20b/tiny.parquet"] = sink.getvalue()
            Tagged.dates["/a%20b/tiny.parquet"] = 2_000_000
            found, text = code(lambda: client.do_get(ticket).read_all())
            assert found == "ABORTED", text
            assert raw_table(client, "data").equals(tiny.slice(50))


def test_rejects_a_web_file_without_a_validator(serve: Serve):
    class Untagged(Files):
        files: ClassVar[dict[str, bytes]] = {"/x.parquet": one_row("x")}
        tags = None

    with WebServer(Untagged) as url:
        server = serve({"data": f"{url}/x.parquet"})
        with fl.connect(server.url) as client:
            found, text = code(lambda: raw_table(client, "data"))
    assert found == "FAILED_PRECONDITION", text
    assert "ETag" in text
