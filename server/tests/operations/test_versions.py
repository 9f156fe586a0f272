"""Versions of client and server: bare clients, clients and servers of another protocol, in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client import server_version, version
from harness.serving import Serve, Server

PLAN = fb.Plan(outputs={"x": fb.cols("x")})
ROWS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("versions")
    pq.write_table(pa.table({"x": pa.array(range(ROWS), pa.int32())}), root / "a.parquet")
    return root


@pytest.fixture(params=["tcp", "unix"])
def server(folder: Path, serve: Serve, request: pytest.FixtureRequest) -> Server:
    return serve({"t": folder}, unix=request.param == "unix")


class Answering(fl.ServerMiddleware):
    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__()
        self.headers = headers

    def sending_headers(self) -> dict[str, str]:
        return self.headers


class Versions(fl.ServerMiddlewareFactory):
    """Sends the headers of a server of another version with every response, and keeps those of the last call."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__()
        self.headers = headers
        self.received: dict[str, Any] = {}

    def start_call(self, info: Any, headers: dict[str, Any]) -> fl.ServerMiddleware:
        self.received = headers
        return Answering(self.headers)


class Other(fl.FlightServerBase):
    """A server of another version, which has no datasets."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.versions = Versions(headers)
        super().__init__("grpc://127.0.0.1:0", middleware={"versions": self.versions})

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def list_actions(self, context: Any) -> list[Any]:
        return []

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[fl.FlightInfo]:
        return iter(())


def test_the_package_and_the_server_speak_one_protocol(server: Server):
    with fb.connect(server.url) as client:
        assert list(client.datasets()) == ["t"]
        rows = sum(len(batch["x"]) for batch in client.stream("t", PLAN, batch_size=8))
        assert rows == ROWS
    seen = server_version.ServerVersion()
    with fl.FlightClient(server.url, middleware=[seen]) as bare:
        # A client that sends no version is any client of Flight.
        list(bare.list_actions())
    assert seen.protocol == version.PROTOCOL
    assert seen.version is not None


def test_a_client_of_another_protocol_is_told_what_to_upgrade(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(version, "PROTOCOL", 7)
    with pytest.raises(fb.errors.IncompatibleVersion, match="uses protocol 7.* upgrade the server") as refused:
        fb.connect(server.url)
    assert (refused.value.reason, refused.value.code) == ("INCOMPATIBLE_VERSION", "FAILED_PRECONDITION")
    assert isinstance(refused.value, fb.FailedPrecondition)
    monkeypatch.setattr(version, "PROTOCOL", 0)
    with pytest.raises(fb.errors.IncompatibleVersion, match="upgrade the client to version"):
        fb.connect(server.url)


def test_a_server_of_an_older_protocol_is_named():
    with Other({"forebay-version": "0.0.9", "forebay-protocol": "0"}) as other:
        with pytest.raises(
            fb.errors.IncompatibleVersion, match=r"forebay-server 0\.0\.9, which supports protocol 0"
        ) as refused:
            fb.connect(other.url)
        assert "upgrade the server" in str(refused.value)
        assert other.versions.received["forebay-protocol"] == [str(version.PROTOCOL)]


@pytest.mark.parametrize(
    "headers",
    [{}, {"forebay-protocol": "7", "forebay-version": "9.0.0"}, {"forebay-protocol": "x"}],
    ids=["no version", "a newer one that answers", "malformed"],
)
def test_other_servers_are_tried(headers: dict[str, str]):
    with Other(headers) as other, fb.connect(other.url) as client:
        assert client.datasets() == {}
