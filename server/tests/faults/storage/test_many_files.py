"""Datasets of very many files: listed page by page in bounded memory, and refused beyond a limit."""

from __future__ import annotations

import io
import re
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.serving import Serve, Server, raw_table
from harness.web_server import WebServer

pytestmark = pytest.mark.long
KEYS, PAGE_KEYS = 1_000_000, 1000
PAGE = "{page}"
FILES_MAX = 2000
MEMORY_BYTES_MAX = 100 << 20


@cache
def body() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), sink)
    return sink.getvalue()


KEYS, PAGE_KEYS = 1_000_000, 1000
PAGE = "{page}"
FILES_MAX = 2000
MEMORY_BYTES_MAX = 100 << 20


@cache
def contents_of_a_page(prefix: str, parquet: int) -> str:
    """A page of keys, the first ones of which are Parquet; the number of the page is left out."""
    return "".join(
        f"<Contents><Key>{prefix}{PAGE}{n:03}.{'parquet' if n < parquet else 'json'}</Key><ETag>&quot;x&quot;</ETag>"
        f"<LastModified>2026-11-23T00:00:00.000Z</LastModified><Size>{len(body())}</Size></Contents>"
        for n in range(PAGE_KEYS)
    )


class Million(BaseHTTPRequestHandler):
    """The listing of a bucket of a million keys: all Parquet under `all/`, three under `few/`."""

    protocol_version = "HTTP/1.1"
    pages: ClassVar[dict[str, int]] = {"all/": 0, "few/": 0}

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if query.get("list-type") == "2":
            self._page(query["prefix"], int(query.get("continuation-token", "0")))
        else:
            first, last = (int(end) for end in self.headers["Range"].removeprefix("bytes=").split("-"))
            whole = body()
            part = whole[first : last + 1]
            content_range = f"bytes {first}-{first + len(part) - 1}/{len(whole)}"
            date = "Mon, 23 Nov 2026 00:00:00 GMT"
            self._answer(206, part, {"Content-Range": content_range, "ETag": '"x"', "Last-Modified": date})

    def _page(self, prefix: str, at: int) -> None:
        self.pages[prefix] += 1
        parquet = PAGE_KEYS if prefix == "all/" else int(at % (KEYS * 2 // 5) == 0)
        page, after = at // PAGE_KEYS, at + PAGE_KEYS
        token = f"<NextContinuationToken>{after}</NextContinuationToken>" if after < KEYS else ""
        more = f"<IsTruncated>{str(after < KEYS).lower()}</IsTruncated>"
        contents = contents_of_a_page(prefix, parquet).replace(PAGE, f"{page:04}")
        self._answer(200, f"<ListBucketResult>{more}{token}{contents}</ListBucketResult>".encode(), {})

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def refusal(server: Server, dataset: str) -> str:
    with fl.connect(server.url) as client, pytest.raises((fl.FlightError, pa.ArrowException)) as raised:
        raw_table(client, dataset)
    error = translate(raised.value)
    assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "LIMIT"), error
    assert "--dataset-files-max" in str(error)
    return str(error)


def peak_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_bucket_of_a_million_keys_takes_bounded_memory_or_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    with WebServer(Million) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        datasets = {"few": "s3://million/few/", "all": "s3://million/all/"}
        server = serve(datasets, "--dataset-files-max", str(FILES_MAX))
        before = peak_bytes(server)
        with fl.connect(server.url) as client:
            # Not read: each request lists the bucket again, which takes a minute.
            assert client.get_flight_info(fl.FlightDescriptor.for_path("few")).total_records == 3
        assert Million.pages["few/"] >= KEYS // PAGE_KEYS
        Million.pages["all/"] = 0
        assert f'more than {FILES_MAX} files under "s3://million/all"' in refusal(server, "all")
        # The rest is not listed.
        assert Million.pages["all/"] <= FILES_MAX // PAGE_KEYS + 1
        assert peak_bytes(server) - before < MEMORY_BYTES_MAX


def test_directory_of_too_many_files_is_refused(serve: Serve, tmp_path: Path):
    for n in range(3):
        (tmp_path / f"{n}.parquet").write_bytes(body())
    server = serve({"two": tmp_path / "[01].parquet", "three": tmp_path}, "--dataset-files-max", "2")
    with fl.connect(server.url) as client:
        assert raw_table(client, "two").num_rows == 2
    assert f'more than 2 files under "{tmp_path}"' in refusal(server, "three")
