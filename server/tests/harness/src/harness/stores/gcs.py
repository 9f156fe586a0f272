"""Google Cloud Storage by gcp-storage-emulator, with the part of the XML API that the emulator lacks.

The emulator has the JSON API. `object_store` reads and writes through the XML API: its listing, and objects with their
ETag, generation and date.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterable
from datetime import datetime
from email.utils import format_datetime
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers.objects import _checksums, _make_object_resource
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

from harness.stores.backend import TOKEN, Backend

BUCKET = "conformance"
PAGE_KEYS = 1000


def etag(resource: dict[str, Any]) -> str:
    return f'"{resource["generation"]}"'


class XmlApi(RequestHandler):
    """Adds the XML API to the emulator: reads, listings, conditional writes and removals."""

    protocol_version = "HTTP/1.1"
    writing = threading.Lock()

    def do_GET(self) -> None:  # noqa: N802
        path = urlsplit(self.path)
        parts = unquote(path.path).lstrip("/").split("/", 1)
        query = {name: values[0] for name, values in parse_qs(path.query).items()}
        if parts[0] in ("storage", "upload", "download", "b"):
            super().do_GET()
        elif query.get("list-type") == "2":
            self._list(parts[0], query)
        else:
            self._read(parts[0], parts[1] if len(parts) > 1 else "")

    def do_HEAD(self) -> None:  # noqa: N802
        self.do_GET()

    def do_PUT(self) -> None:  # noqa: N802
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        if bucket in ("storage", "upload"):
            super().do_PUT()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.writing:
            if bucket not in self.storage.buckets:
                self._error(404, "NoSuchBucket")
                return
            try:
                present = self.storage.get_file_obj(bucket, key)["generation"]
            except NotFound:
                present = "0"
            if self.headers.get("x-goog-if-generation-match", present) != present:
                self._error(412, "PreconditionFailed")
                return
            resource = _make_object_resource("", bucket, key, "application/octet-stream", str(len(body)))
            # Two writes may be made within the resolution of the emulator's generations.
            resource["generation"] = str(max(int(resource["generation"]), int(present) + 1))
            self.storage.create_file(bucket, key, body, _checksums(body, resource))
        self._answer(200, {"ETag": etag(resource), "x-goog-generation": resource["generation"]}, b"")

    def do_DELETE(self) -> None:  # noqa: N802
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        if bucket in ("storage", "upload"):
            super().do_DELETE()
            return
        with self.writing:
            try:
                self.storage.delete_file(bucket, key)
            except NotFound:
                self._error(404, "NoSuchKey")
                return
        self._answer(204, {}, b"")

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        try:
            resources, _ = self.storage.get_file_list(bucket, query.get("prefix"), None, None)
        except NotFound:
            self._error(404, "NoSuchBucket")
            return
        after = query.get("continuation-token", "")
        rest = sorted((one for one in resources if one["name"] > after), key=lambda one: one["name"].encode())
        page, more = rest[:PAGE_KEYS], len(rest) > PAGE_KEYS
        contents = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><Generation>{one['generation']}</Generation>"
            f"<LastModified>{one['updated']}</LastModified><ETag>{escape(etag(one))}</ETag>"
            f"<Size>{one['size']}</Size></Contents>"
            for one in page
        )
        token = f"<NextContinuationToken>{escape(page[-1]['name'])}</NextContinuationToken>" if more else ""
        head = f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Name>{bucket}</Name>"
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        self._answer(200, {}, f"{head}{truncated}{token}{contents}</ListBucketResult>".encode())

    def _read(self, bucket: str, key: str) -> None:
        try:
            resource, body = self.storage.get_file_obj(bucket, key), self.storage.get_file(bucket, key)
        except NotFound:
            self._error(404, "NoSuchKey")
            return
        tag = etag(resource)
        if self.headers.get("If-Match", tag) != tag:
            self._error(412, "PreconditionFailed")
            return
        updated = datetime.fromisoformat(resource["updated"].replace("Z", "+00:00"))
        headers = {
            "ETag": tag,
            "Last-Modified": format_datetime(updated, usegmt=True),
            "x-goog-generation": resource["generation"],
        }
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not found:
            self._answer(200, headers, body)
        elif int(found[1]) >= len(body):
            self._error(416, "InvalidRange")
        else:
            part = body[int(found[1]) : int(found[2]) + 1]
            headers["Content-Range"] = f"bytes {found[1]}-{int(found[1]) + len(part) - 1}/{len(body)}"
            self._answer(206, headers, part)

    def _error(self, status: int, code: str) -> None:
        document = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code} of the emulator.</Message></Error>"
        self._answer(status, {"Content-Type": "application/xml"}, document.encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class GoogleBackend(Backend):
    """A bucket of the emulator."""

    name = "gcs"
    credentials = "GOOGLE_SERVICE_ACCOUNT"
    endpoint_setting = "GOOGLE_BASE_URL"

    def __init__(self, folder: Path) -> None:
        storage = Storage(use_memory_fs=True)
        # It writes the metadata of all objects after each change: ten thousand take an hour, and memory needs none.
        storage._write_config_to_file = lambda: None
        storage.create_bucket(BUCKET, {"name": BUCKET})
        self._storage = storage
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(XmlApi, storage))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        # A key as `gcloud` writes it, but for `disable_oauth`: no token is requested from Google.
        self._account = folder / "service-account.json"
        account = {"private_key": TOKEN, "private_key_id": TOKEN, "client_email": "test@example.org"}
        self._account.write_text(json.dumps({**account, "disable_oauth": True}))
        super().__init__(self._endpoint)

    def url(self, key: str = "") -> str:
        return f"gs://{BUCKET}/{key}"

    def put(self, key: str, body: bytes) -> None:
        if not body:
            # Its handler of uploads fails without a body.
            return self.put_many([key], body)
        place = f"{self._endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}"
        request = urllib.request.Request(place, body, {"Content-Type": "application/octet-stream"})
        return urllib.request.urlopen(request, timeout=30).close()

    def put_many(self, keys: Iterable[str], body: bytes) -> None:
        # The server runs in this process: no need for ten thousand uploads.
        for key in keys:
            resource = _make_object_resource(self._endpoint, BUCKET, key, "text/plain", str(len(body)))
            self._storage.create_file(BUCKET, key, body, _checksums(body, resource))

    def get(self, key: str) -> bytes:
        return self._storage.get_file(BUCKET, key)

    def keys(self, prefix: str) -> list[str]:
        return sorted(one["name"] for one in self._storage.get_file_list(BUCKET, prefix, None, None)[0])

    def delete(self, key: str) -> None:
        self._storage.delete_file(BUCKET, key)

    def environment(self, endpoint: str) -> dict[str, str]:
        return {
            "GOOGLE_SERVICE_ACCOUNT": str(self._account),
            "GOOGLE_BASE_URL": endpoint,
        }

    def missing_url(self) -> str:
        return "gs://no-such-bucket/x"

    def close(self) -> None:
        super().close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
