"""A hub of datasets on loopback: the API and the redirects that clients of the Hub's datasets rely on.

Written from the public documentation of the Hub's API; `huggingface_hub` itself reads it in the tests.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, unquote, urlsplit

from harness.web_server import WebServer

PAGE = 1000


@dataclass
class Blob:
    """The bytes of a file."""

    body: bytes

    @cached_property
    def oid(self) -> str:
        """Their hash in Git."""
        known = hashlib.sha1(b"blob %d\0" % len(self.body))
        known.update(self.body)
        return known.hexdigest()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


Files = dict[str, Blob]


@dataclass
class Repository:
    """A dataset's commits and what their names are."""

    commits: dict[str, Files] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    """Without it, the dataset is not seen; none: a public one."""
    card: dict[str, object] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes | Blob], revision: str = "main") -> str:
        """Make a commit of these files alone, and return its name."""
        blobs = {path: body if isinstance(body, Blob) else Blob(body) for path, body in sorted(files.items())}
        known = "".join(f"{path} {blob.oid}\n" for path, blob in blobs.items())
        name = hashlib.sha1(f"{len(self.commits)} {known}".encode()).hexdigest()
        self.commits[name] = blobs
        self.revisions[revision] = name
        return name

    def head(self) -> Files:
        """The files of the main branch."""
        return self.commits[self.revisions["main"]]

    def files(self, revision: str) -> tuple[str, Files] | None:
        """The commit of a revision and its files."""
        name = self.revisions.get(revision, revision)
        return (name, self.commits[name]) if name in self.commits else None


@dataclass
class Request:
    """A request that the hub or its places of files received."""

    method: str
    path: str
    authorization: str | None
    range: str | None


