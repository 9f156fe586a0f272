"""TLS and client certificates over bare pyarrow, and what an observer can read."""

from __future__ import annotations

import json
import socket
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.flight as fl
import pytest

from harness.certificates import Authority, digest
from harness.proxy import Proxy
from harness.secured import ADMIN, OTHER, PRINCIPALS, TRAINER, Secured, bearer, refused, request, table
from harness.serving import Serve, Server


def test_a_stream_and_a_table_over_tls(client: fl.FlightClient):
    info = client.get_flight_info(request("numbers", batch_size=128), bearer(TRAINER))
    assert client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all().column(0).to_pylist() == list(
        range(1000)
    )
    info = client.get_flight_info(fl.FlightDescriptor.for_path("numbers"), bearer(TRAINER))
    assert client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all().num_rows == 1000
    info = client.get_flight_info(table("numbers", columns=["x"], limit=3), bearer(TRAINER))
    assert client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all()["x"].to_pylist() == [0, 1, 2]
    by_hand = json.dumps({"table": {"dataset": "numbers", "limit": 3}}).encode()
    with refused("unauthorized"):
        client.do_get(fl.Ticket(by_hand), bearer(TRAINER)).read_all()


def test_renewed_certificate_is_used_without_a_restart(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path)
    place = urlsplit(secured.server.url)

    def shown() -> str:
        return ssl.get_server_certificate((str(place.hostname), int(str(place.port))))

    before = shown()
    secured.authority.issue("server", "localhost", "127.0.0.1")
    time.sleep(1.2)
    assert shown() != before
    with secured.client() as client:
        client.get_flight_info(request("numbers"), bearer(TRAINER))


def test_mutual_tls_admits_certificate_holders(serve: Serve, tmp_path: Path):
    authority = Authority(tmp_path / "foreign")
    foreign = authority.issue("foreign", "trainer.example")
    secured = Secured(serve, tmp_path / "server")
    pair = secured.authority.issue("client", "trainer.example")
    secured.flags += ["--tls-client-ca", str(secured.authority.ca)]
    secured.principals.write_text(PRINCIPALS + '[by-name]\ncertificate = "trainer.example"\ndatasets = "numbers"\n')
    server = secured.start()
    with secured.client(server.url, pair) as client:
        client.get_flight_info(request("numbers"), bearer(None))
        # A token says more than a certificate.
        client.get_flight_info(request("secret"), bearer(OTHER))
        with refused("unauthorized", "not granted to by-name"):
            client.get_flight_info(request("secret"), bearer(None))
    for wrong in (None, foreign):
        with (
            secured.client(server.url, wrong) as client,
            pytest.raises((fl.FlightUnavailableError, fl.FlightInternalError)),
        ):
            client.get_flight_info(request("numbers"), bearer(TRAINER))


def test_plaintext_and_tls_mismatch_fails_immediately(secured: Secured, server: Server):
    start = time.monotonic()
    with fl.connect(secured.server.url.replace("grpc+tls", "grpc")) as client, pytest.raises(fl.FlightUnavailableError):
        list(client.list_flights(b"", fl.FlightCallOptions(timeout=10)))
    known = {"tls_root_certs": secured.authority.ca.read_bytes()}
    with (
        fl.connect(server.url.replace("grpc", "grpc+tls"), **known) as client,
        pytest.raises(fl.FlightUnavailableError),
    ):
        list(client.list_flights(b"", fl.FlightCallOptions(timeout=10)))
    for running, words in (
        (secured.server, b"GET / HTTP/1.1\r\n\r\n"),
        (server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ):
        place = urlsplit(running.url)
        with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
            connection.sendall(words)
            while connection.recv(4096):
                pass
    assert time.monotonic() - start < 30
    with secured.client() as client:
        client.get_flight_info(request("numbers"), bearer(TRAINER))


def test_unfinished_tls_handshake_times_out(serve: Serve, tmp_path: Path):
    secured = Secured(serve, tmp_path, "--handshake-seconds", "1")
    place = urlsplit(secured.server.url)
    silent = [socket.create_connection((place.hostname, place.port), timeout=10) for _ in range(50)]
    for number, connection in enumerate(silent):
        connection.sendall(b"\x16\x03\x01\x02\x00"[: number % 6])
    with secured.client() as client:
        client.get_flight_info(request("numbers"), bearer(TRAINER))
    for connection in silent:
        with connection:
            while connection.recv(4096):
                pass


def test_tokens_and_rows_are_encrypted_in_transit(secured: Secured):
    place = urlsplit(secured.server.url)
    with Proxy(f"grpc://{place.hostname}:{place.port}") as proxy:
        url = proxy.url.replace("grpc://", "grpc+tls://")
        with fl.FlightClient(url, tls_root_certs=secured.authority.ca.read_bytes()) as client:
            info = client.get_flight_info(request("numbers"), bearer(TRAINER))
            table = client.do_get(info.endpoints[0].ticket, bearer(TRAINER)).read_all()
        rows = table.column(0).chunk(0).buffers()[-1].to_pybytes()[:64]
        assert len(proxy.heard) > 8000
        for secret in (TRAINER.encode(), b"authorization", b"numbers", rows):
            assert secret not in proxy.heard


def test_no_log_and_no_error_contains_a_secret(secured: Secured, client: fl.FlightClient):
    for token in (TRAINER, "a-wrong-token-of-somebody"):
        with pytest.raises(fl.FlightError) as caught:
            client.get_flight_info(request("secret"), bearer(token))
        assert token not in str(caught.value)
    output = "".join(secured.server.log)
    assert len(output) > 1000
    for secret in (TRAINER, ADMIN, "a-wrong-token-of-somebody", digest(TRAINER), "4f" * 16, "PRIVATE KEY"):
        assert secret not in output, secret
