"""Catalogs of lake tables on loopback: the REST API of Iceberg over a catalog of `pyiceberg`, and Unity Catalog's.

Written from the public specifications; the REST client of `pyiceberg` reads the first in the tests.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.flight as fl
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from forebay.errors import ForebayError
from harness.refusals import refusal
from harness.serving import raw_table
from harness.web_server import WebServer

LEVEL_END = "\x1f"

TOKEN = "token-not-to-be-seen-anywhere"
NUMBERS = pa.schema([("id", pa.int64()), ("x", pa.float64())])


@dataclass
class Call:
    """A request that a catalog received."""

    method: str
    path: str
    query: dict[str, str]
    authorization: str | None
    delegation: str | None
    body: str


class CatalogServer:
    """A catalog on a free loopback port."""

    def __init__(self) -> None:
        self.requests: list[Call] = []
        self.refusals: list[tuple[int, str]] = []
        """Statuses and bodies of the next answers."""
        self.token: str | None = None
        """Without it, nothing is answered; none: a public catalog."""
        self.lock = threading.Lock()
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                catalog.handle(self)

            def do_POST(self) -> None:
                catalog.handle(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = WebServer(Handler)
        self.url = self._server.__enter__()

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def __enter__(self) -> CatalogServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        split = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        headers = (handler.headers.get(name) for name in ("Authorization", "X-Iceberg-Access-Delegation"))
        call = Call(handler.command, split.path, query, *headers, body)
        with self.lock:
            self.requests.append(call)
            refusal = self.refusals.pop(0) if self.refusals else None
        status, answer = refusal or self.answer(call)
        text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text)))
        if status in (301, 302, 307, 308):
            handler.send_header("Location", text.decode())
        handler.end_headers()
        handler.wfile.write(text)

    def answer(self, call: Call) -> tuple[int, Any]:
        raise NotImplementedError

    def is_known(self, call: Call) -> bool:
        return self.token is None or call.authorization == f"Bearer {self.token}"


class RestCatalogServer(CatalogServer):
    """The REST API of Iceberg, of which reading a table is here."""

    def __init__(self, catalog: SqlCatalog, warehouse: str | None = None, prefix: str = "") -> None:
        super().__init__()
        self.catalog, self.warehouse, self.prefix = catalog, warehouse, prefix
        self.credential: tuple[str, str] | None = None
        """The client that may log in for tokens."""
        self.expires_seconds: int | None = 3600
        self.places: dict[str, str] = {}
        """The metadata files of tables, where they are not those of the catalog."""
        self.logins = 0
        self.vended: dict[str, Any] = {}
        """What an answer has for requests with delegated access."""

    def answer(self, call: Call) -> tuple[int, Any]:
        if call.path == "/api/v1/oauth/tokens":
            return self.log_in(parse_qs(call.body))
        if not self.is_known(call):
            return error(401, "NotAuthorizedException", f"unknown token in {call.authorization}")
        if call.path == "/api/v1/config":
            if call.query.get("warehouse") != self.warehouse:
                return error(404, "NoSuchWarehouseException", "Warehouse not found")
            return 200, {"defaults": {}, "overrides": {"prefix": self.prefix} if self.prefix else {}}
        start = f"/api/v1/{self.prefix}/namespaces/" if self.prefix else "/api/v1/namespaces/"
        if not call.path.startswith(start):
            return error(404, "NotFoundException", "No such path")
        namespace, _, table = call.path.removeprefix(start).partition("/tables/")
        name = (*unquote(namespace).split(LEVEL_END), unquote(table))
        try:
            found = self.catalog.load_table(name)
        except NoSuchTableError:
            return error(404, "NoSuchTableException", f"Table does not exist: {'.'.join(name)}")
        metadata = json.loads(found.metadata.model_dump_json())
        place = self.places.get(".".join(name), found.metadata_location)
        vended = self.vended if call.delegation == "vended-credentials" else {}
        return 200, {"metadata-location": place, "metadata": metadata, "config": {}, **vended}

    def log_in(self, form: dict[str, list[str]]) -> tuple[int, Any]:
        found = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
        if form.get("grant_type") != ["client_credentials"] or found != self.credential:
            return 401, {"error": "invalid_client", "error_description": f"wrong secret {found[1]}"}
        self.logins += 1
        self.token = f"token-{self.logins}"
        answer = {"access_token": self.token, "token_type": "bearer", "expires_in": self.expires_seconds}
        return 200, {key: value for key, value in answer.items() if value is not None}


class UnityServer(CatalogServer):
    """Unity Catalog, of which reading a table is here."""

    def __init__(self, tables: dict[str, dict[str, str]]) -> None:
        super().__init__()
        self.tables = tables
        self.credentials: dict[str, Any] = {}

    def answer(self, call: Call) -> tuple[int, Any]:
        if not self.is_known(call):
            return 401, {"error_code": "UNAUTHENTICATED", "message": "Invalid access token."}
        if call.path == "/api/2.1/unity-catalog/temporary-table-credentials":
            return 200, self.credentials
        name = unquote(call.path.removeprefix("/api/2.1/unity-catalog/tables/"))
        if name not in self.tables:
            return 404, {"error_code": "TABLE_NOT_FOUND", "message": f"Table not found: {name}"}
        return 200, {"full_name": name, "table_type": "MANAGED", **self.tables[name]}


def error(status: int, kind: str, message: str) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": kind, "code": status}}


def rows(*ids: int) -> pa.Table:
    """Rows of these ids."""
    return pa.table({"id": ids, "x": [number / 2 for number in ids]}, schema=NUMBERS)


def ids(url: str, name: str = "t") -> list[int]:
    """The ids of a dataset's rows, sorted."""
    with fl.connect(url) as client:
        return sorted(raw_table(client, name)["id"].to_pylist())


def refused(url: str, name: str = "t") -> ForebayError:
    """The error of reading a dataset."""
    with fl.connect(url) as client:
        return refusal(lambda: raw_table(client, name))