class Hub:
    """A hub, and the other address that has the bytes of its files."""

    def __init__(self, large: int = 0, expire_seconds: float = 3600) -> None:
        self.repositories: dict[str, Repository] = {}
        self.large = large
        """Files of at least this size are at the other address."""
        self.expire_seconds = expire_seconds
        self.requests: list[Request] = []
        self.elsewhere_requests: list[Request] = []
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """Statuses and headers of the next answers."""
        self.place: str | None = None
        """Where files are said to be instead of at the other address."""
        self.lock = threading.Lock()
        self._signed: dict[str, tuple[float, bytes]] = {}
        hub = self

        class Front(Answers):
            def handle_request(self) -> None:
                hub._answer(self)

        class Elsewhere(Answers):
            def handle_request(self) -> None:
                hub._answer_elsewhere(self)

        self._front, self._elsewhere = WebServer(Front), WebServer(Elsewhere)
        self.url = self._front.__enter__()
        # Another host by its name.
        self.elsewhere_url = self._elsewhere.__enter__().replace("127.0.0.1", "localhost")

    def close(self) -> None:
        """Stop both."""
        self._front.__exit__()
        self._elsewhere.__exit__()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, name: str, files: Mapping[str, bytes], token: str | None = None) -> Repository:
        """Add a dataset of one commit."""
        self.repositories[name] = repository = Repository(token=token)
        repository.commit(files)
        return repository

    def forget_places(self) -> None:
        """Let all addresses that were handed out expire."""
        with self.lock:
            self._signed.clear()

    def _answer(self, request: Answers) -> None:
        with self.lock:
            self.requests.append(request.seen())
            refusal = self.refusals.pop(0) if self.refusals else None
        if refusal:
            return request.refuse(refusal[0], **refusal[1])
        split = urlsplit(request.path)
        found = re.fullmatch(
            r"(?:/api/datasets/([^/]+/[^/]+)/(revision|tree)/([^/]+)|/datasets/([^/]+/[^/]+)/(resolve)/([^/]+))(?:/(.*))?",
            split.path,
        )
        if not found:
            return request.refuse(404)
        name, action, revision = (found[1], found[2], found[3]) if found[1] else (found[4], found[5], found[6])
        repository = self.repositories.get(name)
        if repository is None or repository.token not in (None, request.token()):
            return request.refuse(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        commit = repository.files(unquote(revision))
        if commit is None:
            return request.refuse(404, X_Error_Code="RevisionNotFound", X_Error_Message=f"Invalid rev id: {revision}")
        path = unquote(found[7] or "")
        if action == "revision":
            sha = commit[0]
            return request.send(200, json.dumps({"id": name, "sha": sha, "cardData": repository.card}).encode())
        if action == "tree":
            return self._tree(request, name, *commit, path, parse_qs(split.query))
        return self._resolve(request, *commit, path)

    def _tree(
        self, request: Answers, name: str, sha: str, files: Files, path: str, query: dict[str, list[str]]
    ) -> None:
        recursive = query.get("recursive", ["false"])[0].lower() == "true"
        entries = list(self._entries(files, f"{path}/" if path else "", recursive))
        if not entries:
            return request.refuse(404, X_Error_Code="EntryNotFound", X_Error_Message=f"{path} does not exist")
        start = int(query.get("cursor", ["0"])[0])
        headers = {}
        if start + PAGE < len(entries):
            place = f"{request.origin()}/api/datasets/{name}/tree/{sha}/{quote(path)}"
            recursion = str(recursive).lower()
            headers["Link"] = f'<{place}?recursive={recursion}&cursor={start + PAGE}>; rel="next"'
        return request.send(200, json.dumps(entries[start : start + PAGE]).encode(), headers)

    def _entries(self, files: Files, prefix: str, recursive: bool) -> Iterable[dict[str, object]]:
        folders: set[str] = set()
        for path, blob in files.items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts)):
                folder = prefix + "/".join(parts[:depth])
                if folder not in folders and (recursive or depth == 1):
                    folders.add(folder)
                    yield {"type": "directory", "oid": Blob(folder.encode()).oid, "size": 0, "path": folder}
            if recursive or len(parts) == 1:
                yield self._entry(path, blob)

    def _entry(self, path: str, blob: Blob) -> dict[str, object]:
        size = len(blob.body)
        if self._is_large(blob):
            pointer = Blob(f"version 1\noid sha256:{blob.sha256}\nsize {size}\n".encode())
            large = {"oid": blob.sha256, "size": size, "pointerSize": len(pointer.body)}
            return {"type": "file", "oid": pointer.oid, "size": size, "path": path, "lfs": large}
        return {"type": "file", "oid": blob.oid, "size": size, "path": path}

    def _is_large(self, blob: Blob) -> bool:
        return bool(self.large) and len(blob.body) >= self.large

    def _resolve(self, request: Answers, sha: str, files: Files, path: str) -> None:
        blob = files.get(path)
        if blob is None:
            return request.refuse(404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found")
        if not self._is_large(blob):
            return request.send_file(blob.body, {"ETag": f'"{blob.oid}"', "X-Repo-Commit": sha})
        with self.lock:
            signature = secrets.token_hex(8)
            self._signed[signature] = (time.monotonic() + self.expire_seconds, blob.body)
        headers = {
            "Location": self.place or f"{self.elsewhere_url}/{blob.sha256}?Signature={signature}",
            "X-Linked-ETag": f'"{blob.sha256}"',
            "X-Linked-Size": str(len(blob.body)),
            "X-Repo-Commit": sha,
        }
        return request.send(302, b"Found. Redirecting", headers)

    def _answer_elsewhere(self, request: Answers) -> None:
        with self.lock:
            self.elsewhere_requests.append(request.seen())
            signature = parse_qs(urlsplit(request.path).query).get("Signature", [""])[0]
            expiry, body = self._signed.get(signature, (0.0, b""))
        if time.monotonic() > expiry:
            return request.send(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        # The tags of places of files are theirs.
        return request.send_file(body, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})


class Answers(BaseHTTPRequestHandler):
    """Answers of a server whose connections stay open."""

    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.handle_request()

    def do_HEAD(self) -> None:
        self.handle_request()

    def seen(self) -> Request:
        return Request(self.command, self.path, self.headers.get("Authorization"), self.headers.get("Range"))

    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def origin(self) -> str:
        return f"http://{self.headers['Host']}"

    def refuse(self, status: int, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send(status, json.dumps({"error": named.get("X-Error-Message", "refused")}).encode(), named)

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, body: bytes, headers: dict[str, str]) -> None:
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not byte_range:
            return self.send(200, body, headers)
        part = body[int(byte_range[1]) : int(byte_range[2]) + 1]
        place = f"bytes {byte_range[1]}-{int(byte_range[1]) + len(part) - 1}/{len(body)}"
        return self.send(206, part, headers | {"Content-Range": place})

    def log_message(self, *_: object) -> None:
        pass
