"""Web servers that redirect: a dataset's server chooses no other address that this machine asks."""

from __future__ import annotations

import io
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.refusals import refusal
from harness.serving import Serve, raw_table
from harness.web_server import Files, WebServer


class Canary(BaseHTTPRequestHandler):
    """Counts requests that should not come."""

    requested: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requested.append(self.path)
        self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()


def test_redirects_stay_at_the_address_of_the_dataset(serve: Serve):
    body = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), body)
    canary = WebServer(Canary)

    class Front(Files):
        files: ClassVar[dict[str, bytes]] = {"/a.parquet": body.getvalue()}

        def answer(self, with_body: bool) -> None:
            place = {"/near.parquet": "/a.parquet", "/far.parquet": f"{elsewhere}/latest/meta-data"}.get(self.path)
            if place is None:
                return super().answer(with_body)
            self.send_response(302)
            self.send_header("Location", place)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None

    with canary as elsewhere, WebServer(Front) as front:
        server = serve({name: f"{front}/{name}.parquet" for name in ("a", "near", "far")})
        with fl.connect(server.url) as client:
            for name in ("a", "near"):
                assert raw_table(client, name)["a"].to_pylist() == [1, 2], name
            error = refusal(lambda: raw_table(client, "far"))
    assert error.code == "FAILED_PRECONDITION"
    assert "redirects to such addresses are not followed" in str(error), error
    assert Canary.requested == []
