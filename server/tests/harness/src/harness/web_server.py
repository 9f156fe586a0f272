"""A web server on loopback whose files have ranges."""

from __future__ import annotations

import email.utils
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class WebServer:
    """A web server on a free loopback port."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Files(BaseHTTPRequestHandler):
    """Files with ranges, and what they can be known again by; it ignores If-Match, as many servers do."""

    files: ClassVar[dict[str, bytes]] = {}
    dates: ClassVar[dict[str, float]] = {}
    tags: ClassVar[str | None] = "strong"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        body = self.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        part = body[int(byte_range[1]) : int(byte_range[2]) + 1] if byte_range else body
        self.send_response(206 if byte_range else 200)
        if byte_range:
            self.send_header("Content-Range", f"bytes {byte_range[1]}-{int(byte_range[1]) + len(part) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(part)))
        if self.tags == "strong":
            self.send_header("ETag", f'"{hash(body):x}"')
        if self.tags == "date":
            self.send_header("Last-Modified", email.utils.formatdate(self.dates[self.path], usegmt=True))
        self.end_headers()
        if with_body:
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass
